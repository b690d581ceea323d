"""Spans to a collector by OTLP over gRPC without TLS, as Keptn sends them (keptn-spec 5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from harbourmaster.telemetry.spans import SEND_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan


class GrpcSender:
    """Sends spans to ``address``, a host and a port; headers come from OTEL_EXPORTER_OTLP_*."""

    def __init__(self, address: str, timeout: float = SEND_TIMEOUT) -> None:
        self._exporter = OTLPSpanExporter(
            address,
            insecure=True,
            timeout=timeout,
            # No proxies from the environment.
            channel_options=(("grpc.enable_http_proxy", "0"),),
        )

    def send(self, batch: Sequence[ReadableSpan], /) -> str | None:
        """None where the collector took them, else that it did not: the exporter keeps why."""
        is_taken = self._exporter.export(batch) is SpanExportResult.SUCCESS
        return None if is_taken else "no collector takes them"

    def close(self) -> None:
        """End the connection."""
        self._exporter.shutdown()
