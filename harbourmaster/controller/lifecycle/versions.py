"""Takes a version of an app or a workload through its phases: read, create, write, report.

A pass that is interrupted before the write is repeated with the same names. What was written is not
reported again, because the status shows how far a version is.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.lifecycle.children import CREATE_CHILD, Children
from harbourmaster.controller.lifecycle.writes import is_end_of_namespace, is_lasting, patch_object
from harbourmaster.controller.objects import OwnWrites
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.lifecycle.evaluations import failure_text
from harbourmaster.lifecycle.machine import advance
from harbourmaster.lifecycle.model import AppVersion, WorkloadVersion
from harbourmaster.lifecycle.phases import WORKLOAD_DEPLOY
from harbourmaster.lifecycle.reruns import is_rerun_wanted
from harbourmaster.lifecycle.steps import PhaseNotice, Rules
from harbourmaster.lifecycle.tracing import phase_carrier
from harbourmaster.lifecycle.workloads import deployment_timeout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.kube.store import Store
    from harbourmaster.lifecycle.model import Version
    from harbourmaster.lifecycle.steps import Child, Creation, Inputs, Step


V = TypeVar("V", AppVersion, WorkloadVersion)


class PhaseRunner(Generic[V]):
    """Takes the versions of one kind through their phases, for their reconciler."""

    def __init__(
        self, context: Context, resource: Resource, mirror: Reflector[V], kind: type[V]
    ) -> None:
        self._context = context
        self._resource = resource
        self._store: Store[V] = mirror.store
        self._decode: Callable[[bytes], V] = msgspec.json.Decoder(kind).decode
        self._children = Children(context)
        self._own_writes = OwnWrites()
        self._reported: dict[str, dict[str, tuple[PhaseNotice, str]]] = {}

    def map_unfinished(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Return those of the keys (None: all) whose version is unfinished."""
        for key in list(self._store.keys()) if keys is None else keys:
            version = self._store.get(key)
            if version is None or _has_ended(version):
                self._own_writes.forget(key)
                self._reported.pop(key, None)
            elif not version.metadata.deletion_timestamp:
                yield key

    def current(self, key: str) -> V | None:
        """Return the version, or None if nothing is to be done for it.

        That includes a version that we have changed until the watch brings the change.
        """
        version = self._store.get(key)
        if version is None or _has_ended(version) or version.metadata.deletion_timestamp:
            return None
        return None if self._own_writes.hide(version.metadata) else version

    def report_once(
        self, version: V, topic: str, notice: PhaseNotice | None, cause: str = ""
    ) -> None:
        """Report a fact that no status shows, unless it was the last report on the topic.

        It is reported again for another ``cause``, and after a None, which says that it is over.
        """
        key = version.metadata.key
        said = self._reported.setdefault(key, {})
        if notice is None:
            said.pop(topic, None)
        elif said.get(topic) != (notice, cause):
            said[topic] = (notice, cause)
            self._report(version, notice)
        if not said:
            del self._reported[key]

    def has_reported(self, version: V, topic: str) -> bool:
        """Whether the last report on the topic still holds."""
        return topic in self._reported.get(version.metadata.key, {})

    async def advance(
        self,
        version: V,
        world: Inputs,
        look: Callable[[Inputs], Awaitable[Inputs]] | None = None,
    ) -> float | None:
        """Bring a version as far as it goes; return the seconds until time alone brings it further.

        ``look`` adds whether a workload is deployed. Raises ApiError, also where only a child
        could not be created: the others are then as far as they go.
        """
        now, rules = self._context.now(), self._rules(version)
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
                    made={
                        (creation.phase.name, creation.definition): made[creation]
                        for creation in made
                    },
                    refused=frozenset(
                        (failure.phase.name, failure.definition) for failure in failures
                    ),
                )
            elif outcome.needs_look and look is not None:
                world = await look(world)
            else:
                break
        try:
            written = await self._write(version, outcome)
        except NotFoundError:
            return None
        for creation in made:
            self.report_once(written, _topic(creation), None)
        for creation, error in failures.items():
            if is_lasting(error) and not is_end_of_namespace(error):
                self.report_once(written, _topic(creation), _refusal(creation, error))
        for error in failures.values():
            if not is_end_of_namespace(error):
                raise error
        return outcome.requeue_after

    async def note_waiting(self, version: V) -> None:
        """Write the status of a version whose phases cannot begin or go on yet. Raises ApiError."""
        start_time = version.status.start_time or format_rfc3339(self._context.now())
        status = replace(version.status, start_time=start_time, current_phase="")
        if status != version.status:
            with contextlib.suppress(NotFoundError):
                await self.patch(version, "/status", status, "status")

    async def _create(
        self,
        version: V,
        outcome: Step,
        made: dict[Creation, Child],
        failures: dict[Creation, ApiError],
    ) -> None:
        """Create all children at once; one that cannot be created does not delay the others."""

        async def create(creation: Creation) -> None:
            # The checks of a stage are a part of the deployment.
            phase = creation.phase.name if creation.phase.state else WORKLOAD_DEPLOY.name
            carrier = outcome.status.phase_trace_ids.get(phase, {})
            try:
                made[creation] = await self._children.create(version, creation, carrier)
            except ApiError as error:
                failures[creation] = error

        async with asyncio.TaskGroup() as group:
            for creation in outcome.creations:
                group.create_task(create(creation))

    async def _write(self, version: V, outcome: Step) -> V:
        if outcome.status == version.status:
            return version
        written = await self.patch(version, "/status", outcome.status, "status")
        for notice in outcome.notices:
            self._report(written, notice)
        if written.status.is_finished:
            self._context.signals.report_completed(written)
        return written

    async def patch(
        self, version: V, path: str, value: object, subresource: str | None = None
    ) -> V:
        """Set a field of the spec, or of a subresource; return the changed version.

        Raises ApiError.
        """
        metadata: Metadata = version.metadata
        operation = {"op": "add", "path": path, "value": value}
        stored = await patch_object(
            self._context.client, self._resource, metadata, [operation], subresource
        )
        written = self._decode(stored)
        # A write that changes nothing causes no watch event.
        if written.metadata.resource_version != metadata.resource_version:
            self._own_writes.note(metadata)
        return written

    def _report(self, version: V, notice: PhaseNotice) -> None:
        signals = self._context.signals
        if not notice.about:
            text = notice.text + self._children.cause(version, notice.failed_task)
            signals.emit(
                version,
                notice.phase,
                notice.state,
                text,
                warning=notice.warning,
                is_minor=notice.is_minor,
            )
        elif (evaluation := self._children.evaluation(version, notice.about)) is not None:
            signals.emit(
                evaluation,
                notice.phase,
                notice.state,
                failure_text(evaluation),
                warning=notice.warning,
            )

    def _rules(self, version: V) -> Rules:
        configuration = self._context.configuration.current
        timeout = deployment_timeout(version)
        return Rules(
            is_blocking=configuration.block_deployment,
            has_promotion=self._context.settings.promotion_tasks,
            has_idle_events=self._context.settings.idle_phase_events,
            observability_timeout=(
                configuration.observability_timeout if timeout is None else timeout
            ),
            carrier=phase_carrier if self._context.signals.is_tracing else None,
        )


def _has_ended(version: Version) -> bool:
    return version.status.is_final and not is_rerun_wanted(version)


def _topic(creation: Creation) -> str:
    return f"{creation.phase.name}/{creation.definition}"


def _refusal(creation: Creation, error: ApiError) -> PhaseNotice:
    kind = creation.phase.kind
    text = f"could not create the {kind} for {creation.definition}: {error}"
    return PhaseNotice(phase=CREATE_CHILD[kind], state="Failed", text=text, warning=True)
