"""Workloads whose pods wait for each other, so that none of them ever starts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.api import resources
from harbourmaster.gates.owners import workload_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from harbourmaster.gates.waits import WaitItem
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.wait_items import ItemReport, Targets

    _Workload = tuple[str, str]

_OWNERS = frozenset(("job", "deployment", "statefulset", "daemonset"))


def wait_cycles(
    pods: Iterable[Pod], reports: Mapping[WaitItem, ItemReport], targets: Targets
) -> dict[tuple[str, str], str]:
    """The cycle of each workload that is part of one, by kind in lower case and name.

    ``pods`` are all that wait in one namespace; ``reports`` are those of their items.
    """
    by_workload: dict[_Workload, Pod] = {}
    for pod in pods:
        by_workload.setdefault(workload_of_pod(pod), pod)
    edges: dict[_Workload, AbstractSet[_Workload]] = {}
    for workload, pod in by_workload.items():
        items = pod.waits.items if pod.waits is not None else ()
        open_items = [each for each in items if reports[each].state != "Met"]
        edges[workload] = {
            found for each in open_items for found in _waited_for(each, by_workload, targets)
        }
    found = {}
    for workload in edges:
        if path := _path_back(workload, edges):
            names = ["/".join(each) for each in path]
            found[workload] = f"a cycle of waits: {' -> '.join((*names, names[0]))}"
    return found


def workload_of_pod(pod: Pod) -> tuple[str, str]:
    """Kind in lower case and name of the workload that a pod is of, or of the pod itself."""
    if not pod.owner_references:
        return "pod", pod.name
    kind, name = workload_above(pod.owner_references[-1], pod.labels)
    return kind.lower(), name


def _waited_for(
    item: WaitItem, pods: Mapping[_Workload, Pod], targets: Targets
) -> Iterable[_Workload]:
    """The workloads of waiting pods on which an item depends."""
    if item.kind in _OWNERS:
        return [(item.kind, item.name)] if (item.kind, item.name) in pods else ()
    labels = dict([item.label]) if item.label is not None else {}
    if item.kind == "service":
        service = targets.named(resources.SERVICES, item.name)
        labels = service.selector if service is not None else {}
    if labels:
        return [key for key, pod in pods.items() if labels.items() <= pod.labels.items()]
    return [key for key, pod in pods.items() if item.kind == "pod" and pod.name == item.name]


def _path_back(
    start: _Workload, edges: Mapping[_Workload, AbstractSet[_Workload]]
) -> tuple[_Workload, ...]:
    """The shortest way from a workload to itself; empty where there is none."""
    ways: dict[_Workload, tuple[_Workload, ...]] = {start: (start,)}
    unseen = [start]
    for each in unseen:
        for following in sorted(edges.get(each, ())):
            if following == start:
                return ways[each]
            if following not in ways:
                ways[following] = (*ways[each], following)
                unseen.append(following)
    return ()
