"""The selection cases of the conformance list, one by one, by the planner alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest

from harbourmaster.rescheduling.model import NodeRequirement, NodeTerm
from harbourmaster.rescheduling.plans import PlannerSettings
from helpers.planning import (
    NOW,
    SETTINGS,
    apart,
    budget,
    critical,
    going,
    node,
    planned,
    pod,
    port,
    requests,
    taint,
)

if TYPE_CHECKING:
    from harbourmaster.rescheduling.model import PendingPod

GPU = "example.com/gpu"


class Case(NamedTuple):
    """``expected`` is the node, the tier and the victims, or None without a candidate."""

    objects: list
    pending: PendingPod
    expected: tuple | None
    settings: PlannerSettings = SETTINGS

    def plan(self):
        return planned(*self.objects, pending=self.pending, settings=self.settings)


def several(count, where="n1", cpu=1.0, prefix="v", **fields):
    return [pod(f"{prefix}{index}", where, cpu, **fields) for index in range(count)]


def terms_by_name(*names, operator="In"):
    return (NodeTerm(fields=(NodeRequirement("metadata.name", operator, names),)),)


CASES = {
    "C01": Case([node("n1"), *several(4)], critical(), ("n1", 1, ["v3"])),
    "C02": Case(
        [
            node("n1", 1),
            pod("p0", cpu=0.15, is_critical=True),
            pod("p1", cpu=0.15, is_critical=True),
            pod("p2", cpu=0.15),
            pod("p3", cpu=0.25),
            pod("p4", cpu=0.15),
        ],
        critical(cpu=0.5),
        ("n1", 1, ["p3", "p4"]),
    ),
    "C03": Case(
        [node("n1", 2), pod("a", cpu=2, grace=30), node("n2", 2), pod("b", "n2"), pod("b2", "n2")],
        critical(cpu=2),
        ("n2", 1, ["b", "b2"]),
    ),
    "C04": Case(
        [
            node("n1", 2),
            pod("a", cpu=2, labels={"app": "a"}),
            budget("pdb", 0, {"app": "a"}),
            node("n2", 2),
            pod("b", "n2", cpu=2, grace=60),
        ],
        critical(cpu=2),
        ("n2", 2, ["b"]),
    ),
    "C05": Case(
        [node("n1", 2), pod("a", cpu=2, grace=4), budget("pdb", 0)],
        critical(cpu=2),
        ("n1", 3, ["a"]),
    ),
    "C05b": Case(
        [node("n1", 2), pod("a", cpu=2, grace=4), budget("pdb", 0)],
        critical(cpu=2),
        None,
        PlannerSettings(allow_pdb_violation=False),
    ),
    "C06": Case(
        [
            node("n1", 2),
            *several(2, prefix="a", labels={"app": "a"}),
            budget("pdb", 1, {"app": "a"}),
            node("n2", 2),
            *several(2, "n2", prefix="b"),
        ],
        critical(cpu=2),
        ("n2", 1, ["b0", "b1"]),
    ),
    "C06b": Case(
        [
            node("n1", 3),
            *several(2, prefix="a", labels={"app": "a"}),
            budget("pdb", 1, {"app": "a"}),
            pod("b"),
        ],
        critical(cpu=2),
        ("n1", 1, ["a1", "b"]),
    ),
    "C07": Case(
        [node("n1", 2), *several(2), node("n2", 2), pod("b", "n2", cpu=2)],
        critical(cpu=2),
        ("n2", 1, ["b"]),
    ),
    "C08": Case(
        [node("n1"), *several(2, cpu=2), node("n2"), pod("b", "n2", cpu=3), pod("b0", "n2")],
        critical(),
        ("n2", 1, ["b0"]),
    ),
    "C09": Case([node("n1"), pod("x", cpu=3), pod("y")], critical(), ("n1", 1, ["y"])),
    "C10": Case(
        [
            node("n1", 2),
            *several(2, priority=1000),
            node("n2", 2),
            pod("b", "n2", priority=1000),
            pod("b0", "n2"),
        ],
        critical(),
        ("n2", 1, ["b0"]),
    ),
    "C11": Case(
        [node("n1", 2), pod("a", cpu=2, bare=True), node("n2", 2), *several(2, "n2")],
        critical(cpu=2),
        ("n2", 1, ["v0", "v1"]),
    ),
    "C11-forbid": Case(
        [node("n1", 2), pod("a", cpu=2, bare=True)],
        critical(cpu=2),
        None,
        PlannerSettings(non_drainable="forbid"),
    ),
    "C11b": Case(
        [
            node("n1", 2),
            *several(2, is_non_drainable=True),
            node("n2", 2),
            *several(2, "n2", prefix="b"),
        ],
        critical(),
        ("n2", 1, ["b1"]),
    ),
    "C11b-safe": Case(
        [node("n1", 2), *several(2), node("n2", 2), *several(2, "n2", prefix="b")],
        critical(),
        ("n1", 1, ["v1"]),
    ),
    "C12": Case(
        [
            node("n1", 3),
            pod("d", controller_kind="DaemonSet"),
            pod("m", is_mirror=True, controller_kind="Node"),
            pod("k", is_critical=True),
        ],
        critical(),
        None,
    ),
    "C13": Case(
        [
            node("n1", is_cordoned=True, labels={"disk": "ssd"}),
            node("n2", taints=(taint("dedicated", "gpu"),), labels={"disk": "ssd"}),
            node("n3", labels={"disk": "hdd"}),
            node("n4", labels={"disk": "ssd"}),
            node("n5", labels={"disk": "ssd"}, is_ready=False),
            *(pod(f"p{index}", f"n{index}", cpu=4) for index in range(1, 6)),
        ],
        critical(node_selector=(("disk", "ssd"),)),
        ("n4", 1, ["p4"]),
    ),
    "C28": Case(
        [
            node("n1", 2),
            pod("m", cpu=2, labels={"app": "m"}),
            budget("one", 1, {"app": "m"}),
            budget("two", 1, {"app": "m"}),
            node("n2", 2),
            pod("b", "n2", cpu=2, grace=60),
        ],
        critical(cpu=2),
        ("n2", 2, ["b"]),
    ),
    "C28-alone": Case(
        [
            node("n1", 2),
            pod("m", cpu=2, labels={"app": "m"}),
            budget("one", 1, {"app": "m"}),
            budget("two", 1, {"app": "m"}),
        ],
        critical(cpu=2),
        None,
        PlannerSettings(allow_pdb_violation=False),
    ),
    "C29": Case(
        [
            node("n1", 2),
            pod("u", cpu=2, is_ready=False),
            budget("pdb", 0, always_allow_unhealthy=True),
        ],
        critical(cpu=2),
        ("n1", 1, ["u"]),
    ),
    "C29-healthy": Case(
        [
            node("n1", 2),
            pod("u", cpu=2, is_ready=False),
            budget("pdb", 0, current_healthy=1, desired_healthy=2),
        ],
        critical(cpu=2),
        ("n1", 3, ["u"]),
    ),
    "C30": Case(
        [node("n1"), pod("w", cpu=0.1, ports=(port(8080),)), pod("z", cpu=0.1)],
        critical(ports=(port(8080),)),
        ("n1", 1, ["w"]),
    ),
    "C31": Case([node("n1", pods=3), *several(3, cpu=0.1)], critical(cpu=0.1), ("n1", 1, ["v2"])),
    "C32": Case([node("n1"), *several(4)], critical(cpu=0), ("n1", 0, [])),
    "C33": Case(
        [
            node("n1", extra={GPU: 2}),
            pod("a", cpu=3.5),
            pod("g", asks=requests(0.1, example_com__gpu=2)),
        ],
        critical(asks=requests(example_com__gpu=1)),
        ("n1", 1, ["g"]),
    ),
    "C35": Case(
        [node("n1", 2), pod("done", cpu=2, phase="Succeeded"), pod("a"), pod("b")],
        critical(),
        ("n1", 1, ["b"]),
    ),
    "C36": Case([node("n1", 2), pod("a", deletion=NOW + 4), pod("b")], critical(), ("n1", 0, [])),
    "C36b": Case(
        [
            node("n1", 2),
            pod("a", deletion=NOW + 60),
            pod("b", labels={"app": "b"}),
            budget("pdb", 0, {"app": "b"}),
        ],
        critical(),
        ("n1", 2, ["a"]),
    ),
    "C43": Case(
        [node("n1"), pod("a", cpu=4), node("n2"), pod("b", "n2", cpu=4, grace=60)],
        critical(node_terms=terms_by_name("n2")),
        ("n2", 2, ["b"]),
    ),
    "C44": Case(
        [node("n1", 2), pod("a", labels={"app": "a"}), node("n2", 2), pod("b", "n2", cpu=2)],
        critical(anti_affinity=(apart({"app": "a"}),)),
        ("n1", 1, ["a"]),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_selection(case):
    candidate = case.plan().candidate
    selection = candidate and (candidate.node, candidate.tier, sorted(going(candidate)))
    assert selection == case.expected


@pytest.mark.parametrize(("amount", "first"), [(100, "n1"), (500, "n2"), (800, "n3"), (2200, None)])
def test_upstream_node_selection(amount, first):
    """Only the first node has room; the others have none, whatever is moved."""
    parts = [
        node("n1", 0.5),
        pod("k1", "n1", 0.1, is_critical=True),
        pod("r1", "n1", 0.3),
        node("n2", 1),
        pod("r2", "n2", 0.5),
        pod("k2", "n2", 0.3, is_critical=True),
        node("n3", 2),
        pod("r3", "n3", 0.5),
        pod("r4", "n3", 0.5),
        pod("r5", "n3", 0.3),
    ]
    pending = critical(cpu=amount / 1000)
    if first is None:
        assert planned(*parts, pending=pending).candidate is None
        return
    smaller = [part for part in parts if getattr(part, "node", part.name) <= first]
    assert planned(*smaller, pending=pending).candidate.node == first


def test_c04_the_grace_is_shortened():
    (victim,) = CASES["C04"].plan().candidate.victims
    assert (victim.grace, victim.new_grace, victim.budget, victim.violates) == (60, 10, "", False)


def test_c05_the_violation_is_named():
    candidate = CASES["C05"].plan().candidate
    (victim,) = candidate.victims
    assert (victim.budget, victim.violates, victim.new_grace) == ("default/pdb", True, 4)
    assert dict(candidate.score)["violations"] == 1


def test_c06_the_other_node_would_violate_once():
    (runner_up,) = CASES["C06"].plan().runners_up
    assert (runner_up.node, runner_up.tier, dict(runner_up.score)["violations"]) == ("n1", 3, 1)


def test_c28_two_budgets_block_whatever_they_allow():
    candidate = CASES["C28-alone"]._replace(settings=SETTINGS).plan().candidate
    assert candidate.tier == 3
    assert candidate.victims[0].violates


def test_c36b_the_leaving_pod_is_shortened():
    (victim,) = CASES["C36b"].plan().candidate.victims
    assert victim.is_leaving
    assert victim.new_grace == 10


def test_c37_a_grace_of_zero_becomes_one():
    eviction_plan = planned(node("n1", 1), pod("a", grace=0))
    assert eviction_plan.candidate.victims[0].new_grace == 1


def test_c44_a_pod_of_the_zone_elsewhere_closes_the_node():
    zone = {"zone": "a"}
    objects = [
        node("n1", 2, labels=zone),
        pod("x", "n1", cpu=2),
        node("n2", 2, labels=zone),
        pod("a", "n2", labels={"app": "a"}),
        pod("b", "n2"),
    ]
    wanted = critical(anti_affinity=(apart({"app": "a"}, "zone"),))
    eviction_plan = planned(*objects, pending=wanted)
    assert (eviction_plan.candidate.node, going(eviction_plan.candidate)) == ("n2", ["a"])
    assert eviction_plan.reasons == {"anti-affinity keeps it away from a pod on another node": 1}


def test_c44_the_terms_of_others_count_too():
    shy = apart({"k8s-app": "c"}, namespaces=("kube-system",))
    objects = [
        node("n1", 2),
        pod("a", cpu=0.1, anti_affinity=(shy,)),
        pod("b", cpu=1.9),
        node("n2", 2),
        pod("d", "n2", cpu=2),
    ]
    eviction_plan = planned(*objects, pending=critical(cpu=0.1, labels={"k8s-app": "c"}))
    assert [
        (runner_up.node, runner_up.victims[0].name)
        for runner_up in (eviction_plan.candidate, *eviction_plan.runners_up)
    ] == [
        ("n1", "a"),
        ("n2", "d"),
    ]


def test_unsupported_constraints_end_the_plan():
    eviction_plan = planned(node("n1"), pending=critical(unsupported=("volumes",)))
    assert (eviction_plan.candidate, eviction_plan.unsupported) == (None, ("volumes",))


def test_c41_reasons_are_counted_by_node():
    objects = [
        node("n1", 2),
        node("n2", is_ready=False),
        node("n3", taints=(taint("a"),)),
        node("n4", 2, pods=1),
        pod("k", "n4", is_critical=True),
    ]
    eviction_plan = planned(*objects, pending=critical(cpu=8))
    assert eviction_plan.candidate is None
    assert eviction_plan.reasons == {
        "too little cpu": 2,
        "too many pods": 1,
        "node is not ready": 1,
        "untolerated taint a:NoSchedule": 1,
    }
    assert msgspec.json.encode(eviction_plan)
