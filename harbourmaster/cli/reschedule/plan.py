"""``harbourmaster reschedule plan``: which pods would be evicted for a critical add-on, and why.

It only reads, with the caller's permissions, and works without our controller in the cluster.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS
from harbourmaster.cli.arguments import DEFAULT_NAMESPACE, subject_of
from harbourmaster.cli.batches import plural
from harbourmaster.cli.live.cluster import DONE, LEFT, complain, run_with_client
from harbourmaster.cli.live.files import Dump
from harbourmaster.cli.live.reader import ClusterReader
from harbourmaster.cli.terminal import print_out
from harbourmaster.controller.rescheduling.settings import criteria_of, planner_settings
from harbourmaster.controller.rescheduling.volumes import with_volumes
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.controller.validation import validate
from harbourmaster.kube.connection import FALLBACK_NAMESPACE
from harbourmaster.kube.errors import ApiError, ForbiddenError
from harbourmaster.rescheduling import planner, reservation
from harbourmaster.rescheduling.cluster import Cluster
from harbourmaster.rescheduling.decoding import (
    decode_budget,
    decode_namespace,
    decode_node,
    decode_pod,
)
from harbourmaster.rescheduling.limits import too_many_not_ready
from harbourmaster.rescheduling.model import PendingPod, Toleration
from harbourmaster.rescheduling.plans import CandidateNode, Circumstances
from harbourmaster.serving.settings import StartError

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Callable

    from msgspec import Raw

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.rescheduling.settings import ReschedulingSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.rescheduling.model import Criteria, Pod
    from harbourmaster.rescheduling.plans import Victim


class ObservedCluster:
    """A cluster as it was read; ``asked`` is the pod that was asked about, if it is there."""

    def __init__(self, criteria: Criteria, namespace: str, name: str) -> None:
        self.cluster = Cluster()
        self.asked: Pod | PendingPod | None = None
        self._criteria = criteria
        self.key = f"{namespace}/{name}"
        self.readers: Final[dict[Resource, Callable[[Raw], None]]] = {
            NODES: lambda raw: self.cluster.put_node(decode_node(raw)),
            NAMESPACES: lambda raw: self.cluster.put_namespace(*decode_namespace(raw)),
            DISRUPTION_BUDGETS: lambda raw: self.cluster.put_budget(decode_budget(raw)),
            PODS: self._pod,
        }
        """Each adds an object of its kind. Raises MalformedError."""

    def around(self) -> Circumstances:
        """The reservations for other pods, as the annotations of nodes say."""
        reserved: dict[str, list[Pod]] = {}
        departing: set[str] = set()
        asked = self.asked.pod.uid if isinstance(self.asked, PendingPod) else ""
        for node in self.cluster.nodes():
            for reserved_for in reservation.parse(node.reservations):
                waiting = self.cluster.pending.get(reserved_for.uid)
                if reserved_for.uid == asked or waiting is None:
                    continue
                reserved.setdefault(node.name, []).append(waiting.pod)
                departing.update(victim.uid for victim in reserved_for.victims)
        return Circumstances(reserved=reserved, departing=frozenset(departing))

    def _pod(self, raw: Raw) -> None:
        pod = decode_pod(raw, self._criteria)
        key = pod.pod.key if isinstance(pod, PendingPod) else pod.key
        if key == self.key:
            self.asked = pod
        self.cluster.put_pod(pod)


async def survey(source: ClusterReader | Dump, state: ObservedCluster) -> None:
    """Read a cluster with the volumes of the pod, or a dump. Raises ApiError or UnreadableError."""
    for resource, read in state.readers.items():
        await source.list_all(resource, read)
    if isinstance(state.asked, PendingPod) and not isinstance(source, Dump):
        state.asked = await with_volumes(state.asked, source.get)


_FREE: Final = 0
"""The tier of a node on which the pod fits without evictions."""


class ShownPlan(Struct, frozen=True):
    """The output of ``--output json``; ``reasons`` and ``nodes`` count nodes.

    ``notes`` say why the controller does not carry out the plan now; ``paused`` is why it evicts
    nothing at all.
    """

    pod: str
    candidates: tuple[CandidateNode, ...]
    reasons: dict[str, int]
    unsupported: tuple[str, ...]
    nodes: int
    notes: tuple[str, ...]
    paused: str = ""


def plan(arguments: Arguments) -> int:
    """Show the plan; returns 0 with a plan, 1 without one, 2 for unreadable input."""
    settings: ReschedulingSettings = arguments.settings.rescheduling
    faults = validate(ControllerSettings(rescheduling=settings))
    if faults:
        raise StartError("; ".join(map(str, faults)))
    if arguments.dump is None:
        return run_with_client(arguments, partial(_live, arguments))
    state = _state(arguments, FALLBACK_NAMESPACE)
    dump = Dump(arguments.dump, state.readers)
    missing = [resource.plural for resource in (NODES, PODS) if not dump.has(resource)]
    asyncio.run(survey(dump, state))
    if missing:
        remedy = "kubectl get pods,nodes,pdb,namespaces --all-namespaces -o json"
        text = f"contains no {' and no '.join(missing)}: create it with {remedy}"
        dump.faults.append(f"{arguments.dump}: {text}")
    if dump.faults:
        raise StartError(dump.faults[0])
    return _answer(arguments, state)


def _state(arguments: Arguments, namespace: str) -> ObservedCluster:
    criteria = criteria_of(arguments.settings.rescheduling)
    return ObservedCluster(criteria, *subject_of(arguments, arguments.pod, namespace))


async def _live(arguments: Arguments, client: Client) -> int:
    state = _state(arguments, client.connection.namespace)
    try:
        await survey(ClusterReader(client), state)
    except ApiError as error:
        is_forbidden = isinstance(error, ForbiddenError)
        complain(f"no plan: {f'missing permission: {error.message}' if is_forbidden else error}")
        return LEFT
    return _answer(arguments, state)


def _answer(arguments: Arguments, state: ObservedCluster) -> int:
    report = report_of(state, arguments.settings.rescheduling, state.key)
    if isinstance(report, str):
        complain(f"{state.key}: {report}")
        return LEFT
    print_out(arguments, report, lines(report))
    return DONE if report.candidates else LEFT


def report_of(
    state: ObservedCluster, settings: ReschedulingSettings, shown: str
) -> ShownPlan | str:
    """The plan for the pod that was asked about, or why there is nothing to plan."""
    asked = state.asked
    fault = why_not(asked, settings)
    if fault or not isinstance(asked, PendingPod):
        return fault
    result = planner.plan(
        state.cluster,
        tolerating(asked, settings.taint_key),
        planner_settings(settings, DEFAULT_NAMESPACE),
        time.time(),
        state.around(),
    )
    return ShownPlan(
        pod=shown,
        candidates=(result.candidate, *result.runners_up) if result.candidate else (),
        reasons=dict(sorted(result.reasons.items(), key=lambda item: (-item[1], item[0]))),
        unsupported=result.unsupported,
        nodes=len(state.cluster.nodes()),
        notes=tuple(notes(asked, settings)),
        paused=too_many_not_ready(state.cluster.nodes(), settings.max_not_ready_percent),
    )


def why_not(asked: Pod | PendingPod | None, settings: ReschedulingSettings) -> str:
    """Why there is nothing to plan for a pod; empty where there is."""
    if asked is None:
        return "pod not found"
    pod = asked.pod if isinstance(asked, PendingPod) else asked
    if pod.is_finished:
        return f"it does not wait for a node: its phase is {pod.phase}"
    if pod.node:
        return f"it does not wait for a node: it is on {pod.node}"
    if pod.deletion is not None:
        return "it does not wait for a node: it is being deleted"
    if pod.namespace not in settings.system_namespaces:
        names = ", ".join(settings.system_namespaces)
        return f"it is not critical: its namespace is not one of {names} (systemNamespaces)"
    if not pod.is_critical:
        return (
            "it is not critical: its priority is below 2000000000, its class is not one of "
            f"{', '.join(settings.critical_classes)} (criticalClasses), and it lacks the "
            "annotation scheduler.alpha.kubernetes.io/critical-pod with an empty value"
        )
    return ""


def tolerating(asked: PendingPod, key: str) -> PendingPod:
    """The pod with the toleration that it needs, however it gets it."""
    if asked.tolerates_reservation:
        return asked
    added = Toleration(key=key, operator="Exists")
    return msgspec.structs.replace(
        asked, tolerations=(*asked.tolerations, added), tolerates_reservation=True
    )


def notes(asked: PendingPod, settings: ReschedulingSettings) -> list[str]:
    """Return why the controller does not carry out the plan now, and what it does not check."""
    remarks = []
    if asked.is_gated:
        remarks.append("it has a scheduling gate: nothing is done until that is removed")
    elif not asked.is_unschedulable:
        remarks.append("its scheduler has not reported it as unschedulable: nothing is done yet")
    if asked.volumes:
        remarks.append("how many volumes its CSI driver can attach to a node is not checked")
    if asked.nominated:
        remarks.append(f"its scheduler preempts pods on {asked.nominated}: nothing else is done")
    if not asked.tolerates_reservation and not settings.inject_toleration:
        remarks.append(
            f"it does not tolerate {settings.taint_key}:NoSchedule: nothing is done for it; add "
            "that toleration to its template"
        )
    return remarks


def lines(shown: ShownPlan) -> list[str]:
    """The lines of the text output."""
    texts = [f"{shown.pod}: {summary(shown)}"]
    if shown.paused:
        texts.append(f"paused: the controller evicts nothing now: {shown.paused}")
    texts += [f"note: {note}" for note in shown.notes]
    for number, candidate in enumerate(shown.candidates, 1):
        texts += ["", *_candidate(number, candidate)]
    if shown.reasons:
        texts += ["", "Why not on other nodes:"]
        texts += [f"  {plural(count, 'node')}: {reason}" for reason, count in shown.reasons.items()]
    return texts


def summary(shown: ShownPlan) -> str:
    """The plan in one line."""
    if shown.unsupported:
        return f"no plan: unsupported constraints: {', '.join(shown.unsupported)}"
    if not shown.candidates:
        return f"room cannot be made on any of {shown.nodes} nodes"
    best = shown.candidates[0]
    if best.tier == _FREE:
        return f"it fits on {best.node}, and no pod has to move"
    return f"{plural(len(best.victims), 'pod')} would have to move from {best.node}"


def _candidate(number: int, candidate: CandidateNode) -> list[str]:
    terms = ", ".join(f"{name} {value}" for name, value in candidate.score if name != "node")
    texts = [f"{number}. {candidate.node}, tier {candidate.tier}", f"   score: {terms}"]
    rows = [("POD", "PRIORITY", "GRACE", "BUDGET", "REMARKS")] if candidate.victims else []
    rows += [_row(victim) for victim in candidate.victims]
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(4)]
    texts += [
        "   " + "  ".join([*(row[at].ljust(widths[at]) for at in range(4)), row[4]]).rstrip()
        for row in rows
    ]
    return texts


def _row(victim: Victim) -> tuple[str, str, str, str, str]:
    grace = f"{victim.grace}s"
    if victim.new_grace != victim.grace:
        grace += f" -> {victim.new_grace}s"
    remarks = {
        "already terminating": victim.is_leaving,
        "violates its budget": victim.violates,
        "has no controller": victim.is_bare,
        "has a PersistentVolumeClaim": victim.has_claim,
        "asks not to be evicted": victim.is_marked,
        "member of a group": victim.is_grouped,
        "loses its work": victim.runs_once,
        "not drainable": victim.is_non_drainable,
        "evicted in the background": victim.evicts_in_background,
    }
    return (
        victim.key,
        str(victim.priority),
        grace,
        victim.budget or "-",
        ", ".join(name for name, is_so in remarks.items() if is_so),
    )
