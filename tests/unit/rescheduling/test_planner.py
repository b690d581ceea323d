"""The selection cases of the conformance list, one by one, by the planner alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from harbourmaster.api.selectors import Matcher
from harbourmaster.rescheduling.model import NodeRequirement, NodeTerm, PodTerm
from harbourmaster.rescheduling.planner import plan, plan_on
from harbourmaster.rescheduling.plans import PlannerSettings
from helpers.planning import (
    NOW,
    SETTINGS,
    apart,
    budget,
    cluster,
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
    around: dict = {}  # noqa: RUF012 - no test changes it

    def plan(self):
        return planned(*self.objects, pending=self.pending, settings=self.settings, **self.around)


def several(count, where="n1", cpu=1.0, prefix="v", **fields):
    return [pod(f"{prefix}{index}", where, cpu, **fields) for index in range(count)]


def terms_by_name(*names, operator="In"):
    return (NodeTerm(fields=(NodeRequirement("metadata.name", operator, names),)),)


ADD_ON, SECOND = critical(), critical("other")
GUARDED = {"app": "x"}
STINGY = PlannerSettings(allow_pdb_violation=False)
SHARED_BUDGET = [
    node("n1", 4, 4),
    pod("large", cpu=3, priority=3, labels=GUARDED),
    pod("needed", cpu=0.5, memory=2, priority=2, labels=GUARDED),
    pod("least", cpu=0.1, memory=0.1, labels=GUARDED),
    pod("k", cpu=0.1, memory=1.9, is_critical=True),
    budget("pdb", 1, GUARDED),
]
ORDERED = [
    node("n1", 2),
    pod("a", cpu=2, priority=10),
    node("n2", 2),
    pod("b", "n2"),
    pod("b2", "n2"),
]
SPARED = frozenset(("uid-of-owner",))
OWNED = [node("n1"), *several(3), pod("w", owner="other", priority=5)]

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
        STINGY,
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
        STINGY,
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
    "rule 5: the lowest priorities are sacrificed first": Case(
        [
            node("n1"),
            *(pod(f"v{index}", priority=priority) for index, priority in enumerate((7, 0, 3, 5))),
        ],
        critical(cpu=2),
        ("n1", 1, ["v1", "v2"]),
    ),
    "the pod's own reservation is not counted twice": Case(
        [node("n1"), *several(4)],
        ADD_ON,
        ("n1", 1, ["v3"]),
        around={"reserved": {"n1": [ADD_ON.pod]}},
    ),
    "a reserved pod that has come is not counted twice": Case(
        [node("n1", 5), *several(4), replace(SECOND.pod, node="n1")],
        ADD_ON,
        ("n1", 1, ["v3"]),
        around={"reserved": {"n1": [SECOND.pod]}},
    ),
    "a reserved pod in the way closes the node": Case(
        [node("n1"), *several(4), node("n2"), pod("b", "n2", cpu=4, priority=7)],
        critical(anti_affinity=(apart({"app": "dns"}, namespaces=("kube-system",)),)),
        ("n2", 1, ["b"]),
        around={"reserved": {"n1": [critical("other", labels={"app": "dns"}).pod]}},
    ),
    "an excluded pod is not evicted": Case(
        [node("n1"), *several(4)],
        ADD_ON,
        ("n1", 1, ["v2"]),
        around={"excluded_pods": frozenset(("default-v3",))},
    ),
    "owners that suffered are spared": Case(
        OWNED, ADD_ON, ("n1", 1, ["w"]), around={"spared_owners": SPARED}
    ),
    "owners that suffered are spared, whatever it costs": Case(
        OWNED,
        ADD_ON,
        None,
        PlannerSettings(non_drainable="forbid"),
        {"spared_owners": SPARED | {"other"}},
    ),
    "a claim of another plan is taken off the budget": Case(
        [node("n1"), *several(4), budget("pdb", 1)],
        ADD_ON,
        ("n1", 3, ["v3"]),
        around={"claimed": {"default/pdb": 1}},
    ),
    "few victims count first": Case(ORDERED, critical(cpu=2), ("n1", 1, ["a"])),
    "priorities count first if that is set": Case(
        ORDERED,
        critical(cpu=2),
        ("n2", 1, ["b", "b2"]),
        PlannerSettings(score_order="priorityFirst"),
    ),
    "a deletion candidate is second choice": Case(
        [node("n1", 1, is_deletion_candidate=True), pod("a"), node("n2", 1), pod("b", "n2")],
        ADD_ON,
        ("n2", 1, ["b"]),
    ),
    "a budget goes to the largest where the least important is not enough": Case(
        [
            node("n1", 3),
            pod("small", cpu=1, priority=0),
            pod("large", cpu=2, priority=5),
            budget("pdb", 1),
        ],
        critical(cpu=2),
        ("n1", 1, ["large"]),
    ),
    "a budget goes to the largest before a grace is shortened": Case(
        [
            node("n1", 6),
            pod("small", cpu=1, labels=GUARDED),
            pod("large", cpu=2, priority=5, labels=GUARDED),
            pod("long", cpu=3, grace=60),
            budget("pdb", 1, GUARDED),
        ],
        critical(cpu=2),
        ("n1", 1, ["large"]),
    ),
    "a budget goes to the pod in the way": Case(
        [
            node("n1", 3),
            pod("w", cpu=1, priority=5, ports=(port(80),)),
            pod("x", cpu=1),
            budget("pdb", 1),
        ],
        critical(cpu=1, ports=(port(80),)),
        ("n1", 1, ["w"]),
    ),
    "a budget goes to the pod in the way before others that help": Case(
        [
            node("n1", 3),
            pod("w", priority=5, ports=(port(80),), labels=GUARDED),
            pod("x", labels=GUARDED),
            pod("y", priority=9),
            budget("pdb", 1, GUARDED),
        ],
        critical(cpu=2, ports=(port(80),)),
        ("n1", 1, ["w", "y"]),
    ),
    "a budget with 2001 disrupted pods blocks": Case(
        [node("n1"), *several(4), budget("pdb", 1, disrupted=2001)], ADD_ON, ("n1", 3, ["v3"])
    ),
    "a budget with 2000 disrupted pods does not": Case(
        [node("n1"), *several(4), budget("pdb", 1, disrupted=2000)], ADD_ON, ("n1", 1, ["v3"])
    ),
    "a budget without a selector selects no pod": Case(
        [node("n1"), *several(4), budget("pdb", 0, selector=None)], ADD_ON, ("n1", 1, ["v3"])
    ),
    **{
        f"a smaller pod with {field} is no substitute": Case(
            [node("n1"), pod("large", cpu=3), pod("small", cpu=1, **{field: value})],
            ADD_ON,
            ("n1", 1, ["large"]),
        )
        for field, value in (
            ("priority", 5),
            ("bare", True),
            ("is_non_drainable", True),
            ("grace", 60),
        )
    },
    "a violating pod does not replace a permitted one": Case(
        [
            node("n1", 6),
            pod("large", cpu=3),
            pod("small", cpu=1, labels=GUARDED),
            pod("other", cpu=2, labels=GUARDED),
            budget("pdb", 0, GUARDED),
        ],
        critical(cpu=5),
        ("n1", 3, ["large", "other"]),
    ),
    "a victim that an exchange made needless stays": Case(
        [
            node("n1", 9, 8.5),
            pod("p0", cpu=1, memory=2),
            pod("p1", cpu=0.5, memory=2),
            pod("p2", cpu=4, memory=1),
            pod("p3", cpu=0.5, memory=3),
            pod("p4", cpu=3, memory=0.5),
        ],
        critical(cpu=1, memory=2),
        ("n1", 1, ["p0"]),
    ),
    "victims that their budget allows violate nothing": Case(
        SHARED_BUDGET, critical(cpu=0.2, memory=2), ("n1", 1, ["needed"])
    ),
    "victims that their budget allows may go where none may be violated": Case(
        SHARED_BUDGET, critical(cpu=0.2, memory=2), ("n1", 1, ["needed"]), STINGY
    ),
    "a pod with a claim goes before one without a controller": Case(
        [node("n1", 2), pod("a", has_claim=True), pod("b", bare=True)], ADD_ON, ("n1", 1, ["a"])
    ),
    "a pod with a claim goes first, too, if priorities count first": Case(
        [node("n1", 2), pod("a", has_claim=True), pod("b", bare=True)],
        ADD_ON,
        ("n1", 1, ["a"]),
        PlannerSettings(score_order="priorityFirst"),
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


def four():
    return [pod(f"v{index}") for index in range(4)]


def test_reserved_pods_are_present_and_their_victims_gone():
    objects = [node("n1"), *four()]
    assert going(planned(*objects).candidate) == ["v3"]
    reserved, departing = {"n1": [critical("c").pod]}, frozenset(("default-v3",))
    second = planned(*objects, pending=critical("d"), reserved=reserved, departing=departing)
    assert going(second.candidate) == ["v2"]


def test_each_victim_of_a_budget_is_counted():
    candidate = planned(node("n1"), *four(), budget("b", 2), pending=critical(cpu=2)).candidate
    assert [(victim.name, victim.budget) for victim in candidate.victims] == [
        ("v2", "default/b"),
        ("v3", "default/b"),
    ]


def test_excluded_nodes_are_counted_by_their_reason():
    eviction_plan = planned(node("n1"), excluded_nodes={"n1": "backed off"})
    assert (eviction_plan.candidate, eviction_plan.reasons) == (None, {"backed off": 1})


def test_random_keeps_to_the_tier_and_to_its_seed():
    objects = [node(f"n{index}", 1) for index in range(20)]
    objects += [pod(f"p{index}", f"n{index}", grace=5 + index % 2 * 60) for index in range(20)]
    chosen = set()
    for seed in range(30):
        settings = PlannerSettings(score_order="random", seed=seed)
        eviction_plan = planned(*objects, settings=settings)
        assert eviction_plan == planned(*objects, settings=settings)
        assert eviction_plan.candidate.tier == 1
        chosen.add(eviction_plan.candidate.node)
    assert len(chosen) > 5


def test_terms_are_named_in_order():
    candidate = planned(node("n1"), *four()).candidate
    assert candidate.score == (
        ("tier", 1),
        ("violations", 0),
        ("shortened", 0),
        ("bare", 0),
        ("claims", 0),
        ("victims", 1),
        ("requests", 250_000),
        ("highestPriority", 0),
        ("prioritySum", 0),
        ("nonDrainable", 0),
        ("deletionCandidate", 0),
        ("node", "n1"),
    )


def test_a_plan_has_five_runners_up():
    objects = [node(f"n{index}", 1) for index in range(9)]
    objects += [pod(f"p{index}", f"n{index}") for index in range(9)]
    eviction_plan = planned(*objects)
    assert [decision.node for decision in eviction_plan.runners_up] == [
        "n1",
        "n2",
        "n3",
        "n4",
        "n5",
    ]


def test_too_many_victims_exclude_a_node():
    objects = [node("n1"), *(pod(f"p{index}", cpu=0.1) for index in range(40))]
    settings = PlannerSettings(max_victims=3)
    eviction_plan = planned(*objects, pending=critical(cpu=0.4), settings=settings)
    assert eviction_plan.candidate is None
    assert eviction_plan.reasons == {"more than 3 pods would have to move": 1}


def test_stranded_victims_count_where_it_is_asked():
    objects = [
        node("n1", 2, 8),
        pod("a", "n1", cpu=2, memory=2),
        node("n2", 2, 8),
        pod("b", "n2", cpu=1),
        pod("b2", "n2", cpu=1),
        node("n3", 1.5, 1),
        node("n4", 9, 9, taints=(taint("dedicated"),)),
    ]
    settings = PlannerSettings(prefer_relocatable=True)
    wanted = critical(cpu=2)
    assert planned(*objects, pending=wanted).candidate.node == "n1"
    eviction_plan = planned(*objects, pending=wanted, settings=settings)
    assert (eviction_plan.candidate.node, dict(eviction_plan.candidate.score)["stranded"]) == (
        "n2",
        0,
    )
    assert [dict(runner_up.score)["stranded"] for runner_up in eviction_plan.runners_up] == [1]
    assert [name for name, _ in eviction_plan.candidate.score][5:7] == ["stranded", "victims"]


def test_graces_stay_where_the_setting_says_so():
    settings = PlannerSettings(grace_limit=-1)
    eviction_plan = planned(node("n1"), pod("a", cpu=4, grace=60), settings=settings)
    assert eviction_plan.candidate.victims[0].new_grace == 60
    leaving = pod("a", cpu=4, deletion=NOW + 60)
    eviction_plan = planned(node("n1"), leaving, settings=settings)
    assert (eviction_plan.candidate.tier, eviction_plan.candidate.victims) == (0, ())


def test_an_unknown_namespace_closes_the_node():
    term = PodTerm(
        Matcher(), frozenset(), Matcher((("team", frozenset(("a",))),)), "kubernetes.io/hostname"
    )
    account = cluster(node("n1"), *four(), node("n2"), pod("b", "n2", cpu=4, namespace="other"))
    account.put_namespace("default", {"team": "b"})
    eviction_plan = plan(account, critical(anti_affinity=(term,)), SETTINGS, NOW)
    assert (eviction_plan.candidate.node, eviction_plan.runners_up) == ("n1", ())
    assert list(eviction_plan.reasons) == [
        "not judged: a namespace selector, the namespace's labels being unknown"
    ]
    account.put_namespace("other", {"team": "a"})
    eviction_plan = plan(account, critical(anti_affinity=(term,)), SETTINGS, NOW)
    assert {eviction_plan.candidate.node, eviction_plan.runners_up[0].node} == {"n1", "n2"}


def test_a_required_pod_in_the_way_closes_the_node():
    daemon = pod("d", controller_kind="DaemonSet", ports=(port(80),))
    eviction_plan = planned(node("n1"), daemon, pending=critical(ports=(port(80),)))
    assert (eviction_plan.candidate, eviction_plan.reasons) == (
        None,
        {"host port 80/TCP is taken": 1},
    )


def test_on_one_node_fresh_pods_count_and_those_of_the_account_do_not():
    account = cluster(node("n1"), *four())
    fresh = [*four()[:3], pod("new", priority=3), pod("later", cpu=0.5)]
    eviction_plan = plan_on(account, node("n1"), fresh, critical(), SETTINGS, NOW)
    assert sorted(going(eviction_plan.candidate)) == ["later", "v2"]
    assert sorted(bound_pod.name for bound_pod in account.pods_on("n1")) == ["v0", "v1", "v2", "v3"]


def test_on_one_node_the_pod_itself_needs_no_room_beside_itself():
    wanted = critical()
    fresh = [*four()[:3], replace(wanted.pod, node="n1")]
    eviction_plan = plan_on(cluster(node("n1")), node("n1"), fresh, wanted, SETTINGS, NOW)
    assert going(eviction_plan.candidate) == []


def test_on_one_node_the_reasons_are_listed():
    account = cluster(node("n1"))
    eviction_plan = plan_on(account, node("n1", is_ready=False), [], critical(), SETTINGS, NOW)
    assert (eviction_plan.candidate, eviction_plan.reasons) == (None, {"node is not ready": 1})


def test_other_resources_count_where_they_are_asked_for():
    gpu = "example.com/gpu"
    asks = requests(1, example_com__gpu=1)
    objects = [
        node("n1", 8, extra={gpu: 1}),
        pod("a", asks=asks),
        node("n2", 8),
        pod("b", "n2", cpu=8),
    ]
    eviction_plan = planned(*objects, pending=critical(asks=asks))
    assert going(eviction_plan.candidate) == ["a"]
    assert eviction_plan.reasons == {f"too little {gpu}": 1}
    assert dict(eviction_plan.candidate.score)["requests"] == 125_000 + 1_000_000
