"""Topology spread, pod affinity and volumes: what they exclude, and whom they have move."""

from __future__ import annotations

from msgspec.structs import replace

from harbourmaster.rescheduling.fit import UNKNOWN_DOMAINS, fits
from harbourmaster.rescheduling.model import (
    NodeRequirement,
    NodeTerm,
)
from harbourmaster.rescheduling.topology import NOT_NEAR, ROOM
from helpers.planning import apart, cluster, critical, going, node, planned, pod, spread

ZONE, HOST = "zone", "kubernetes.io/hostname"
APP = {"app": "dns"}
OWN = "kube-system"
NO_ROOM = f"too little {ROOM}"


def spreading(*constraints, **fields):
    """A critical pod that spreads with others of its app."""
    return critical(spread=constraints or (spread(APP, ZONE),), labels=APP, **fields)


def zones(*names, **fields):
    """Return a node n1, n2, ... for each of the zones."""
    return [
        node(f"n{index}", 2, labels={ZONE: name}, **fields) for index, name in enumerate(names, 1)
    ]


def of_app(name, where, **fields):
    """A running pod of the app that must not be evicted, unless ``fields`` say otherwise."""
    fields = {"namespace": OWN, "labels": APP, "is_critical": True, "cpu": 0.1, **fields}
    return pod(name, where, **fields)


def test_a_zone_with_more_pods_than_the_others_is_excluded():
    objects = [*zones("x", "y"), of_app("a", "n1"), pod("v", "n1"), pod("w", "n2", cpu=2)]
    plan = planned(*objects, pending=spreading())
    assert (plan.candidate.node, going(plan.candidate)) == ("n2", ["w"])
    assert plan.reasons == {NO_ROOM: 1}


def test_a_matching_pod_on_the_node_moves_where_the_spread_demands_it():
    """The plan does not evict the other pod, though it is as large and less important."""
    objects = [*zones("x", "y"), of_app("a", "n1", is_critical=False, priority=9), pod("v", "n1")]
    objects += [pod("k", "n2", cpu=2, is_critical=True)]
    plan = planned(*objects, pending=spreading(cpu=0.5))
    assert (plan.candidate.node, going(plan.candidate)) == ("n1", ["a"])


def test_room_that_is_kept_for_others_counts():
    reserved_pod = spreading(name="other")
    objects = [*zones("x", "y"), pod("k", "n2", cpu=2, is_critical=True)]
    assert planned(*objects, pending=spreading()).candidate.node == "n1"
    plan = planned(*objects, pending=spreading(), reserved={"n1": (reserved_pod.pod,)})
    assert plan.candidate is None


# Pod affinity


def near(*terms, **fields):
    """A critical pod that must be near pods of the app."""
    return critical(affinity=terms or (apart(APP, HOST),), **fields)


def test_only_a_node_with_such_a_pod_is_used():
    objects = [node("n1", 2), node("n2", 2), pod("a", "n2", labels=APP), pod("v", "n2")]
    plan = planned(*objects, pending=near())
    assert (plan.candidate.node, going(plan.candidate)) == ("n2", ["v"])
    assert plan.reasons == {NOT_NEAR: 1}


def test_the_last_such_pod_of_the_domain_stays():
    """A pod stays though it is the least important one, and alone would make enough room."""
    objects = [
        node("n1", 2),
        pod("a", labels=APP, created=9),
        pod("v", priority=5),
    ]
    assert going(planned(*objects).candidate) == ["a"]
    assert going(planned(*objects, pending=near()).candidate) == ["v"]
    assert planned(*objects, pending=near(cpu=2)).reasons == {NOT_NEAR: 1}


def test_it_may_move_where_another_one_stays_in_the_domain():
    objects = [*zones("x", "x"), pod("a", "n1", cpu=2, labels=APP)]
    objects += [pod("b", "n2", cpu=2, labels=APP, is_critical=True)]
    plan = planned(*objects, pending=near(apart(APP, ZONE)))
    assert (plan.candidate.node, going(plan.candidate)) == ("n1", ["a"])


def test_a_terminating_pod_is_not_near_for_long():
    leaving = pod("a", labels=APP, deletion=1e9, cpu=0.1)
    assert planned(node("n1", 2), leaving, pending=near()).candidate is None


def test_without_other_nodes_neither_is_judged():
    for pending in (spreading(), near()):
        assert fits(pending, node("n1"), ()).reasons == (UNKNOWN_DOMAINS,)
        assert fits(replace(pending, affinity=(), spread=()), node("n1"), ()).fits


# Volumes


def test_a_volume_can_be_used_where_its_node_affinity_says_so():
    terms = (NodeTerm((NodeRequirement(ZONE, "In", ("y",)),)),)
    pending = critical(volumes={"pv": terms, "anywhere": None})
    objects = [*zones("x", "y"), pod("v", "n2", cpu=2)]
    plan = planned(*objects, pending=pending)
    assert (plan.candidate.node, plan.reasons) == (
        "n2",
        {"volume pv is not available there": 1},
    )


def test_a_volume_of_no_term_is_nowhere():
    assert planned(node("n1"), pending=critical(volumes={"pv": ()})).candidate is None


def test_the_name_of_a_node_means_nothing_to_a_volume():
    for operator, is_found in (("In", False), ("NotIn", True)):
        terms = (NodeTerm((), (NodeRequirement("metadata.name", operator, ("n1",)),)),)
        plan = planned(node("n1"), pending=critical(volumes={"pv": terms}))
        assert (plan.candidate is not None) is is_found


def test_pods_without_a_claim_move_before_one_with_a_claim():
    """The plan evicts four pods rather than one with a claim, and the more important pod."""
    objects = [node("n1", 2), pod("a", "n1", cpu=2, has_claim=True)]
    objects += [node("n2", 2), *(pod(f"b{index}", "n2", cpu=0.5) for index in range(4))]
    plan = planned(*objects, pending=critical(cpu=2))
    assert (plan.candidate.node, len(plan.candidate.victims)) == ("n2", 4)
    assert [
        dict(runner_up.score)["claims"] for runner_up in (plan.candidate, *plan.runners_up)
    ] == [0, 1]
    objects = [node("n1", 2), pod("a", has_claim=True), pod("b", priority=5)]
    plan = planned(*objects)
    assert going(plan.candidate) == ["b"]
    assert not plan.candidate.victims[0].has_claim


def test_the_cluster_s_own_order_makes_no_difference_to_what_is_counted():
    objects = [*zones("x", "y"), of_app("a", "n1"), pod("w", "n2", cpu=2)]
    assert cluster(*objects).nodes() != cluster(*reversed(objects)).nodes()
    in_order, in_reverse = (
        planned(*sequence, pending=spreading()) for sequence in (objects, reversed(objects))
    )
    assert in_order == in_reverse
