"""Pods that must wait and pods that need not, as the API server asks about them.

See keptn-spec 11.1.
"""

from __future__ import annotations

import json

import pytest

from harbourmaster.webhook.verdict import GATED, MUTATED, SKIPPED, UNMATCHED
from helpers.admitted import (
    APP_TYPE,
    CONTAINER,
    CRITICAL,
    GATE,
    OPT_IN,
    PARENT,
    THEIRS,
    admit,
    ask,
    engine_of,
    family,
    keys,
    owner,
    parent,
    pod,
)
from helpers.objects import cluster_policy, review, workload

TRACKED = keys(workload="waiter", version="0.4", app="shop")
CHECKS = keys(pre_deployment_tasks="t1", metadata="a=1")


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({}, id="c01"),
        pytest.param({"labels": OPT_IN}, id="c02"),
        pytest.param({"annotations": {"keptn.sh/lifecycle-toolkit": "Enabled"}}, id="c03"),
        pytest.param({"annotations": {"keptn.sh/lifecycle-toolkit": "true"}}, id="c03-true"),
    ],
)
def test_c01_c02_c03_other_namespaces_have_no_gates(metadata):
    found = admit(pod(TRACKED), namespaces=[{"metadata": {"name": "ns1", **metadata}}])
    assert found.is_untouched
    told = {"warnings", "auditAnnotations"} if metadata else set()
    assert set(found.response) == {"uid", "allowed", "status"} | told
    assert found.verdict.outcome == UNMATCHED


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param([], id="bare"),
        pytest.param([owner("Job")], id="job"),
        pytest.param([owner("ReplicationController")], id="rc"),
        pytest.param([owner("Node")], id="node"),
    ],
)
def test_c04_pods_of_other_owners_are_untouched(owners):
    found = admit(pod(TRACKED, owners=owners))
    assert found.is_untouched
    assert "owner of pod is not supported" in found.response["status"]["reason"]
    assert found.verdict.codes == ("gate-owner-unsupported",)


def test_c04_templates_never_get_a_gate():
    for kind in ("Job", "CronJob", "Deployment"):
        document = workload(kind)
        assert admit(document).is_untouched


def test_c05_the_last_supported_owner_counts():
    found = admit(pod(owners=[owner("Job"), owner()]), family(TRACKED))
    assert found.gates == [GATE]
    assert found.annotations == TRACKED


@pytest.mark.parametrize("kind", ["ReplicaSet", "Deployment", "StatefulSet", "DaemonSet"])
def test_a_pod_that_says_all_itself_gets_the_gate_only(kind):
    found = admit(pod(TRACKED, owners=[owner(kind)]))
    assert found.operations == [{"op": "add", "path": "/spec/schedulingGates", "value": [GATE]}]
    assert found.verdict.outcome == GATED
    assert "warnings" not in found.response


def test_c06_the_version_is_computed_and_stored():
    found = admit(pod(keys(workload="w", app="a")))
    assert found.annotations == keys(workload="w", app="a", version="930232967")


def test_c06_or_taken_from_the_tag_where_the_settings_say_so():
    found = admit(pod(keys(workload="w", app="a")), versionFromTag=True)
    assert found.annotations["keptn.sh/version"] == "1.25"


def test_c07_c08_a_named_container_gives_the_version():
    annotations = keys(workload="w", app="a", container="busybox")
    busybox = {"name": "busybox", "image": "busybox:1.36"}
    found = admit(pod(annotations, containers=[CONTAINER, busybox]))
    assert found.annotations["keptn.sh/version"] == "1.36"
    latest = {"name": "busybox", "image": "busybox"}
    found = admit(pod(annotations, containers=[latest]))
    assert found.annotations["keptn.sh/version"] == "1105821909"


@pytest.mark.parametrize("where", ["pod", "parent"])
def test_c09_c10_a_container_that_is_not_there_never_leaves_a_pod_untracked(where):
    annotations = keys(workload="w", app="a", container="nope")
    inherited = where == "parent"
    found = admit(pod(None if inherited else annotations), family(annotations) if inherited else ())
    assert found.gates == [GATE]
    assert found.annotations["keptn.sh/version"] == "930232967"
    (warning,) = found.response["warnings"]
    assert '"nope"' in warning
    assert "gate-container-missing" in found.response["auditAnnotations"]
    assert found.verdict.codes == ("gate-container-missing",)


def test_c14_what_stands_on_the_deployment_is_copied_to_the_pod():
    found = admit(pod(), family(TRACKED | CHECKS | keys(container="nginx")))
    assert found.gates == [GATE]
    assert found.annotations == TRACKED | CHECKS
    assert [operation["path"] for operation in found.operations] == [
        "/spec/schedulingGates",
        "/metadata/annotations",
    ]


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_c14_stateful_and_daemon_sets_are_parents_themselves(kind):
    owners = [owner(kind, "web")]
    found = admit(pod(owners=owners), [parent(kind, "web", TRACKED)])
    assert found.annotations == TRACKED


def test_c14_a_rollout_is_the_parent_of_its_replica_sets_pods():
    assert admit(pod(), family(TRACKED, "Rollout")).annotations == TRACKED


def test_c15_a_replica_set_itself_is_no_parent():
    replica_set, deployment = family()
    replica_set["metadata"]["annotations"] = TRACKED
    found = admit(pod(), [replica_set, deployment])
    assert found.is_untouched
    assert "names a workload" in found.response["status"]["reason"]


def test_a_replica_set_of_nobody_has_no_parent():
    assert admit(pod(), [parent("ReplicaSet", "web-5d9c")]).is_untouched


@pytest.mark.parametrize("kind", ["Deployment", "Rollout"])
def test_pods_owned_by_a_deployment_itself_inherit_nothing(kind):
    owners = [owner(kind, "web")]
    assert admit(pod(owners=owners), [parent(kind, "web", TRACKED)]).is_untouched


def test_c16_a_pod_with_a_workload_inherits_nothing():
    found = admit(pod(TRACKED), family(TRACKED | CHECKS))
    assert found.annotations == TRACKED


def test_c17_the_parents_version_replaces_the_pods():
    found = admit(pod(keys(version="1", app="shop")), family(keys(workload="w", version="2")))
    assert found.annotations == keys(version="2", workload="w", app="shop")


def test_c18_the_workload_is_the_app_where_there_is_none():
    found = admit(pod(keys(workload="waiter", version="1")))
    assert found.annotations == {
        **keys(workload="waiter", version="1", app="waiter"),
        APP_TYPE: "single-service",
    }


def test_labels_are_enough():
    labels = {
        "app.kubernetes.io/name": "w",
        "app.kubernetes.io/version": "1",
        "app.kubernetes.io/part-of": "a",
    }
    found = admit(pod(labels=labels))
    assert found.gates == [GATE]
    assert found.annotations is None


@pytest.mark.parametrize("gates", [[], [THEIRS]])
def test_c22_foreign_gates_stay(gates):
    found = admit(pod(TRACKED, schedulingGates=gates))
    assert found.gates == [*gates, GATE]


@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize("place", ["annotations", "labels"])
def test_c23_a_pod_whose_gate_was_removed_gets_no_other(place, value):
    marker = keys(scheduling_gate_removed=value)
    document = pod(TRACKED | marker) if place == "annotations" else pod(TRACKED, labels=marker)
    found = admit(document)
    assert found.is_untouched
    assert "already removed" in found.response["status"]["reason"]


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pod(TRACKED, schedulingGates=[GATE], labels={"new": "label"}), id="c24"),
        pytest.param(pod(TRACKED, nodeName="n1"), id="c25"),
        pytest.param(pod(TRACKED), id="c25-unbound"),
    ],
)
@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT"])
def test_c24_c25_only_creations_are_gated(document, operation):
    assert admit(document, request={"operation": operation}).is_untouched


def test_subresources_are_never_gated():
    assert admit(pod(TRACKED), request={"subResource": "eviction"}).is_untouched


def test_c26_a_dry_run_gets_the_same_patch():
    dry, real = (admit(pod(), family(TRACKED), request={"dryRun": run}) for run in (True, False))
    assert dry.response == real.response
    assert dry.gates == [GATE]


def test_c27_two_pods_of_one_replica_set_are_answered_alike():
    engine = engine_of(family(TRACKED))
    first, second = (ask(review(pod(), uid="u"), engine) for _ in range(2))
    assert first.response == second.response


def test_c28_a_namespace_that_is_not_known_is_a_visible_skip():
    found = admit(pod(TRACKED), namespaces=[])
    assert found.is_untouched
    assert found.verdict.codes == ("namespace-unknown",)
    assert found.response["warnings"]


@pytest.mark.parametrize("name", ["cert-manager", "keptn-system", "observability", "monitoring"])
def test_c31_the_namespaces_of_keptns_chart_are_denied_by_default(name):
    assert admit(pod(TRACKED), namespace=name).is_untouched
    assert admit(pod(TRACKED), namespace=name, deniedNamespaces=[]).gates == [GATE]


def test_c31_where_some_are_allowed_the_others_are_not():
    assert admit(pod(TRACKED), allowedNamespaces=["other"]).is_untouched
    allowed = {"allowedNamespaces": ["ns1"], "deniedNamespaces": ["ns1"]}
    assert admit(pod(TRACKED), **allowed).gates == [GATE]


@pytest.mark.parametrize("parents", [(), family(TRACKED)])
def test_c32_a_pod_that_names_its_node_is_not_gated_and_is_told(parents):
    document = pod(None if parents else TRACKED, nodeName="n1")
    found = admit(document, parents)
    assert found.is_untouched
    assert found.verdict.outcome == SKIPPED
    assert found.verdict.codes == ("gate-node-name",)
    assert found.response["auditAnnotations"]["gate-node-name"]


def test_c32_nobody_is_told_where_there_was_nothing_to_wait_for():
    found = admit(pod(nodeName="n1"), family())
    assert found.is_untouched
    assert "warnings" not in found.response


def test_critical_add_ons_are_never_gated():
    found = admit(pod(TRACKED, **CRITICAL), namespace="kube-system")
    assert found.is_untouched
    assert admit(pod(TRACKED, **CRITICAL)).gates == [GATE]
    assert admit(pod(TRACKED), namespace="kube-system").gates == [GATE]


@pytest.mark.parametrize("namespace", ["ns1", "kube-system"])
def test_the_annotation_of_critical_pods_alone_is_no_bypass(namespace):
    annotations = TRACKED | {"scheduler.alpha.kubernetes.io/critical-pod": ""}
    assert admit(pod(annotations), namespace=namespace).gates == [GATE]


def test_mirror_pods_and_pods_being_deleted_are_left_alone():
    mirror = pod(TRACKED | {"kubernetes.io/config.mirror": "x"})
    deleted = pod(TRACKED)
    deleted["metadata"]["deletionTimestamp"] = "2026-11-21T18:00:00Z"
    assert admit(mirror).is_untouched
    assert admit(deleted).is_untouched


@pytest.mark.parametrize(
    "parents",
    [
        pytest.param([], id="no replica set"),
        pytest.param(family(TRACKED)[:1], id="no deployment"),
        pytest.param([parent("ReplicaSet", "web-5d9c", uid="older")], id="an older replica set"),
    ],
)
def test_d7_an_owner_that_is_not_known_makes_a_provisional_gate(parents):
    found = admit(pod({"a": "b"}), parents)
    assert found.gates == [GATE]
    assert found.annotations == {"a": "b", PARENT: "unresolved"}
    assert found.verdict.outcome == GATED
    assert found.verdict.codes == ("gate-owner-unknown",)
    assert "ReplicaSet web-5d9c" in found.response["warnings"][0]


def test_pods_of_a_namesake_of_another_group_are_gated_by_what_they_say():
    other = owner("StatefulSet", "web", apiVersion="apps.example.com/v1")
    parents = [parent("StatefulSet", "web", TRACKED)]
    assert admit(pod(TRACKED, owners=[other]), parents).gates == [GATE]
    assert admit(pod(owners=[other]), parents).is_untouched


def test_without_the_feature_nothing_is_gated():
    found = admit(pod(TRACKED), features=["policies"])
    assert found.is_untouched
    assert found.verdict.outcome == UNMATCHED


POLICY = cluster_policy(nodeSelector={"disk": "ssd"}, tolerations=[{"operator": "Exists"}])


def test_policies_and_gates_are_one_patch():
    found = admit(pod(), family(TRACKED), POLICY)
    assert found.gates == [GATE]
    assert found.annotations == TRACKED
    assert found.after["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert found.verdict.outcome == GATED
    assert found.verdict.operations == len(found.operations) == 4
    assert found.verdict.policies == ("ClusterPodSchedulingPolicy c1",)


def test_without_their_feature_no_policy_applies():
    found = admit(pod(TRACKED), (), POLICY, features=["gates"])
    assert found.gates == [GATE]
    assert "nodeSelector" not in found.after["spec"]


def test_policies_apply_to_pods_that_need_not_wait():
    found = admit(pod(owners=[]), (), POLICY)
    assert found.verdict.outcome == MUTATED
    assert found.gates is None


def test_policies_apply_where_the_gate_is_skipped():
    found = admit(pod(TRACKED, nodeName="n1"), (), POLICY)
    assert found.verdict.outcome == MUTATED
    assert found.after["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert found.verdict.codes == ("gate-node-name",)
    assert found.response["warnings"]


def test_notes_of_both_are_given():
    broken = cluster_policy("broken", nodeName=3)
    found = admit(pod(), (), broken, POLICY)
    assert found.verdict.codes == ("policy-invalid", "gate-owner-unknown")
    assert len(found.response["warnings"]) == 2
    assert set(found.response["auditAnnotations"]) == {"policy-invalid", "gate-owner-unknown"}


@pytest.mark.parametrize(
    ("annotations", "parents"),
    [(TRACKED, ()), (None, family(TRACKED)), (None, ())],
)
def test_d4_a_policys_node_becomes_affinity_where_our_gate_is_added(annotations, parents):
    found = admit(pod(annotations), parents, cluster_policy(nodeName="n1"))
    assert "nodeName" not in found.after["spec"]
    assert "nodeAffinity" in found.after["spec"]["affinity"]
    assert found.gates == [GATE]


def test_d4_it_stays_a_node_where_the_pod_need_not_wait():
    found = admit(pod(owners=[]), (), cluster_policy(nodeName="n1"))
    assert found.after["spec"]["nodeName"] == "n1"


def test_d4_templates_follow_the_settings_of_gates():
    policy = cluster_policy(nodeName="n1")
    gated = admit(workload(), (), policy).operations
    free = admit(workload(), (), policy, features=["policies"]).operations
    assert [operation["path"].rpartition("/")[2] for operation in gated] == ["affinity"]
    assert [operation["path"].rpartition("/")[2] for operation in free] == ["nodeName"]


@pytest.mark.parametrize("inherited", [False, True])
def test_s7_containers_too_large_to_hash_are_the_controllers(inherited):
    untold = keys(workload="w", app="a")
    env = [{"name": "A", "value": "x" * 200_000}]
    document = pod(None if inherited else untold, containers=[{**CONTAINER, "env": env}])
    found = admit(document, family(untold) if inherited else ())
    assert found.gates == [GATE]
    assert found.annotations == {**({} if inherited else untold), PARENT: "unresolved"}
    assert found.verdict.codes == ("gate-containers-large",)
    # They don't matter to a pod that tells its version.
    told = pod(TRACKED, containers=[{**CONTAINER, "env": env}])
    assert admit(told).verdict.codes == ()


def test_a_second_pass_changes_nothing():
    for parents in (family(TRACKED | CHECKS), family(keys(workload="w")), ()):
        once = admit(pod(), parents, POLICY)
        again = admit(once.after, parents, POLICY)
        assert again.is_untouched, again.operations


def test_an_answer_of_v1beta1_is_the_same():
    question = {**review(pod(TRACKED)), "apiVersion": "admission.k8s.io/v1beta1"}
    assert ask(question, engine_of()).gates == [GATE]


def test_a_null_for_every_optional_field_is_an_absent_one():
    document = pod(TRACKED)
    document["spec"].update(schedulingGates=None, priority=None, nodeName=None, tolerations=None)
    assert admit(document).gates == [GATE]
    document["metadata"]["annotations"] = None
    assert admit(document, family(TRACKED)).annotations == TRACKED


def test_c29_c30_names_however_long_are_no_reason_to_deny():
    found = admit(pod(keys(workload="w", app="a" * 300, version="1.0")))
    assert found.gates == [GATE]


def test_unknown_fields_are_not_touched():
    document = pod(None, newField={"a": [1, None]})
    found = admit(document, family(TRACKED))
    assert found.after["spec"]["newField"] == {"a": [1, None]}
    assert json.dumps(found.operations).count("newField") == 0
