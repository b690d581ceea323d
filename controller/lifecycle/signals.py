"""Everything that tells what happens: events, CloudEvents, spans and metrics, by one call each.

Reconcilers call these after the write that made it so. Nothing here waits or raises.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import (
    APP_CONTEXTS,
    APP_CREATION_REQUESTS,
    APP_VERSIONS,
    APPS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_CONFIGS,
    KEPTN_METRICS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
    Resource,
)
from harbourmaster.controller.lifecycle.measures import Endings
from harbourmaster.controller.lifecycle.span_maker import SpanMaker
from harbourmaster.controller.objects import reference
from harbourmaster.evaluation.model import Metric
from harbourmaster.lifecycle.events import (
    APP_COMPLETED,
    COMPLETED,
    CREATIONS,
    DEADLINE,
    DEPRECATED,
    EXCEEDED,
    FINISHED,
    WORKLOAD_COMPLETED,
    creation,
    deprecation,
    message,
    occasions,
)
from harbourmaster.lifecycle.events import FAILED as HAS_FAILED
from harbourmaster.lifecycle.model import (
    FAILED,
    App,
    AppContext,
    AppCreationRequest,
    AppVersion,
    Config,
    Evaluation,
    EvaluationDefinition,
    Task,
    TaskDefinition,
    Workload,
    WorkloadVersion,
)
from harbourmaster.lifecycle.subjects import subject
from harbourmaster.lifecycle.tracing import TRACEPARENT
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.controller.lifecycle.channels import Channels
    from harbourmaster.kube.event_series import EventType, ObjectReference
    from harbourmaster.lifecycle.events import Occasion, Vocabulary
    from harbourmaster.lifecycle.subjects import Finishable

P = ParamSpec("P")
T = TypeVar("T")

ACTION: Final = "Reconcile"
_MAX_TEXT: Final = 640
"""Characters of what is said of an object, so that its name still fits behind."""
_RESOURCES: Final[dict[type, Resource]] = {
    App: APPS,
    AppContext: APP_CONTEXTS,
    AppCreationRequest: APP_CREATION_REQUESTS,
    AppVersion: APP_VERSIONS,
    Config: KEPTN_CONFIGS,
    Evaluation: EVALUATIONS,
    EvaluationDefinition: EVALUATION_DEFINITIONS,
    Metric: KEPTN_METRICS,
    Task: TASKS,
    TaskDefinition: TASK_DEFINITIONS,
    Workload: WORKLOADS,
    WorkloadVersion: WORKLOAD_VERSIONS,
}


class HasMetadata(Protocol):
    """An object of the lifecycle, or anything else with metadata."""

    @property
    def metadata(self) -> Metadata:
        """What every object has."""


class HasName(Protocol):
    """A projection that has its name, namespace and uid itself."""

    @property
    def name(self) -> str:
        """As in the API, like the others."""

    @property
    def namespace(self) -> str:
        """Empty for a cluster-scoped object."""

    @property
    def uid(self) -> str:
        """Empty where it is not known."""


class Reference(Struct, frozen=True):
    """An object whose kind its class does not say, a pod or a ConfigMap: see ``reference``."""

    resource: Resource
    metadata: Metadata


def _harmless(
    method: Callable[Concatenate[Signals, P], None],
) -> Callable[Concatenate[Signals, P], None]:
    """The same, but what goes wrong is only logged: what it tells of matters more."""

    @wraps(method)
    def call(self: Signals, /, *arguments: P.args, **options: P.kwargs) -> None:
        try:
            method(self, *arguments, **options)
        except Exception:
            self.log.exception("signal lost")

    return call


class Signals:
    """Tells what happens, by ``channels``."""

    def __init__(self, caches: LifecycleCaches, channels: Channels, vocabulary: Vocabulary) -> None:
        self._apps = caches.apps.store
        self._channels = channels
        self._vocabulary = vocabulary
        self._spans = SpanMaker(caches, channels.tracer, channels.now)
        self._endings = Endings(channels.metrics)
        self.log = get_logger("signals")

    @property
    def tracing(self) -> bool:
        """Whether trace ids are to be put anywhere now."""
        return self._spans.is_on

    def reference(self, resource: Resource, obj: HasMetadata | HasName) -> Reference:
        """``obj`` for ``emit``, where it is none of the model's objects."""
        metadata = getattr(obj, "metadata", None)
        if not isinstance(metadata, Metadata):
            found: Any = obj if metadata is None else metadata
            metadata = Metadata(name=found.name, namespace=found.namespace, uid=found.uid)
        return Reference(resource, metadata)

    @_harmless
    def emit(
        self,
        obj: HasMetadata,
        phase: str,
        state: str,
        text: str = "",
        *,
        warning: bool | None = None,
    ) -> None:
        """Tell that ``phase`` (a short name) of ``obj`` is in ``state`` now.

        ``text`` and the type (``warning``) have defaults by phase and state, see
        ``harbourmaster.lifecycle.events``. Several lines of text become one.
        """
        self._spans.phase(obj, phase, state, is_warning=bool(warning))
        said = occasions(phase, state, _one_line(text), self._vocabulary, warning=warning)
        self._tell(obj, phase, said)

    @_harmless
    def created(self, obj: HasMetadata) -> None:
        """Tell that we have created ``obj``."""
        kind = type(obj).__name__
        self._tell(obj, CREATIONS.get(kind, ""), creation(kind, self._vocabulary))

    @_harmless
    def deprecated(self, obj: AppVersion | WorkloadVersion) -> None:
        """Tell that ``obj`` is superseded; it has its new status."""
        self._spans.deprecated(obj)
        self._tell(obj, DEPRECATED, deprecation(self._vocabulary))

    @_harmless
    def late(self, version: WorkloadVersion, text: str) -> None:
        """Tell and count that the checks before a deployment took longer than they may."""
        self._channels.metrics.late()
        said = occasions(DEADLINE, EXCEEDED, _one_line(text), self._vocabulary)
        self._tell(version, DEADLINE, said)

    @_harmless
    def completed(self, obj: Finishable) -> None:
        """Tell that ``obj`` has ended; it has its final status.

        To be called once, by the writer of that status. Only versions have an event of their end.
        """
        self._endings.note(obj)
        self._spans.ended(obj)
        if isinstance(obj, AppVersion | WorkloadVersion):
            phase = APP_COMPLETED if isinstance(obj, AppVersion) else WORKLOAD_COMPLETED
            state = HAS_FAILED if obj.status.status == FAILED else FINISHED
            self._tell(obj, phase, occasions(phase, state, "", self._vocabulary))

    def _tell(self, obj: HasMetadata, phase: str, said: Iterable[Occasion]) -> None:
        metadata = obj.metadata
        resource = obj.resource if isinstance(obj, Reference) else _RESOURCES[type(obj)]
        about = subject(obj)
        annotations = {
            "namespace": metadata.namespace,
            "name": metadata.name,
            "phase": phase,
            **about.fields,
        }
        if carrier := self._spans.carrier(obj, phase):
            annotations[TRACEPARENT] = carrier[TRACEPARENT]
        annotations = {key: clean(value) for key, value in annotations.items()}
        version = clean(about.version)
        for each in said:
            note = message(each, clean(metadata.namespace), clean(metadata.name), version)
            kind: EventType = "Warning" if each.is_warning else "Normal"
            self._channels.events.emit(
                reference(resource, metadata),
                kind,
                each.reason,
                note,
                ACTION,
                related=self._app(metadata.namespace, about.app, obj),
                annotations={**annotations, "phase": _phase(phase, each)},
            )
            self._channels.cloud_events.put(
                each.title,
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
        """The KeptnApp that ``obj`` belongs to, if it is there."""
        found = self._apps.get(f"{namespace}/{name}") if name else None
        if found is None or isinstance(obj, App):
            return None
        return reference(APPS, found.metadata)


def _phase(phase: str, said: Occasion) -> str:
    """What the status says where an object has ended: Completed."""
    return COMPLETED if said.reason == COMPLETED else phase


def _one_line(text: str) -> str:
    parts = (part.strip() for part in text.splitlines())
    joined = "; ".join(part for part in parts if part)
    return clean(joined if len(joined) <= _MAX_TEXT else f"{joined[:_MAX_TEXT]}…")
