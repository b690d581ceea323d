"""Signals that are recorded, and real signals over channels that record."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.metrics import LifecycleMetrics
from harbourmaster.controller.lifecycle.signals import Reference, Signals
from harbourmaster.lifecycle.events import REASONS
from harbourmaster.lifecycle.keptn_config import LifecycleConfiguration
from harbourmaster.telemetry.spans import Tracer
from harbourmaster.telemetry.tracing import PhaseTracer
from helpers.tracing import Memory, Outcomes


class Recorded(NamedTuple):
    """One signal; ``about`` is the kind and the name of its object."""

    about: str
    reason: str
    text: str = ""
    warning: bool | None = None
    obj: object = None


class RecordedSignals:
    """Has the methods of Signals; ``kept`` holds what was emitted, in order.

    ``reason`` is phase and state as one word; for the other methods it is their name. ``on_told``
    is called after each: signals come after the write that a watch may have brought before.
    """

    def __init__(self, *, tracing=False, on_told=lambda: None):
        self.is_tracing = tracing
        self.kept: list[Recorded] = []
        self.on_told = on_told

    @property
    def reasons(self):
        return [report.reason for report in self.kept]

    def of(self, name):
        """The reasons of the object with that name."""
        return [report.reason for report in self.kept if report.obj.metadata.name == name]

    def emit(self, obj, phase, state, text="", *, warning=None, is_minor=False):
        assert f"{phase}{state}" in REASONS
        self._keep(obj, f"{phase}{state}", text, warning)

    def report_wait(self, about, wait):
        self.kept.append(
            Recorded(f"{about.kind} {about.name}", wait.reason, wait.text, wait.is_warning, about)
        )
        self.on_told()

    def report_created(self, obj):
        self._keep(obj, "created")

    def report_deprecated(self, obj):
        self._keep(obj, "deprecated")

    def report_late_checks(self, version, text):
        self._keep(version, "PreCheckDeadlineExceeded", text)

    def report_completed(self, obj):
        self._keep(obj, "completed")

    def _keep(self, obj, reason, text="", warning=None):
        kind = obj.resource.kind if isinstance(obj, Reference) else type(obj).__name__
        self.kept.append(Recorded(f"{kind} {obj.metadata.name}", reason, text, warning, obj))
        self.on_told()


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
        self.signals = self.new_signals()

    def new_signals(self):
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
