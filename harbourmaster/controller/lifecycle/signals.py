"""Reports what happens as events, CloudEvents, spans and metrics, by one call each.

Reconcilers call ``Signals`` after the write that made it so. No method of it waits or raises.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

from msgspec import Struct

from harbourmaster.api import resources
from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import Resource
from harbourmaster.controller.lifecycle.metric_values import EndingCounter
from harbourmaster.controller.lifecycle.span_maker import SpanMaker
from harbourmaster.controller.objects import reference
from harbourmaster.evaluation.model import Analysis
from harbourmaster.kube.event_series import Allowance
from harbourmaster.kube.events import EventRecorder
from harbourmaster.lifecycle import events, model
from harbourmaster.lifecycle.phases import has_checks
from harbourmaster.lifecycle.subjects import subject
from harbourmaster.telemetry.cloud_events import CloudEventSender
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import clean
from harbourmaster.telemetry.tracing import PhaseTracer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harbourmaster.api.metadata import HasMetadata
    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.controller.lifecycle.configuration import ConfigurationHolder
    from harbourmaster.controller.lifecycle.metrics import LifecycleMetrics
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.event_series import EventType, ObjectReference
    from harbourmaster.lifecycle.gate_waits import GateWait
    from harbourmaster.lifecycle.subjects import Finishable
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics
    from harbourmaster.telemetry.spans import Tracer

REPORTER: Final = "lifecycle"
QUEUE: Final = 10_000
"""Maximum events that wait for the API server."""
PER_OBJECT: Final = Allowance(burst=200, period=1.5)
"""Events of one object: a version has a few dozen phases and checks, and this allows 200 in five
minutes."""
OVERALL: Final = Allowance(burst=QUEUE, period=1 / 500)
SERIES: Final = 4096
LANES: Final = 16
"""Concurrent requests: with 20 ms for each, 800 events per second."""


class Channels:
    """Sends events, CloudEvents and spans, and counts them; ``run`` sends.

    ``identity`` is our pod, in ``namespace``; ``tracer`` is that of the process, and is used while
    no collector is configured at run time.
    """

    def __init__(  # noqa: PLR0913 - the parts of a process
        self,
        client: Client,
        configuration: ConfigurationHolder,
        metrics: ControllerMetrics,
        lifecycle_metrics: LifecycleMetrics,
        *,
        identity: str,
        namespace: str,
        release: str = "",
        tracer: Tracer | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.now = now
        self.metrics = lifecycle_metrics
        self.events = EventRecorder(
            client,
            controller=REPORTER,
            instance=identity,
            namespace=namespace,
            queue_size=QUEUE,
            per_object=PER_OBJECT,
            overall=OVERALL,
            series=SERIES,
            lanes=LANES,
            on_outcome=lambda outcome: metrics.events.labels(outcome).inc(),
        )
        self.cloud_events = CloudEventSender(
            lambda: configuration.current.cloud_events_endpoint, lifecycle_metrics.count_cloud_event
        )
        self.tracer = PhaseTracer(
            lambda: configuration.current.collector_url,
            {"service.version": release, "service.instance.id": identity},
            lambda outcome, count: metrics.spans.labels(outcome).inc(count),
            tracer,
        )

    async def run(self) -> None:
        """Send until cancelled, and then for a few seconds at most what is left."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.events.run())
                group.create_task(self.cloud_events.run())
        finally:
            await self.tracer.close()


P = ParamSpec("P")

ACTION: Final = "Reconcile"
_NO_CHECKS: Final = "has finished, no checks: the workload names no task and no evaluation"
_MAX_TEXT: Final = 640
"""Maximum characters of an event's text, so that the name of its object still fits behind."""
_RESOURCES: Final[dict[type, Resource]] = {
    Analysis: resources.ANALYSES,
    model.App: resources.APPS,
    model.AppContext: resources.APP_CONTEXTS,
    model.AppCreationRequest: resources.APP_CREATION_REQUESTS,
    model.AppVersion: resources.APP_VERSIONS,
    model.Config: resources.KEPTN_CONFIGS,
    model.Evaluation: resources.EVALUATIONS,
    model.Task: resources.TASKS,
    model.Workload: resources.WORKLOADS,
    model.WorkloadVersion: resources.WORKLOAD_VERSIONS,
}


class Reference(Struct, frozen=True):
    """An object whose class does not say its kind, such as a pod or a ConfigMap."""

    resource: Resource
    metadata: Metadata


def _harmless(
    method: Callable[Concatenate[Signals, P], None],
) -> Callable[Concatenate[Signals, P], None]:
    """Return the method without its exceptions, which are logged: the caller's work must go on."""

    @wraps(method)
    def call(self: Signals, /, *arguments: P.args, **options: P.kwargs) -> None:
        try:
            method(self, *arguments, **options)
        except Exception:
            self.log.exception("signal lost")

    return call


class Signals:
    """Reports events in the life of an object through ``channels``."""

    def __init__(
        self, caches: LifecycleCaches, channels: Channels, vocabulary: events.Vocabulary
    ) -> None:
        self._apps = caches.apps.store
        self._channels = channels
        self._vocabulary = vocabulary
        self._spans = SpanMaker(caches, channels.tracer, channels.now)
        self._endings = EndingCounter(channels.metrics)
        self.log = get_logger("signals")

    @property
    def is_tracing(self) -> bool:
        """Whether objects are given trace ids now."""
        return self._spans.is_on

    @_harmless
    def emit(
        self,
        obj: HasMetadata,
        phase: str,
        state: str,
        text: str = "",
        *,
        warning: bool | None = None,
        is_minor: bool = False,
    ) -> None:
        """Report that ``phase`` (a short name) of ``obj`` is in ``state``.

        Both together are a reason of ``harbourmaster.lifecycle.events.REASONS``. ``text`` and the
        type (``warning``) have defaults by state. Several lines of text become one. If
        ``is_minor``, there is no event, only a CloudEvent (keptn-spec 5.1).
        """
        self._spans.record_phase_state(obj, phase, state, is_warning=bool(warning))
        reported = events.events_of(
            phase, state, _one_line(text), self._vocabulary, warning=warning
        )
        self._send(obj, phase, reported, is_minor=is_minor)

    @_harmless
    def report_wait(self, about: ObjectReference, wait: GateWait) -> None:
        """Report why a pod waits, without a CloudEvent; ``about`` is the pod or an owner."""
        command = f"harbourmaster why {about.kind.lower()} {about.name} -n {about.namespace}"
        note, identity = f"{_one_line(wait.text)}; run {command}", wait.identity
        kind: EventType = "Warning" if wait.is_warning else "Normal"
        self._channels.events.emit(about, kind, wait.reason, note, ACTION, identity=identity)

    @_harmless
    def report_created(self, obj: HasMetadata) -> None:
        """Report that we have created ``obj``."""
        reason = f"Create{type(obj).__name__}"
        self._send(obj, reason, events.documented_event(reason, self._vocabulary))

    @_harmless
    def report_deprecated(self, obj: model.Version) -> None:
        """Report that ``obj``, which has its new status, is superseded."""
        self._spans.record_deprecation(obj)
        reported = events.documented_event(events.DEPRECATED, self._vocabulary)
        self._send(obj, events.DEPRECATED, reported)

    @_harmless
    def report_late_checks(self, version: model.WorkloadVersion, text: str) -> None:
        """Report and count that the checks before a deployment exceeded their deadline."""
        self._channels.metrics.count_late_checks()
        self.emit(version, events.DEADLINE, events.EXCEEDED, text)

    @_harmless
    def report_completed(self, obj: Finishable) -> None:
        """Report that ``obj``, which has its final status, has ended.

        Only the writer of that status may call it, once. Only versions have an event of their end.
        """
        self._endings.count(obj)
        self._spans.record_end(obj)
        if isinstance(obj, model.Version):
            is_app = isinstance(obj, model.AppVersion)
            has_failed = obj.status.status == model.FAILED
            # For an app this is the rule, for a workload perhaps a mistake.
            is_unchecked = not (is_app or has_failed or has_checks(obj))
            self.emit(
                obj,
                _completed(obj),
                events.FAILED if has_failed else events.FINISHED,
                _NO_CHECKS if is_unchecked else "",
            )

    def _send(
        self,
        obj: HasMetadata,
        phase: str,
        reported: Iterable[events.LifecycleEvent],
        *,
        is_minor: bool = False,
    ) -> None:
        metadata = obj.metadata
        resource = obj.resource if isinstance(obj, Reference) else _RESOURCES[type(obj)]
        about = subject(obj)
        annotations = {
            "namespace": metadata.namespace,
            "name": metadata.name,
            "phase": phase,
            **about.fields,
            **self._spans.carrier(obj, phase),
        }
        annotations = {key: clean(value) for key, value in annotations.items()}
        version = clean(about.version)
        for event in reported:
            note = events.message(event, clean(metadata.namespace), clean(metadata.name), version)
            kind: EventType = "Warning" if event.is_warning else "Normal"
            # As in the status of an object that has ended.
            end = {"phase": events.COMPLETED} if event.reason == events.COMPLETED else {}
            if not is_minor:
                self._channels.events.emit(
                    reference(resource, metadata),
                    kind,
                    event.reason,
                    note,
                    ACTION,
                    related=self._app(metadata.namespace, about.app, obj),
                    annotations=annotations | end,
                )
            self._channels.cloud_events.put(
                event.title,
                {
                    "message": note,
                    "resource": {
                        "group": resource.group,
                        "kind": resource.kind,
                        "name": metadata.name,
                        "namespace": metadata.namespace,
                        "version": resource.version,
                    },
                    "type": kind,
                    "version": version,
                },
                (resource.kind, metadata.namespace, metadata.name),
            )

    def _app(self, namespace: str, name: str, obj: HasMetadata) -> ObjectReference | None:
        app = self._apps.get(f"{namespace}/{name}") if name else None
        if app is None or isinstance(obj, model.App):
            return None
        return reference(resources.APPS, app.metadata)


def _completed(version: model.Version) -> str:
    if not isinstance(version, model.AppVersion):
        return events.WORKLOAD_COMPLETED
    is_placed = version.is_of_application
    return events.APPLICATION_COMPLETED if is_placed else events.APP_COMPLETED


def _one_line(text: str) -> str:
    parts = (part.strip() for part in text.splitlines())
    joined = "; ".join(part for part in parts if part)
    return clean(joined if len(joined) <= _MAX_TEXT else f"{joined[:_MAX_TEXT]}…")
