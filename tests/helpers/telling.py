"""Real signals over channels that keep what they are given."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.metrics import LifecycleMetrics
from harbourmaster.controller.lifecycle.signals import Signals
from harbourmaster.lifecycle.keptn_config import LifecycleConfiguration
from harbourmaster.telemetry.spans import Tracer
from harbourmaster.telemetry.tracing import PhaseTracer
from helpers.tracing import Memory, Outcomes

NOW = datetime(2026, 3, 1, 12, 1, 10, tzinfo=UTC)


class Event(NamedTuple):
    """An event as the recorder takes it."""

    about: str
    type: str
    reason: str
    note: str
    related: object
    annotations: dict
    regarding: object


class Events:
    """Takes the place of an EventRecorder."""

    def __init__(self):
        self.taken: list[Event] = []

    def emit(  # noqa: PLR0913 - the recorder's
        self,
        regarding,
        type,  # noqa: A002
        reason,
        note,
        action,
        *,
        related=None,
        annotations=None,
        identity="",
    ):
        about = f"{regarding.kind} {regarding.namespace}/{regarding.name}"
        self.taken.append(Event(about, type, reason, note, related, annotations, regarding))


class CloudEvents:
    """Takes the place of a CloudEventSender."""

    def __init__(self):
        self.taken = []

    def put(self, kind, data, about):
        self.taken.append((kind, data))


class Telling:
    """Signals, and what came of them. Without ``traced`` there is no tracer."""

    def __init__(self, vocabulary="keptn", *, traced=False):
        self.now = NOW
        self.caches = LifecycleCaches(None)
        self.events = Events()
        self.cloud_events = CloudEvents()
        self.memory = Memory()
        self.metrics = LifecycleMetrics(CollectorRegistry())
        self.configuration = LifecycleConfiguration()
        self.own = Tracer(self.memory, {}, 0.0, Outcomes()) if traced else None
        self.tracer = PhaseTracer(
            lambda: self.configuration.collector_url, {}, Outcomes(), self.own
        )
        self.vocabulary = vocabulary
        self.signals = self.restarted()

    def restarted(self):
        """Signals that remember nothing."""
        channels = SimpleNamespace(
            events=self.events,
            cloud_events=self.cloud_events,
            tracer=self.tracer,
            metrics=self.metrics,
            now=lambda: self.now,
        )
        return Signals(self.caches, channels, self.vocabulary)

    def put(self, mirror, obj):
        """Have ``obj`` in a cache."""
        mirror.store.put(obj.metadata.key, obj)
        return obj

    @property
    def reasons(self):
        return [(event.about.split()[0], event.reason) for event in self.events.taken]

    async def spans(self):
        """All spans by name."""
        await self.tracer.close()
        await self.own.close()
        return {span.name: span for span in self.memory.spans}
