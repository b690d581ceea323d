"""All that is known of what a pod waits for: a handful of objects, each asked for by its name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from harbourmaster.api.resources import (
    APP_VERSIONS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_METRICS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.cli.cluster import collect
from harbourmaster.cli.why.wording import unreadable
from harbourmaster.evaluation.model import Metric
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError, NotFoundError, UnauthorizedError, UnreachableError
from harbourmaster.lifecycle.check_facts import Facts, phases_before
from harbourmaster.lifecycle.evaluations import written_at
from harbourmaster.lifecycle.model import (
    AppVersion,
    Evaluation,
    EvaluationDefinition,
    Task,
    TaskDefinition,
    Workload,
    WorkloadVersion,
)
from harbourmaster.lifecycle.phases import TASK
from harbourmaster.lifecycle.waiting import app_version_of
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.why.model import WhyContext
    from harbourmaster.lifecycle.gate_verdict import GatedPod
    from harbourmaster.lifecycle.model import ItemStatus, MetricReference, Version

MOST: Final = 100
"""Checks of one kind, and metrics, that are asked for: nobody reads more."""

T = TypeVar("T")
K = TypeVar("K", bound="Hashable")


class GateFacts:
    """Asks as the caller may; what can't be read stands in ``notes``, one line a kind."""

    def __init__(self, context: WhyContext, namespace: str, places: Sequence[str]) -> None:
        """``places`` are namespaces in which definitions are looked up, in their order."""
        self._context = context
        self._namespace = namespace
        self._places = tuple(dict.fromkeys((namespace, *places)))
        self.notes: dict[str, str] = {}

    async def of(self, pod: GatedPod) -> Facts:
        """What is known of a pod's checks. Raises ApiError where its version can't be read."""
        described = workload_of(pod.annotations, pod.labels)
        if described is None:
            return Facts()
        names = names_of_pod(described)
        # Without a version nothing can be said; to say that there is none would be wrong.
        raw, workload = await asyncio.gather(
            self._context.find(WORKLOAD_VERSIONS, names.version, self._namespace),
            self._read(WORKLOADS, names.workload, Workload),
        )
        version = msgspec.json.decode(raw, type=WorkloadVersion) if raw is not None else None
        app = await self._app(version) if version is not None else None
        versions = [each for each in (app, version) if each is not None]
        facts = await self._checks(versions)
        return msgspec.structs.replace(
            facts, workload=workload, version=version, app=app, unread=frozenset(self.notes)
        )

    async def _app(self, version: WorkloadVersion) -> AppVersion | None:
        decode = msgspec.json.Decoder(AppVersion).decode
        client = self._context.client
        if client is None:
            return None

        def note(line: str) -> None:
            self.notes.setdefault(APP_VERSIONS.kind, line)

        try:
            found = await collect(
                client, APP_VERSIONS, decode, namespace=self._namespace, unread=note
            )
        except NotFoundError:
            return None
        except ApiError as error:
            self._note(APP_VERSIONS, error)
            return None
        return app_version_of(version, found)

    async def _checks(self, versions: Sequence[Version]) -> Facts:
        """The tasks and evaluations of the versions, and what defines them."""
        phases = [(each, phase) for each in versions for phase in phases_before(each)]
        items: list[tuple[str, ItemStatus]] = [
            (phase.kind, item)
            for each, phase in phases
            for item in getattr(each.status, phase.items)
        ]
        named: list[tuple[str, str]] = [
            (phase.kind, name)
            for each, phase in phases
            for name in getattr(each.spec, phase.checks)
        ]
        # What is not listed any more may still be under way.
        named += [(kind, item.definition_name) for kind, item in items]
        tasks = _distinct(each.name for kind, each in items if kind == TASK)
        others = _distinct(each.name for kind, each in items if kind != TASK)
        of_tasks = self._first(TASK_DEFINITIONS, (name for kind, name in named if kind == TASK))
        of_others = self._first(
            EVALUATION_DEFINITIONS, (name for kind, name in named if kind != TASK)
        )
        found_tasks, found_others, task_definitions, definitions = await asyncio.gather(
            asyncio.gather(*(self._read(TASKS, name, Task) for name in tasks)),
            asyncio.gather(*(self._evaluation(name) for name in others)),
            asyncio.gather(
                *(self._defined(TASK_DEFINITIONS, name, TaskDefinition) for name in of_tasks)
            ),
            asyncio.gather(
                *(
                    self._defined(EVALUATION_DEFINITIONS, name, EvaluationDefinition)
                    for name in of_others
                )
            ),
        )
        known = dict(zip(of_others, definitions, strict=True))
        evaluations = [each for each in found_others if each is not None]
        return Facts(
            tasks=_by_name(found_tasks),
            evaluations={each.metadata.name: each for each, _ in evaluations},
            measured={each.metadata.name: time for each, time in evaluations if time is not None},
            task_definitions=frozenset(
                name
                for name, each in zip(of_tasks, task_definitions, strict=True)
                if each is not None
            ),
            definitions={name: each for name, each in known.items() if each is not None},
            metrics=await self._metrics(each for each in definitions if each is not None),
        )

    async def _metrics(
        self, definitions: Iterable[EvaluationDefinition]
    ) -> dict[MetricReference, Metric]:
        references = self._first(
            KEPTN_METRICS,
            (one.keptn_metric_ref for each in definitions for one in each.spec.objectives),
        )
        found = await asyncio.gather(*(self._metric(each) for each in references))
        pairs = zip(references, found, strict=True)
        return {reference: each for reference, each in pairs if each is not None}

    async def _metric(self, reference: MetricReference) -> Metric | None:
        if reference.namespace:
            return await self._read(KEPTN_METRICS, reference.name, Metric, reference.namespace)
        return await self._defined(KEPTN_METRICS, reference.name, Metric)

    async def _evaluation(self, name: str) -> tuple[Evaluation, datetime | None] | None:
        try:
            raw = await self._context.find(EVALUATIONS, name, self._namespace)
            if raw is None:
                return None
            return msgspec.json.decode(raw, type=Evaluation), written_at(raw)
        except (ApiError, msgspec.DecodeError, ValueError) as error:
            self._note(EVALUATIONS, error)
            return None

    async def _defined(self, resource: Resource, name: str, kind: type[T]) -> T | None:
        """The first of this name, in the order in which the controller looks."""
        for place in self._places:
            found = await self._read(resource, name, kind, place)
            if found is not None:
                return found
        return None

    async def _read(
        self, resource: Resource, name: str, kind: type[T], namespace: str = ""
    ) -> T | None:
        try:
            raw = await self._context.find(resource, name, namespace or self._namespace)
            return msgspec.json.decode(raw, type=kind) if raw is not None else None
        except (ApiError, msgspec.DecodeError, ValueError) as error:
            self._note(resource, error)
            return None

    def _first(self, resource: Resource, wanted: Iterable[K]) -> list[K]:
        """Those that are asked for; that there are more is told, so that none is called missing."""
        found = [each for each in dict.fromkeys(wanted) if each]
        if len(found) > MOST:
            text = f"{resource.kind}: only {MOST} of {len(found)} were looked at"
            self.notes.setdefault(resource.kind, text)
        return found[:MOST]

    def _note(self, resource: Resource, error: Exception) -> None:
        if isinstance(error, (UnreachableError, UnauthorizedError)):
            raise error
        what = resource.kind
        text = unreadable(error, what) if isinstance(error, ApiError) else f"{what}: {error}"
        self.notes.setdefault(what, text)


def _distinct(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name))[:MOST]


def _by_name(found: Iterable[Task | None]) -> dict[str, Task]:
    return {each.metadata.name: each for each in found if each is not None}
