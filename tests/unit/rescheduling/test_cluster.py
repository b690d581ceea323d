"""The account of the cluster: any order of events, and nothing left of what is gone.

These tests prove rescheduler-spec 5.8.
"""

from __future__ import annotations

from msgspec.structs import replace

from harbourmaster.rescheduling.planner import plan, plan_in_slices
from helpers.planning import NOW, SETTINGS, apart, budget, cluster, critical, node, pod, port


def names(account, where="n1"):
    return sorted(bound_pod.name for bound_pod in account.pods_on(where))


def victims(account, pending=None):
    candidate = plan(account, pending or critical(), SETTINGS, NOW).candidate
    return candidate and sorted(victim.name for victim in candidate.victims)


def test_a_bound_pod_is_not_pending():
    account = cluster(node("n1"))
    waiting = critical()
    account.put_pod(waiting)
    assert account.pending == {waiting.pod.uid: waiting}
    account.put_pod(replace(waiting.pod, node="n1"))
    assert account.pending == {}
    assert names(account) == ["c"]


def test_a_finished_pod_uses_no_resources():
    account = cluster(node("n1"), pod("a", cpu=4))
    account.put_pod(pod("a", cpu=4, phase="Failed"))
    assert (names(account), list(account.pods()), victims(account)) == ([], [], [])


def test_two_pods_of_one_name_are_two():
    account = cluster(node("n1"), pod("a", uid="old"))
    account.put_pod(pod("a", uid="new"))
    account.remove_pod("old")
    assert account.pod("new").name == "a"
    assert account.pod("old") is None


def test_removing_the_unknown_does_nothing():
    account = cluster(node("n1"))
    account.remove_pod("nobody")
    account.remove_node("nowhere")
    account.remove_budget("default/none")
    account.remove_namespace("none")
    assert [known_node.name for known_node in account.nodes()] == ["n1"]


def test_nothing_is_left_when_all_is_gone():
    shy = (apart({"app": "x"}),)
    account = cluster(
        node("n1"), budget("pdb", 1), pod("a", ports=(port(80),), anti_affinity=shy), pod("b")
    )
    account.remove_node("n1")
    for uid in ("default-a", "default-b"):
        account.remove_pod(uid)
    account.remove_budget("default/pdb")
    kept = {name: value for name, value in vars(account).items() if isinstance(value, dict)}
    assert not any(kept.values())


def test_a_removed_node_is_no_candidate_even_with_pods_left():
    account = cluster(node("n1"), pod("a", cpu=4))
    account.remove_node("n1")
    assert plan(account, critical(), SETTINGS, NOW).candidate is None
    account.put_node(node("n1", cpu=8))
    assert victims(account) == []


def test_a_new_selector_takes_other_pods():
    labels = {"app": "a"}
    account = cluster(node("n1", 2), pod("a", cpu=2, labels=labels), budget("pdb", 0, labels))
    assert plan(account, critical(), SETTINGS, NOW).candidate.tier == 3
    account.put_budget(budget("pdb", 0, {"app": "b"}))
    assert plan(account, critical(), SETTINGS, NOW).candidate.tier == 1
    account.put_budget(budget("pdb", 0))
    assert plan(account, critical(), SETTINGS, NOW).candidate.tier == 3
    account.put_budget(budget("pdb", 1))
    assert plan(account, critical(), SETTINGS, NOW).candidate.tier == 1
    account.put_budget(budget("pdb", 0))
    account.remove_budget("default/pdb")
    assert plan(account, critical(), SETTINGS, NOW).candidate.tier == 1


def test_a_slice_is_over_after_fifty_nodes():
    account = cluster(*(node(f"n{index:03}", 0.5) for index in range(120)))
    assert len(list(plan_in_slices(account, critical(), SETTINGS, NOW))) == 2


def test_a_node_that_only_says_that_it_lives_changes_nothing():
    account = cluster(node("n1"))
    before = account.stamp
    account.put_node(node("n1", resource_version="2", reservations="[]"))
    assert account.stamp == before
    assert account.node("n1").resource_version == "2"
    account.put_node(node("n1", is_ready=False))
    assert account.stamp > before
