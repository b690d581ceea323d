"""Creates the spans of phases, versions, tasks and evaluations when they end (keptn-spec 5.4)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import APP_VERSIONS, WORKLOAD_VERSIONS
from harbourmaster.api.times import moment
from harbourmaster.controller.lifecycle.caches import BY_APP
from harbourmaster.controller.lifecycle.latest import LatestValues
from harbourmaster.lifecycle.events import FAILED, FINISHED, LONG_NAMES, PROMOTED, STARTED
from harbourmaster.lifecycle.model import FAILED as HAS_FAILED
from harbourmaster.lifecycle.model import AppVersion, Evaluation, Task, WorkloadVersion
from harbourmaster.lifecycle.phases import APP_DEPLOY, phases_of
from harbourmaster.lifecycle.stages import PHASE as STAGE
from harbourmaster.lifecycle.subjects import phase_of, span_attributes, state_of
from harbourmaster.lifecycle.tasks import context_metadata
from harbourmaster.lifecycle.tracing import TRACEPARENT, phase_carrier, phase_ids, root_ids
from harbourmaster.lifecycle.waiting import app_version_of
from harbourmaster.telemetry.span_model import PhaseSpan
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.lifecycle.model import Version
    from harbourmaster.lifecycle.subjects import Finishable
    from harbourmaster.lifecycle.tracing import SpanIds
    from harbourmaster.telemetry.tracing import PhaseTracer

APP_SCOPE: Final = "keptn/lifecycle-operator/appversion"
WORKLOAD_SCOPE: Final = "keptn/lifecycle-operator/workloadversion"
REMEMBERED: Final = 20_000
"""Maximum running phases, and maximum finished objects, that are remembered."""
_JUST_NOW: Final = 5.0
"""Seconds since the end of an object within which its span may still be missing."""
_MOST_METADATA: Final = 64
"""Maximum pairs of context metadata on a span; an SDK's usual limit is 128 attributes."""
_MOST_BYTES: Final = 4096
"""Maximum bytes of context metadata on a span, because a collector refuses batches above 4 MiB."""


class SpanMaker:
    """Creates spans. Phases begin when they are reported; after a restart, with their object."""

    def __init__(
        self, caches: LifecycleCaches, tracer: PhaseTracer, now: Callable[[], datetime]
    ) -> None:
        self._caches = caches
        self._tracer = tracer
        self._now = now
        self._begun: LatestValues[tuple[str, str], float] = LatestValues(REMEMBERED)
        self._ended: LatestValues[str, None] = LatestValues(REMEMBERED)

    @property
    def is_on(self) -> bool:
        """Whether spans are sent anywhere."""
        return self._tracer.is_on

    def carrier(self, obj: object, phase: str) -> dict[str, str]:
        """Return the trace context for an event of ``obj``; empty if no spans are sent."""
        if not self.is_on:
            return {}
        if isinstance(obj, AppVersion | WorkloadVersion):
            return self._ids(obj, phase if phase in _phases(obj) else "").carrier
        if isinstance(obj, Task | Evaluation):
            return self._ids_of_child(obj).carrier
        return {}

    def record_phase_state(self, obj: object, phase: str, state: str, *, is_warning: bool) -> None:
        """Record the state of a phase, if ``obj`` is a version."""
        if not self.is_on:
            return
        if not isinstance(obj, AppVersion | WorkloadVersion):
            return
        if phase not in {*_phases(obj), STAGE}:
            return
        key = (obj.metadata.uid, phase)
        now = self._now().timestamp()
        if state == STARTED:
            self._begun.add(key, now)
        elif state in {FAILED, PROMOTED} or (state == FINISHED and not is_warning):
            begin = self._begun.take(key) or _begin(obj)
            self._record_phase(obj, phase, (begin, now), has_failed=state == FAILED)

    def record_end(self, obj: Finishable) -> None:
        """Record that a version, task or evaluation has ended."""
        if not self.is_on or not self._ended.add(obj.metadata.uid, None):
            return
        version: Version | None
        if isinstance(obj, AppVersion | WorkloadVersion):
            ids, version = self._ids(obj, ""), obj
        else:
            ids, version = self._ids_of_child(obj), self._version_of(obj)
        state = state_of(obj)
        begin, end = _begin(obj), _seconds(obj.status.end_time) or self._now().timestamp()
        self._tracer.record(
            PhaseSpan(
                scope=_scope(obj),
                name=clean(obj.metadata.name),
                trace=ids.trace,
                span=ids.span,
                parent=ids.parent,
                begin=min(begin, end),
                end=end,
                attributes=_attributes(obj, version),
                links=obj.spec.span_links if isinstance(obj, AppVersion) else (),
                events=((f"has ended: {state}", end),),
                error=HAS_FAILED if state == HAS_FAILED else "",
            )
        )

    def record_deprecation(self, obj: Version) -> None:
        """Record that a version is superseded, which ends it if it was unfinished."""
        end = _seconds(obj.status.end_time)
        if not end or end >= self._now().timestamp() - _JUST_NOW:
            self.record_end(obj)

    def _record_phase(
        self, obj: Version, phase: str, period: tuple[float, float], *, has_failed: bool
    ) -> None:
        title = LONG_NAMES[phase]
        if phase == STAGE and isinstance(obj, WorkloadVersion) and obj.status.stage is not None:
            phase = f"{phase}-{obj.status.stage.results[-1].number}"
        ids = self._ids(obj, phase)
        begin, end = period
        outcome = "has failed" if has_failed else "has finished"
        name = phase if isinstance(obj, AppVersion) else f"{obj.spec.workload_name}/{phase}"
        self._tracer.record(
            PhaseSpan(
                scope=_scope(obj),
                name=clean(name),
                trace=ids.trace,
                span=ids.span,
                parent=ids.parent,
                begin=min(begin, end),
                end=end,
                attributes=_attributes(obj, obj),
                events=((f"{title} has started", begin), (f"{title} {outcome}", end)),
                error="Failed" if has_failed else "",
            )
        )

    def _ids(self, obj: Version, phase: str) -> SpanIds:
        parent, uid = self._parent(obj), obj.metadata.uid
        return phase_ids(parent, uid, phase) if phase else root_ids(parent, uid)

    def _parent(self, obj: Version) -> Mapping[str, str]:
        """Return the parent span of a version: for a workload, the deployment phase of its app."""
        if obj.spec.trace_id or isinstance(obj, AppVersion):
            return obj.spec.trace_id
        apps = self._caches.app_versions.store
        app = app_version_of(obj, apps.by_index(BY_APP, (obj.metadata.namespace, obj.spec.app)))
        if app is None:
            return {}
        return phase_carrier(app.spec.trace_id, app.metadata.uid, APP_DEPLOY.name)

    def _ids_of_child(self, child: Task | Evaluation) -> SpanIds:
        """Return the ids of a child's span, below its phase or the span in its context."""
        parent: Mapping[str, str] = {}
        phase, version = phase_of(child), self._version_of(child)
        if phase and version is not None:
            parent = self._ids(version, phase).carrier
        elif isinstance(child, Task):
            traceparent = child.spec.context.metadata.get(TRACEPARENT)
            parent = {TRACEPARENT: traceparent} if traceparent else {}
        return root_ids(parent, child.metadata.uid)

    def _version_of(self, child: Task | Evaluation) -> Version | None:
        owner = child.metadata.controller
        if owner is None:
            return None
        key = f"{child.metadata.namespace}/{owner.name}"
        if owner.kind == APP_VERSIONS.kind:
            return self._caches.app_versions.store.get(key)
        if owner.kind == WORKLOAD_VERSIONS.kind:
            return self._caches.workload_versions.store.get(key)
        return None


def _phases(obj: Version) -> list[str]:
    """Return the names of its own phases: a workload also reports phases of its app."""
    return [phase.name for phase in phases_of(obj)]


def _scope(obj: Finishable) -> str:
    if isinstance(obj, AppVersion):
        return APP_SCOPE
    if isinstance(obj, WorkloadVersion):
        return WORKLOAD_SCOPE
    return APP_SCOPE if phase_of(obj).startswith("App") else WORKLOAD_SCOPE


def _attributes(obj: Finishable, version: Version | None) -> dict[str, str]:
    """Return our attributes and the metadata of the version, which cannot replace ours.

    See keptn-spec 5.4.
    """
    metadata = context_metadata(version) if version is not None else {}
    attributes: dict[str, str] = {}
    left = _MOST_BYTES
    for key, value in islice(metadata.items(), _MOST_METADATA):
        name, text = clean(key), clean(value)
        size = len(f"{name}{text}".encode())
        if name and size <= left:
            left -= size
            attributes.setdefault(name, text)
    return attributes | {key: clean(value) for key, value in span_attributes(obj).items()}


def _begin(obj: Finishable) -> float:
    return _seconds(obj.status.start_time) or _seconds(obj.metadata.creation_timestamp)


def _seconds(text: str) -> float:
    time = moment(text)
    return time.timestamp() if time is not None else 0.0
