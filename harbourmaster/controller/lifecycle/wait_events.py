"""Tells users why pods wait, by events on the pods and on their owners.

Keys are those of the KeptnWorkloadVersions for which pods wait. An event that cannot be sent now,
because of the limit on events, stays due. The module ``lifecycle.gate_waits`` selects the events.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api.resources import PODS
from harbourmaster.controller.lifecycle.caches import BY_APP, BY_VERSION
from harbourmaster.controller.lifecycle.owners import has_other_revision
from harbourmaster.controller.lifecycle.pod_releases import annotate
from harbourmaster.controller.objects import reference
from harbourmaster.gates.metadata import PARENT_KEY
from harbourmaster.gates.owners import REPLICA_SET, parent_of, shown_owner, supported_owner
from harbourmaster.gates.release import HELD_BY_KEY
from harbourmaster.kube.errors import ForbiddenError
from harbourmaster.kube.event_series import ObjectReference
from harbourmaster.lifecycle.check_facts import Facts, facts_in, with_version
from harbourmaster.lifecycle.gate_report import gate_report
from harbourmaster.lifecycle.gate_waits import EventStep, gate_wait, next_event
from harbourmaster.lifecycle.gated_pods import versions_of_pod
from harbourmaster.lifecycle.wait_cycles import workload_of_pod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.api.metadata import OwnerReference
    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.gate_waits import GateWait, ReportedWait
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import WorkloadVersion

    _Subjects = dict[str, ObjectReference | Pod]

INTERVAL: Final = 0.2
"""Seconds between two events, of any object."""


class WaitEventReconciler:
    """Reconciles the events about pods that wait for one version. It needs a single worker."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._caches = context.caches
        self._reported: dict[str, ReportedWait] = {}
        self._free_at = 0.0

    def map_changes(self, keys: Iterable[str] | None) -> Iterable[str]:
        """Return the keys; None stands for those of all waiting pods."""
        if keys is not None:
            return keys
        pods = self._caches.pods.store.values()
        return {"/".join(version) for pod in pods for version in versions_of_pod(pod)[:1]}

    async def reconcile(self, key: str) -> float | None:
        """Send the next event; return the seconds until the one after it. Raises ApiError."""
        clock = asyncio.get_running_loop().time
        wait, subjects, step = self._look(key, clock())
        if step.due and clock() < self._free_at:
            await asyncio.sleep(self._free_at - clock())
            wait, subjects, step = self._look(key, clock())
        if wait is not None and step.due:
            about = subjects[step.due]
            if not isinstance(about, ObjectReference):
                if about.has_checks and HELD_BY_KEY not in about.annotations:
                    added = {HELD_BY_KEY: key.partition("/")[2]}
                    # An event is sent without the permission, too.
                    with contextlib.suppress(ForbiddenError):
                        await annotate(self._context.client, about, added)
                about = reference(PODS, about.metadata)
            self._context.signals.report_wait(about, wait)
            self._free_at = clock() + INTERVAL
        self._reported.pop(key, None)
        if step.told is not None:
            self._reported[key] = step.told
        return 0.0 if step.due else step.requeue_after

    def _look(self, key: str, now: float) -> tuple[GateWait | None, _Subjects, EventStep]:
        """Return why pods wait, the owners and pods to report on by UID, and the next event."""
        context, caches = self._context, self._caches
        namespace, _, name = key.partition("/")
        version = caches.workload_versions.store.get(key)
        pods = caches.pods.store.by_index(BY_VERSION, (namespace, name))
        first = next((pod for pod in pods if _is_held(pod)), None)
        if first is None or (version is None and first.has_checks):
            return None, {}, EventStep()
        facts = self._facts(version) if version is not None else Facts()
        owner = supported_owner(first.owner_references)
        stateful_set = caches.stateful_sets.store.get(f"{namespace}/{owner.name if owner else ''}")
        facts = replace(facts, is_superseded=has_other_revision(first, stateful_set))
        if first.wait_conditions is not None:
            items = caches.wait_watches.explained_reports(first)
            # Pods that are about to go are in no cycle, and they are many at once.
            is_open = any(item.state != "Met" for item in items.values())
            cycles = caches.wait_watches.cycles(namespace) if is_open else {}
            cycle = cycles.get(workload_of_pod(first), "")
            facts = replace(facts, items=items, cycle=cycle)
        wait = gate_wait(gate_report(first, facts, context.settings.wait_rules, context.now()))
        if wait is None:
            return None, {}, EventStep()
        held = [pod for pod in pods if _is_held(pod)]
        shown_owners = (shown_owner(pod.owner_references) for pod in held)
        owners = {owner.uid: owner for owner in shown_owners if owner is not None}.values()
        visible = [self._visible_owner(namespace, owner) for owner in owners]
        subjects: _Subjects = {about.uid: about for about in visible}
        subjects |= {pod.uid: pod for pod in held}
        return wait, subjects, next_event(wait, tuple(subjects), self._reported.get(key), now)

    def _visible_owner(self, namespace: str, owner: OwnerReference) -> ObjectReference:
        """Return the owner that users look at: of a ReplicaSet, its own owner."""
        replica_set = self._caches.replica_sets.store.get(f"{namespace}/{owner.name}")
        if owner.kind == REPLICA_SET and replica_set is not None:
            owner = parent_of(replica_set.metadata.owner_references) or owner
        return ObjectReference(owner.api_version, owner.kind, owner.name, namespace, owner.uid)

    def _facts(self, version: WorkloadVersion) -> Facts:
        caches, namespace = self._caches, version.metadata.namespace
        apps = caches.app_versions.store.by_index(BY_APP, (namespace, version.spec.app))

        def find(resource: Resource, key: str) -> object:
            return caches.by_resource[resource].store.get(key)

        facts = facts_in(namespace, self._context.definition_namespaces(namespace), find)
        # An evaluation itself says what was wrong with its metrics.
        facts = replace(facts, metrics={}, unread=("KeptnMetric",))
        return with_version(facts, version, apps, find)


def _is_held(pod: Pod) -> bool:
    """Whether a pod waits for its checks or for objects, so that events can report it."""
    if not pod.is_held or pod.is_ending or PARENT_KEY in pod.annotations:
        return False
    return not pod.has_checks or supported_owner(pod.owner_references) is not None
