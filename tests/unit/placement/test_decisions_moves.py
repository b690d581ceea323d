"""The cases of krake-spec 8 about moves and their limits, by their numbers."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from msgspec.structs import replace

from harbourmaster.placement.application_decisions import MoveLimits, decide
from helpers.placing import (
    AB,
    NOW,
    ago,
    application,
    cluster,
    decide_on,
    decided_all,
    reason,
    start_pass,
)

# Moves


@pytest.mark.parametrize(("seconds", "on"), [(59, "a"), (60, "b"), (61, "b")])
def test_r1_r2_an_application_moves_to_a_better_cluster_after_the_hold_off(seconds, on):
    decision = decide_on(application(on="a", scheduled=seconds), *AB, m=0.1, n=0.9)
    assert list(decision.chosen) == [on]
    if on == "a":
        assert decision.scores == {}
        assert decision.reason == f"it must not move again until {ago(-1)}"
    else:
        assert decision.scores == pytest.approx({"a": 0.2 / 1.1, "b": 0.9})


MOVE = {"on_unreachable": "Move", "offline_after_seconds": 0}


def reachable_condition(status, reason):
    return {"type": "Reachable", "status": status, "reason": reason, "message": "why"}


NO_ANSWER = {"state": "Offline", "conditions": [reachable_condition("False", "NoAnswer")]}
NODE_NOT_READY = {
    "state": "NotReady",
    "conditions": [
        reachable_condition("True", "Answers"),
        {"type": "NodesReady", "status": "False", "reason": "NodeNotReady", "message": "node n"},
    ],
}


@pytest.mark.parametrize("status", [{"state": "Offline"}, NO_ANSWER])
def test_an_unreachable_cluster_keeps_its_applications(status):
    decision = decide_on(application(on="a"), cluster("a", status=status), cluster("b"))
    assert decision.stays
    assert decision.outcome == "Stayed"
    assert decision.reason.startswith("'a' is excluded (it is ")
    assert decision.reason.endswith("; it stays there (placement.onUnreachable: Stay)")
    assert decide_on(application(), cluster("a", status=status), cluster("b")).chosen == ["b"]


@pytest.mark.parametrize("status", [{"state": "Offline"}, NO_ANSWER])
def test_r3_an_unreachable_cluster_is_left_at_once_where_that_is_set(status):
    clusters = (cluster("a", status=status), cluster("b"))
    decision = decide_on(application(on="a", scheduled=5), *clusters, rules=MOVE)
    assert (decision.outcome, decision.chosen, decision.is_elective) == ("Moved", ["b"], False)
    assert decision.cause == "NoAnswer"
    assert decision.reason.startswith("'a' is excluded (it is ")


@pytest.mark.parametrize("rules", [{}, MOVE])
@pytest.mark.parametrize(
    "status",
    [
        {"state": "Offline", "conditions": [reachable_condition("False", "InvalidCredentials")]},
        {"state": "Connecting", "conditions": [reachable_condition("Unknown", "Connecting")]},
        {"state": "Connecting"},
        {"state": "Pending"},
        {},
    ],
)
def test_only_silence_is_a_failover_whatever_the_setting(rules, status):
    clusters = (cluster("a", status=status), cluster("b"))
    assert decide_on(application(on="a"), *clusters, rules=rules).stays
    assert decide_on(application(), *clusters, rules=rules).chosen == ["b"]


@pytest.mark.parametrize("rules", [{}, MOVE])
@pytest.mark.parametrize(
    "change",
    [{"spec": {"unschedulable": True}}, {"deletionTimestamp": ago(1)}, {"labels": {"x": "z"}}],
)
def test_people_can_send_applications_away_from_an_unreachable_cluster(rules, change):
    app = application(on="a", labels=["x is y"])
    silent = cluster("a", **{"status": NO_ANSWER, "labels": {"x": "y"}, **change})
    decision = decide_on(app, silent, cluster("b", labels={"x": "y"}), rules=rules)
    assert (decision.outcome, decision.chosen) == ("Moved", ["b"])


@pytest.mark.parametrize("rules", [{}, MOVE])
@pytest.mark.parametrize("status", [{"state": "NotReady"}, {"state": "Unhealthy"}, NODE_NOT_READY])
def test_nodes_that_are_not_ready_stop_new_placements_only(rules, status):
    sick = cluster("a", {"m": 1}, status=status)
    decision = decide_on(
        application(on="a"), sick, cluster("b", {"n": 1}), rules=rules, m=0.5, n=0.5
    )
    assert decision.stays
    assert decision.scores == pytest.approx({"a": 0.6 / 1.1, "b": 0.5})
    alone = decide_on(application(on="a"), sick, rules=rules, m=0.5)
    assert (alone.outcome, alone.stays) == ("Stayed", True)
    new = decide_on(application(), sick, cluster("b", {"n": 1}), rules=rules, m=0.9, n=0.1)
    assert new.chosen == ["b"]
    assert reason(new, "a").startswith("it")


def test_unready_nodes_do_not_prevent_moves():
    sick = cluster("a", {"m": 1}, status=NODE_NOT_READY)
    better = decide_on(application(on="a"), sick, cluster("b", {"n": 1}), m=0.1, n=0.9)
    assert (better.outcome, better.chosen, better.is_elective) == ("Moved", ["b"], True)
    assert better.cause == "BetterScore"
    limited = application(on="a", metrics=["n > 0.5"])
    decision = decide_on(limited, sick, cluster("b", {"n": 1}), m=0.9, n=0.6)
    assert (decision.outcome, decision.chosen, decision.is_elective) == ("Moved", ["b"], False)
    assert decision.cause == "Unsuitable"
    assert decide_on(application(on="gone"), cluster("b")).cause == "ClusterDeleted"
    assert decide_on(application(), cluster("b")).cause == ""


CLAIM = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
STATEFUL = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "data"},
    "spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]},
}


def custom(version, kind, spec=None):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "data"}, "spec": spec or {}}


def pod_template(*volumes):
    return {"template": {"spec": {"volumes": [{"name": "v", **volume} for volume in volumes]}}}


MOUNTED = {"persistentVolumeClaim": {"claimName": "elsewhere"}}
EPHEMERAL = {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
JOB_TEMPLATE = {"jobTemplate": {"spec": pod_template(EPHEMERAL, MOUNTED)}}
HOLDERS = {
    "claim": CLAIM,
    "claim template": STATEFUL,
    "persistent volume": custom("v1", "PersistentVolume"),
    "snapshot": custom("snapshot.storage.k8s.io/v1", "VolumeSnapshot"),
    "claim from outside": custom("apps/v1", "Deployment", pod_template(MOUNTED)),
    "claim deep within": custom("batch/v1", "CronJob", JOB_TEMPLATE),
    "template of a known kind": custom("argoproj.io/v1alpha1", "Rollout", pod_template(MOUNTED)),
    "CloudNativePG": custom("postgresql.cnpg.io/v1", "Cluster", {"instances": 3}),
    "ECK": custom("elasticsearch.k8s.elastic.co/v1", "Elasticsearch"),
    "Strimzi": custom("kafka.strimzi.io/v1beta2", "KafkaNodePool", {"storage": {"type": "jbod"}}),
    "KubeVirt": custom("kubevirt.io/v1", "VirtualMachine", {"dataVolumeTemplates": [{"a": "b"}]}),
    "Kruise": custom("apps.kruise.io/v1beta1", "StatefulSet", {"volumeClaimTemplates": [{}]}),
    "Cluster API": custom("cluster.x-k8s.io/v1beta1", "Cluster"),
}


def recreating(app):
    return replace(app, spec=replace(app.spec, migration_volumes="Recreate"))


@pytest.mark.parametrize("manifest", HOLDERS.values(), ids=HOLDERS)
def test_no_metric_and_no_outage_moves_an_application_with_data(manifest):
    """Data is not copied (krake-spec 7.6)."""
    app = application(on="a", manifests=[manifest])
    better = decide_on(app, *AB, m=0.1, n=0.9)
    assert (better.outcome, better.stays) == ("Stayed", True)
    assert better.scores == pytest.approx({"a": 0.2 / 1.1, "b": 0.9})
    kind = manifest["kind"]
    assert better.reason.startswith(
        f"'b' has the best score, 0.9, but a move would lose data of its {kind} data: to allow it, "
        "set spec.migrationVolumes to Recreate"
    )
    limited = application(on="a", manifests=[manifest], metrics=["n > 0.5"])
    assert decide_on(limited, *AB, m=0.1, n=0.9).stays
    lost = {"on_metrics_loss": "Move"}
    assert decide_on(app, *AB, rules=lost, m="no answer", n=0.9).stays
    silent = (cluster("a", status=NO_ANSWER), cluster("b"))
    assert decide_on(app, *silent, rules=MOVE).stays


@pytest.mark.parametrize("manifest", HOLDERS.values(), ids=HOLDERS)
def test_an_application_with_data_moves_where_that_is_allowed_or_wanted(manifest):
    allowed = recreating(application(on="a", manifests=[manifest]))
    assert decide_on(allowed, *AB, m=0.1, n=0.9).chosen == ["b"]
    silent = (cluster("a", status=NO_ANSWER), cluster("b"))
    assert decide_on(allowed, *silent, rules=MOVE).chosen == ["b"]
    wanted = application(on="a", manifests=[manifest], labels=["x is y"])
    assert decide_on(wanted, cluster("a"), cluster("b", labels={"x": "y"})).chosen == ["b"]
    assert decide_on(application(manifests=[manifest]), *AB, m=0.1, n=0.9).chosen == ["b"]


SCHEMA = {"openAPIV3Schema": {"properties": {"persistentVolumeClaim": {"type": "object"}}}}


@pytest.mark.parametrize(
    "manifest",
    [
        {**STATEFUL, "spec": {}},
        {**STATEFUL, "spec": {"volumeClaimTemplates": []}},
        {**STATEFUL, "spec": "nonsense"},
        custom("apps/v1", "Deployment", pod_template({"emptyDir": {}}, EPHEMERAL)),
        custom("gateway.networking.k8s.io/v1", "HTTPRoute"),
        custom("networking.istio.io/v1", "VirtualService"),
        custom("monitoring.coreos.com/v1", "ServiceMonitor"),
        custom("cert-manager.io/v1", "Certificate"),
        custom("argoproj.io/v1alpha1", "Rollout", pod_template({"emptyDir": {}})),
        custom("apiextensions.k8s.io/v1", "CustomResourceDefinition", {"versions": [SCHEMA]}),
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"persistentVolumeClaim": "text"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "spec": [1]},
        {"kind": 5, "spec": None},
        {},
    ],
)
def test_manifests_without_data_may_move(manifest):
    """These manifests hold no data (krake-spec 7.6)."""
    app = application(on="a", manifests=[manifest])
    assert decide_on(app, *AB, m=0.1, n=0.9).chosen == ["b"]


@pytest.mark.parametrize("name", ["Boat.example.com", "*.example.com"])
def test_a_custom_resource_of_the_users_moves_if_a_setting_says_that_it_has_no_data(name):
    app = application(on="a", manifests=[custom("example.com/v1", "Boat")])
    kept = decide_on(app, *AB, m=0.1, n=0.9)
    assert kept.reason.endswith("name the kind in placement.statelessKinds if it has no data")
    rules = {"stateless_kinds": (name,)}
    assert decide_on(app, *AB, rules=rules, m=0.1, n=0.9).chosen == ["b"]
    claiming = custom("example.com/v1", "Boat", {"storage": {"volumeClaimTemplate": {"a": "b"}}})
    app = application(on="a", manifests=[claiming])
    assert decide_on(app, *AB, rules=rules, m=0.1, n=0.9).stays


def test_r4_a_cluster_that_does_not_match_any_more_is_left_at_once():
    """The hold-off does not count (krake-spec 3.4)."""
    app = application(on="a", scheduled=5, labels=["x is y"], generation=2)
    decision = decide_on(app, cluster("a"), cluster("b", labels={"x": "y"}))
    assert decision.chosen == ["b"]


def test_a_deleted_cluster_is_left_at_once():
    decision = decide_on(application(on="gone", scheduled=5), cluster("b"))
    assert decision.chosen == ["b"]
    assert decision.reason.startswith("'gone' is excluded (it no longer exists)")


def test_r9_an_application_that_may_not_move_stays():
    """A placed application with migration disabled stays (krake-spec 3.3)."""
    decision = decide_on(application(on="a", migration=False), *AB, m=0.1, n=0.9)
    assert decision.stays
    assert list(decision.chosen) == ["a"]


def test_r10_an_application_that_may_not_move_is_placed():
    assert decide_on(application(migration=False), *AB, m=0.1, n=0.9).chosen == ["b"]


@pytest.mark.parametrize("clusters", [[], [cluster("a", status={"state": "Offline"})]])
def test_r12_an_application_that_may_not_move_stays_on_a_missing_cluster(clusters):
    decision = decide_on(application(on="a", migration=False), *clusters, cluster("b"))
    assert decision.stays
    assert list(decision.chosen) == ["a"]


def test_r13_after_a_failed_move_the_application_stays_for_a_while():
    """It is suspended (krake-spec 3.3)."""
    app = application(on="a", status={"suspendedUntil": ago(-100)})
    assert decide_on(app, *AB, m=0.1, n=0.9).stays
    later = NOW + timedelta(seconds=100)
    assert decide_on(app, *AB, now=later, m=0.1, n=0.9).chosen == ["b"]


@pytest.mark.parametrize(("rule", "on"), [(True, "a"), (False, "b")])
def test_the_hold_off_may_leave_out_changed_applications(rule, on):
    app = application(on="a", scheduled=5, generation=2)
    decision = decide_on(app, *AB, rules={"hold_off_on_update": rule}, m=0.1, n=0.9)
    assert list(decision.chosen) == [on]
    same = application(on="a", scheduled=5)
    assert decide_on(same, *AB, rules={"hold_off_on_update": rule}, m=0.1, n=0.9).stays


@pytest.mark.parametrize("time", ["", "nonsense", ago(-86400)])
def test_an_invalid_time_of_the_last_move_is_ignored(time):
    app = application(on="a", status={"scheduledTime": time})
    assert decide_on(app, *AB, m=0.1, n=0.9).chosen == ["b"]


def test_r21_one_bad_application_is_the_only_one():
    apps = [application(f"app-{number}") for number in range(99)]
    poison = application("poison", metrics=["load > abc"])
    decisions = decided_all([*apps[:50], poison, *apps[50:]], cluster("a"))
    assert [decision.outcome for decision in decisions].count("Placed") == 99
    assert decisions[50].outcome == "InvalidConstraint"


# Limits


def test_only_so_many_move_to_one_cluster_in_a_pass():
    apps = [application(f"app-{number}", on="a") for number in range(8)]
    decisions = decided_all(apps, *AB, rules={"moves_per_target": 3}, m=0.1, n=0.9)
    assert [decision.outcome for decision in decisions] == ["Moved"] * 3 + ["Stayed"] * 5
    assert decisions[3].reason.endswith("but this pass allows no more moves there")
    free = decided_all(apps, *AB, rules={"moves_per_target": 0}, m=0.1, n=0.9)
    assert [decision.outcome for decision in free] == ["Moved"] * 8


def test_who_must_move_moves_whatever_the_limit_and_counts():
    clusters = (
        cluster("a", status={"state": "Offline"}),
        cluster("b", {"n": 1}),
        cluster("c", {"m": 1}),
    )
    apps = [application(f"app-{number}", on="a") for number in range(5)]
    apps += [application("late", on="c")]
    decisions = decided_all(apps, *clusters, rules={"moves_per_target": 2, **MOVE}, m=0.1, n=0.9)
    assert [decision.outcome for decision in decisions] == ["Moved"] * 5 + ["Stayed"]


def test_first_placements_are_no_moves():
    apps = [application(f"app-{number}") for number in range(5)]
    decisions = decided_all(apps, cluster("a"), rules={"moves_per_target": 2})
    assert {decision.outcome for decision in decisions} == {"Placed"}


def test_a_tie_of_full_and_open_clusters_goes_to_the_open_ones():
    clusters = (cluster("a", {"m": 1}), cluster("b", {"n": 1}), cluster("c", {"n": 1}))
    apps = [application(f"app-{number}", on="a") for number in range(6)]
    decisions = decided_all(apps, *clusters, rules={"moves_per_target": 3}, m=0.1, n=0.9)
    assert Counter(decision.target.name for decision in decisions) == {"b": 3, "c": 3}


@pytest.mark.parametrize(
    ("moves", "limit", "outcome"),
    [([10, 20], 2, "Stayed"), ([10, 3601], 2, "Moved"), ([10, 20], 0, "Moved"), ([10], 2, "Moved")],
)
def test_an_application_moves_only_so_often_in_an_hour(moves, limit, outcome):
    app = application(on="a", status={"recentMoves": [ago(move) for move in moves]})
    decision = decide_on(app, *AB, rules={"moves_per_application": limit}, m=0.1, n=0.9)
    assert decision.outcome == outcome


def test_an_application_that_has_moved_too_often_still_leaves_what_is_gone():
    app = application(on="gone", status={"recentMoves": [ago(10)] * 5})
    assert decide_on(app, *AB, rules={"moves_per_application": 1}, m=0.1, n=0.9).outcome == "Moved"


# Patience


def silent_since(seconds, reason):
    return {**reachable_condition("False", reason), "lastTransitionTime": ago(seconds)}


@pytest.mark.parametrize(("seconds", "moves"), [(299, False), (300, True), (301, True)])
def test_a_silent_cluster_is_left_only_after_a_while(seconds, moves):
    conditions = [silent_since(seconds, "NoAnswer")]
    silent = cluster("a", status={"state": "Offline", "conditions": conditions})
    decision = decide_on(
        application(on="a"), silent, cluster("b"), rules={"on_unreachable": "Move"}
    )
    assert (decision.target is not None) is moves
    if not moves:
        assert decision.until == NOW + timedelta(seconds=1)
        assert decision.reason.endswith(
            f"it stays there until {ago(-1)} (placement.onUnreachable: Move)"
        )


def test_a_cluster_that_is_silent_since_nobody_knows_when_is_kept():
    silent = cluster("a", status=NO_ANSWER)
    assert decide_on(
        application(on="a"), silent, cluster("b"), rules={"on_unreachable": "Move"}
    ).stays


def test_only_silence_counts_as_silence():
    conditions = [silent_since(86400, "InvalidCredentials")]
    denied = cluster("a", status={"state": "Offline", "conditions": conditions})
    assert decide_on(application(on="a"), denied, cluster("b"), rules=MOVE).stays


GONE = cluster("a", spec={"unschedulable": True})


@pytest.mark.parametrize("rules", [{"forced_moves_per_cluster": 3}, {"forced_moves_total": 3}])
def test_only_so_many_are_made_to_leave_in_a_pass(rules):
    apps = [application(f"app-{number}", on="a") for number in range(8)]
    decisions = decided_all(apps, GONE, cluster("b"), rules=rules)
    assert [decision.outcome for decision in decisions] == ["Moved"] * 3 + ["MoveLimited"] * 5
    assert all(decision.stays for decision in decisions[3:])
    assert decisions[3].reason == (
        "'a' is excluded (it is marked as unschedulable), but this pass allows no more moves from "
        "there"
    )


def test_the_limit_of_one_cluster_does_not_hold_others_and_zero_is_none():
    apps = [application(f"app-{number}", on="ac"[number % 2]) for number in range(8)]
    clusters = (GONE, cluster("b"), cluster("c", spec={"unschedulable": True}))
    for limit, moved in ((1, 2), (3, 6), (0, 8)):
        rules = {"forced_moves_per_cluster": limit, "forced_moves_total": 0}
        decisions = decided_all(apps, *clusters, rules=rules)
        assert sum(decision.target is not None for decision in decisions) == moved


def test_one_that_is_decided_on_again_is_made_to_leave_once():
    view = start_pass(GONE, cluster("b"), rules={"forced_moves_per_cluster": 1})
    move_limits = MoveLimits(view.rules, NOW + timedelta(seconds=15))
    first, second = (application(name, on="a") for name in ("one", "other"))
    assert decide(first, view, move_limits).target
    assert decide(first, view, move_limits).target
    waits = decide(second, view, move_limits)
    assert (waits.outcome, waits.until) == ("MoveLimited", move_limits.ends)
    assert decide(application("new"), view, move_limits).outcome == "Placed"
