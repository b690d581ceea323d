"""Selections by the planner alone, those of the conformance list among them.

These tests prove rescheduler-spec 5.1-5.5.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from harbourmaster.api.selectors import Matcher
from harbourmaster.rescheduling.model import NodeTerm, PodTerm
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
    make_plan,
    node,
    pod,
    port,
    requests,
    spread,
    taint,
)

GPU = "example.com/gpu"

SELECTIONS = yaml.load(
    (Path(__file__).parents[2] / "fixtures/selections.yaml").read_text(), yaml.CSafeLoader
)
"""Objects and the expected node, tier and victims by case; ``critical`` is the pod that waits."""
READERS = {
    "node": ("where", str),
    "ports": ("ports", lambda numbers: tuple(map(port, numbers))),
    "asks": ("asks", lambda amounts: requests(**amounts)),
    "apart": ("anti_affinity", lambda terms: tuple(apart(**term) for term in terms)),
    "leaves_in": ("deletion", lambda seconds: NOW + seconds),
    "affinity": ("affinity", lambda terms: tuple(apart(**term) for term in terms)),
    "spread": ("spread", lambda constraints: tuple(spread(**fields) for fields in constraints)),
    "volumes": (
        "volumes",
        lambda volumes: msgspec.convert(volumes, dict[str, tuple[NodeTerm, ...] | None]),
    ),
    "taints": ("taints", lambda taints: tuple(taint(**fields) for fields in taints)),
    "node_selector": ("node_selector", lambda labels: tuple(map(tuple, labels))),
    "node_terms": ("node_terms", lambda terms: msgspec.convert(terms, tuple[NodeTerm, ...])),
}
"""The arguments of builders for fields of cases, and what makes them."""


def read_object(build, fields):
    arguments = {}
    for name, value in fields.items():
        argument, read = READERS.get(name, (name, lambda given: given))
        arguments[argument] = read(value)
    return build(**arguments)


def plan_of(name, **changes):
    case = {"critical": {}, "settings": {}, "around": {}, **SELECTIONS[name], **changes}
    objects = [
        read_object(build, fields)
        for build, kind in ((node, "nodes"), (pod, "pods"), (budget, "budgets"))
        for fields in case.get(kind, ())
    ]
    around = dict(case["around"])
    for where, pods in around.pop("reserved", {}).items():
        around["reserved"] = {where: [read_object(critical, fields).pod for fields in pods]}
    pending = read_object(critical, case["critical"])
    return make_plan(
        *objects, pending=pending, settings=PlannerSettings(**case["settings"]), **around
    )


@pytest.mark.parametrize("name", SELECTIONS)
def test_selection(name):
    case, eviction_plan = SELECTIONS[name], plan_of(name)
    candidate = eviction_plan.candidate
    selection = candidate and [candidate.node, candidate.tier, sorted(going(candidate))]
    assert selection == case["expected"]
    assert case.get("reasons", eviction_plan.reasons) == eviction_plan.reasons
    runners_up = [runner_up.node for runner_up in eviction_plan.runners_up]
    assert case.get("runners_up", runners_up) == runners_up
    if "score" in case:
        assert case["score"].items() <= dict(candidate.score).items()
    assert msgspec.json.encode(eviction_plan)


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
        assert make_plan(*parts, pending=pending).candidate is None
        return
    smaller = [part for part in parts if getattr(part, "node", part.name) <= first]
    assert make_plan(*smaller, pending=pending).candidate.node == first


def test_c04_the_grace_is_shortened():
    (victim,) = plan_of("C04").candidate.victims
    assert (victim.grace, victim.new_grace, victim.budget, victim.violates) == (60, 10, "", False)


def test_c05_the_violation_is_named():
    candidate = plan_of("C05").candidate
    (victim,) = candidate.victims
    assert (victim.budget, victim.violates, victim.new_grace) == ("default/pdb", True, 4)
    assert dict(candidate.score)["violations"] == 1


def test_c06_the_other_node_would_violate_once():
    (runner_up,) = plan_of("C06").runners_up
    assert (runner_up.node, runner_up.tier, dict(runner_up.score)["violations"]) == ("n1", 3, 1)


def test_c28_two_budgets_block_whatever_they_allow():
    candidate = plan_of("C28-alone", settings={}).candidate
    assert candidate.tier == 3
    assert candidate.victims[0].violates


def test_c36b_the_leaving_pod_is_shortened():
    (victim,) = plan_of("C36b").candidate.victims
    assert victim.is_leaving
    assert victim.new_grace == 10


def test_c37_a_grace_of_zero_becomes_one():
    eviction_plan = make_plan(node("n1", 1), pod("a", grace=0))
    assert eviction_plan.candidate.victims[0].new_grace == 1


def test_unsupported_constraints_end_the_plan():
    eviction_plan = make_plan(node("n1"), pending=critical(unsupported=("volumes",)))
    assert (eviction_plan.candidate, eviction_plan.unsupported) == (None, ("volumes",))


def four():
    return [pod(f"v{index}") for index in range(4)]


def test_reserved_pods_are_present_and_their_victims_gone():
    objects = [node("n1"), *four()]
    assert going(make_plan(*objects).candidate) == ["v3"]
    reserved, departing = {"n1": [critical("c").pod]}, frozenset(("default-v3",))
    second = make_plan(*objects, pending=critical("d"), reserved=reserved, departing=departing)
    assert going(second.candidate) == ["v2"]


def test_each_victim_of_a_budget_is_counted():
    candidate = make_plan(node("n1"), *four(), budget("b", 2), pending=critical(cpu=2)).candidate
    assert [(victim.name, victim.budget) for victim in candidate.victims] == [
        ("v2", "default/b"),
        ("v3", "default/b"),
    ]


def test_random_keeps_to_the_tier_and_to_its_seed():
    objects = [node(f"n{index}", 1) for index in range(20)]
    objects += [pod(f"p{index}", f"n{index}", grace=5 + index % 2 * 60) for index in range(20)]
    chosen = set()
    for seed in range(30):
        settings = PlannerSettings(score_order="random", seed=seed)
        eviction_plan = make_plan(*objects, settings=settings)
        assert eviction_plan == make_plan(*objects, settings=settings)
        assert eviction_plan.candidate.tier == 1
        chosen.add(eviction_plan.candidate.node)
    assert len(chosen) > 5


def test_terms_are_named_in_order():
    candidate = make_plan(node("n1"), *four()).candidate
    assert candidate.score == (
        ("tier", 1),
        ("violations", 0),
        ("shortened", 0),
        ("bare", 0),
        ("claims", 0),
        ("marked", 0),
        ("groups", 0),
        ("jobs", 0),
        ("victims", 1),
        ("requests", 250_000),
        ("highestPriority", 0),
        ("prioritySum", 0),
        ("nonDrainable", 0),
        ("deletionCandidate", 0),
        ("node", "n1"),
    )


def test_too_many_victims_exclude_a_node():
    objects = [node("n1"), *(pod(f"p{index}", cpu=0.1) for index in range(40))]
    settings = PlannerSettings(max_victims=3)
    eviction_plan = make_plan(*objects, pending=critical(cpu=0.4), settings=settings)
    assert eviction_plan.candidate is None
    assert eviction_plan.reasons == {"more than 3 pods would have to move": 1}


def test_stranded_victims_count_where_it_is_asked():
    """Nodes whose victims fit elsewhere are preferred (rescheduler-spec 5.7)."""
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
    assert make_plan(*objects, pending=wanted).candidate.node == "n1"
    eviction_plan = make_plan(*objects, pending=wanted, settings=settings)
    assert (eviction_plan.candidate.node, dict(eviction_plan.candidate.score)["stranded"]) == (
        "n2",
        0,
    )
    assert [dict(runner_up.score)["stranded"] for runner_up in eviction_plan.runners_up] == [1]
    assert [name for name, _ in eviction_plan.candidate.score][8:10] == ["stranded", "victims"]


def test_graces_stay_where_the_setting_says_so():
    settings = PlannerSettings(grace_limit=-1)
    eviction_plan = make_plan(node("n1"), pod("a", cpu=4, grace=60), settings=settings)
    assert eviction_plan.candidate.victims[0].new_grace == 60
    leaving = pod("a", cpu=4, deletion=NOW + 60)
    eviction_plan = make_plan(node("n1"), leaving, settings=settings)
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
