"""The tracer of a process, by its settings."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from harbourmaster.serving.settings import StartError
from harbourmaster.telemetry.tracing import TracingError, create_tracer

if TYPE_CHECKING:
    from prometheus_client import Counter

    from harbourmaster.serving.settings import TracingSettings
    from harbourmaster.telemetry.spans import Tracer


def start_tracing(
    settings: TracingSettings, service: str, release: str, spans: Counter
) -> Tracer | None:
    """A tracer where one is asked for; ``spans`` has the label ``outcome``. Raises StartError."""
    if settings.endpoint is None:
        return None
    resource = {
        "service.name": service,
        "service.version": release,
        "service.instance.id": os.environ.get("POD_NAME") or socket.gethostname(),
    }

    def note(outcome: str, count: int) -> None:
        spans.labels(outcome).inc(count)

    try:
        return create_tracer(settings.endpoint, settings.sample_ratio, resource, note)
    except TracingError as error:
        raise StartError(str(error)) from None
