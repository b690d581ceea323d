"""The server of reviews for every source of policies: both ports, their limits, the drain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

from harbourmaster import __version__
from harbourmaster.certs.reload import CertificateHolder
from harbourmaster.certs.watch import keep_current
from harbourmaster.policies.model import CLUSTER_POLICY, POLICY
from harbourmaster.registration.desired import SHADOW_PATHS
from harbourmaster.serving.bodies import admit, read_in_time
from harbourmaster.serving.certificates import tls_options
from harbourmaster.serving.direct import Direct
from harbourmaster.serving.drain import drain
from harbourmaster.serving.limits import Limits
from harbourmaster.serving.process import start_tracing
from harbourmaster.serving.readiness import Readiness, health_app, tls_probe
from harbourmaster.serving.responses import json_response
from harbourmaster.serving.site import Routes, Site
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.metrics import create_metrics, set_certificate_expiry
from harbourmaster.webhook.conversion import Conversions
from harbourmaster.webhook.handlers import NAMESPACE_UNKNOWN, answer_body, answer_failed, is_lengthy
from harbourmaster.webhook.records import Records
from harbourmaster.webhook.review import MAX_BODY_BYTES, ReviewBody
from harbourmaster.webhook.verdict import OUTCOMES

if TYPE_CHECKING:
    from typing import BinaryIO

    from aiohttp import web

    from harbourmaster.certs.model import Bundle
    from harbourmaster.policies.index import PolicySet
    from harbourmaster.serving.direct import DirectAnswer, PlainHead
    from harbourmaster.serving.http_connection import HttpConnection
    from harbourmaster.serving.settings import ServerSettings
    from harbourmaster.serving.site import Handler
    from harbourmaster.telemetry.metrics import Metrics
    from harbourmaster.webhook.engine import Engine, EngineHolder
    from harbourmaster.webhook.handlers import Decision
    from harbourmaster.webhook.recording import Recorder
    from harbourmaster.webhook.settings import RecordSettings, Settings
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


_LAST_CONNECTIONS: Final = 3
"""Times the drain that connections may take in all to end by themselves; then they are cut."""
_SERVICE: Final = "harbourmaster-webhook"
"""Our name in traces."""


class ReviewServer:
    """The two ports of the admission process, its metrics and its readiness."""

    def __init__(
        self,
        settings: Settings,
        holder: EngineHolder,
        stream: BinaryIO | None,
        arrival: Arrival | None = None,
        shadow: Shadow | None = None,
    ) -> None:
        """``stream`` takes the reviews' log lines; ``arrival`` waits for an unknown namespace.

        Raises CertificateError where the client authority can't be used, and StartError where
        nothing can be traced or recorded.
        """
        server = settings.server
        self.metrics = create_metrics(__version__, OUTCOMES)
        self.readiness = Readiness()
        self.health = Site(
            health_app(self.readiness, self.metrics.registry),
            host=server.host,
            port=server.health_port,
        )
        self.reviews: Site | None = None
        self._settings = server
        self._tls = tls_options(server.client_ca, server.client_cn, server.tls_min_version)
        self._limits = Limits(
            connections=server.max_connections,
            requests=server.max_in_flight,
            body_bytes=server.max_in_flight_bytes,
            metrics=self.metrics,
        )
        self._tracer = start_tracing(settings.tracing, _SERVICE, __version__, self.metrics.spans)
        self._records = Records(self.metrics, asyncio.get_running_loop(), stream, self._tracer)
        self._recorder = _recorder(settings.record, self.metrics)
        reviews = Reviews(holder, server, self._limits, self._records, arrival, self._recorder)
        reviews.shadow = shadow
        conversions = Conversions(server, self._limits, self.metrics.conversions)
        self._app = create_app(reviews, conversions)
        self._log = get_logger("server")

    async def start(self, bundle: Bundle) -> tuple[Site, CertificateHolder]:
        """Serve reviews with these certificates, until ``stop``. Raises AddressError."""
        certificates = CertificateHolder(bundle, self._tls)
        self._note_expiry(bundle)
        site = Site(
            self._app,
            host=self._settings.host,
            port=self._settings.port,
            tls=certificates.context,
        )
        self._limits.start()
        if self._recorder is not None:
            self._recorder.start()
        await site.start()
        self.reviews = site
        self.readiness.add_probe(
            "serving", tls_probe(site, lambda: certificates.bundle.serving_der)
        )
        self.metrics.connections.set_function(lambda: site.connections)
        return site, certificates

    async def drain(self, signal: str) -> None:
        """End the service so that no request is lost."""
        # Ctrl-C is a person's, who waits; SIGTERM is a cluster's, which does not.
        wait = self._settings.drain_seconds if signal == "SIGTERM" else 0.0
        self._log.info("stopping", signal=signal, drain_seconds=wait)
        cut = 0
        if self.reviews is not None:
            cap = wait * _LAST_CONNECTIONS
            cut = await drain(self.reviews, self.readiness, wait=wait, cap=cap)
        self._log.info("stopped", connections_cut=cut)

    async def stop(self) -> None:
        """Close both ports at once and write what waits."""
        self._limits.stop()
        if self.reviews is not None:
            await self.reviews.stop()
        await self.health.stop()
        self._records.flush()
        if self._recorder is not None:
            await self._recorder.close()
        if self._tracer is not None:
            await self._tracer.close()

    def note_policies(self, policies: PolicySet) -> None:
        """Show how many policies are in force."""
        self.metrics.policies.labels(CLUSTER_POLICY).set(policies.cluster_size)
        self.metrics.policies.labels(POLICY).set(policies.namespaced_size)
        self.metrics.policies_invalid.set(policies.invalid)
        self.metrics.admission.references = lambda: policies.references

    async def renew(
        self, certificates: CertificateHolder, directory: Path, names: tuple[str, ...] | None
    ) -> None:
        """Keep what is served current, see ``certs.watch``; until cancelled."""
        await keep_current(
            certificates,
            directory,
            names,
            on_change=self._note_renewal,
            on_error=self._note_certificate_error,
        )

    def _note_renewal(self, bundle: Bundle) -> None:
        self._note_expiry(bundle)
        self._log.info("certificate renewed", not_after=bundle.not_after.isoformat())

    def _note_certificate_error(self, text: str) -> None:
        self.metrics.certificate_reload_errors.inc()
        self._log.error("certificates not reloaded, serving the previous ones", error=text)

    def _note_expiry(self, bundle: Bundle) -> None:
        set_certificate_expiry(self.metrics, "leaf", bundle.not_after)
        if bundle.authority_not_after is not None:
            set_certificate_expiry(self.metrics, "authority", bundle.authority_not_after)


def _recorder(settings: RecordSettings, metrics: Metrics) -> Recorder | None:
    if settings.directory is None:
        return None
    # They read YAML, which most webhooks don't.
    from harbourmaster.webhook.record_files import RecordFiles  # noqa: PLC0415
    from harbourmaster.webhook.recording import Recorder  # noqa: PLC0415

    files = RecordFiles(
        Path(settings.directory), max_bytes=settings.max_bytes, max_files=settings.max_files
    )
    return Recorder(files, settings.sample, metrics.recorded)
