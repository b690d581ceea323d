"""The HTTP face of admission: paths, limits and time-outs around ``handlers.answer`` (D2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

from harbourmaster.registration.desired import SHADOW_PATHS
from harbourmaster.serving.bodies import BodyReader
from harbourmaster.serving.direct import Direct
from harbourmaster.serving.responses import json_response
from harbourmaster.serving.routes import Routes
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.webhook.handlers import NAMESPACE_UNKNOWN, answer, answer_failed, is_lengthy
from harbourmaster.webhook.review import MAX_BODY_BYTES

if TYPE_CHECKING:
    from aiohttp import web

    from harbourmaster.serving.direct import DirectAnswer, PlainHead
    from harbourmaster.serving.http_connection import HttpConnection
    from harbourmaster.serving.limits import Limits
    from harbourmaster.serving.routes import Handler
    from harbourmaster.serving.settings import ServerSettings
    from harbourmaster.webhook.conversion import Conversions
    from harbourmaster.webhook.engine import Engine, EngineHolder
    from harbourmaster.webhook.handlers import Decision
    from harbourmaster.webhook.recording import Recorder
    from harbourmaster.webhook.records import Records
    from harbourmaster.webhook.shadow import Shadow

SHADOW: Final = ((SHADOW_PATHS[:1], True), (SHADOW_PATHS[1:], False))
"""All that is served in shadow mode; paths, and whether they are of a mutating webhook."""
MUTATE_PATHS: Final = ("/mutate", "/webhook", "/mutate-v1-pod")
"""Our own path, kupid's and Keptn's; on all the object's kind decides what happens."""
VALIDATE_PATHS: Final = (
    "/validate",
    "/validate-lifecycle-keptn-sh-v1-keptntaskdefinition",
    "/validate-metrics-keptn-sh-v1-keptnmetric",
    "/validate-metrics-keptn-sh-v1-analysis",
    "/validate-metrics-keptn-sh-v1-analysisdefinition",
)
LIVE: Final = ((MUTATE_PATHS, True), (VALIDATE_PATHS, False))
CONVERT_PATH: Final = "/convert"

Arrival: TypeAlias = Callable[[str, float], Awaitable[bool]]
"""Waits for a namespace, until that time of the event loop; returns whether it is known now."""


class Reviews(BodyReader):
    """Answers reviews from the current snapshot; one for each server.

    ``may_patch`` is off for the paths of validating webhooks, which may give no patch.
    """

    shadow: Shadow | None = None
    """Set in shadow mode, before anything is served."""

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
        super().__init__(settings, limits)
        self._records = records
        self._arrival = arrival
        self._recorder = recorder
        # One thread, so that those who send nothing large keep most of the processor.
        self._lengthy = ThreadPoolExecutor(1, "lengthy-reviews")
        self._log = get_logger("admission")

    def review_directly(
        self, client: HttpConnection, head: PlainHead, body: bytes, *, may_patch: bool
    ) -> bytes | None:
        """Answer a review that arrived in full; None where it cannot be decided here."""
        started = perf_counter()
        name = self._settings.client_cn
        if (name is not None and client.client_name != name) or is_lengthy(body):
            return None
        engine = self._holder.current
        result, decision = self._answer(body, engine, may_patch=may_patch)
        if self._arrival is not None and NAMESPACE_UNKNOWN in decision.verdict.codes:
            return None
        if self.shadow is not None:
            result, decision = self.shadow.observe(body, engine, decision, is_first=may_patch)
        trace = None
        if self._records.are_traced and b"traceparent" in head.fields:
            parent, state = head.fields[b"traceparent"], head.fields.get(b"tracestate", b"")
            trace = parent.decode("ascii"), state.decode("ascii")
        if self._recorder is not None:
            self._recorder.take(body, result, decision, engine, may_patch=may_patch)
        self._add(decision, engine, started, trace)
        return result

    async def review(self, request: web.BaseRequest, *, may_patch: bool) -> web.StreamResponse:
        """Answer a review that arrives in parts, or has to wait."""
        started = perf_counter()
        with self._admit(request) as admission:
            body, deadline = await self._read(request, admission, MAX_BODY_BYTES)
            loop, engine = asyncio.get_running_loop(), self._holder.current

            def decide() -> tuple[bytes, Decision]:
                if loop.time() > deadline:
                    text = "the time limit of this request was reached, nothing was decided"
                    return answer_failed(body, engine, "deadline", text, may_patch=may_patch)
                return self._answer(body, engine, may_patch=may_patch)

            if is_lengthy(body):
                result, decision = await loop.run_in_executor(self._lengthy, decide)
            else:
                result, decision = decide()
            if NAMESPACE_UNKNOWN in decision.verdict.codes and await self._arrives(
                decision.request.namespace, deadline
            ):
                engine = self._holder.current
                result, decision = self._answer(body, engine, may_patch=may_patch)
        if self.shadow is not None:
            result, decision = self.shadow.observe(body, engine, decision, is_first=may_patch)
        trace = _trace_of(request) if self._records.are_traced else None
        if self._recorder is not None:
            self._recorder.take(body, result, decision, engine, may_patch=may_patch)
        self._add(decision, engine, started, trace)
        return json_response(result)

    def _add(
        self, decision: Decision, engine: Engine, started: float, trace: tuple[str, str] | None
    ) -> None:
        self._records.add(decision, perf_counter() - started, trace)
        audit = decision.verdict.audit
        if audit is not None:
            # The answer is sent first.
            asyncio.get_running_loop().call_soon(self._records.audit, audit, engine)

    async def _arrives(self, namespace: str | None, deadline: float) -> bool:
        # A new namespace and the review of its first pod arrive at the same time.
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


def create_app(reviews: Reviews, conversions: Conversions | None = None) -> Routes:
    """What the TLS port serves; without ``conversions`` only reviews."""
    handlers: dict[str, Handler] = {}
    answers: dict[bytes, DirectAnswer] = {}
    for paths, may_patch in LIVE if reviews.shadow is None else SHADOW:
        handlers |= dict.fromkeys(paths, partial(reviews.review, may_patch=may_patch))
        directly = partial(reviews.review_directly, may_patch=may_patch)
        answers |= dict.fromkeys(map(str.encode, paths), directly)
    if conversions is not None and reviews.shadow is None:
        handlers[CONVERT_PATH] = conversions.convert
    return Routes(handlers, Direct(answers, reviews.limits))
