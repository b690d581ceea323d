"""Workloads whose pods wait for each other, so that none of them ever starts. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from harbourmaster.api import resources
from harbourmaster.gates.owners import workload_above

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harbourmaster.gates.waits import WaitItem
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.wait_items import ItemReport, Targets

    _Workload = tuple[str, str]


def workload_of_pod(pod: Pod) -> tuple[str, str]:
    """Kind in lower case and name of the workload that a pod is of, or of the pod itself."""
    if not pod.owner_references:
        return "pod", pod.name
    kind, name = workload_above(pod.owner_references[-1], pod.labels)
    return kind.lower(), name


class WaitGraph:
    """Which workloads of one namespace wait for which."""

    def __init__(
        self, pods: Iterable[Pod], reports: Mapping[WaitItem, ItemReport], targets: Targets
    ) -> None:
        """``pods``: all that wait, or one of each workload; ``reports``: those of their items."""
        self._reports = reports
        self._targets = targets
        self._pods: dict[_Workload, Pod] = {}
        self._labelled: defaultdict[tuple[str, str], set[_Workload]] = defaultdict(set)
        self._edges: dict[_Workload, set[_Workload]] = {}
        for pod in pods:
            workload = workload_of_pod(pod)
            if self._pods.setdefault(workload, pod) is pod:
                for label in pod.labels.items():
                    self._labelled[label].add(workload)

    def cycle(self, pod: Pod) -> str:
        """The shortest cycle that the workload of a pod is part of; empty where there is none."""
        start = workload_of_pod(pod)
        ways: dict[_Workload, tuple[_Workload, ...]] = {start: (start,)}
        unseen = [start]
        for each in unseen:
            for following in sorted(self._after(each)):
                if following == start:
                    names = ["/".join(part) for part in (*ways[each], start)]
                    return f"a cycle of waits: {' -> '.join(names)}"
                if following not in ways:
                    ways[following] = (*ways[each], following)
                    unseen.append(following)
        return ""

    def _after(self, workload: _Workload) -> set[_Workload]:
        found = self._edges.get(workload)
        if found is None:
            found = self._edges[workload] = set()
            waits = self._pods[workload].waits if workload in self._pods else None
            for item in waits.items if waits is not None else ():
                report = self._reports.get(item)
                if report is None or report.state != "Met":
                    found |= self._waited_for(item)
        return found

    def _waited_for(self, item: WaitItem) -> set[_Workload]:
        """The waiting workloads on which an item depends."""
        labels = dict([item.label]) if item.label is not None else {}
        if item.kind == "service":
            service = self._targets.named(resources.SERVICES, item.name)
            labels = service.selector if service is not None else {}
        if labels:
            return set.intersection(*(self._labelled.get(each, set()) for each in labels.items()))
        return {(item.kind, item.name)} & self._pods.keys()
