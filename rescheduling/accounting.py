"""The cluster as the watches tell it, kept so that a plan need not look at every pod anew.

(rescheduler-spec 5.8)
"""

from __future__ import annotations

from itertools import chain, count
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.rescheduling.classes import flags_of, is_required, rank_of
from harbourmaster.rescheduling.model import PendingPod
from harbourmaster.rescheduling.plans import PlannerSettings
from harbourmaster.rescheduling.roster import COMMON
from harbourmaster.rescheduling.spaces import Entry, Group, Space
from harbourmaster.rescheduling.stands import usual
from harbourmaster.rescheduling.vectors import Scale

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from harbourmaster.rescheduling.model import AntiAffinityTerm, Budget, Node, Pod

_SCALES: Final = 4
"""Sets of resources that critical pods ask for, which are remembered."""
_TEMPLATES: Final = 16
_DEFAULTS: Final = PlannerSettings()


class Cluster:
    """Nodes, pods, budgets and namespaces.

    Every change costs the same however large the cluster is. Changes may come in any order: a pod
    before its node, a removal of what was never there. ``settings`` are those of the plans; a plan
    with others sorts all pods anew.
    """

    def __init__(self, settings: PlannerSettings = _DEFAULTS) -> None:
        self.spaces: dict[str, Space] = {}
        self.pending: dict[str, PendingPod] = {}
        self.budgets: dict[str, Budget] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.groups: dict[str, dict[tuple[int, tuple[AntiAffinityTerm, ...]], Group]] = {}
        self.keeping_apart: dict[int, Group] = {}
        self.ports: dict[int, dict[str, Pod]] = {}
        self.stamp = self.guard_stamp = 0
        self._ticks = count(1)
        self._settings = settings
        self._places: dict[str, Space] = {}
        self._budgets_of: dict[str, dict[str, Budget]] = {}
        self._scales: dict[tuple[str, ...], Scale] = {}
        self._templates: dict[Hashable, int] = {}
        self._groups_of: dict[str, dict[int, Group]] = {}
        """By the UID of an owner of pods."""

    def node(self, name: str) -> Node | None:
        """The node of that name, if it is there."""
        space = self.spaces.get(name)
        return space.node if space else None

    def nodes(self) -> list[Node]:
        """All nodes that are there."""
        return [space.node for space in self.spaces.values() if space.node is not None]

    def pod(self, uid: str) -> Pod | None:
        """The pod with that UID, if it is on a node and not finished."""
        space = self._places.get(uid)
        return space.entries[uid].pod if space else None

    def pods_on(self, name: str) -> list[Pod]:
        """The pods on the node that are not finished."""
        space = self.spaces.get(name)
        return [entry.pod for entry in space.entries.values()] if space else []

    def place_of(self, uid: str) -> Space | None:
        """Where a pod is."""
        return self._places.get(uid)

    def places_of(self, owner: str) -> set[str]:
        """The nodes on which pods of the owner with that UID are."""
        groups = self._groups_of.get(owner, {}).values()
        return {pod.node for group in groups for pod in group.pods.values() if pod.owner == owner}

    def __len__(self) -> int:
        return len(self._places)

    def put_node(self, node: Node) -> None:
        """A node came or changed."""
        space = self._space(node.name)
        before = space.node
        space.node = node
        if before is None or not _is_alike(before, node):
            space.verdicts.clear()
            if before is None or before.allocatable != node.allocatable:
                space.stands.clear()
                usual(space, node, self.scale(COMMON))
            self._touch(space)

    def remove_node(self, name: str) -> None:
        """A node went; its pods are kept until they go, too."""
        space = self.spaces.get(name)
        if space is not None and space.node is not None:
            space.node = None
            space.stands.clear()
            space.verdicts.clear()
            self._touch(space)
            self._drop_if_empty(space)

    def put_pod(self, given: Pod | PendingPod) -> None:
        """A pod came or changed; one that is finished, or has lost its node, goes."""
        pod = given.pod if isinstance(given, PendingPod) else given
        if not pod.node and not pod.is_finished and isinstance(given, PendingPod):
            self._displace(pod.uid)
            self.pending[pod.uid] = given
            return
        self.pending.pop(pod.uid, None)
        place = self._places.get(pod.uid)
        if place is not None and place.name == pod.node and place.entries[pod.uid].pod == pod:
            return
        self._displace(pod.uid)
        if pod.node and not pod.is_finished:
            self._place(pod)

    def remove_pod(self, uid: str) -> None:
        """A pod went."""
        self.pending.pop(uid, None)
        self._displace(uid)

    def put_budget(self, budget: Budget) -> None:
        """A budget came or changed; only a new selector costs more than looking it up."""
        key = budget.key
        before = self.budgets.get(key)
        self.budgets[key] = budget
        self._budgets_of.setdefault(budget.namespace, {})[key] = budget
        if before is not None and before.selector == budget.selector:
            return
        self.guard_stamp = next(self._ticks)
        for group in self.groups.get(budget.namespace, {}).values():
            _guard(group, budget)

    def remove_budget(self, key: str) -> None:
        """A budget went."""
        budget = self.budgets.pop(key, None)
        if budget is None:
            return
        del self._budgets_of[budget.namespace][key]
        self.guard_stamp = next(self._ticks)
        for group in self.groups.get(budget.namespace, {}).values():
            group.budgets = tuple(each for each in group.budgets if each != key)

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """A namespace came or changed."""
        self.namespaces[name] = labels

    def remove_namespace(self, name: str) -> None:
        """A namespace went."""
        self.namespaces.pop(name, None)

    def adopt(self, settings: PlannerSettings) -> None:
        """Take over the settings of a plan."""
        if settings == self._settings:
            return
        is_other = _rules(settings) != _rules(self._settings)
        self._settings = settings
        if not is_other:
            return
        for space in self.spaces.values():
            space.fill(
                {uid: self._entry(each.pod, each.group) for uid, each in space.entries.items()}
            )
            self._touch(space)

    def scale(self, names: tuple[str, ...]) -> Scale:
        """The scale for these resources."""
        found = self._scales.get(names)
        if found is None:
            if len(self._scales) >= _SCALES:
                oldest = next(iter(self._scales))
                del self._scales[oldest]
                asked = {*names, *chain.from_iterable(self._scales)}
                for space in self.spaces.values():
                    space.stands.pop(oldest, None)
                    space.roster.forget_but(asked)
            found = self._scales[names] = Scale(names)
        return found

    def template(self, pending: PendingPod, taint_key: str) -> int:
        """A number for all pods of which nodes think alike."""
        key = (
            pending.node_name,
            pending.node_selector,
            pending.node_terms,
            pending.tolerations,
            taint_key,
        )
        found = self._templates.get(key)
        if found is None:
            if len(self._templates) >= _TEMPLATES:
                self._templates.clear()
                for space in self.spaces.values():
                    space.verdicts.clear()
            found = self._templates[key] = next(self._ticks)
        return found

    def entry_of(self, pod: Pod) -> Entry:
        """What the settings make of a pod that need not be in the cluster."""
        group = Group(pod)
        self._guard_all(group)
        return self._entry(pod, group)

    def groups_in(self, namespaces: Iterable[str]) -> Iterator[Group]:
        """The groups of these namespaces."""
        for namespace in namespaces:
            yield from self.groups.get(namespace, {}).values()

    def _space(self, name: str) -> Space:
        space = self.spaces.get(name)
        if space is None:
            space = self.spaces[name] = Space(name)
        return space

    def _place(self, pod: Pod) -> None:
        space = self._space(pod.node)
        group = self._group(pod)
        group.pods[pod.uid] = pod
        if pod.owner:
            group.owners[pod.owner] = group.owners.get(pod.owner, 0) + 1
            self._groups_of.setdefault(pod.owner, {})[id(group)] = group
        space.add(self._entry(pod, group))
        self._places[pod.uid] = space
        for port in pod.ports:
            self.ports.setdefault(port.number, {})[pod.uid] = pod
        self._touch(space)

    def _displace(self, uid: str) -> None:
        space = self._places.pop(uid, None)
        if space is None:
            return
        entry = space.remove(uid)
        for port in entry.pod.ports:
            holders = self.ports.get(port.number, {})
            holders.pop(uid, None)
            if not holders:
                self.ports.pop(port.number, None)
        group = entry.group
        del group.pods[uid]
        if entry.pod.owner:
            self._disown(group, entry.pod.owner)
        if not group.pods:
            self._forget(group)
        self._touch(space)
        self._drop_if_empty(space)

    def _entry(self, pod: Pod, group: Group) -> Entry:
        flags = flags_of(pod, self._settings)
        required = is_required(pod, self._settings)
        return Entry(pod, group, flags, rank_of(flags, pod.priority), required)

    def _group(self, pod: Pod) -> Group:
        groups = self.groups.setdefault(pod.namespace, {})
        key = (id(pod.labels), pod.anti_affinity)
        group = groups.get(key)
        if group is None:
            group = groups[key] = Group(pod)
            self._guard_all(group)
            if group.anti_affinity:
                self.keeping_apart[id(group)] = group
        return group

    def _disown(self, group: Group, owner: str) -> None:
        group.owners[owner] -= 1
        if group.owners[owner]:
            return
        del group.owners[owner]
        groups = self._groups_of[owner]
        del groups[id(group)]
        if not groups:
            del self._groups_of[owner]

    def _forget(self, group: Group) -> None:
        groups = self.groups[group.namespace]
        del groups[id(group.labels), group.anti_affinity]
        if not groups:
            del self.groups[group.namespace]
        self.keeping_apart.pop(id(group), None)

    def _guard_all(self, group: Group) -> None:
        for budget in self._budgets_of.get(group.namespace, {}).values():
            _guard(group, budget)

    def _touch(self, space: Space) -> None:
        self.stamp = space.stamp = next(self._ticks)

    def _drop_if_empty(self, space: Space) -> None:
        if space.node is None and not space.entries:
            self.spaces.pop(space.name, None)


def _guard(group: Group, budget: Budget) -> None:
    kept = tuple(each for each in group.budgets if each != budget.key)
    matches = budget.selector is not None and budget.selector.matches(group.labels)
    group.budgets = tuple(sorted((*kept, budget.key))) if matches else kept


def _is_alike(one: Node, other: Node) -> bool:
    """Whether nodes differ at most in what plans don't look at."""
    if one.resource_version == other.resource_version:
        return one == other
    return one == replace(
        other, resource_version=one.resource_version, reservations=one.reservations
    )


def _rules(settings: PlannerSettings) -> tuple[object, ...]:
    """The settings that sort pods."""
    return (
        settings.long_grace,
        settings.non_drainable,
        settings.max_victim_priority,
        settings.protected_namespaces,
    )
