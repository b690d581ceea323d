"""The HTTP face of admission: paths, limits and time-outs around ``handlers.answer`` (D2)."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from serving.bodies import read_body
from serving.clients import check_client
from serving.deadline import time_budget
from telemetry.events import Event
from telemetry.logging import get_logger
from webhook.engine import MUTATED
from webhook.handlers import INVALID, answer, answer_unchanged
from webhook.review import MAX_BODY_BYTES

if TYPE_CHECKING:
    from serving.limits import Limits
    from telemetry.events import EventWriter
    from telemetry.metrics import Metrics
    from webhook.engine import EngineHolder
    from webhook.handlers import Decision
    from webhook.settings import ServerSettings

MUTATE_PATHS: Final = ("/mutate", "/webhook")
"""Our own path and kupid's; on both the object's kind decides what happens."""
VALIDATE_PATH: Final = "/validate"

_SHOWN_NAME: Final = 253
"""Characters of a name in the log; a legal one has no more."""


class MutatedReview(Event, gc=False, kw_only=True):
    """The log line of a mutated review."""

    uid: str
    kind: str
    namespace: str
    name: str
    operation: str
    policies: tuple[str, ...]
    operations: int
    microseconds: int


class Reviews:
    """Answers the review paths from the current snapshot; one for each server."""

    def __init__(
        self,
        holder: EngineHolder,
        settings: ServerSettings,
        metrics: Metrics,
        limits: Limits,
        events: EventWriter | None = None,
    ) -> None:
        """``events`` takes the lines of mutated reviews; without it the usual logger does."""
        self._holder = holder
        self._settings = settings
        self._metrics = metrics
        self._limits = limits
        self._events = events
        self._log = get_logger("admission")

    async def mutate(self, request: web.Request) -> web.Response:
        """Answer with a patch where policies ask for one."""
        return await self._review(request, may_patch=True)

    async def validate(self, request: web.Request) -> web.Response:
        """Answer without a patch: a validating webhook may not give one."""
        return await self._review(request, may_patch=False)

    async def _review(self, request: web.Request, *, may_patch: bool) -> web.Response:
        started = perf_counter()
        server = self._settings
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
                text = "the time for this request ran out, nothing was changed"
                result, decision = answer_unchanged(body, "deadline", text)
            else:
                result, decision = self._answer(body, may_patch=may_patch)
        self._record(decision, perf_counter() - started)
        return web.Response(body=result, content_type="application/json")

    def _answer(self, body: bytes, *, may_patch: bool) -> tuple[bytes, Decision]:
        try:
            return answer(body, self._holder.current, may_patch=may_patch)
        except Exception:  # noqa: BLE001 - logged with its traceback
            # A defect of ours must not stop anybody's pods (design D7).
            self._log.exception("review failed")
            text = "an internal error, nothing was changed; the server's log says more"
            return answer_unchanged(body, "internal-error", text)

    def _record(self, decision: Decision, seconds: float) -> None:
        verdict = decision.verdict
        tallies = self._metrics.admission
        tallies.durations[verdict.outcome].observe(seconds)
        for code in verdict.codes:
            self._metrics.admission_skipped.labels(code).inc()
        if verdict.outcome == MUTATED:
            tallies.operations.observe(verdict.operations)
            event = _mutated(decision, seconds)
            if self._events is not None:
                self._events.write(event)
            else:
                self._log.info(**_fields(event))
        if verdict.codes or verdict.outcome == INVALID:
            event = _mutated(decision, seconds)
            self._log.warning(
                **{**_fields(event), "event": verdict.outcome, "codes": verdict.codes}
            )


def _mutated(decision: Decision, seconds: float) -> MutatedReview:
    request, verdict = decision.request, decision.verdict
    return MutatedReview(
        event=MUTATED,
        component="admission",
        uid=request.uid[:_SHOWN_NAME],
        kind=request.kind.kind[:_SHOWN_NAME] if request.kind else "",
        namespace=(request.namespace or "")[:_SHOWN_NAME],
        name=(request.name or "")[:_SHOWN_NAME],
        operation=(request.operation or "")[:_SHOWN_NAME],
        policies=verdict.policies,
        operations=verdict.operations,
        microseconds=int(seconds * 1e6),
    )


def _fields(event: MutatedReview) -> dict[str, Any]:
    fields = msgspec.structs.asdict(event)
    # The usual logger has its own.
    for name in ("component", "level", "timestamp"):
        del fields[name]
    return fields


def create_app(reviews: Reviews) -> web.Application:
    """The application of the TLS port."""
    app = web.Application()
    for path in MUTATE_PATHS:
        app.router.add_post(path, reviews.mutate)
    app.router.add_post(VALIDATE_PATH, reviews.validate)
    return app
