"""Tracing, where it is asked for: what it needs is an optional extra, imported only then."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.telemetry.spans import Tracer

_SETTING: Final = "--tracing-endpoint"
_COLLECTOR: Final = "OTelCollectorUrl"
_TRACES: Final = "/v1/traces"
_HOST_AND_PORT: Final = re.compile(r"[A-Za-z0-9._-]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}")


class TracingError(Exception):
    """Why nothing can be traced; the text is one line for the user."""


def create_tracer(
    endpoint: str,
    ratio: float,
    resource: Mapping[str, str],
    on_outcome: Callable[[str, int], None],
) -> Tracer:
    """A tracer that sends to ``endpoint`` by OTLP over HTTP. Raises TracingError.

    ``resource`` is what all spans say of this process. ``on_outcome`` gets what became of how many
    spans, see SPAN_OUTCOMES; in a thread.
    """
    _check(endpoint, _SETTING)
    try:
        from harbourmaster.telemetry.spans import CollectorSender, Tracer  # noqa: PLC0415 - 12 MB and 0.2 s
    except ImportError as error:
        raise _missing(error) from None
    return Tracer(CollectorSender(endpoint), resource, ratio, on_outcome)


def check_collector(url: str) -> None:
    """Raise TracingError where ``url`` is none of a collector, as a KeptnConfig names it."""
    if not _HOST_AND_PORT.fullmatch(url):
        _check(url, _COLLECTOR)


def create_collector_tracer(
    url: str, resource: Mapping[str, str], on_outcome: Callable[[str, int], None]
) -> Tracer:
    """A tracer that sends to what a KeptnConfig names (keptn-spec 5.4). Raises TracingError.

    ``host:port`` takes OTLP over gRPC without TLS, as Keptn has it; a URL takes OTLP over HTTP, at
    the usual path where it has none. To be called in a thread: the imports take their time.
    """
    check_collector(url)
    try:
        from harbourmaster.telemetry.spans import CollectorSender, Tracer  # noqa: PLC0415 - as above

        if _HOST_AND_PORT.fullmatch(url):
            from harbourmaster.telemetry.grpc_sender import GrpcSender  # noqa: PLC0415 - 20 MB more

            return Tracer(GrpcSender(url), resource, 1.0, on_outcome)
    except ImportError as error:
        raise _missing(error) from None
    endpoint = url if urlsplit(url).path.strip("/") else url.rstrip("/") + _TRACES
    return Tracer(CollectorSender(endpoint), resource, 1.0, on_outcome)


def _missing(error: ImportError) -> TracingError:
    return TracingError(
        f"tracing needs packages that are not installed ({error.name}): "
        "pip install 'harbourmaster[tracing]'"
    )


def _check(endpoint: str, name: str) -> None:
    try:
        url = urlsplit(endpoint)
        is_usable = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        url, is_usable = urlsplit(""), False
    if not is_usable or not endpoint.isprintable() or " " in endpoint:
        raise TracingError(f"{name}: no URL, expected one like http://collector:4318/v1/traces")
    if "@" in url.netloc or url.query or url.fragment:
        # They would stand in the list of processes.
        raise TracingError(
            f"{name}: a URL with credentials or a query; put those into "
            "$OTEL_EXPORTER_OTLP_HEADERS, as NAME=VALUE"
        )
