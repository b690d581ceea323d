"""All that is known of what a pod waits for: a handful of objects, each asked for by its name."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.json import Decoder

from harbourmaster.api.metadata import HasMetadata, OwnerReference, choose_definition
from harbourmaster.api.resources import (
    APP_VERSIONS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_METRICS,
    PODS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.reviews import object_in, pod_in
from harbourmaster.evaluation.model import Metric
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.inheritance import tracking_by_parent, tracking_by_pod
from harbourmaster.gates.metadata import Metadata
from harbourmaster.gates.owners import DAEMON_SET, DEPLOYMENT, REPLICA_SET, ROLLOUT, STATEFUL_SET
from harbourmaster.gates.release import CHECKS_KEY, NONE
from harbourmaster.gates.version import Container
from harbourmaster.gates.waits import waits_of
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle.check_facts import Facts, phases_before
from harbourmaster.lifecycle.evaluations import written_at
from harbourmaster.lifecycle.gated_pods import Pod
from harbourmaster.lifecycle.model import (
    AppVersion,
    Evaluation,
    EvaluationDefinition,
    Task,
    TaskDefinition,
    Workload,
    WorkloadVersion,
)
from harbourmaster.lifecycle.phases import EVALUATION, TASK
from harbourmaster.lifecycle.waiting import app_version_of
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.why.model import Subject
    from harbourmaster.gates.workload import WorkloadMetadata
    from harbourmaster.lifecycle.model import ItemStatus, MetricReference, Version

MOST: Final = 100
"""Maximum number of checks of one kind, and of metrics, that are read."""

D = TypeVar("D", bound=HasMetadata)
T = TypeVar("T")
K = TypeVar("K", bound="Hashable")
_decode_app: Final = Decoder(AppVersion).decode


class GateFactsReader:
    """Reads facts with the caller's rights; ``notes`` has a line for each kind it cannot read."""

    def __init__(self, live: Installation, namespace: str, places: Sequence[str]) -> None:
        """``places`` are namespaces in which definitions are looked up, in their order."""
        self._live = live
        self._namespace = namespace
        self._places = tuple(dict.fromkeys((namespace, *places)))
        self.notes: dict[str, str] = {}

    async def of(self, pod: Pod) -> Facts:
        """Return the facts about a pod's checks. Raises ApiError if its version cannot be read."""
        described = workload_of(pod.annotations, pod.labels)
        if described is None or not pod.has_checks:
            return Facts()
        names = names_of_pod(described)
        # Without a version nothing can be said; to say that there is none would be wrong.
        decode = Decoder(WorkloadVersion).decode
        version, workload = await asyncio.gather(
            self._live.read(WORKLOAD_VERSIONS, names.version, decode, self._namespace),
            self._read(WORKLOADS, names.workload, Decoder(Workload).decode, self._namespace),
        )
        app = await self._app(version) if version is not None else None
        versions = [item for item in (app, version) if item is not None]
        facts = await self._checks(versions)
        return msgspec.structs.replace(
            facts, workload=workload, version=version, app=app, unread=frozenset(self.notes)
        )

    async def missing_definitions(self, described: WorkloadMetadata | None) -> list[str]:
        """Return those of ``definitions_of`` that are known not to exist."""
        wanted = definitions_of(described)
        tasks, evaluations = TASK_DEFINITIONS.kind, EVALUATION_DEFINITIONS.kind
        names = {definition.partition(" ")[2] for definition in wanted}
        known = {f"{tasks} {name}" for name in names if await self._task_definition(name)}
        known |= {f"{evaluations} {name}" for name in names if await self._definition(name)}
        unread = tuple(self.notes)
        return [name for name in wanted if name not in known and not name.startswith(unread)]

    async def _app(self, version: WorkloadVersion) -> AppVersion | None:
        note = partial(self.notes.setdefault, APP_VERSIONS.kind)
        try:
            versions = await self._live.items(
                APP_VERSIONS, _decode_app, self._namespace, skipped=note
            )
        except ApiError as error:
            self._note(APP_VERSIONS, error)
            return None
        return app_version_of(version, versions)

    async def _checks(self, versions: Sequence[Version]) -> Facts:
        """The tasks and evaluations of the versions, and what defines them."""
        created: dict[str, list[str]] = {TASK: [], EVALUATION: []}
        defined: dict[str, list[str]] = {TASK: [], EVALUATION: []}
        for version in versions:
            for phase in phases_before(version):
                items: Sequence[ItemStatus] = getattr(version.status, phase.items)
                created[phase.kind] += [item.name for item in items]
                # What is not listed any more may still be under way.
                defined[phase.kind] += getattr(version.spec, phase.checks)
                defined[phase.kind] += [item.definition_name for item in items]
        tasks, evaluations, task_definitions, definitions = await asyncio.gather(
            self._each(TASKS, created[TASK], self._task),
            self._each(EVALUATIONS, created[EVALUATION], self._evaluation),
            self._each(TASK_DEFINITIONS, defined[TASK], self._task_definition),
            self._each(EVALUATION_DEFINITIONS, defined[EVALUATION], self._definition),
        )
        references = [
            objective.keptn_metric_ref
            for definition in definitions.values()
            for objective in definition.spec.objectives
        ]
        return Facts(
            tasks=tasks,
            evaluations={name: evaluation for name, (evaluation, _) in evaluations.items()},
            measured={name: time for name, (_, time) in evaluations.items() if time is not None},
            task_definitions=frozenset(task_definitions),
            definitions=definitions,
            metrics=await self._each(KEPTN_METRICS, references, self._metric),
        )

    async def _task(self, name: str) -> Task | None:
        return await self._read(TASKS, name, Decoder(Task).decode, self._namespace)

    async def _evaluation(self, name: str) -> tuple[Evaluation, datetime | None] | None:
        def decode(raw: bytes) -> tuple[Evaluation, datetime | None]:
            return msgspec.json.decode(raw, type=Evaluation), written_at(raw)

        return await self._read(EVALUATIONS, name, decode, self._namespace)

    async def _task_definition(self, name: str) -> TaskDefinition | None:
        return await self._shared(TASK_DEFINITIONS, name, Decoder(TaskDefinition).decode)

    async def _definition(self, name: str) -> EvaluationDefinition | None:
        decode = Decoder(EvaluationDefinition).decode
        return await self._shared(EVALUATION_DEFINITIONS, name, decode)

    async def _metric(self, reference: MetricReference) -> Metric | None:
        places = (reference.namespace,) if reference.namespace else ()
        return await self._shared(KEPTN_METRICS, reference.name, Decoder(Metric).decode, *places)

    async def _shared(
        self, resource: Resource, name: str, decode: Callable[[bytes], D], *places: str
    ) -> D | None:
        """Read what counts of this name in ``places``, by default where the controller searches."""
        reads = (self._read(resource, name, decode, place) for place in places or self._places)
        return choose_definition(await asyncio.gather(*reads))

    async def _read(
        self, resource: Resource, name: str, decode: Callable[[bytes], T], place: str
    ) -> T | None:
        try:
            return await self._live.read(resource, name, decode, place)
        except (ApiError, ValueError) as error:
            self._note(resource, error)
            return None

    async def _each(
        self, resource: Resource, wanted: Iterable[K], read: Callable[[K], Awaitable[T | None]]
    ) -> dict[K, T]:
        """Return the results of ``read`` by key, without None.

        A note says if there are too many keys, so that none is called missing.
        """
        keys = list(filter(None, dict.fromkeys(wanted)))
        if len(keys) > MOST:
            text = f"{resource.kind}: only {MOST} of {len(keys)} were looked at"
            self.notes.setdefault(resource.kind, text)
            keys = keys[:MOST]
        values = await asyncio.gather(*map(read, keys))
        return {key: value for key, value in zip(keys, values, strict=True) if value is not None}

    def _note(self, resource: Resource, error: Exception) -> None:
        what = resource.kind
        text = read_error(error, what) if isinstance(error, ApiError) else f"{what}: {error}"
        self.notes.setdefault(what, text)


def definitions_of(described: WorkloadMetadata | None) -> list[str]:
    """The definitions of the checks before a workload's deployment, by kind and name."""
    tasks = described.pre_deployment_tasks if described else ()
    evaluations = described.pre_deployment_evaluations if described else ()
    definitions = [f"{TASK_DEFINITIONS.kind} {task}" for task in tasks]
    return definitions + [
        f"{EVALUATION_DEFINITIONS.kind} {evaluation}" for evaluation in evaluations
    ]


_PARENTS: Final = frozenset((DEPLOYMENT, ROLLOUT, STATEFUL_SET, DAEMON_SET))
_CHECKED: Final = _PARENTS | {REPLICA_SET, PODS.kind}


class Template(NamedTuple):
    """A pod, or the template of one."""

    keys: Metadata
    """Annotations and labels."""
    containers: tuple[Container, ...]
    """Without init containers."""


def _keys_in(manifest: dict[str, Any]) -> Metadata:
    """Annotations and labels; in files either map may be null."""
    own = object_in(manifest, "metadata")
    maps = {name: own.get(name) or {} for name in ("annotations", "labels")}
    return msgspec.convert(maps, Metadata)


def template_of(subject: Subject) -> Template:
    """The pod itself, or the template of a workload. Raises DecodeError."""
    pod = pod_in(decode_anything(subject.raw), subject.kind)
    containers = object_in(pod, "spec").get("containers") or ()
    return Template(_keys_in(pod), msgspec.convert(containers, tuple[Container, ...]))


def template_pod(
    subject: Subject, owners: Sequence[Subject] = (), *, version_from_tag: bool
) -> Pod | None:
    """Return the pod of a subject, without a name for a template; None if it needs no gate.

    Raises DecodeError.
    """
    template = template_of(subject)
    metadata = template.keys
    parent = next(
        (candidate for candidate in (subject, *owners) if candidate.kind in _PARENTS), None
    )
    options: Any = {"version_from_tag": version_from_tag}
    tracking = tracking_by_pod(metadata, lambda: template.containers, **options)
    if tracking is None and parent is not None:
        inherited = _keys_in(decode_anything(parent.raw))
        tracking = tracking_by_parent(metadata, inherited, lambda: template.containers, **options)
    added = {CHECKS_KEY: NONE}
    if tracking is not None and subject.kind in _CHECKED:
        added = tracking.annotations
    elif waits_of(metadata.annotations) is None:
        return None
    is_pod = subject.kind == PODS.kind
    owner = OwnerReference(kind=subject.kind, name=subject.name)
    return Pod(
        name=subject.name if is_pod else "",
        namespace=subject.namespace,
        annotations={**metadata.annotations, **added},
        owner_references=() if is_pod else (owner,),
        labels=metadata.labels,
        has_annotations=True,
        gates=(GATE,),
        wait_conditions=waits_of(metadata.annotations),
    )


def with_newest_owner(pod: Pod, version: WorkloadVersion) -> Pod:
    """The pod as one of the newest owner of its version."""
    newest = version.spec.resource_reference
    reference = OwnerReference(kind=newest.kind, name=newest.name, uid=newest.uid)
    return msgspec.structs.replace(pod, owner_references=(reference,))
