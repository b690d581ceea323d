"""Small random clusters, and what trying every set of victims says of them."""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

from msgspec.structs import replace

from harbourmaster.rescheduling import anti_affinity, fit
from harbourmaster.rescheduling.model import PendingPod
from harbourmaster.rescheduling.plans import PlannerSettings
from harbourmaster.rescheduling.topology import Topology
from helpers.planning import NOW, apart, budget, critical, node, pod, port, requests, spread, taint

APPS = ("a", "b", "c")
ZONE = "zone"


class Case(NamedTuple):
    """A cluster, who waits, and the settings; ``is_equal``: pods differ in size alone."""

    nodes: list
    pods: list
    budgets: list
    pending: object
    settings: PlannerSettings
    is_equal: bool
    has_one_resource: bool

    @property
    def objects(self):
        return [*self.nodes, *self.budgets, *self.pods]


class Best(NamedTuple):
    """The least of all sets of victims: by tier, violations and number."""

    tier: int
    violations: int
    count: int


def random_case(seed):
    """One resource in half of them, pods that differ in size alone in a quarter."""
    rng = random.Random(seed)  # noqa: S311 - a fixed seed
    is_small, equal = rng.random() < 0.5, rng.random() < 0.4
    nodes = [_node(rng, f"n{index}") for index in range(1, rng.randint(1, 3) + 1)]
    pods = []
    for host in nodes:
        count = rng.randint(1, 8 if len(nodes) < 3 else 6)
        pods += [_pod(rng, f"p{index}", host, is_small, equal) for index in range(count)]
    budgets = []
    if not equal:
        budgets = [_budget(rng, index) for index in range(rng.choice([0, 0, 1, 2, 3]))]
    wanted = {"cpu": rng.choice([0.1, 0.5, 1, 2, 3])}
    extra = {}
    if not is_small:
        wanted["memory"] = rng.choice([0, 0.5, 1, 2])
        if rng.random() < 0.2:
            wanted["ephemeral-storage"] = 1
        if rng.random() < 0.3:
            extra["ports"] = (port(8080),)
        if rng.random() < 0.3:
            term = apart({"app": rng.choice(APPS)}, rng.choice([ZONE, "kubernetes.io/hostname"]))
            extra["anti_affinity"] = (term,)
    pending = critical(asks=requests(**wanted), labels={"app": "critical"}, **extra)
    second_rng = random.Random(-seed)  # noqa: S311 - a fixed seed
    if not is_small and second_rng.random() < 0.5:
        pending = _among_others(second_rng, pending)
        nodes = [replace(node, labels={}) if second_rng.random() < 0.1 else node for node in nodes]
    settings = PlannerSettings(
        allow_pdb_violation=rng.random() < 0.7,
        non_drainable=rng.choice(["avoid", "avoid", "forbid", "forbidMarked", "ignore"]),
        grace_limit=rng.choice([10, 10, 20]),
        score_order=rng.choice(["documented", "documented", "priorityFirst", "random"]),
        max_victims=20,
        protected_namespaces=frozenset(("kept",)),
    )
    return Case(nodes, pods, budgets, pending, settings, equal, is_small)


def _among_others(rng, pending):
    """Move the pending pod to the namespace of most pods, with constraints about them."""
    app = {"app": rng.choice(APPS)}
    fields = {}
    if rng.random() < 0.7:
        fields["spread"] = tuple(
            spread(
                rng.choice([app, {"app": rng.choice(APPS)}]),
                rng.choice([ZONE, "kubernetes.io/hostname"]),
                max_skew=rng.randint(1, 2),
                min_domains=rng.choice([1, 1, 2, 3]),
                honors_taints=rng.random() < 0.3,
            )
            for _ in range(rng.randint(1, 2))
        )
    if rng.random() < 0.5:
        terms = [apart(app, rng.choice([ZONE, "kubernetes.io/hostname"])) for _ in range(2)]
        fields["affinity"] = tuple(terms[: rng.randint(1, 2)])
    pod = replace(pending.pod, namespace="default", labels=rng.choice([app, {"app": "critical"}]))
    return replace(pending, pod=pod, **fields)


def _node(rng, name):
    fields = {
        "labels": {ZONE: rng.choice("xy")},
        "extra": {"ephemeral-storage": 3},
    }
    if rng.random() < 0.1:
        fields["taints"] = (taint("dedicated"),)
    if rng.random() < 0.05:
        fields["is_ready"] = False
    return node(name, cpu=rng.choice([2, 3, 4]), memory=rng.choice([2, 4]), pods=110, **fields)


def _budget(rng, index):
    return budget(
        f"pdb{index}",
        rng.choice([-1, 0, 0, 1, 1, 2, 3]),
        {"app": rng.choice(APPS)} if rng.random() < 0.9 else None,
        is_observed=rng.random() < 0.9,
        always_allow_unhealthy=rng.random() < 0.3,
        current_healthy=rng.randint(0, 2),
        desired_healthy=rng.randint(0, 2),
    )


def _pod(rng, name, where, is_small, equal):
    asks = {"cpu": rng.choice([0, 0.1, 0.25, 0.5, 0.75, 1, 1.5])}
    fields = {"created": rng.randint(0, 3)}
    if not is_small:
        asks["memory"] = rng.choice([0, 0.25, 0.5, 1, 1.5])
        asks["ephemeral-storage"] = rng.choice([0, 0, 1])
        if rng.random() < 0.2:
            fields["ports"] = (port(8080, rng.choice(["", "10.0.0.1"])),)
        if rng.random() < 0.1:
            key = rng.choice([ZONE, "kubernetes.io/hostname"])
            fields["anti_affinity"] = (apart({"app": "critical"}, key, ("kube-system",)),)
    if not equal:
        fields |= {
            "priority": rng.choice([0, 0, 10, -5]),
            "grace": rng.choice([0, 5, 10, 11, 30]),
            "is_ready": rng.random() < 0.85,
            "phase": rng.choice(["Running"] * 8 + ["Pending", "Failed"]),
            "labels": {"app": rng.choice(APPS)},
            "bare": rng.random() < 0.1,
            "is_non_drainable": rng.random() < 0.1,
            "marked_until": rng.choice([0.0] * 9 + [NOW + 60]),
            "is_grouped": rng.random() < 0.1,
            "runs_once": rng.random() < 0.1,
            "is_critical": rng.random() < 0.05,
            "is_mirror": rng.random() < 0.03,
            "namespace": rng.choice(["default"] * 9 + ["kept"]),
        }
        if rng.random() < 0.1:
            fields["deletion"] = NOW + rng.choice([-5, 4, 10, 60])
        if rng.random() < 0.05:
            fields |= {"controller_kind": "DaemonSet", "bare": False}
    name = f"{where.name}-{name}"
    return pod(name, where.name, asks=requests(**asks), **fields)


def is_required(known, settings):
    """Whether a pod must stay, decided independently of the planner."""
    reasons = {
        "mirror": known.is_mirror,
        "daemon": known.controller_kind == "DaemonSet",
        "critical": known.is_critical or known.priority >= settings.max_victim_priority,
        "protected": known.namespace in settings.protected_namespaces or known.is_never_evicted,
    }
    is_marked = known.marked_until > NOW
    if settings.non_drainable == "forbid":
        reasons["drain"] = known.is_non_drainable or is_marked or known.controller_kind == ""
    if settings.non_drainable == "forbidMarked":
        reasons["mark"] = is_marked
    return any(reasons.values())


def humble_case(seed):
    """A case whose critical pod is less important than others, of which some are restricted."""
    case = random_case(seed)
    rng = random.Random(seed)  # noqa: S311 - a fixed seed
    pods = [
        replace(pod, is_restricted=rng.random() < 0.1, preempts=rng.random() < 0.9)
        for pod in case.pods
    ]
    pod = replace(case.pending.pod, priority=rng.choice([-10, 0]))
    # Another node, with room for some.
    nodes = [*case.nodes, node("spare", cpu=rng.choice([0.5, 1, 2]), memory=2)]
    return case._replace(nodes=nodes, pods=pods, pending=replace(case.pending, pod=pod))


def are_placeable(case, victims):
    """Whether these pods fit together on nodes other than their own, by trying all ways.

    They ran on one node, so they do not keep each other away, whatever a random case says.
    """

    def place(left, present_pods):
        if not left:
            return True
        pod, *rest = left
        placed = replace(pod, ports=(), anti_affinity=())
        return any(
            place(rest, {**present_pods, host.name: [*present_pods[host.name], placed]})
            for host in case.nodes
            if host.name != pod.node and _fits_alone(case, pod, host, present_pods)
        )

    return place(victims, {host.name: present_on(case, host.name) for host in case.nodes})


def present_on(case, name):
    """The pods that take room on a node, be it for some seconds only."""
    return [pod for pod in case.pods if pod.node == name and not pod.is_finished]


def _fits_alone(case, pod, host, present_pods):
    by_name = {node.name: node for node in case.nodes}
    placed = [
        (neighbour, by_name[name])
        for name, pods in present_pods.items()
        for neighbour in pods
        if name != host.name and neighbour.uid != pod.uid
    ]
    pending = PendingPod(pod=replace(pod, node=""))
    rivals = anti_affinity.rivals(pending.pod, placed, {})
    return fit.fits(pending, host, present_pods[host.name], rivals=rivals).fits is True


def counts(known, settings):
    """Whether a pod takes room: it is neither finished nor about to be gone."""
    if known.phase in {"Succeeded", "Failed"}:
        return False
    return known.deletion is None or known.deletion - NOW > settings.grace_limit


def is_allowed(victims, budgets, claimed=None):
    """The number of these evictions that the endpoint refuses, and the pods that it objects to."""
    left = {budget.key: budget.allowed - (claimed or {}).get(budget.key, 0) for budget in budgets}
    refused = 0
    for victim in victims:
        if victim.deletion is not None or victim.phase == "Pending":
            continue
        matching = [
            budget
            for budget in budgets
            if budget.namespace == victim.namespace and budget.selector.matches(victim.labels)
        ]
        if len(matching) > 1:
            refused += 1
        elif matching:
            (budget,) = matching
            healthy = (
                budget.current_healthy >= budget.desired_healthy and budget.desired_healthy > 0
            )
            if not victim.is_ready and (budget.always_allow_unhealthy or healthy):
                continue
            if not budget.is_observed or left[budget.key] <= 0:
                refused += 1
            else:
                left[budget.key] -= 1
    return refused


def tier_of(victims, case):
    """The tier that a set of victims deserves, and its violations."""
    if not victims:
        return 0, 0
    refused = is_allowed(victims, case.budgets)
    if refused:
        return 3, refused
    limit = case.settings.grace_limit
    is_short = any(victim.deletion is not None or victim.grace > limit for victim in victims)
    return (2 if is_short else 1), 0


def present(case, name):
    """The pods that take room on a node."""
    return [pod for pod in case.pods if pod.node == name and counts(pod, case.settings)]


def fits(case, where, pods):
    """Whether the critical pod fits beside these, by the check of the whole scheduler."""
    by_name = {node.name: node for node in case.nodes}
    placed = [
        (bound, by_name[bound.node])
        for bound in case.pods
        if bound.node != where.name and counts(bound, case.settings)
    ]
    rivals = anti_affinity.rivals(case.pending.pod, placed, {})
    everybody = [*placed, *((pod, where) for pod in pods)]
    topology = Topology(case.pending, case.nodes, everybody, {})
    return fit.fits(case.pending, where, pods, rivals=rivals, topology=topology).fits is True


def best(case):
    """The best set of victims on any node; None where there is none."""
    best = None
    for where in case.nodes:
        there = present(case, where.name)
        removable = [bound for bound in there if not is_required(bound, case.settings)]
        for size in range(len(removable) + 1):
            for victims in itertools.combinations(removable, size):
                tier, violations = tier_of(victims, case)
                if tier == 3 and not case.settings.allow_pdb_violation:
                    continue
                plan = Best(tier, violations, size)
                if best is not None and plan >= best:
                    continue
                gone = {victim.uid for victim in victims}
                if fits(case, where, [pod for pod in there if pod.uid not in gone]):
                    best = plan
    return best


def shuffle_events(case, seed):
    """Events that end in the cluster of the case, by another way."""
    rng = random.Random(seed)  # noqa: S311 - a fixed seed
    events = [("put", obj) for obj in case.objects]
    rng.shuffle(events)
    for placed in case.pods:
        if rng.random() < 0.3:
            at = rng.randrange(len(events))
            events.insert(at, ("put", replace(placed, priority=placed.priority + 1, node="n1")))
        elif rng.random() < 0.1:
            events.insert(0, ("gone", placed))
    for sized in case.nodes:
        if rng.random() < 0.3:
            changed = {**sized.allocatable, "cpu": 100}
            events.insert(rng.randrange(len(events)), ("put", replace(sized, allocatable=changed)))
    last = [("put", obj) for obj in case.objects if rng.random() < 0.5]
    seen = {obj.name for _, obj in last}
    last += [("put", obj) for obj in case.objects if obj.name not in seen]
    return [*events, *last]
