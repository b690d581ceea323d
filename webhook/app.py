"""The HTTP interface of admission: paths, limits and time-outs around ``answer_body`` (D2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

from harbourmaster.registration.desired import SHADOW_PATHS
from harbourmaster.serving.bodies import admit, read_in_time
from harbourmaster.serving.direct import Direct
from harbourmaster.serving.responses import json_response
from harbourmaster.serving.site import Routes
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.webhook.handlers import NAMESPACE_UNKNOWN, answer_body, answer_failed, is_lengthy
from harbourmaster.webhook.review import MAX_BODY_BYTES, ReviewBody

if TYPE_CHECKING:
    from aiohttp import web

    from harbourmaster.serving.direct import DirectAnswer, PlainHead
    from harbourmaster.serving.http_connection import HttpConnection
    from harbourmaster.serving.limits import Limits
    from harbourmaster.serving.settings import ServerSettings
    from harbourmaster.serving.site import Handler
    from harbourmaster.webhook.conversion import Conversions
    from harbourmaster.webhook.engine import Engine, EngineHolder
    from harbourmaster.webhook.handlers import Decision
    from harbourmaster.webhook.recording import Recorder
    from harbourmaster.webhook.records import Records
    from harbourmaster.webhook.shadow import Shadow

SHADOW: Final = ((SHADOW_PATHS[:1], True), (SHADOW_PATHS[1:], False))
"""The paths that are served in shadow mode, and whether they are of a mutating webhook."""
MUTATE_PATHS: Final = ("/mutate", "/webhook", "/mutate-v1-pod")
"""Our own path, kupid's and Keptn's; on each the object's kind decides what happens."""
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
Trace: TypeAlias = "tuple[str, str] | None"
"""The headers traceparent and tracestate of a request."""


class Reviews:
    """Answers the reviews of one server from the current snapshot.

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
        self._settings = settings
        self.limits = limits
        self._records = records
        self._arrival = arrival
        self._recorder = recorder
        # One thread, so that clients that send nothing large keep most of the processor.
        self._lengthy = ThreadPoolExecutor(1, "lengthy-reviews")
        self._log = get_logger("admission")

    def review_directly(
        self, client: HttpConnection, head: PlainHead, data: bytes, *, may_patch: bool
    ) -> bytes | None:
        """Answer a review that arrived in full; None if it cannot be decided here."""
        started = perf_counter()
        name = self._settings.client_cn
        if name is not None and client.client_name != name:
            return None
        body = ReviewBody(data)
        if is_lengthy(body):
            return None
        engine = self._holder.current
        answered = self._answer(body, engine, may_patch=may_patch)
        if self._arrival is not None and NAMESPACE_UNKNOWN in answered[1].verdict.codes:
            return None
        trace = None
        if self._records.are_traced and b"traceparent" in head.fields:
            parent, state = head.fields[b"traceparent"], head.fields.get(b"tracestate", b"")
            trace = parent.decode("ascii"), state.decode("ascii")
        return self._finish(body, answered, engine, started, trace, may_patch=may_patch)

    async def review(self, request: web.BaseRequest, *, may_patch: bool) -> web.StreamResponse:
        """Answer a review that arrives in parts, or has to wait."""
        started = perf_counter()
        with admit(request, self._settings, self.limits) as admission:
            data, deadline = await read_in_time(
                request, self._settings, admission, limit=MAX_BODY_BYTES
            )
            body = ReviewBody(data)
            loop, engine = asyncio.get_running_loop(), self._holder.current

            def decide() -> tuple[bytes, Decision]:
                if loop.time() > deadline:
                    text = "the time limit of this request was reached, nothing was decided"
                    return answer_failed(body, engine, "deadline", text, may_patch=may_patch)
                return self._answer(body, engine, may_patch=may_patch)

            if is_lengthy(body):
                answered = await loop.run_in_executor(self._lengthy, decide)
            else:
                answered = decide()
            decision = answered[1]
            if NAMESPACE_UNKNOWN in decision.verdict.codes and await self._arrives(
                decision.request.namespace, deadline
            ):
                engine = self._holder.current
                answered = self._answer(body, engine, may_patch=may_patch)
        trace = _trace_of(request) if self._records.are_traced else None
        return json_response(
            self._finish(body, answered, engine, started, trace, may_patch=may_patch)
        )

    def _finish(
        self,
        body: ReviewBody,
        answered: tuple[bytes, Decision],
        engine: Engine,
        started: float,
        trace: Trace,
        *,
        may_patch: bool,
    ) -> bytes:
        """Compare, record and count a review that was decided; returns the answer to send."""
        result, decision = answered
        if self.shadow is not None:
            result = self.shadow.observe(body, engine, decision, is_first=may_patch)
        if self._recorder is not None:
            self._recorder.take(body.data, result, decision, engine, may_patch=may_patch)
        self._records.add(decision, perf_counter() - started, trace)
        audit = decision.verdict.audit
        if audit is not None:
            # The answer is sent first.
            asyncio.get_running_loop().call_soon(self._records.audit, audit, engine)
        return result

    async def _arrives(self, namespace: str | None, deadline: float) -> bool:
        # A new namespace and the review of its first pod arrive at the same time.
        return self._arrival is not None and await self._arrival(namespace or "", deadline)

    def _answer(
        self, body: ReviewBody, engine: Engine, *, may_patch: bool
    ) -> tuple[bytes, Decision]:
        try:
            return answer_body(body, engine, may_patch=may_patch)
        except Exception:  # noqa: BLE001 - logged with its traceback
            # A defect of ours must not stop any pods (decision D7).
            self._log.exception("review failed")
            text = "an internal error, nothing was decided; the server's log says more"
            return answer_failed(body, engine, "internal-error", text, may_patch=may_patch)


def _trace_of(request: web.BaseRequest) -> Trace:
    # Strings are returned, because a reference to the headers would keep all of them.
    parents = request.headers.getall("traceparent", ())
    # With two parents, neither is trusted; the state may come in several headers.
    if len(parents) != 1:
        return None
    return parents[0], ",".join(request.headers.getall("tracestate", ()))


def create_app(reviews: Reviews, conversions: Conversions | None = None) -> Routes:
    """Return the routes of the TLS port; without ``conversions`` only those of reviews."""
    handlers: dict[str, Handler] = {}
    answers: dict[bytes, DirectAnswer] = {}
    for paths, may_patch in LIVE if reviews.shadow is None else SHADOW:
        handlers |= dict.fromkeys(paths, partial(reviews.review, may_patch=may_patch))
        directly = partial(reviews.review_directly, may_patch=may_patch)
        answers |= dict.fromkeys(map(str.encode, paths), directly)
    if conversions is not None and reviews.shadow is None:
        handlers[CONVERT_PATH] = conversions.convert
    return Routes(handlers, Direct(answers, reviews.limits))
