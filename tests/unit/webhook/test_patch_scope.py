"""S13 to S15 by example; tests/property and test_fuzz have them on random objects."""

from __future__ import annotations

import copy
import json

import pytest

from harbourmaster.webhook.handlers import answer
from helpers.admission import admit, family, keys, pod, policy_engine
from helpers.objects import body, cluster_policy, policy, required, review, workload
from helpers.oracles import decode_patch, patched

OWNED = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")
FULL = cluster_policy(
    nodeName="n1",
    nodeSelector={"disk": "ssd"},
    schedulerName="ours",
    tolerations=[{"key": "pool", "operator": "Exists"}],
    affinity=required({"pool": "etcd"}),
)


def ask(document, *policies, may_patch=True):
    result, _ = answer(body(document), policy_engine(*policies), may_patch=may_patch)
    return json.loads(result)["response"]


@pytest.mark.parametrize(
    "document",
    [workload(), workload(nodeSelector={"disk": "hdd"}), workload(nodeName=3), FULL],
    ids=["changed", "unchanged", "skipped", "policy"],
)
@pytest.mark.parametrize("may_patch", [True, False])
def test_s13_patch_and_patch_type_come_together_or_not_at_all(document, may_patch):
    for asked in (FULL, cluster_policy(nodeSelector={"disk": "ssd"})):
        response = ask(document, asked, may_patch=may_patch)
        assert ("patch" in response) is ("patchType" in response)
        assert response.get("patch") != ""
        assert may_patch or "patch" not in response


def test_s13_slashes_and_tildes_in_keys_are_escaped():
    document = workload("Pod", nodeSelector={"kept": "1"})
    response = ask(document, cluster_policy(nodeSelector={"node.kubernetes.io/x": "y"}))
    (operation,) = decode_patch(response)
    assert operation["path"] == "/spec/nodeSelector/node.kubernetes.io~1x"
    after = patched(document, response)["spec"]["nodeSelector"]
    assert after == {"kept": "1", "node.kubernetes.io/x": "y"}


HOSTILE = {
    "containers": [{"name": "c", "image": "evil"}],
    "securityContext": {"runAsUser": 0},
    "serviceAccountName": "admin",
    "hostNetwork": True,
    "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
}


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "CronJob"])
@pytest.mark.claim("O1")
def test_s14_a_policy_injects_nothing_but_its_five_fields(kind):
    asked = copy.deepcopy(FULL)
    asked["spec"].update(HOSTILE)
    asked["spec"]["affinity"].update(HOSTILE)
    document = workload(kind)
    response = ask(document, asked)
    paths = [operation["path"].rsplit("/", 1)[1] for operation in decode_patch(response)]
    assert sorted(paths) == sorted(OWNED)
    text = json.dumps(decode_patch(response))
    assert not [name for name in (*HOSTILE, "evil", "hostPath") if name in text]


@pytest.mark.parametrize("key", ["../containers", "~1spec~1containers", "/spec/hostNetwork", "-"])
def test_s14_a_key_that_is_a_path_leads_nowhere(key):
    asked = policy(nodeSelector={key: "x", "disk": "ssd"})
    document = workload("Pod", nodeSelector={"kept": "1"})
    response = ask(document, asked, cluster_policy("other", nodeSelector={"a": "b"}))
    after = patched(document, response)
    assert after["spec"].pop("nodeSelector").keys() <= {"kept", "a", "disk", key}
    before = document["spec"]
    assert after["spec"] == {name: before[name] for name in before if name != "nodeSelector"}


def future(value):
    """Return a value as of a later Kubernetes, in which every object has another field."""
    if isinstance(value, list):
        return [future(item) for item in value]
    if isinstance(value, dict):
        # Labels are a map: a key of it is no field.
        fields = {k: field if k == "labels" else future(field) for k, field in value.items()}
        return {**fields, "futureField": {"deeper": [1.0, "1e400", None, {"": []}]}}
    return value


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "CronJob"])
def test_s15_what_is_not_ours_comes_back_byte_for_byte(kind):
    document = workload(kind)
    pod = {"containers": future(document), "futureField": future({"a": {"b": 1}}), "priority": 7}
    document = {**workload(kind, **pod), "futureField": [{}], "status": future({"x": {}})}
    response = ask(document, FULL)
    after = patched(document, response)
    target = after["spec"]
    for step in {"Pod": (), "Deployment": ("template",), "CronJob": ("jobTemplate", "template")}[
        kind
    ]:
        target = target[step]["spec"]
    assert [target.pop(field) for field in OWNED]
    assert json.dumps(after) == json.dumps(document)


def test_s15_unknown_fields_of_the_review_itself_do_not_matter():
    question = future(review(workload()))
    result, _ = answer(json.dumps(question).encode(), policy_engine(FULL))
    assert "patch" in json.loads(result)["response"]


@pytest.mark.parametrize("gating", ["schedulingGates", "schedulerName"])
@pytest.mark.parametrize("parents", [(), family(keys(workload="w", pre_deployment_tasks="t"))])
def test_s14_waiting_touches_the_pods_annotations_and_one_field_more(gating, parents):
    document = pod({"a/b~c": "kept"}, **future(HOSTILE))
    answer = admit(document, parents, FULL, gating=gating)
    field = "schedulingGates" if gating == "schedulingGates" else "schedulerName"
    for operation in answer.operations:
        _, part, name, *_ = operation["path"].split("/")
        assert name == "annotations" if part == "metadata" else name in {*OWNED, field}
    spec = answer.after["spec"]
    assert ("schedulingGates" in spec) is (gating == "schedulingGates")
    assert (spec["schedulerName"] == "keptn-scheduler") is (gating == "schedulerName")
    assert {name: spec[name] for name in document["spec"]} == document["spec"]
    assert answer.annotations["a/b~c"] == "kept"
    # A second review, after another webhook changed something, finds nothing left to do.
    assert admit(answer.after, parents, FULL, gating=gating).is_untouched


@pytest.mark.parametrize("name", ["../x", "/spec/hostNetwork", "~1spec", '"},{"op":"remove"', "\n"])
def test_s14_a_scheduler_that_is_a_path_leads_nowhere(name):
    document = pod(keys(workload="w"), schedulerName=name)
    answer = admit(document, gating="schedulerName")
    assert answer.is_untouched
    assert answer.verdict.codes == ("gate-foreign-scheduler",)
    assert "\n" not in answer.response["warnings"][0]
