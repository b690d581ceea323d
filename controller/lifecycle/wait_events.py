"""Tells users why pods wait: events on the pods and on their owners, by ``lifecycle.gate_waits``.

Keys are those of the KeptnWorkloadVersions for which pods wait. What cannot be told now, because
only so many events may be sent, stays due.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import PODS
from harbourmaster.controller.lifecycle.caches import BY_APP, BY_VERSION
from harbourmaster.controller.objects import reference
from harbourmaster.gates.metadata import PARENT_KEY
from harbourmaster.gates.owners import REPLICA_SET, parent_of, supported_owner
from harbourmaster.gates.release import HELD_BY_KEY, nudge
from harbourmaster.kube.errors import ForbiddenError, NotFoundError
from harbourmaster.kube.event_series import ObjectReference
from harbourmaster.lifecycle.check_facts import Facts, phases_before
from harbourmaster.lifecycle.gate_report import gate_report
from harbourmaster.lifecycle.gate_waits import EventStep, gate_wait, next_event
from harbourmaster.lifecycle.gated_pods import versions_of_pod
from harbourmaster.lifecycle.phases import EVALUATION, TASK
from harbourmaster.lifecycle.waiting import app_version_of, seconds_to_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from harbourmaster.api.metadata import OwnerReference
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.kube.caches import Cache
    from harbourmaster.lifecycle.gate_waits import GateWait, Told
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import AppVersion, Version, WorkloadVersion
    from harbourmaster.lifecycle.phases import Phase

    _Names = Callable[[Version, Phase], Iterable[str]]

INTERVAL: Final = 0.2
"""Seconds between two events, whatever they are about."""


class _Look(NamedTuple):
    """What is due: ``subjects`` are the owners and the pods, by UID; an owner has no Pod."""

    wait: GateWait | None
    subjects: dict[str, tuple[ObjectReference, Pod | None]]
    step: EventStep
    left: float = 0.0
    """Seconds until the reason changes by time alone."""


class WaitEvents:
    """Reconciles the events about pods that wait for one version; for a single worker."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._caches = context.caches
        self._told: dict[str, Told] = {}
        self._free_at = 0.0

    def due(self, keys: Iterable[str] | None) -> Iterable[str]:
        """The keys; None stands for those of all waiting pods."""
        if keys is not None:
            return keys
        pods = self._caches.pods.store.values()
        return {"/".join(each) for pod in pods for each in versions_of_pod(pod)[:1]}

    async def reconcile(self, key: str) -> float | None:
        """Send the next event; returns the seconds to the one after it. Raises ApiError."""
        clock = asyncio.get_running_loop().time
        found = self._look(key, clock())
        if found.step.due and clock() < self._free_at:
            await asyncio.sleep(self._free_at - clock())
            found = self._look(key, clock())
        wait, step = found.wait, found.step
        if wait is None or step.told is None or not step.due:
            return min((each for each in (step.wait, found.left) if each), default=None)
        about, pod = found.subjects[step.due]
        if pod is not None and HELD_BY_KEY not in pod.annotations:
            await self._annotate(pod, wait.version)
        self._context.signals.waits(about, wait)
        self._told[key] = step.told.after(step.due, clock())
        self._free_at = clock() + INTERVAL
        return 0.0

    def _look(self, key: str, now: float) -> _Look:
        context, caches = self._context, self._caches
        namespace, _, name = key.partition("/")
        version = caches.workload_versions.store.get(key)
        pods = caches.pods.store.by_index(BY_VERSION, (namespace, name))
        held = [(owner, pod) for pod in pods if (owner := _held_owner(pod)) is not None]
        if version is None or not held:
            self._told.pop(key, None)
            return _Look(None, {}, EventStep())
        app = app_version_of(
            version, caches.app_versions.store.by_index(BY_APP, (namespace, version.spec.app))
        )
        left = seconds_to_app(version, app, context.configuration.current, context.now())
        facts, rules = self._facts(version, app), context.settings.wait_rules
        wait = gate_wait(gate_report(held[0][1], facts, rules, context.now()), is_app_late=not left)
        subjects: dict[str, tuple[ObjectReference, Pod | None]] = {}
        for owner in {owner.uid: owner for owner, _ in held}.values():
            about = self._visible_owner(namespace, owner)
            subjects[about.uid] = (about, None)
        subjects |= {pod.uid: (reference(PODS, pod.metadata), pod) for _, pod in held}
        step = next_event(wait, tuple(subjects), self._told.pop(key, None), now)
        if step.told is not None:
            self._told[key] = step.told
        return _Look(wait, subjects, step, left)

    def _visible_owner(self, namespace: str, owner: OwnerReference) -> ObjectReference:
        """The owner at which users look: of a ReplicaSet, its own."""
        found = self._caches.replica_sets.store.get(f"{namespace}/{owner.name}")
        if owner.kind == REPLICA_SET and found is not None:
            owner = parent_of(found.metadata.owner_references) or owner
        return ObjectReference(owner.api_version, owner.kind, owner.name, namespace, owner.uid)

    def _facts(self, version: WorkloadVersion, app: AppVersion | None) -> Facts:
        """What is cached of the version's checks and those of its app."""
        caches, namespace = self._caches, version.metadata.namespace
        places = self._context.definition_namespaces(namespace)
        phases = [(each, phase) for each in (app, version) if each for phase in phases_before(each)]

        def collected(kind: str, names: _Names, read: Callable[[str], Any]) -> dict[str, Any]:
            wanted = {
                name for each, phase in phases if phase.kind == kind for name in names(each, phase)
            }
            return {name: found for name in wanted if (found := read(name)) is not None}

        def child(cache: Cache[Any], name: str) -> Any:  # noqa: ANN401 - of either kind
            return cache.store.get(f"{namespace}/{name}")

        def definition(cache: Cache[Any], name: str) -> Any:  # noqa: ANN401 - of either kind
            return caches.definition(cache, name, places)

        return Facts(
            workload=caches.workloads.store.get(f"{namespace}/{version.spec.workload_name}"),
            version=version,
            app=app,
            tasks=collected(TASK, _children, partial(child, caches.tasks)),
            evaluations=collected(EVALUATION, _children, partial(child, caches.evaluations)),
            task_definitions=collected(TASK, _checks, partial(definition, caches.task_definitions)),
            definitions=collected(
                EVALUATION, _checks, partial(definition, caches.evaluation_definitions)
            ),
            # An evaluation itself says what was wrong with its metrics.
            unread=("KeptnMetric",),
        )

    async def _annotate(self, pod: Pod, version: str) -> None:
        annotations = pod.annotations if pod.has_annotations else None
        added = {HELD_BY_KEY: version}
        operations = nudge(pod.uid, annotations, added, revision=pod.resource_version)
        # A pod that goes needs none, and an event is sent without the permission, too.
        with contextlib.suppress(NotFoundError, ForbiddenError):
            await self._context.client.patch(
                PODS, pod.name, JsonPatch(operations or []), pod.namespace
            )


def _children(version: Version, phase: Phase) -> list[str]:
    return [item.name for item in getattr(version.status, phase.items)]


def _checks(version: Version, phase: Phase) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(version.spec, phase.checks)
    return found


def _held_owner(pod: Pod) -> OwnerReference | None:
    """The owner of a pod that waits for its checks; None of any other pod."""
    if not pod.is_held or pod.is_ending or PARENT_KEY in pod.annotations:
        return None
    return supported_owner(pod.owner_references)
