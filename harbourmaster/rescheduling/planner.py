"""Chooses a node for a critical pod, and the pods to evict (rescheduler-spec 5.5-5.7).

All nodes are judged. Every plan also comes in slices, as a generator that returns it: between
two of them the cluster may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from harbourmaster.rescheduling.plans import CandidateNode, Circumstances, Plan, Victim
from harbourmaster.rescheduling.relocation import RelocationNodes
from harbourmaster.rescheduling.search import LEADING, Search
from harbourmaster.rescheduling.victims import (
    BARE,
    GROUPED,
    MARKED,
    NON_DRAINABLE,
    RUNS_ONCE,
    new_grace,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from harbourmaster.rescheduling.cluster import Cluster
    from harbourmaster.rescheduling.model import Node, PendingPod, Pod
    from harbourmaster.rescheduling.plans import PlannerSettings
    from harbourmaster.rescheduling.search import FoundNode
    from harbourmaster.rescheduling.victims import Movable

_SHOWN: Final = 6
"""The best node, and five others."""
_COMPARED: Final = 20
"""The best ones, whose victims are asked where they may go."""
_NOTHING: Final = Circumstances()
_Answer = TypeVar("_Answer")


def plan(
    cluster: Cluster,
    pending: PendingPod,
    settings: PlannerSettings,
    now: float,
    around: Circumstances = _NOTHING,
) -> Plan:
    """The plan for one pod."""
    return _run_to_end(plan_in_slices(cluster, pending, settings, now, around))


def plan_in_slices(
    cluster: Cluster,
    pending: PendingPod,
    settings: PlannerSettings,
    now: float,
    around: Circumstances = _NOTHING,
) -> Generator[None, None, Plan]:
    """Plan in slices; a node that changes between two of them is judged again."""
    if pending.unsupported:
        return Plan(unsupported=pending.unsupported)
    search = Search(cluster, pending, settings, now, around)
    nodes = yield from search.run()
    if settings.prefer_relocatable and settings.score_order != "random":
        candidates = yield from _by_stranded(cluster, search, nodes[:_COMPARED], settings)
    else:
        candidates = [_candidate(search, node, settings) for node in nodes[:_SHOWN]]
    return Plan(
        candidate=candidates[0] if candidates else None,
        runners_up=tuple(candidates[1:_SHOWN]),
        reasons=search.reasons,
        evaluated=search.evaluated,
    )


def plan_on(  # noqa: PLR0913, PLR0917 - a plan, and what was just read of one node
    cluster: Cluster,
    node: Node,
    pods: Iterable[Pod],
    pending: PendingPod,
    settings: PlannerSettings,
    now: float,
    around: Circumstances = _NOTHING,
) -> Plan:
    """The plan for one pod on one node with just these pods on it, as they were just read.

    Budgets, and the pods on other nodes, are those of ``cluster``.
    """
    if pending.unsupported:
        return Plan(unsupported=pending.unsupported)
    present = [pod for pod in pods if not pod.is_finished and pod.uid != pending.pod.uid]
    search = Search(cluster, pending, settings, now, around)
    judged = search.on(node, present)
    candidate = None if judged is None else _candidate(search, judged, settings)
    return Plan(candidate=candidate, reasons=search.reasons, evaluated=search.evaluated)


def _run_to_end(steps: Generator[None, None, _Answer]) -> _Answer:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: _Answer = end.value
            return answer


def _by_stranded(
    cluster: Cluster, search: Search, nodes: list[FoundNode], settings: PlannerSettings
) -> Generator[None, None, list[CandidateNode]]:
    pods = [victim.pod for node in nodes for victim in node.choice.victims]
    places = RelocationNodes(cluster, pods, search.is_gone)
    yield from places.survey()
    ordered = []
    for node in nodes:
        stranded = sum(not places.place([victim.pod]) for victim in node.choice.victims)
        values = node.values
        key = (*values[:LEADING], stranded, *values[LEADING:])
        ordered.append((key, stranded, node))
        yield
    ordered.sort(key=lambda node: node[0])
    return [_candidate(search, node, settings, stranded) for _, stranded, node in ordered]


def _candidate(
    search: Search, node: FoundNode, settings: PlannerSettings, stranded: int | None = None
) -> CandidateNode:
    choice = node.choice
    return CandidateNode(
        node.node.name,
        choice.tier,
        tuple(
            _victim(
                victim, choice.budgets.get(victim.uid, ""), victim.uid in choice.denied, settings
            )
            for victim in choice.victims
        ),
        search.scorer.name_values(node.values, stranded),
    )


def _victim(moved: Movable, budget: str, violates: bool, settings: PlannerSettings) -> Victim:
    pod, flags = moved.pod, moved.flags
    return Victim(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node,
        priority=pod.priority,
        grace=pod.grace,
        new_grace=new_grace(pod, settings),
        is_leaving=pod.deletion is not None,
        budget=budget,
        violates=violates,
        is_bare=bool(flags & BARE),
        is_non_drainable=bool(flags & NON_DRAINABLE),
        is_marked=bool(flags & MARKED),
        is_grouped=bool(flags & GROUPED),
        runs_once=bool(flags & RUNS_ONCE),
        evicts_in_background=pod.evicts_in_background,
        has_claim=pod.has_claim,
        owner=pod.owner,
    )
