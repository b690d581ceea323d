"""Tracing; its packages are an optional extra that is imported only if tracing is enabled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from harbourmaster.telemetry.text import http_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.telemetry.spans import Tracer

EXPORTED: Final = "exported"
FAILED: Final = "failed"
QUEUE_FULL: Final = "queue_full"
SHUTDOWN: Final = "shutdown"
SPAN_OUTCOMES: Final = (EXPORTED, FAILED, QUEUE_FULL, SHUTDOWN)
"""Outcomes of a span; all but the first are losses."""
CAPACITY: Final = 2048
"""Spans that wait or are being sent."""

_SETTING: Final = "--tracing-endpoint"
_COLLECTOR: Final = "OTelCollectorUrl"
_TRACES: Final = "/v1/traces"
_HOST_AND_PORT: Final = re.compile(r"[A-Za-z0-9._-]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}")


class TracingError(Exception):
    """Tracing is not possible; the text is one line for the user."""


def create_tracer(
    endpoint: str,
    ratio: float,
    resource: Mapping[str, str],
    on_outcome: Callable[[str, int], None],
) -> Tracer:
    """A tracer that sends to ``endpoint`` by OTLP over HTTP. Raises TracingError.

    ``resource`` has the attributes of this process. ``on_outcome`` gets an outcome of
    ``SPAN_OUTCOMES`` and a number of spans; it is called in a thread.
    """
    _check(endpoint, _SETTING)
    try:
        from harbourmaster.telemetry.span_export import HttpSender  # noqa: PLC0415 - 12 MB, 0.2 s
        from harbourmaster.telemetry.spans import Tracer  # noqa: PLC0415 - as above
    except ImportError as error:
        raise _missing(error) from None
    return Tracer(HttpSender(endpoint), resource, ratio, on_outcome)


def check_collector(url: str) -> None:
    """Raise TracingError unless ``url`` is a valid OTelCollectorUrl of a KeptnConfig."""
    if not _HOST_AND_PORT.fullmatch(url):
        _check(url, _COLLECTOR)


def create_collector_tracer(
    url: str, resource: Mapping[str, str], on_outcome: Callable[[str, int], None]
) -> Tracer:
    """A tracer for the collector of a KeptnConfig (keptn-spec 5.4). Raises TracingError.

    HOST:PORT means OTLP over gRPC without TLS, as in Keptn; a URL means OTLP over HTTP, at the
    standard path if it has none. Call this in a thread: the imports are slow.
    """
    check_collector(url)
    try:
        from harbourmaster.telemetry.span_export import (  # noqa: PLC0415 - as above
            GrpcSender,
            HttpSender,
        )
        from harbourmaster.telemetry.spans import Tracer  # noqa: PLC0415 - as above

        if _HOST_AND_PORT.fullmatch(url):
            return Tracer(GrpcSender(url), resource, 1.0, on_outcome)
    except ImportError as error:
        raise _missing(error) from None
    endpoint = url if urlsplit(url).path.strip("/") else url.rstrip("/") + _TRACES
    return Tracer(HttpSender(endpoint), resource, 1.0, on_outcome)


def _missing(error: ImportError) -> TracingError:
    return TracingError(
        f"tracing needs packages that are not installed ({error.name}): "
        "pip install 'harbourmaster[tracing]'"
    )


def _check(endpoint: str, name: str) -> None:
    url = http_url(endpoint)
    if url is None:
        raise TracingError(
            f"{name}: invalid URL, expected one like http://collector:4318/v1/traces"
        )
    if "@" in url.netloc or url.query or url.fragment:
        # The process list would show them.
        raise TracingError(
            f"{name}: the URL must not have credentials, a query or a fragment: "
            "set headers in $OTEL_EXPORTER_OTLP_HEADERS, as NAME=VALUE"
        )
