"""Pods that must wait and pods that need not, as the API server asks about them.

See keptn-spec 11.1.
"""

from __future__ import annotations

import pytest

from harbourmaster.webhook.verdict import GATED, MUTATED, SKIPPED, UNMATCHED
from helpers.admission import (
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
    answer = admit(pod(TRACKED), namespaces=[{"metadata": {"name": "ns1", **metadata}}])
    assert answer.is_untouched
    told = {"warnings", "auditAnnotations"} if metadata else set()
    assert set(answer.response) == {"uid", "allowed", "status"} | told
    assert answer.verdict.outcome == UNMATCHED


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
    answer = admit(pod(TRACKED, owners=owners))
    assert answer.is_untouched
    assert "owner of pod is not supported" in answer.response["status"]["reason"]
    assert answer.verdict.codes == ("gate-owner-unsupported",)


def test_c04_templates_never_get_a_gate():
    for kind in ("Job", "CronJob", "Deployment"):
        document = workload(kind)
        assert admit(document).is_untouched


def test_c05_the_last_supported_owner_counts():
    answer = admit(pod(owners=[owner("Job"), owner()]), family(TRACKED))
    assert answer.gates == [GATE]
    assert answer.annotations == TRACKED


@pytest.mark.parametrize("kind", ["ReplicaSet", "Deployment", "StatefulSet", "DaemonSet"])
def test_a_pod_that_says_all_itself_gets_the_gate_only(kind):
    answer = admit(pod(TRACKED, owners=[owner(kind)]))
    assert answer.operations == [{"op": "add", "path": "/spec/schedulingGates", "value": [GATE]}]
    assert answer.verdict.outcome == GATED
    assert "warnings" not in answer.response


def test_c06_the_version_is_computed_and_stored():
    answer = admit(pod(keys(workload="w", app="a")))
    assert answer.annotations == keys(workload="w", app="a", version="930232967")


def test_c06_or_taken_from_the_tag_where_the_settings_say_so():
    answer = admit(pod(keys(workload="w", app="a")), versionFromTag=True)
    assert answer.annotations["keptn.sh/version"] == "1.25"


def test_c07_c08_a_named_container_gives_the_version():
    annotations = keys(workload="w", app="a", container="busybox")
    busybox = {"name": "busybox", "image": "busybox:1.36"}
    answer = admit(pod(annotations, containers=[CONTAINER, busybox]))
    assert answer.annotations["keptn.sh/version"] == "1.36"
    latest = {"name": "busybox", "image": "busybox"}
    answer = admit(pod(annotations, containers=[latest]))
    assert answer.annotations["keptn.sh/version"] == "1105821909"


@pytest.mark.parametrize("where", ["pod", "parent"])
def test_c09_c10_a_container_that_is_not_there_never_leaves_a_pod_untracked(where):
    annotations = keys(workload="w", app="a", container="nope")
    inherited = where == "parent"
    answer = admit(
        pod(None if inherited else annotations), family(annotations) if inherited else ()
    )
    assert answer.gates == [GATE]
    assert answer.annotations["keptn.sh/version"] == "930232967"
    (warning,) = answer.response["warnings"]
    assert '"nope"' in warning
    assert "gate-container-missing" in answer.response["auditAnnotations"]
    assert answer.verdict.codes == ("gate-container-missing",)


def test_c14_what_stands_on_the_deployment_is_copied_to_the_pod():
    answer = admit(pod(), family(TRACKED | CHECKS | keys(container="nginx")))
    assert answer.gates == [GATE]
    assert answer.annotations == TRACKED | CHECKS
    assert [operation["path"] for operation in answer.operations] == [
        "/spec/schedulingGates",
        "/metadata/annotations",
    ]


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_c14_stateful_and_daemon_sets_are_parents_themselves(kind):
    owners = [owner(kind, "web")]
    answer = admit(pod(owners=owners), [parent(kind, "web", TRACKED)])
    assert answer.annotations == TRACKED


def test_c14_a_rollout_is_the_parent_of_its_replica_sets_pods():
    assert admit(pod(), family(TRACKED, "Rollout")).annotations == TRACKED


def test_c15_a_replica_set_itself_is_no_parent():
    replica_set, deployment = family()
    replica_set["metadata"]["annotations"] = TRACKED
    answer = admit(pod(), [replica_set, deployment])
    assert answer.is_untouched
    assert "names a workload" in answer.response["status"]["reason"]


def test_a_replica_set_of_nobody_has_no_parent():
    assert admit(pod(), [parent("ReplicaSet", "web-5d9c")]).is_untouched


@pytest.mark.parametrize("kind", ["Deployment", "Rollout"])
def test_pods_owned_by_a_deployment_itself_inherit_nothing(kind):
    owners = [owner(kind, "web")]
    assert admit(pod(owners=owners), [parent(kind, "web", TRACKED)]).is_untouched


def test_c16_a_pod_with_a_workload_inherits_nothing():
    answer = admit(pod(TRACKED), family(TRACKED | CHECKS))
    assert answer.annotations == TRACKED


def test_c17_the_parents_version_replaces_the_pods():
    answer = admit(pod(keys(version="1", app="shop")), family(keys(workload="w", version="2")))
    assert answer.annotations == keys(version="2", workload="w", app="shop")


def test_c18_the_workload_is_the_app_where_there_is_none():
    answer = admit(pod(keys(workload="waiter", version="1")))
    assert answer.annotations == {
        **keys(workload="waiter", version="1", app="waiter"),
        APP_TYPE: "single-service",
    }


def test_labels_are_enough():
    labels = {
        "app.kubernetes.io/name": "w",
        "app.kubernetes.io/version": "1",
        "app.kubernetes.io/part-of": "a",
    }
    answer = admit(pod(labels=labels))
    assert answer.gates == [GATE]
    assert answer.annotations is None


@pytest.mark.parametrize("gates", [[], [THEIRS]])
def test_c22_foreign_gates_stay(gates):
    answer = admit(pod(TRACKED, schedulingGates=gates))
    assert answer.gates == [*gates, GATE]


@pytest.mark.parametrize("value", ["true", "false"])
@pytest.mark.parametrize("place", ["annotations", "labels"])
def test_c23_a_pod_whose_gate_was_removed_gets_no_other(place, value):
    marker = keys(scheduling_gate_removed=value)
    document = pod(TRACKED | marker) if place == "annotations" else pod(TRACKED, labels=marker)
    answer = admit(document)
    assert answer.is_untouched
    assert "already removed" in answer.response["status"]["reason"]


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
    """Pods with a node are not (keptn-spec 2.8)."""
    assert admit(document, request={"operation": operation}).is_untouched


def test_subresources_are_never_gated():
    assert admit(pod(TRACKED), request={"subResource": "eviction"}).is_untouched


def test_c26_a_dry_run_gets_the_same_patch():
    """Admission writes nothing (keptn-spec 2.8)."""
    dry, real = (admit(pod(), family(TRACKED), request={"dryRun": run}) for run in (True, False))
    assert dry.response == real.response
    assert dry.gates == [GATE]


def test_c27_two_pods_of_one_replica_set_are_answered_alike():
    engine = engine_of(family(TRACKED))
    first, second = (ask(review(pod(), uid="u"), engine) for _ in range(2))
    assert first.response == second.response


def test_c28_a_namespace_that_is_not_known_is_a_visible_skip():
    answer = admit(pod(TRACKED), namespaces=[])
    assert answer.is_untouched
    assert answer.verdict.codes == ("namespace-unknown",)
    assert answer.response["warnings"]


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
    answer = admit(document, parents)
    assert answer.is_untouched
    assert answer.verdict.outcome == SKIPPED
    assert answer.verdict.codes == ("gate-node-name",)
    assert answer.response["auditAnnotations"]["gate-node-name"]


def test_c32_nobody_is_told_where_there_was_nothing_to_wait_for():
    answer = admit(pod(nodeName="n1"), family())
    assert answer.is_untouched
    assert "warnings" not in answer.response


def test_critical_add_ons_are_never_gated():
    answer = admit(pod(TRACKED, **CRITICAL), namespace="kube-system")
    assert answer.is_untouched
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
    answer = admit(pod({"a": "b"}), parents)
    assert answer.gates == [GATE]
    assert answer.annotations == {"a": "b", PARENT: "unresolved"}
    assert answer.verdict.outcome == GATED
    assert answer.verdict.codes == ("gate-owner-unknown",)
    assert "ReplicaSet web-5d9c" in answer.response["warnings"][0]


def test_pods_of_a_namesake_of_another_group_are_gated_by_what_they_say():
    foreign_owner = owner("StatefulSet", "web", apiVersion="apps.example.com/v1")
    parents = [parent("StatefulSet", "web", TRACKED)]
    assert admit(pod(TRACKED, owners=[foreign_owner]), parents).gates == [GATE]
    assert admit(pod(owners=[foreign_owner]), parents).is_untouched


def test_without_the_feature_nothing_is_gated():
    answer = admit(pod(TRACKED), features=["policies"])
    assert answer.is_untouched
    assert answer.verdict.outcome == UNMATCHED


POLICY = cluster_policy(nodeSelector={"disk": "ssd"}, tolerations=[{"operator": "Exists"}])


def test_policies_and_gates_are_one_patch():
    answer = admit(pod(), family(TRACKED), POLICY)
    assert answer.gates == [GATE]
    assert answer.annotations == TRACKED
    assert answer.after["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert answer.verdict.outcome == GATED
    assert answer.verdict.operations == len(answer.operations) == 4
    assert answer.verdict.policies == ("ClusterPodSchedulingPolicy c1",)


def test_without_their_feature_no_policy_applies():
    answer = admit(pod(TRACKED), (), POLICY, features=["gates"])
    assert answer.gates == [GATE]
    assert "nodeSelector" not in answer.after["spec"]


def test_policies_apply_to_pods_that_need_not_wait():
    answer = admit(pod(owners=[]), (), POLICY)
    assert answer.verdict.outcome == MUTATED
    assert answer.gates is None


def test_policies_apply_where_the_gate_is_skipped():
    answer = admit(pod(TRACKED, nodeName="n1"), (), POLICY)
    assert answer.verdict.outcome == MUTATED
    assert answer.after["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert answer.verdict.codes == ("gate-node-name",)
    assert answer.response["warnings"]


def test_notes_of_both_are_given():
    broken = cluster_policy("broken", nodeName=3)
    answer = admit(pod(), (), broken, POLICY)
    assert answer.verdict.codes == ("policy-invalid", "gate-owner-unknown")
    assert len(answer.response["warnings"]) == 2
    assert set(answer.response["auditAnnotations"]) == {"policy-invalid", "gate-owner-unknown"}


@pytest.mark.parametrize(
    ("annotations", "parents"),
    [(TRACKED, ()), (None, family(TRACKED)), (None, ())],
)
def test_d4_a_policys_node_becomes_affinity_where_our_gate_is_added(annotations, parents):
    answer = admit(pod(annotations), parents, cluster_policy(nodeName="n1"))
    assert "nodeName" not in answer.after["spec"]
    assert "nodeAffinity" in answer.after["spec"]["affinity"]
    assert answer.gates == [GATE]


def test_d4_it_stays_a_node_where_the_pod_need_not_wait():
    answer = admit(pod(owners=[]), (), cluster_policy(nodeName="n1"))
    assert answer.after["spec"]["nodeName"] == "n1"


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
    answer = admit(document, family(untold) if inherited else ())
    assert answer.gates == [GATE]
    assert answer.annotations == {**({} if inherited else untold), PARENT: "unresolved"}
    assert answer.verdict.codes == ("gate-containers-large",)
    # They don't matter to a pod that tells its version.
    told = pod(TRACKED, containers=[{**CONTAINER, "env": env}])
    assert admit(told).verdict.codes == ()


def test_a_null_for_every_optional_field_is_an_absent_one():
    document = pod(TRACKED)
    document["spec"].update(schedulingGates=None, priority=None, nodeName=None, tolerations=None)
    assert admit(document).gates == [GATE]
    document["metadata"]["annotations"] = None
    assert admit(document, family(TRACKED)).annotations == TRACKED


def test_c29_c30_names_however_long_are_no_reason_to_deny():
    answer = admit(pod(keys(workload="w", app="a" * 300, version="1.0")))
    assert answer.gates == [GATE]
