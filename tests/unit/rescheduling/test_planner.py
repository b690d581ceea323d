"""Plans beside other flows, orders of scores, shared disruption budgets, and relocation."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harbourmaster.api.selectors import Matcher
from harbourmaster.rescheduling.model import PodTerm
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


def test_a_pods_own_reservation_is_not_counted_twice():
    wanted = critical()
    eviction_plan = planned(node("n1"), *four(), pending=wanted, reserved={"n1": [wanted.pod]})
    assert going(eviction_plan.candidate) == ["v3"]


def test_a_reserved_pod_that_has_come_is_not_counted_twice():
    reserved_pod = critical("other").pod
    eviction_plan = planned(
        node("n1", 5), *four(), replace(reserved_pod, node="n1"), reserved={"n1": [reserved_pod]}
    )
    assert going(eviction_plan.candidate) == ["v3"]


def test_excluded_pods_are_not_evicted():
    eviction_plan = planned(node("n1"), *four(), excluded_pods=frozenset(("default-v3",)))
    assert going(eviction_plan.candidate) == ["v2"]


def test_excluded_nodes_are_counted_by_their_reason():
    eviction_plan = planned(node("n1"), excluded_nodes={"n1": "backed off"})
    assert (eviction_plan.candidate, eviction_plan.reasons) == (None, {"backed off": 1})


def test_rule_5_the_lowest_priorities_are_sacrificed_first():
    # rescheduler-spec 3.8, rule 5
    priorities = {"v0": 7, "v1": 0, "v2": 3, "v3": 5}
    pods = [pod(name, priority=priority) for name, priority in priorities.items()]
    candidate = planned(node("n1"), *pods, pending=critical(cpu=2)).candidate
    assert sorted(going(candidate)) == ["v1", "v2"]


def test_owners_that_suffered_are_spared_if_it_can_be():
    objects = [node("n1"), *four()[:3], pod("w", owner="other", priority=5)]
    eviction_plan = planned(*objects, spared_owners=frozenset(("uid-of-owner",)))
    assert going(eviction_plan.candidate) == ["w"]
    forbidding = PlannerSettings(non_drainable="forbid")
    both = frozenset(("uid-of-owner", "other"))
    assert planned(*objects, settings=forbidding, spared_owners=both).candidate is None


def test_claims_of_live_plans_are_taken_off_the_budget():
    objects = [node("n1"), *four(), budget("pdb", 1)]
    assert planned(*objects).candidate.tier == 1
    assert planned(*objects, claimed={"default/pdb": 1}).candidate.tier == 3


@pytest.mark.parametrize(
    ("order", "where"), [("documented", "n1"), ("priorityFirst", "n2")], ids=str
)
def test_score_orders(order, where):
    objects = [
        node("n1", 2),
        pod("a", cpu=2, priority=10),
        node("n2", 2),
        pod("b", "n2"),
        pod("b2", "n2"),
    ]
    settings = PlannerSettings(score_order=order)
    candidate = planned(*objects, pending=critical(cpu=2), settings=settings).candidate
    assert candidate.node == where


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


def test_a_deletion_candidate_is_second_choice():
    objects = [node("n1", 1, is_deletion_candidate=True), pod("a"), node("n2", 1), pod("b", "n2")]
    assert planned(*objects).candidate.node == "n2"


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


def test_a_budget_goes_to_the_largest_where_the_least_important_is_not_enough():
    objects = [
        node("n1", 3),
        pod("small", cpu=1, priority=0),
        pod("large", cpu=2, priority=5),
        budget("pdb", 1),
    ]
    candidate = planned(*objects, pending=critical(cpu=2)).candidate
    assert (candidate.tier, going(candidate)) == (1, ["large"])


def test_a_budget_goes_to_the_pod_that_is_in_the_way():
    objects = [
        node("n1", 3),
        pod("w", cpu=1, priority=5, ports=(port(80),)),
        pod("x", cpu=1),
        budget("pdb", 1),
    ]
    candidate = planned(*objects, pending=critical(cpu=1, ports=(port(80),))).candidate
    assert (candidate.tier, going(candidate)) == (1, ["w"])


def test_more_than_two_thousand_disrupted_block():
    for disrupted, tier in ((2001, 3), (2000, 1)):
        eviction_plan = planned(node("n1"), *four(), budget("pdb", 1, disrupted=disrupted))
        assert eviction_plan.candidate.tier == tier


def test_an_absent_selector_selects_no_pod():
    eviction_plan = planned(node("n1"), *four(), budget("pdb", 0, selector=None))
    assert eviction_plan.candidate.tier == 1


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


def test_a_reserved_pod_in_the_way_closes_the_node():
    reserved_pod = critical("other", labels={"app": "dns"}).pod
    wanted = critical(anti_affinity=(apart({"app": "dns"}, namespaces=("kube-system",)),))
    objects = [node("n1"), *four(), node("n2"), pod("b", "n2", cpu=4, priority=7)]
    eviction_plan = planned(*objects, pending=wanted, reserved={"n1": [reserved_pod]})
    assert eviction_plan.candidate.node == "n2"


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


@pytest.mark.parametrize(
    "matters", [{"priority": 5}, {"bare": True}, {"is_non_drainable": True}, {"grace": 60}], ids=str
)
def test_a_more_important_smaller_pod_is_no_substitute(matters):
    eviction_plan = planned(node("n1"), pod("large", cpu=3), pod("small", cpu=1, **matters))
    assert going(eviction_plan.candidate) == ["large"]


def test_a_violating_pod_does_not_replace_a_permitted_one():
    guarded = {"app": "x"}
    objects = [
        node("n1", 6),
        pod("large", cpu=3),
        pod("small", cpu=1, labels=guarded),
        pod("other", cpu=2, labels=guarded),
        budget("pdb", 0, guarded),
    ]
    candidate = planned(*objects, pending=critical(cpu=5)).candidate
    assert sorted(going(candidate)) == ["large", "other"]
    assert dict(candidate.score)["violations"] == 1


def test_a_victim_that_an_exchange_made_needless_stays():
    objects = [
        node("n1", 9, 8.5),
        pod("p0", cpu=1, memory=2),
        pod("p1", cpu=0.5, memory=2),
        pod("p2", cpu=4, memory=1),
        pod("p3", cpu=0.5, memory=3),
        pod("p4", cpu=3, memory=0.5),
    ]
    candidate = planned(*objects, pending=critical(cpu=1, memory=2)).candidate
    assert going(candidate) == ["p0"]


def test_a_budget_goes_to_the_largest_before_a_grace_is_shortened():
    guarded = {"app": "x"}
    objects = [
        node("n1", 6),
        pod("small", cpu=1, labels=guarded),
        pod("large", cpu=2, priority=5, labels=guarded),
        pod("long", cpu=3, grace=60),
        budget("pdb", 1, guarded),
    ]
    candidate = planned(*objects, pending=critical(cpu=2)).candidate
    assert (candidate.tier, going(candidate)) == (1, ["large"])


def test_a_budget_goes_to_the_pod_in_the_way_before_others_that_help():
    guarded = {"app": "x"}
    objects = [
        node("n1", 3),
        pod("w", priority=5, ports=(port(80),), labels=guarded),
        pod("x", labels=guarded),
        pod("y", priority=9),
        budget("pdb", 1, guarded),
    ]
    candidate = planned(*objects, pending=critical(cpu=2, ports=(port(80),))).candidate
    assert (candidate.tier, sorted(going(candidate))) == (1, ["w", "y"])


def test_victims_that_their_budget_allows_violate_nothing_however_it_was_shared():
    guarded = {"app": "x"}
    objects = [
        node("n1", 4, 4),
        pod("large", cpu=3, priority=3, labels=guarded),
        pod("needed", cpu=0.5, memory=2, priority=2, labels=guarded),
        pod("least", cpu=0.1, memory=0.1, labels=guarded),
        pod("k", cpu=0.1, memory=1.9, is_critical=True),
        budget("pdb", 1, guarded),
    ]
    wanted = critical(cpu=0.2, memory=2)
    for settings in (SETTINGS, PlannerSettings(allow_pdb_violation=False)):
        candidate = planned(*objects, pending=wanted, settings=settings).candidate
        assert (candidate.tier, going(candidate)) == (1, ["needed"])
