"""The HTTP face of admission: paths, limits and time-outs around ``handlers.answer`` (D2)."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final

from aiohttp import web

from serving.bodies import read_body
from serving.clients import check_client
from serving.deadline import time_budget
from telemetry.logging import get_logger
from webhook.handlers import (
    INVALID,
    MALFORMED,
    MUTATED,
    SKIPPED,
    UNMATCHED,
    VALID,
    answer,
    answer_late,
)
from webhook.review import MAX_BODY_BYTES, cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from serving.limits import Limits
    from telemetry.metrics import Metrics
    from webhook.handlers import Decision
    from webhook.settings import Settings
    from webhook.snapshot import SnapshotHolder

MUTATE_PATHS: Final = ("/mutate", "/webhook")
"""Our own path and kupid's; on both the object's kind decides what happens."""
VALIDATE_PATH: Final = "/validate"

# kupid's counter: which of its types an outcome counts as, besides ``processed`` (kupid.md 6.9).
_KUPID_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    MUTATED: ("allowed", "mutated"),
    UNMATCHED: ("allowed",),
    SKIPPED: ("error",),
    VALID: ("allowed",),
    INVALID: ("denied",),
    MALFORMED: ("error",),
}

_log = get_logger("admission")


class Reviews:
    """Answers the review paths from the current snapshot; one for each server."""

    def __init__(
        self, holder: SnapshotHolder, settings: Settings, metrics: Metrics, limits: Limits
    ) -> None:
        self._holder = holder
        self._settings = settings
        self._metrics = metrics
        self._limits = limits

    async def mutate(self, request: web.Request) -> web.Response:
        """Answer with a patch where policies ask for one."""
        return await self._review(request, may_patch=True)

    async def validate(self, request: web.Request) -> web.Response:
        """Answer without a patch: a validating webhook may not give one."""
        return await self._review(request, may_patch=False)

    async def _review(self, request: web.Request, *, may_patch: bool) -> web.Response:
        started = perf_counter()
        server = self._settings.server
        if server.client_cn is not None:
            check_client(request, server.client_cn)
        clock = asyncio.get_running_loop().time
        budget = time_budget(request.query.get("timeout") if request.query_string else None)
        deadline = clock() + budget
        with self._limits.admit() as admission:
            body = await read_body(
                request,
                limit=MAX_BODY_BYTES,
                deadline=min(deadline, clock() + server.body_timeout_seconds),
                admission=admission,
            )
            if clock() > deadline:
                result, decision = answer_late(body)
            else:
                result, decision = answer(
                    body, self._holder.current, self._settings, may_patch=may_patch
                )
        self._record(decision, perf_counter() - started)
        return web.Response(body=result, content_type="application/json")

    def _record(self, decision: Decision, seconds: float) -> None:
        metrics = self._metrics
        outcome = decision.outcome
        metrics.admission_duration[outcome].observe(seconds)
        kupid = metrics.kupid_requests
        kupid["processed"].inc()
        for name in _KUPID_TYPES.get(outcome, ()):
            kupid[name].inc()
        for code in decision.codes:
            metrics.admission_skipped.labels(code).inc()
        if outcome == MUTATED:
            metrics.admission_patch_operations.observe(decision.operations)
            _log.info("mutated", **_fields(decision, seconds))
        elif decision.codes or outcome == INVALID:
            _log.warning(outcome, **_fields(decision, seconds), codes=decision.codes)


def _fields(decision: Decision, seconds: float) -> dict[str, object]:
    request = decision.request
    fields: dict[str, object] = {"microseconds": round(seconds * 1e6)}
    if request is not None:
        kind = request.kind
        fields.update(
            uid=cut(request.uid, 64),
            kind=kind.kind if kind else "",
            namespace=request.namespace or "",
            name=request.name or "",
            operation=request.operation or "",
        )
    if decision.policies:
        fields["policies"] = decision.policies
        fields["operations"] = decision.operations
    return fields


def create_app(reviews: Reviews) -> web.Application:
    """The application of the TLS port."""
    app = web.Application()
    for path in MUTATE_PATHS:
        app.router.add_post(path, reviews.mutate)
    app.router.add_post(VALIDATE_PATH, reviews.validate)
    return app
