"""Export of spans to a collector, in batches. Needs the extra ``tracing``.

OpenTelemetry's batch span processor queues and sends. Added here: counts of outcomes, one log line
per ``LOG_INTERVAL`` while a collector fails, and a bounded shutdown.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpSpanExporter,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import reason
from harbourmaster.telemetry.tracing import CAPACITY, EXPORTED, FAILED, QUEUE_FULL, SHUTDOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

BATCH: Final = 512
DELAY: Final = 1.0
"""Seconds between two batches that are not full."""
FLUSH_TIMEOUT: Final = 2.0
"""Seconds at shutdown to send the remaining spans."""
LOG_INTERVAL: Final = 60.0
"""Seconds between two log lines about a collector that fails."""
SEND_TIMEOUT: Final = 5.0
"""Seconds for one batch, including retries."""


class Sender(Protocol):
    """Sends one batch at a time; called in the exporter's thread, which it may block."""

    def send(self, batch: Sequence[ReadableSpan], /) -> str | None:
        """None on success, else the error in a few words."""

    def close(self) -> None:
        """Release the connection."""


class SpanBatches(BatchSpanProcessor):
    """Takes ended spans from one event loop without blocking it.

    ``on_outcome`` gets an outcome of ``SPAN_OUTCOMES`` and a number of spans, in any thread. The
    processor's threads are daemons, so a sender that hangs does not keep the process alive.
    """

    def __init__(
        self, sender: Sender, on_outcome: Callable[[str, int], None], *, delay: float = DELAY
    ) -> None:
        self._exporter = _CountingExporter(sender, on_outcome)
        # Explicit, so that no variable of the environment changes them.
        super().__init__(
            self._exporter,
            max_queue_size=CAPACITY,
            schedule_delay_millis=delay * 1000,
            max_export_batch_size=BATCH,
            export_timeout_millis=SEND_TIMEOUT * 1000,
        )

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or count it as lost. Never blocks."""
        # The SDK would drop the oldest span, and report that in a log only.
        if self._exporter.reserve():
            super().on_end(span)

    async def close(self) -> None:
        """Send the remaining spans, for ``FLUSH_TIMEOUT`` seconds at most."""
        # shutdown() waits up to 30 s for a sender that hangs.
        worker = threading.Thread(target=self.shutdown, name="span-shutdown", daemon=True)
        worker.start()
        await asyncio.to_thread(worker.join, FLUSH_TIMEOUT)
        self._exporter.abandon()


class _CountingExporter(SpanExporter):
    """Sends batches, counts the outcome of each span and logs failures."""

    def __init__(self, sender: Sender, on_outcome: Callable[[str, int], None]) -> None:
        self._sender = sender
        self._on_outcome = on_outcome
        self._lock = threading.Lock()
        self._pending = 0
        self._abandoned = threading.Event()
        self._lost = 0
        self._logged_at = -LOG_INTERVAL
        self._logged_failure = False
        self._log = get_logger("tracing")

    def reserve(self) -> bool:
        """Whether one more span is taken; one that is not is counted as lost."""
        with self._lock:
            if not self._abandoned.is_set() and self._pending < CAPACITY:
                self._pending += 1
                return True
        self._on_outcome(SHUTDOWN if self._abandoned.is_set() else QUEUE_FULL, 1)
        return False

    def abandon(self) -> None:
        """Send nothing more, and count what was not sent as lost."""
        with self._lock:
            self._abandoned.set()
            lost, self._pending = self._pending, 0
        if lost:
            self._on_outcome(SHUTDOWN, lost)
            self._log.warning("spans lost at shutdown", spans=lost)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._abandoned.is_set():
            return SpanExportResult.FAILURE
        try:
            error = self._sender.send(spans)
        except Exception as raised:  # noqa: BLE001 - an error of the exporter must not stop the thread
            error = f"{type(raised).__name__}: {raised}"
        with self._lock:
            if self._abandoned.is_set():
                return SpanExportResult.FAILURE
            self._pending -= len(spans)
        self._record(error, len(spans))
        return SpanExportResult.SUCCESS if error is None else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._sender.close()

    def _record(self, error: str | None, spans: int) -> None:
        self._on_outcome(EXPORTED if error is None else FAILED, spans)
        if error is None:
            if self._logged_failure:
                self._log.info("span export recovered", lost=self._lost)
                self._logged_failure, self._lost = False, 0
            return
        self._lost += spans
        now = monotonic()
        if now - self._logged_at >= LOG_INTERVAL:
            self._logged_at, self._logged_failure = now, True
            self._log.warning("span export failed", error=error, spans=self._lost)


class HttpSender:
    """Sends OTLP over HTTP; headers and CA come from the usual OTEL_EXPORTER_OTLP_* variables."""

    def __init__(self, endpoint: str, timeout: float = SEND_TIMEOUT) -> None:
        self._session = _Session()
        self._exporter = HttpSpanExporter(endpoint, timeout=timeout, session=self._session)

    def send(self, batch: Sequence[ReadableSpan], /) -> str | None:
        """None on success, else the error."""
        self._session.error = "not sent"
        result = self._exporter.export(batch)
        # The exporter does not follow redirects, but reports them as success.
        return self._session.error or (None if result is SpanExportResult.SUCCESS else "failed")

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class GrpcSender:
    """Sends OTLP over gRPC without TLS to ``address``, HOST:PORT, as Keptn does (keptn-spec 5.4).

    Headers come from OTEL_EXPORTER_OTLP_*.
    """

    def __init__(self, address: str, timeout: float = SEND_TIMEOUT) -> None:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415 - 20 MB
            OTLPSpanExporter as GrpcSpanExporter,
        )

        self._exporter = GrpcSpanExporter(
            address,
            insecure=True,
            timeout=timeout,
            # No proxies from the environment.
            channel_options=(("grpc.enable_http_proxy", "0"),),
        )

    def send(self, batch: Sequence[ReadableSpan], /) -> str | None:
        """None on success; the exporter does not return the error."""
        succeeded = self._exporter.export(batch) is SpanExportResult.SUCCESS
        return None if succeeded else "the collector did not accept the spans"

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()


class _Session(requests.Session):
    """Keeps the error of the last request, which the exporter only logs."""

    def __init__(self) -> None:
        super().__init__()
        self.error = ""
        # No proxies, and no credentials from ~/.netrc.
        self.trust_env = False

    def request(self, *arguments: Any, **options: Any) -> requests.Response:  # noqa: ANN401
        try:
            response = super().request(*arguments, **options)
        except Exception as error:
            self.error = _innermost(error)
            raise
        is_success = HTTPStatus.OK <= response.status_code < HTTPStatus.MULTIPLE_CHOICES
        self.error = "" if is_success else f"{response.status_code} {response.reason}"
        return response


def silence_libraries() -> None:
    """Stop the log lines of OpenTelemetry and urllib3.

    They log each failed batch and invalid headers; what users need is logged above.
    """
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.setLevel(logging.CRITICAL + 1)
    logging.getLogger("urllib3").setLevel(logging.WARNING)


def _innermost(error: BaseException) -> str:
    """The innermost cause; the outer exceptions repeat the URL."""
    inner = error
    while (cause := inner.__cause__ or inner.__context__) is not None:
        inner = cause
    return reason(inner)
