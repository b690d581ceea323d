from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.snapshot import Namespace
from harbourmaster.webhook.verdict import (
    INVALID,
    MALFORMED,
    MUTATED,
    SKIPPED,
    UNCHANGED,
    UNMATCHED,
    VALID,
)
from helpers.admission import policy_engine
from helpers.objects import cluster_policy, policy, required, review, workload
from helpers.oracles import apply_patch, decode_patch
from helpers.phased import app_version, workload_version

POLICY = cluster_policy(nodeSelector={"disk": "ssd"})


def ask(question, *policies, namespaces=None, may_patch=True, **settings):
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    engine = policy_engine(*policies, namespaces=namespaces, **settings)
    result, decision = answer(body, engine, may_patch=may_patch)
    return json.loads(result), decision.verdict


def test_a_matching_policy_gives_a_patch():
    document = workload()
    reply, decision = ask(review(document, uid="u-1"), POLICY)
    assert decision.outcome == MUTATED
    assert reply["apiVersion"] == "admission.k8s.io/v1"
    assert reply["kind"] == "AdmissionReview"
    response = reply["response"]
    assert response["uid"] == "u-1"
    assert response["status"] == {"metadata": {}, "code": 200}
    assert response["patchType"] == "JSONPatch"
    after = apply_patch(document, response)
    assert after["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}


def test_without_a_match_the_answer_is_bare():
    reply, decision = ask(review(workload()), cluster_policy(pods={"app": "db"}, nodeName="n"))
    assert decision.outcome == UNMATCHED
    expected = {"uid": "uid-1", "allowed": True, "status": {"metadata": {}, "code": 200}}
    assert reply["response"] == expected


def test_a_match_that_changes_nothing_gives_no_patch():
    """An unchanged object is allowed without a patch (kupid-spec 6.2)."""
    reply, decision = ask(review(workload(nodeSelector={"disk": "hdd"})), POLICY)
    assert decision.outcome == UNCHANGED
    assert "patch" not in reply["response"]
    assert "patchType" not in reply["response"]


@pytest.mark.parametrize("version", ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
def test_the_answer_has_the_version_of_the_question(version):
    """Both versions of reviews are answered (kupid-spec 6.1)."""
    reply, _ = ask({**review(workload()), "apiVersion": version}, POLICY)
    assert reply["apiVersion"] == version
    assert "patch" in reply["response"]


RERUN = "gates.harbourmaster.dev/rerun"


def rerun_review(label="1", former=None, kind="KeptnWorkloadVersion", **request):
    """A review of an update by which jane asks for the failed checks of a version."""
    version = workload_version(pre_deployment_tasks=("scan",))
    if kind == "KeptnAppVersion":
        version = app_version(pre_deployment_tasks=("scan",))
    item = {"definitionName": "scan", "status": "Failed", "name": "pre-scan-1"}
    document = msgspec.to_builtins(version) | {"apiVersion": "lifecycle.keptn.sh/v1", "kind": kind}
    failed = {"preDeploymentStatus": "Failed", "preDeploymentTaskStatus": [item]}
    document["status"] = {"status": "Failed", **failed}
    metadata = {**document["metadata"], "annotations": {f"{RERUN}-by": "root", "a": "b"}}
    asking = {**document, "metadata": {**metadata, "labels": {RERUN: label}}}
    former = {**document, "metadata": {**document["metadata"], "labels": former or {}}}
    options = {"operation": "UPDATE", "oldObject": former, "userInfo": {"username": "jane"}}
    return asking, review(asking, **{**options, **request})


@pytest.mark.parametrize("kind", ["KeptnWorkloadVersion", "KeptnAppVersion"])
def test_a_request_for_repeated_checks_gets_its_user_and_the_failed_checks(kind):
    document, question = rerun_review(kind=kind)
    reply, decision = ask(question)
    assert (decision.outcome, decision.warnings) == (MUTATED, ())
    after = apply_patch(document, reply["response"])
    assert after["metadata"]["annotations"] == {
        "a": "b",
        f"{RERUN}-by": "jane",
        f"{RERUN}-checks": "pre-scan-1",
    }
    assert {**after, "metadata": 0} == {**document, "metadata": 0}


def test_a_user_who_was_not_stamped_is_taken_out_again():
    document, question = rerun_review(former={RERUN: "1"})
    after = apply_patch(document, ask(question)[0]["response"])
    assert after["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize(
    ("request_fields", "may_patch"),
    [({"operation": "CREATE"}, True), ({"subResource": "status"}, True), ({}, False)],
)
def test_other_reviews_of_versions_are_left_alone(request_fields, may_patch):
    reply, decision = ask(rerun_review(**request_fields)[1], may_patch=may_patch)
    assert decision.outcome == UNMATCHED
    assert "patch" not in reply["response"]


@pytest.mark.parametrize(
    "fields", [{"oldObject": {"metadata": 1}}, {"userInfo": "jane"}, {"oldObject": None}]
)
def test_a_version_that_cannot_be_read_passes_with_a_warning(fields):
    reply, decision = ask(rerun_review(**fields)[1])
    assert (decision.outcome, decision.codes) == (SKIPPED, ("object-malformed",))
    assert reply["response"]["allowed"]


def test_a_question_without_version_counts_as_v1():
    question = review(workload())
    del question["apiVersion"], question["kind"]
    reply, _ = ask(question, POLICY)
    assert reply["apiVersion"] == "admission.k8s.io/v1"
    assert "patch" in reply["response"]


@pytest.mark.parametrize(
    "change",
    [
        {"apiVersion": "admission.k8s.io/v2"},
        {"apiVersion": "v1"},
        {"kind": "Pod"},
    ],
)
def test_s12_another_version_or_kind_is_refused_with_the_uid(change):
    reply, decision = ask({**review(workload(), uid="u-9"), **change}, POLICY)
    assert decision.outcome == MALFORMED
    assert reply["response"]["uid"] == "u-9"
    assert reply["response"]["allowed"] is False
    assert reply["response"]["status"]["code"] == 400
    assert "expected admission.k8s.io/v1" in reply["response"]["status"]["message"]


@pytest.mark.parametrize("uid", ["", "x" * 1_000_000, 'quote " and \\ and ü'])
def test_s12_the_uid_is_echoed_exactly(uid):
    reply, _ = ask(review(workload(), uid=uid), POLICY)
    assert reply["response"]["uid"] == uid


def test_s12_a_review_without_request_is_allowed_with_a_reason():
    reply, decision = ask({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}, POLICY)
    assert decision.outcome == SKIPPED
    assert reply["response"]["uid"] == ""
    assert reply["response"]["allowed"] is True
    assert "not handled" in reply["response"]["status"]["reason"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "truncated"),
        (b'{"request": {"uid": "u"', "truncated"),
        (b"[1, 2]", "expected object, got array"),
        (b'{"request": {"uid": 5}}', "request.uid: expected string, got integer"),
        (b"\xef\xbb\xbf{}", "malformed"),
        (b"{} trailing", "trailing"),
        (b'{"request": NaN}', "malformed"),
        (b"\xff\xfe\x00", "malformed"),
        (b'{"request": {"uid": "\xff"}}', "utf-8"),
        (b'{"request": {"object": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "nested too deep"),
        (b"[" * 100_000, "expected object, got array"),
        (b'{"a": ' + b'{"a": ' * 100_000, "nested too deep"),
    ],
)
def test_s6_what_is_no_review_is_refused_in_one_line(body, says):
    reply, decision = ask(body, POLICY)
    assert decision.outcome == MALFORMED
    response = reply["response"]
    assert (response["uid"], response["allowed"]) == ("", False)
    assert response["status"]["code"] == 400
    assert says in response["status"]["message"]
    assert "\n" not in response["status"]["message"]


def test_s6_duplicate_keys_take_the_last_value():
    body = json.dumps(review(workload(), uid="first")).encode()
    reply, _ = ask(body.replace(b'"uid": "first"', b'"uid": "first", "uid": "second"'), POLICY)
    assert reply["response"]["uid"] == "second"


def test_s6_a_number_of_100_000_digits_in_a_foreign_field_is_skipped():
    body = json.dumps(review(workload())).encode()
    reply, decision = ask(
        body.replace(b'"spec"', b'"x": ' + b"1" * 100_000 + b', "spec"', 1), POLICY
    )
    assert decision.outcome == MUTATED
    assert reply["response"]["allowed"]


def test_non_utf8_in_a_foreign_field_does_not_matter():
    body = json.dumps(review(workload(name="web"))).encode()
    reply, _ = ask(body.replace(b'"name": "c"', b'"name": "\xff"'), POLICY)
    assert "patch" in reply["response"]


def test_non_utf8_in_a_label_is_a_skip():
    body = json.dumps(review(workload(labels={"app": "web"}))).encode()
    _, decision = ask(body.replace(b'"app": "web"', b'"app": "\xff"'), POLICY)
    assert decision.outcome == SKIPPED


def assert_skipped(reply, code, text):
    response = reply["response"]
    assert response["allowed"] is True
    assert "patch" not in response
    assert response["status"]["code"] == 200
    assert text in response["status"]["reason"]
    assert text in response["warnings"][0]
    assert response["warnings"][0].startswith("harbourmaster: ")
    assert text in response["auditAnnotations"][code]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ({"group": "", "version": "v1", "kind": "ConfigMap"}, "v1, Kind=ConfigMap"),
        (
            {"group": "extensions", "version": "v1beta1", "kind": "Deployment"},
            "extensions/v1beta1, Kind=Deployment",
        ),
        ({"group": "apps", "version": "v2", "kind": "Deployment"}, "apps/v2, Kind=Deployment"),
        ({}, "are not handled"),
    ],
)
def test_an_unknown_kind_is_a_visible_skip(kind, says):
    question = review(workload())
    question["request"]["kind"] = kind
    reply, decision = ask(question, POLICY)
    assert decision.codes == ("kind-unknown",)
    assert_skipped(reply, "kind-unknown", says)


@pytest.mark.parametrize("missing", [{}, {"object": None}])
def test_a_creation_without_object_is_a_visible_skip(missing):
    question = review(workload())
    del question["request"]["object"]
    question["request"].update(missing)
    reply, _ = ask(question, POLICY)
    assert_skipped(reply, "no-object", "no object")


@pytest.mark.parametrize("missing", [{}, {"object": None}])
def test_a_delete_without_object_gives_a_reason_and_warns_nobody(missing):
    question = review(workload(), operation="DELETE")
    del question["request"]["object"]
    question["request"].update(missing)
    reply, decision = ask(question, POLICY)
    assert decision.outcome == UNMATCHED
    assert reply["response"]["allowed"] is True
    assert "no object" in reply["response"]["status"]["reason"]
    assert "warnings" not in reply["response"]


def test_a_delete_with_object_gets_no_patch():
    reply, decision = ask(review(workload(), operation="DELETE"), POLICY)
    assert decision.outcome == UNMATCHED
    assert "patch" not in reply["response"]


def test_an_unknown_namespace_is_a_visible_skip():
    reply, _ = ask(review(workload()), POLICY, namespaces={"other": Namespace({})})
    assert_skipped(reply, "namespace-unknown", 'namespace "ns1" is not known')


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("tolerations", "x", "spec.template.spec.tolerations: expected array, got string"),
        ("tolerations", [{"key": 1}], "tolerations[0].key: expected string, got integer"),
        ("affinity", [], "spec.template.spec.affinity: expected object, got array"),
        ("affinity", {"nodeAffinity": "x"}, "affinity.nodeAffinity: expected object, got string"),
        ("nodeName", 3, "spec.template.spec.nodeName: expected string, got integer"),
        ("nodeSelector", {"a": 1}, "spec.template.spec.nodeSelector: expected string, got integer"),
        ("schedulerName", {}, "spec.template.spec.schedulerName: expected string, got object"),
    ],
)
def test_wrong_types_in_owned_fields_are_a_visible_skip(field, value, says):
    reply, _ = ask(review(workload(**{field: value})), POLICY)
    assert_skipped(reply, "object-malformed", says)


@pytest.mark.parametrize("kind", ["Pod", "Job"])
@pytest.mark.parametrize(
    ("operation", "outcome"), [("CREATE", MUTATED), ("UPDATE", UNMATCHED), ("CONNECT", UNMATCHED)]
)
def test_immutable_kinds_change_on_create_only(kind, operation, outcome):
    """Pods and Jobs cannot change later (kupid-spec 2.4)."""
    _, decision = ask(review(workload(kind), operation=operation), POLICY)
    assert decision.outcome == outcome


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "CronJob"])
def test_templates_change_on_update_too(kind):
    _, decision = ask(review(workload(kind), operation="UPDATE"), POLICY)
    assert decision.outcome == MUTATED


def test_a_subresource_is_left_alone():
    _, decision = ask(review(workload("Pod"), subResource="ephemeralcontainers"), POLICY)
    assert decision.outcome == UNMATCHED


def test_s13_a_validating_webhook_never_patches():
    reply, decision = ask(review(workload()), POLICY, may_patch=False)
    assert decision.outcome == UNMATCHED
    assert "patch" not in reply["response"]
    assert "patchType" not in reply["response"]


@pytest.mark.claim("O2")
def test_one_broken_policy_leaves_the_others_in_force():
    """A policy that does not compile is skipped (kupid-spec 2.5)."""
    broken = policy("broken")
    broken["spec"]["podSelector"] = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    reply, decision = ask(review(workload()), broken, POLICY)
    assert decision.outcome == MUTATED
    assert decision.codes == ("policy-invalid",)
    (warning,) = reply["response"]["warnings"]
    assert "PodSchedulingPolicy ns1/broken is skipped" in warning
    assert "spec.podSelector.matchExpressions[0].operator" in warning


def test_a_contradiction_is_anded_with_a_warning_that_names_both_sides():
    asked = cluster_policy(affinity=required({"pool": "etcd"}))
    reply, _ = ask(review(workload(affinity=required({"pool": "web"}))), asked)
    assert "patch" in reply["response"]
    (warning,) = reply["response"]["warnings"]
    assert "ClusterPodSchedulingPolicy c1 requires pool In [etcd]" in warning
    assert "the pod pool In [web]" in warning


def test_skip_drops_what_the_pod_excludes_with_the_warning():
    asked = cluster_policy(affinity=required({"pool": "etcd", "disk": "ssd"}))
    document = workload(affinity=required({"pool": "web"}))
    reply, _ = ask(review(document), asked, on_required_affinity_conflict="skip")
    spec = apply_patch(document, reply["response"])["spec"]["template"]["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    keys = {r["key"]: r["values"] for r in term["matchExpressions"]}
    assert keys == {"disk": ["ssd"], "pool": ["web"]}
    assert "left out" in reply["response"]["warnings"][0]


def test_warnings_are_cut_and_bounded_and_hold_no_control_characters():
    many = []
    for index in range(40):
        long_policy = policy(f"p{index:02}", pods=None)
        long_policy["metadata"]["name"] = f"p{index:02}" + "\x1b[31m" + "n" * 400
        long_policy["spec"]["podSelector"] = {
            "matchExpressions": [{"key": "a", "operator": "Near"}]
        }
        many.append(long_policy)
    reply, _ = ask(review(workload()), *many)
    warnings = reply["response"]["warnings"]
    assert len(warnings) == 13
    assert sum(map(len, warnings)) <= 4096
    assert all(len(warning) <= 256 and warning.isprintable() for warning in warnings)
    assert "28 more warnings" in warnings[-1]
    assert len(reply["response"]["auditAnnotations"]["policy-invalid"]) <= 2048


@pytest.mark.parametrize("gates", [[{"name": "example.com/theirs"}], []])
def test_node_names_become_affinity_where_the_pod_has_a_gate(gates):
    document = workload("Pod", schedulingGates=gates)
    reply, _ = ask(review(document), cluster_policy(nodeName="n1"))
    paths = [operation["path"] for operation in decode_patch(reply["response"])]
    assert paths == (["/spec/affinity"] if gates else ["/spec/nodeName"])


def test_a_valid_policy_is_allowed():
    reply, decision = ask(review(POLICY))
    assert decision.outcome == VALID
    assert reply["response"]["allowed"] is True


def test_an_invalid_policy_is_denied_with_the_field():
    """The code is 403, and the message has the path (kupid-spec 5.1, 6.2)."""
    reply, decision = ask(review(cluster_policy(nodeName="Not A Name")))
    assert decision.outcome == INVALID
    assert reply["response"]["allowed"] is False
    assert reply["response"]["status"]["code"] == 403
    assert reply["response"]["status"]["reason"].startswith("spec.nodeName: Invalid value: ")


def test_an_odd_policy_is_allowed_with_a_warning():
    odd = cluster_policy()
    reply, _ = ask(review(odd))
    assert reply["response"]["allowed"] is True
    assert reply["response"]["warnings"]


def test_a_policy_of_wrong_types_passes_visibly():
    reply, _ = ask(review(cluster_policy(nodeName=3)))
    assert_skipped(reply, "object-malformed", "spec.nodeName: expected string, got integer")
