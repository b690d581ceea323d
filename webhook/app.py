"""The HTTP face of admission: paths, limits and time-outs around ``handlers.answer`` (D2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

from harbourmaster.serving.bodies import read_body
from harbourmaster.serving.clients import check_client
from harbourmaster.serving.deadline import request_budget
from harbourmaster.serving.replies import json_reply
from harbourmaster.serving.routes import post_routes
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.webhook.handlers import NAMESPACE_UNKNOWN, answer, answer_failed
from harbourmaster.webhook.review import MAX_BODY_BYTES

if TYPE_CHECKING:
    from aiohttp import web

    from harbourmaster.serving.limits import Limits
    from harbourmaster.serving.routes import Handler
    from harbourmaster.serving.settings import ServerSettings
    from harbourmaster.webhook.conversion import Conversions
    from harbourmaster.webhook.engine import Engine, EngineHolder
    from harbourmaster.webhook.handlers import Decision
    from harbourmaster.webhook.recording import Recorder
    from harbourmaster.webhook.records import Records

MUTATE_PATHS: Final = ("/mutate", "/webhook", "/mutate-v1-pod")
"""Our own path, kupid's and Keptn's; on all the object's kind decides what happens."""
VALIDATE_PATHS: Final = (
    "/validate",
    "/validate-lifecycle-keptn-sh-v1-keptntaskdefinition",
    "/validate-metrics-keptn-sh-v1-keptnmetric",
    "/validate-metrics-keptn-sh-v1-analysis",
    "/validate-metrics-keptn-sh-v1-analysisdefinition",
)
CONVERT_PATH: Final = "/convert"

Arrival: TypeAlias = Callable[[str, float], Awaitable[bool]]
"""Waits for a namespace, until that time of the event loop; returns whether it is known now."""


class Reviews:
    """Answers the review paths from the current snapshot; one for each server."""

    def __init__(
        self,
        holder: EngineHolder,
        settings: ServerSettings,
        limits: Limits,
        records: Records,
        arrival: Arrival | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._holder = holder
        self._settings = settings
        self._limits = limits
        self._records = records
        self._arrival = arrival
        self._recorder = recorder
        self._log = get_logger("admission")

    async def mutate(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer with a patch where policies ask for one."""
        return await self._review(request, may_patch=True)

    async def validate(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer without a patch: a validating webhook may not give one."""
        return await self._review(request, may_patch=False)

    async def _review(self, request: web.BaseRequest, *, may_patch: bool) -> web.StreamResponse:
        started = perf_counter()
        server = self._settings
        if server.client_cn is not None:
            check_client(request, server.client_cn)
        clock = asyncio.get_running_loop().time
        deadline = clock() + request_budget(request)
        with self._limits.admit() as admission:
            body = await read_body(
                request,
                limit=MAX_BODY_BYTES,
                deadline=min(deadline, clock() + server.body_timeout_seconds),
                admission=admission,
            )
            if clock() > deadline:
                text = "the time for this request ran out, nothing was decided"
                engine = self._holder.current
                result, decision = answer_failed(
                    body, engine, "deadline", text, may_patch=may_patch
                )
            else:
                engine = self._holder.current
                result, decision = self._answer(body, engine, may_patch=may_patch)
                if NAMESPACE_UNKNOWN in decision.verdict.codes and await self._arrives(
                    decision.request.namespace, deadline
                ):
                    engine = self._holder.current
                    result, decision = self._answer(body, engine, may_patch=may_patch)
        if self._recorder is not None:
            self._recorder.take(body, result, decision, engine, may_patch=may_patch)
        trace = _trace_of(request) if self._records.are_traced else None
        self._records.add(decision, perf_counter() - started, trace)
        return json_reply(request, result)

    async def _arrives(self, namespace: str | None, deadline: float) -> bool:
        # The API server tells of a new namespace and asks about its first pod at the same time.
        return self._arrival is not None and await self._arrival(namespace or "", deadline)

    def _answer(self, body: bytes, engine: Engine, *, may_patch: bool) -> tuple[bytes, Decision]:
        try:
            return answer(body, engine, may_patch=may_patch)
        except Exception:  # noqa: BLE001 - logged with its traceback
            # A defect of ours must not stop anybody's pods (decision D7).
            self._log.exception("review failed")
            text = "an internal error, nothing was decided; the server's log says more"
            return answer_failed(body, engine, "internal-error", text, may_patch=may_patch)


def _trace_of(request: web.BaseRequest) -> tuple[str, str] | None:
    """What the caller says of its trace, as it came; a reference to the headers would keep all."""
    parents = request.headers.getall("traceparent", ())
    # Of two neither is to be believed; the state may come in pieces.
    if len(parents) != 1:
        return None
    return parents[0], ",".join(request.headers.getall("tracestate", ()))


def create_app(reviews: Reviews, conversions: Conversions | None = None) -> Handler:
    """What the TLS port serves; without ``conversions`` only reviews."""
    routes: dict[str, Handler] = dict.fromkeys(MUTATE_PATHS, reviews.mutate)
    routes |= dict.fromkeys(VALIDATE_PATHS, reviews.validate)
    if conversions is not None:
        routes[CONVERT_PATH] = conversions.convert
    return post_routes(routes)
