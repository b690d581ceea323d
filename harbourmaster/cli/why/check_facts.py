"""Reads the facts about checks with the rights of the caller."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.json import Decoder

from harbourmaster.api import resources
from harbourmaster.api.times import utc_now
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.why.missing_gate import definitions_of
from harbourmaster.evaluation.model import Metric
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle import model
from harbourmaster.lifecycle.check_facts import Facts, check_reports, facts_in, with_version
from harbourmaster.lifecycle.evaluations import written_at
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.gates.workload import WorkloadMetadata
    from harbourmaster.lifecycle.gated_pods import Pod

MOST: Final = 100
"""Maximum number of objects of one kind that are read."""
_TYPES: Final[dict[Resource, Any]] = {
    resources.WORKLOADS: model.Workload,
    resources.TASKS: model.Task,
    resources.TASK_DEFINITIONS: model.TaskDefinition,
    resources.EVALUATIONS: model.Evaluation,
    resources.EVALUATION_DEFINITIONS: model.EvaluationDefinition,
    resources.KEPTN_METRICS: Metric,
}


class GateFactsReader:
    """Reads facts with the caller's rights, each object by its name.

    What is needed is found out by what a report asks for. ``notes`` has a line for each kind that
    it cannot read.
    """

    def __init__(self, live: Installation, namespace: str, places: Sequence[str]) -> None:
        """``places`` are namespaces in which definitions are looked up, in their order."""
        self._live = live
        self._namespace = namespace
        self._places = tuple(dict.fromkeys((namespace, *places)))
        self._objects: dict[tuple[Resource, str], Any] = {}
        self._wanted: dict[Resource, dict[str, None]] = {}
        self._measured: dict[str, datetime] = {}
        self.notes: dict[str, str] = {}

    async def of(self, pod: Pod) -> Facts:
        """Return the facts about a pod's checks. Raises ApiError if its version cannot be read."""
        described = workload_of(pod.annotations, pod.labels)
        if described is None or not pod.has_checks:
            return Facts()
        # Without a version nothing can be said; to say that there is none would be wrong.
        name, decode = names_of_pod(described).version, Decoder(model.WorkloadVersion).decode
        version = await self._live.read(resources.WORKLOAD_VERSIONS, name, decode, self._namespace)
        apps = await self._apps() if version is not None else []

        def report(facts: Facts) -> None:
            for checked in (facts.app, facts.version):
                if checked is not None:
                    check_reports(checked, facts, utc_now())

        return await self.facts_for(report, version, apps)

    async def missing_definitions(self, described: WorkloadMetadata | None) -> list[str]:
        """Return those of ``definitions_of`` that are known not to exist."""

        def missing(facts: Facts) -> list[str]:
            known: dict[str, Collection[str]] = {
                resources.TASK_DEFINITIONS.kind: facts.task_definitions,
                resources.EVALUATION_DEFINITIONS.kind: facts.definitions,
            }
            pairs = [definition.split(" ", 1) for definition in definitions_of(described)]
            return [f"{kind} {name}" for kind, name in pairs if name not in known[kind]]

        unknown = missing(await self.facts_for(missing))
        return [name for name in unknown if not name.startswith(tuple(self.notes))]

    async def _apps(self) -> list[model.AppVersion]:
        note = partial(self.notes.setdefault, resources.APP_VERSIONS.kind)
        decode = Decoder(model.AppVersion).decode
        try:
            return await self._live.items(
                resources.APP_VERSIONS, decode, self._namespace, skipped=note
            )
        except ApiError as error:
            self._note(resources.APP_VERSIONS, error)
            return []

    async def facts_for(
        self,
        use: Callable[[Facts], object],
        version: model.WorkloadVersion | None = None,
        apps: Sequence[model.AppVersion] = (),
    ) -> Facts:
        """Return facts with all that ``use`` looks at; it is called again after each read."""
        while True:
            facts = facts_in(self._namespace, self._places, self._find)
            facts = with_version(facts, version, apps, self._find)
            facts = msgspec.structs.replace(
                facts, measured=self._measured, unread=frozenset(self.notes)
            )
            use(facts)
            if not self._wanted:
                return facts
            wanted, self._wanted = self._wanted, {}
            await asyncio.gather(*(self._read(kind, *keys) for kind, keys in wanted.items()))

    def _find(self, resource: Resource, key: str) -> Any:  # noqa: ANN401 - an object of that kind
        is_named = not key.endswith("/")
        if is_named and (resource, key) not in self._objects:
            self._wanted.setdefault(resource, {})[key] = None
        return self._objects.get((resource, key))

    async def _read(self, resource: Resource, *keys: str) -> None:
        """Read objects; a note says if there are too many, so that none is called missing."""
        names = list(dict.fromkeys(key.partition("/")[2] for key in keys))
        if len(names) > MOST:
            text = f"{resource.kind}: only {MOST} of {len(names)} were looked at"
            self.notes.setdefault(resource.kind, text)
        self._objects |= dict.fromkeys((resource, key) for key in keys)
        looked = [key for key in keys if key.partition("/")[2] in names[:MOST]]
        await asyncio.gather(*(self._read_object(resource, key) for key in looked))

    async def _read_object(self, resource: Resource, key: str) -> None:
        namespace, _, name = key.partition("/")
        try:
            raw = await self._live.find(resource, name, namespace)
            if raw is not None:
                self._objects[resource, key] = msgspec.json.decode(raw, type=_TYPES[resource])
                if resource == resources.EVALUATIONS and (time := written_at(raw)) is not None:
                    self._measured[name] = time
        except (ApiError, ValueError) as error:
            self._note(resource, error)

    def _note(self, resource: Resource, error: Exception) -> None:
        what = resource.kind
        text = read_error(error, what) if isinstance(error, ApiError) else f"{what}: {error}"
        self.notes.setdefault(what, text)
