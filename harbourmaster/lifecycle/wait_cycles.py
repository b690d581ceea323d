"""Finds workloads whose pods wait for each other, so that none of them ever starts. Pure."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Final

from harbourmaster.api import resources
from harbourmaster.gates.owners import workload_above

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from harbourmaster.gates.waits import WaitItem
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.wait_items import ItemReport, Targets

    _Workload = tuple[str, str]

MAX_STEPS: Final = 20_000
_SHOWN: Final = 8
"""Workloads of a cycle that its text names."""
_NAME: Final = ""
"""The key, which no label has, by which pods are found by their name."""
_OWNERS: Final = frozenset(("job", "deployment", "statefulset", "daemonset"))
_DEPENDENT: Final = _OWNERS | {"pod", "service"}
"""Kinds of objects whose conditions depend on pods."""


def wait_cycles(
    pods: Iterable[Pod], reports: Mapping[WaitItem, ItemReport], targets: Targets
) -> dict[tuple[str, str], str]:
    """Return the cycle of each workload that is part of one, by kind in lower case and name.

    ``pods`` are all that wait in one namespace; ``reports`` are those of their items. The search
    ends after MAX_STEPS, because users choose how many pods there are.
    """
    by_workload: dict[_Workload, Pod] = {}
    for pod in pods:
        by_workload.setdefault(workload_of_pod(pod), pod)
    by_label: defaultdict[tuple[str, str], set[_Workload]] = defaultdict(set)
    for workload, pod in by_workload.items():
        for label in (*pod.labels.items(), (_NAME, pod.name)):
            by_label[label].add(workload)
    # Pods of many workloads may wait for the same.
    waited_for: dict[WaitItem, Collection[_Workload]] = {}
    steps = 0
    edges: dict[_Workload, list[Collection[_Workload]]] = {}
    for workload, pod in by_workload.items():
        edges[workload] = []
        for item in pod.wait_conditions.items if pod.wait_conditions is not None else ():
            if item not in waited_for:
                report = reports.get(item)
                is_met = report is not None and report.state == "Met"
                waited_for[item] = sorted(
                    () if is_met else _waited_for(item, by_workload, by_label, targets)
                )
                steps += 1 + len(waited_for[item])
                if steps > MAX_STEPS:
                    return {}
            if waited_for[item]:
                edges[workload].append(waited_for[item])
    return _cycles(edges)


def waits_for_pods(pod: Pod) -> bool:
    """Whether a pod waits for anything that depends on pods, as all of a cycle do."""
    items = pod.wait_conditions.items if pod.wait_conditions is not None else ()
    return any(item.label or item.kind in _DEPENDENT for item in items)


def workload_of_pod(pod: Pod) -> tuple[str, str]:
    """Return kind in lower case and name of the pod's workload, or of the pod itself."""
    if not pod.owner_references:
        return "pod", pod.name
    kind, name = workload_above(pod.owner_references[-1], pod.labels)
    return kind.lower(), name


def _waited_for(
    item: WaitItem,
    pods: Mapping[_Workload, Pod],
    by_label: Mapping[tuple[str, str], set[_Workload]],
    targets: Targets,
) -> Iterable[_Workload]:
    """Return the workloads of waiting pods on which an item depends."""
    if item.kind in _OWNERS:
        return [(item.kind, item.name)] if (item.kind, item.name) in pods else ()
    labels = dict([item.label]) if item.label is not None else {}
    if item.kind == "service":
        service = targets.find(resources.SERVICES, item.name)
        labels = service.selector if service is not None else {}
    if labels:
        return set.intersection(*(by_label.get(label, set()) for label in labels.items()))
    return by_label.get((_NAME, item.name), ()) if item.kind == "pod" else ()


def _cycles(
    edges: Mapping[_Workload, Sequence[Collection[_Workload]]],
) -> dict[_Workload, str]:
    """Return the text of the cycle of each node that is part of one."""
    cycles: dict[_Workload, str] = {}
    steps = 0
    for start in edges:
        if start in cycles or steps > MAX_STEPS:
            continue
        path, taken = _path_back(start, edges)
        steps += taken
        names = ["/".join(workload) for workload in path]
        for index, workload in enumerate(path):
            turned = [names[at % len(names)] for at in range(index, index + len(names[:_SHOWN]))]
            last = names[index] if len(names) <= _SHOWN else f"... ({len(names)} in all)"
            cycles.setdefault(workload, f"a cycle of waits: {' -> '.join((*turned, last))}")
    return cycles


def _path_back(
    start: _Workload, edges: Mapping[_Workload, Sequence[Collection[_Workload]]]
) -> tuple[tuple[_Workload, ...], int]:
    """Return the shortest path from a node to itself, or nothing, and the number of steps."""
    before: dict[_Workload, _Workload] = {}
    unseen, steps = [start], 0
    for workload in unseen:
        for following in chain.from_iterable(edges.get(workload, ())):
            steps += 1
            if following == start:
                way = [workload]
                while way[-1] != start:
                    way.append(before[way[-1]])
                return tuple(reversed(way)), steps
            if following not in before:
                before[following] = workload
                unseen.append(following)
            if steps > MAX_STEPS:
                return (), steps
    return (), steps
