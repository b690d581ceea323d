"""Reads the states of the checks of versions, and creates them.

See keptn-spec 3.7, 3.10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.metadata import NO_OVERRIDE
from harbourmaster.api.resources import ANALYSES, EVALUATIONS, TASKS
from harbourmaster.controller.lifecycle.analysis_pods import pods_to_compare
from harbourmaster.controller.lifecycle.writes import fetch
from harbourmaster.evaluation.model import Analysis, AnalysisDefinition
from harbourmaster.kube.errors import AlreadyExistsError, NotFoundError
from harbourmaster.lifecycle.analyses import analysis_for, state_of_analysis
from harbourmaster.lifecycle.evaluations import evaluation_for
from harbourmaster.lifecycle.model import (
    Evaluation,
    EvaluationDefinition,
    Task,
    TaskDefinition,
    WorkloadVersion,
    is_generated,
)
from harbourmaster.lifecycle.phases import (
    ANALYSIS,
    EVALUATION,
    PASSED,
    SETTLED,
    TASK,
    check_phases,
)
from harbourmaster.lifecycle.phases import state_of as state_of_phase
from harbourmaster.lifecycle.steps import Child
from harbourmaster.lifecycle.subjects import state_of
from harbourmaster.lifecycle.tasks import task_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.model import Version
    from harbourmaster.lifecycle.phases import Phase
    from harbourmaster.lifecycle.steps import Creation

    AnyChild: TypeAlias = Task | Evaluation | Analysis
    Definition: TypeAlias = TaskDefinition | EvaluationDefinition | AnalysisDefinition

IGNORED: Final = "DefinitionIgnored"
CREATE_CHILD: Final = {
    TASK: "CreateTask",
    EVALUATION: "CreateEvaluation",
    ANALYSIS: "CreateAnalysis",
}
_ATTEMPTS: Final = 5
"""Number of names that are tried if other objects have the first ones."""
_RESOURCES: Final = {TASK: TASKS, EVALUATION: EVALUATIONS, ANALYSIS: ANALYSES}
_MODELS: Final[dict[str, type[AnyChild]]] = {
    TASK: Task,
    EVALUATION: Evaluation,
    ANALYSIS: Analysis,
}


class Children:
    """Reads and creates tasks, evaluations and analyses."""

    def __init__(self, context: Context) -> None:
        self._context = context
        caches = context.caches
        self._mirrors: dict[str, Any] = {
            kind: caches.by_resource[resource] for kind, resource in _RESOURCES.items()
        }
        self._definitions: dict[str, Any] = {
            TASK: caches.task_definitions,
            EVALUATION: caches.evaluation_definitions,
            ANALYSIS: caches.analysis_definitions,
        }

    def evaluation(self, version: Version, name: str) -> Evaluation | None:
        """Return an evaluation of a version, or None if it is not cached."""
        return self._context.caches.evaluations.store.get(f"{version.metadata.namespace}/{name}")

    def cause(self, version: Version, task: str) -> str:
        """Return ": " and the message of a version's task; empty if there is none in the cache."""
        cached = self._context.caches.tasks.store.get(f"{version.metadata.namespace}/{task}")
        return f": {cached.status.message}" if cached is not None and cached.status.message else ""

    def definitions(self, version: Version) -> frozenset[tuple[str, str]]:
        """Return kind of child and name of each existing definition that the version lists."""
        wanted = {
            (phase.kind, name)
            for phase in check_phases(version)
            for name in getattr(version.spec, phase.checks)
        }
        return frozenset(pair for pair in wanted if self._definition(version, *pair) is not None)

    async def states(self, version: Version) -> dict[tuple[str, str], str]:
        """Return the states of the unfinished children by kind and name, without deleted ones."""
        states = {}
        for phase in check_phases(version):
            if state_of_phase(version.status, phase) in PASSED:
                continue
            for item in getattr(version.status, phase.items):
                if item.name and item.status not in SETTLED:
                    child = await self._child(phase.kind, version.metadata.namespace, item.name)
                    # Another of that name would be no result of this version's check.
                    if child is not None and is_generated(child, version.metadata.uid):
                        states[phase.kind, item.name] = _state(child)
        return states

    async def create(
        self, version: Version, creation: Creation, carrier: Mapping[str, str]
    ) -> Child:
        """Create a child, or find the one that an earlier pass created. Raises ApiError.

        Its name is the same in every pass; if it is taken by another object, the next one is used.
        """
        phase, namespace = creation.phase, version.metadata.namespace
        resource = _RESOURCES[phase.kind]
        previous = creation.previous
        for attempt in range(_ATTEMPTS):
            body = await self._body(version, phase, creation.definition, previous, carrier)
            name = body["metadata"]["name"]
            try:
                stored = await self._context.client.create(resource, body, namespace)
            except AlreadyExistsError:
                present = await self._live(phase.kind, namespace, name)
                if present is not None and is_generated(present, version.metadata.uid):
                    return Child(name, _state(present))
                if attempt + 1 == _ATTEMPTS:
                    raise
                previous = name if present is not None else previous
            else:
                child = msgspec.json.decode(stored, type=_MODELS[phase.kind])
                self._context.signals.report_created(child)
                self._report_ignored(version, phase.kind, creation.definition)
                return Child(name, _state(child))
        raise AssertionError("the last attempt returns or raises")

    def _report_ignored(self, version: Version, kind: str, name: str) -> None:
        """Report a definition of the namespace that does not hide the shared one."""
        chosen, namespace = self._definition(version, kind, name), version.metadata.namespace
        own = self._definitions[kind].store.get(f"{namespace}/{name}")
        if chosen is None or own is None or own is chosen:
            return
        text = (
            f"{name} of {chosen.metadata.namespace} is used and that of {namespace} is ignored, "
            f"because of its annotation {NO_OVERRIDE}: give yours another name"
        )
        self._context.signals.emit(version, CREATE_CHILD[kind], IGNORED, text, warning=True)

    async def _body(
        self,
        version: Version,
        phase: Phase,
        name: str,
        previous: str,
        carrier: Mapping[str, str],
    ) -> dict[str, Any]:
        definition = self._definition(version, phase.kind, name)
        if isinstance(definition, TaskDefinition):
            return task_for(
                version, definition, phase.check_type, carrier=carrier, previous=previous
            )
        if isinstance(definition, EvaluationDefinition):
            return evaluation_for(version, definition, phase.check_type, previous)
        if isinstance(definition, AnalysisDefinition) and isinstance(version, WorkloadVersion):
            context, check_type = self._context, phase.check_type
            pods = await pods_to_compare(context.client, context.caches, version)
            return analysis_for(version, definition, check_type, previous, pods, context.now())
        raise NotFoundError(f"{phase.kind}Definition {name} is gone")

    def _definition(self, version: Version, kind: str, name: str) -> Definition | None:
        namespaces = self._context.definition_namespaces(version.metadata.namespace)
        return self._context.caches.definition(self._definitions[kind], name, namespaces)

    async def _child(self, kind: str, namespace: str, name: str) -> AnyChild | None:
        cached: AnyChild | None = self._mirrors[kind].store.get(f"{namespace}/{name}")
        # The cache may be behind, and a child that counts as deleted is created again.
        return cached if cached is not None else await self._live(kind, namespace, name)

    async def _live(self, kind: str, namespace: str, name: str) -> AnyChild | None:
        client, resource, model = self._context.client, _RESOURCES[kind], _MODELS[kind]
        return await fetch(client, resource, model, name, namespace)


def _state(child: AnyChild) -> str:
    return state_of_analysis(child) if isinstance(child, Analysis) else state_of(child)
