"""One pass over a version of an app or of a workload: read, create, write, tell - in this order.

What was cut off before the write is done again under the same names. What was written is not told
again: a version says by itself how far it is.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import APP_VERSIONS
from harbourmaster.api.times import stamp
from harbourmaster.controller.lifecycle.children import Children
from harbourmaster.controller.lifecycle.writes import is_end_of_namespace, is_lasting, precondition
from harbourmaster.controller.objects import OwnWrites
from harbourmaster.gates.names import version_name, workload_name
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.lifecycle.evaluations import failure_text
from harbourmaster.lifecycle.machine import advance
from harbourmaster.lifecycle.model import AppVersion, WorkloadVersion
from harbourmaster.lifecycle.phases import TASK
from harbourmaster.lifecycle.steps import Inputs, PhaseNotice, Rules
from harbourmaster.lifecycle.tracing import phase_carrier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.kube.store import Store
    from harbourmaster.lifecycle.model import WorkloadEntry
    from harbourmaster.lifecycle.steps import Child, Creation, VersionStep


V = TypeVar("V", AppVersion, WorkloadVersion)


class Versions(Generic[V]):
    """The versions of one kind, as their reconciler sees them."""

    def __init__(
        self, context: Context, resource: Resource, mirror: Reflector[V], kind: type[V]
    ) -> None:
        self._context = context
        self._resource = resource
        self._store: Store[V] = mirror.store
        self._decode: Callable[[bytes], V] = msgspec.json.Decoder(kind).decode
        self._children = Children(context)
        self._own_writes = OwnWrites()
        self._said: dict[str, dict[str, tuple[PhaseNotice, str]]] = {}

    def unfinished(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Those of the keys that need a look; None for: all. What is over costs nothing."""
        for key in list(self._store.keys()) if keys is None else keys:
            found = self._store.get(key)
            if found is None or found.status.is_finished:
                self._own_writes.forget(key)
                self._said.pop(key, None)
            elif not found.metadata.deletion_timestamp:
                yield key

    def current(self, key: str) -> V | None:
        """The version as it is now; None where there is nothing to do for it.

        What we have written over is not seen: the watch is about to bring what took its place.
        """
        found = self._store.get(key)
        if found is None or found.status.is_finished or found.metadata.deletion_timestamp:
            return None
        return None if self._own_writes.hide(found.metadata) else found

    def tell_once(
        self, version: V, topic: str, notice: PhaseNotice | None, cause: str = ""
    ) -> None:
        """Tell what is in no status, unless it was the last thing told of the topic.

        The same of another ``cause`` is news. None is nothing to tell, so that the next thing is.
        """
        key = version.metadata.key
        said = self._said.setdefault(key, {})
        if notice is None:
            said.pop(topic, None)
        elif said.get(topic) != (notice, cause):
            said[topic] = (notice, cause)
            self._tell(version, notice)
        if not said:
            del self._said[key]

    def has_told(self, version: V, topic: str) -> bool:
        """Whether something of the topic was told and still holds."""
        return topic in self._said.get(version.metadata.key, {})

    async def advance(
        self,
        version: V,
        world: Inputs,
        look: Callable[[], Awaitable[bool]] | None = None,
    ) -> float | None:
        """Bring a version as far as it goes; seconds until time alone brings it further.

        ``look`` tells whether a workload is deployed. Raises ApiError, also where only a child
        could not be created: the others are then as far as they go.
        """
        now, rules = self._context.now(), self._rules()
        world = replace(
            world,
            children=await self._children.states(version),
            definitions=self._children.definitions(version),
        )
        failures: dict[Creation, ApiError] = {}
        made: dict[Creation, Child] = {}
        while True:
            outcome = advance(version, world, rules, now)
            if outcome.creations:
                await self._create(version, outcome, made, failures)
                world = replace(
                    world,
                    made={(each.phase.name, each.definition): made[each] for each in made},
                    refused=frozenset((each.phase.name, each.definition) for each in failures),
                )
            elif outcome.needs_look and look is not None:
                world = replace(world, is_deployed=await look())
            else:
                break
        try:
            written = await self._write(version, outcome)
        except NotFoundError:
            return None
        for creation in made:
            self.tell_once(written, _topic(creation), None)
        for creation, error in failures.items():
            if is_lasting(error) and not is_end_of_namespace(error):
                self.tell_once(written, _topic(creation), _refusal(creation, error))
        for error in failures.values():
            if not is_end_of_namespace(error):
                raise error
        return outcome.wait

    async def note_waiting(self, version: V) -> None:
        """See that one whose first phase can't begin yet has a status. Raises ApiError."""
        if not version.status.start_time:
            status = replace(version.status, start_time=stamp(self._context.now()))
            with contextlib.suppress(NotFoundError):
                await self._patched(version, "/status", status, "status")

    async def patch(self, version: V, path: str, value: object) -> V:
        """Set a field of the spec; the version as it is then. Raises ApiError."""
        return await self._patched(version, path, value, None)

    async def _create(
        self,
        version: V,
        outcome: VersionStep,
        made: dict[Creation, Child],
        failures: dict[Creation, ApiError],
    ) -> None:
        """Create all at once; what can't be created keeps only itself waiting."""

        async def create(creation: Creation) -> None:
            carrier = outcome.status.phase_trace_ids.get(creation.phase.name, {})
            try:
                made[creation] = await self._children.create(version, creation, carrier)
            except ApiError as error:
                failures[creation] = error

        async with asyncio.TaskGroup() as group:
            for creation in outcome.creations:
                group.create_task(create(creation))

    async def _write(self, version: V, outcome: VersionStep) -> V:
        if outcome.status == version.status:
            return version
        written = await self._patched(version, "/status", outcome.status, "status")
        for notice in outcome.notices:
            self._tell(written, notice)
        if written.status.is_finished:
            self._context.signals.completed(written)
        return written

    async def _patched(self, version: V, path: str, value: object, subresource: str | None) -> V:
        metadata: Metadata = version.metadata
        operations = [*precondition(metadata), {"op": "add", "path": path, "value": value}]
        stored = await self._context.client.patch(
            self._resource,
            metadata.name,
            JsonPatch(operations),
            metadata.namespace,
            subresource=subresource,
        )
        written = self._decode(stored)
        # A write that changed nothing brings no event.
        if written.metadata.resource_version != metadata.resource_version:
            self._own_writes.note(metadata)
        return written

    def _tell(self, version: V, notice: PhaseNotice) -> None:
        signals = self._context.signals
        if not notice.about:
            signals.emit(version, notice.phase, notice.state, notice.text, warning=notice.warning)
        elif (found := self._children.evaluation(version, notice.about)) is not None:
            signals.emit(
                found, notice.phase, notice.state, failure_text(found), warning=notice.warning
            )

    def _rules(self) -> Rules:
        configuration = self._context.configuration.current
        return Rules(
            is_blocking=configuration.block_deployment,
            has_promotion=self._context.settings.promotion_tasks,
            observability_timeout=configuration.observability_timeout,
            carrier=phase_carrier if self._context.signals.tracing else None,
        )


def _topic(creation: Creation) -> str:
    return f"{creation.phase.name}/{creation.definition}"


def _refusal(creation: Creation, error: ApiError) -> PhaseNotice:
    kind = creation.phase.kind
    word = "CreateTask" if kind == TASK else "CreateEvaluation"
    text = f"could not create a {kind} for {creation.definition}: {error}"
    return PhaseNotice(phase=word, state="Failed", text=text, warning=True)


class AppVersions:
    """Reconciles one KeptnAppVersion; keys are ``namespace/name``."""

    def __init__(self, context: Context) -> None:
        caches = context.caches
        self._workloads = caches.workload_versions.store
        self._versions = Versions(context, APP_VERSIONS, caches.app_versions, AppVersion)

    def due(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Those of the keys that are not over."""
        return self._versions.unfinished(keys)

    async def reconcile(self, key: str) -> float | None:
        """Bring a version as far as it goes. Raises ApiError."""
        version = self._versions.current(key)
        if version is None:
            return None
        return await self._versions.advance(version, Inputs(workloads=self._states(version)))

    def _states(self, version: AppVersion) -> dict[WorkloadEntry, str]:
        """What the workloads that the app lists are in, if there are such."""
        app, namespace = version.spec.app_name, version.metadata.namespace
        states = {}
        for entry in version.spec.workloads:
            name = version_name(workload_name(app, entry.name), entry.version)
            found = self._workloads.get(f"{namespace}/{name}")
            if found is not None and found.spec.app == app:
                states[entry] = found.status.status
        return states
