"""Templates whose pods an admission plugin would refuse for what a policy sets."""

from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.policies.explain import ExplainedPolicy, explain
from harbourmaster.policies.merge import MergeOptions
from harbourmaster.policies.pods import KINDS
from harbourmaster.webhook.recording import WRITTEN
from harbourmaster.webhook.snapshot import Snapshot, decode_class
from harbourmaster.webhook.sources import read_policy
from helpers.admission import OPT_IN, ask, engine_of, record_of, replayed_response
from helpers.objects import cluster_policy, required, review, workload
from helpers.oracles import decode_patch

OS = "kubernetes.io/os"
LINUX = cluster_policy("linux", nodeSelector={OS: "linux", "disk": "ssd"})
CODE = "node-selector-conflict"
KUBERNETES, OPENSHIFT = "scheduler.alpha.kubernetes.io/node-selector", "openshift.io/node-selector"
TEMPLATES = ["CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"]
WINDOWS = {"metadata": {"name": "windows"}, "scheduling": {"nodeSelector": {OS: "windows"}}}
SANDBOX = {"metadata": {"name": "gvisor"}, "handler": "runsc", "scheduling": None}


def asked(document, *policies, classes=(WINDOWS, SANDBOX), annotations=None):
    """The answer about an object of a cluster with these RuntimeClasses."""
    namespaces = [{"metadata": {"name": "ns1", "annotations": annotations or {}}}]
    engine = engine_of((), *policies, namespaces=namespaces)
    labels = dict(decode_class(json.dumps(item).encode()) for item in classes)
    snapshot = msgspec.structs.replace(engine.snapshot, class_labels=labels)
    return ask(review(document), engine.with_snapshot(snapshot))


def added_labels(answer):
    return {
        operation["path"].rpartition("/")[2]: operation["value"]
        for operation in decode_patch(answer.response)
    }


@pytest.mark.parametrize("kind", TEMPLATES)
def test_what_a_runtime_class_sets_is_left_out_of_a_template_with_a_warning(kind):
    answer = asked(workload(kind, runtimeClassName="windows"), LINUX)
    assert added_labels(answer) == {"nodeSelector": {"disk": "ssd"}}
    (warning,) = answer.verdict.warnings
    assert warning.code == CODE
    assert warning.text == (
        f"ClusterPodSchedulingPolicy linux requires {OS} In [linux] by its node selector, "
        f"its RuntimeClass {OS} In [windows]: the label is left out"
    )


def test_what_a_policy_has_set_before_is_told_again():
    own = {"nodeSelector": {OS: "linux", "disk": "ssd"}}
    for more, selector in (({"runtimeClassName": "windows"}, {}), ({}, {KUBERNETES: f"{OS}=w"})):
        answer = asked(workload(**own, **more), LINUX, annotations=selector)
        assert answer.verdict.codes == (CODE,)
        assert "refuses" in answer.verdict.warnings[0].text


@pytest.mark.parametrize("name", ["gvisor", "unknown", "", None])
def test_a_class_without_a_node_selector_changes_nothing(name):
    answer = asked(workload(runtimeClassName=name), LINUX)
    assert added_labels(answer) == {"nodeSelector": {OS: "linux", "disk": "ssd"}}
    assert answer.verdict.warnings == ()


def test_the_same_label_is_left_out_without_a_warning():
    answer = asked(
        workload(runtimeClassName="windows"), cluster_policy(nodeSelector={OS: "windows"})
    )
    assert (answer.verdict.outcome, answer.verdict.warnings) == ("unchanged", ())


def test_required_affinity_that_contradicts_the_class_is_told():
    policy = cluster_policy("linux", affinity=required({OS: "linux"}))
    answer = asked(workload(runtimeClassName="windows"), policy)
    assert answer.verdict.codes == ("affinity-conflict",)


def test_answers_of_classes_with_other_labels_are_not_mixed_up():
    engine = engine_of((), LINUX, namespaces=[{"metadata": {"name": "ns1"}}])
    for labels in ({}, {"c": {OS: "windows"}}, {"c": {OS: "linux"}}):
        snapshot = msgspec.structs.replace(engine.snapshot, class_labels=labels)
        engine = engine.with_snapshot(snapshot)
        answer = ask(review(workload(runtimeClassName="c")), engine)
        assert (OS in added_labels(answer)["nodeSelector"]) is not bool(labels)


def test_a_pod_keeps_what_its_class_has_set():
    document = workload("Pod", runtimeClassName="windows", nodeSelector={OS: "windows"})
    answer = asked(document, LINUX)
    assert added_labels(answer) == {"disk": "ssd"}
    assert answer.verdict.codes == (CODE,)
    assert (
        "the pod kubernetes.io/os In [windows]: the label is left out"
        in answer.verdict.warnings[0].text
    )


@pytest.mark.parametrize("annotation", [KUBERNETES, OPENSHIFT])
@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_template_whose_pods_the_namespace_refuses_is_warned_of(kind, annotation):
    selector = {annotation: f"env=test, {OS} = windows"}
    answer = asked(workload(kind), LINUX, annotations=selector)
    # Whether the plugin is on is unknown.
    assert added_labels(answer) == {"nodeSelector": {OS: "linux", "disk": "ssd"}}
    (warning,) = answer.verdict.warnings
    assert warning.code == CODE
    start = f"ClusterPodSchedulingPolicy linux sets {OS}=linux, {annotation} of the namespace has "
    assert warning.text.startswith(f"{start}{OS}=windows: ")


@pytest.mark.parametrize(
    ("own", "annotations"),
    [
        ({}, {KUBERNETES: "env=test"}),
        ({}, {KUBERNETES: f"{OS}=linux,,x"}),
        ({}, {KUBERNETES: ""}),
        ({}, {KUBERNETES: f"{OS}=windows,{'x' * 4096}=y"}),
        # OpenShift ignores its own annotation then.
        ({}, {KUBERNETES: "", OPENSHIFT: f"{OS}=windows"}),
        # The template's own fault.
        ({OS: "plan9"}, {KUBERNETES: f"{OS}=windows", "x": "y"}),
    ],
)
def test_a_namespace_that_refuses_nothing_of_a_policy_gives_no_warning(own, annotations):
    document = workload(nodeSelector=own)
    rule = cluster_policy("linux", nodeSelector={"disk": "ssd"} if own else {OS: "linux"})
    assert asked(document, rule, annotations=annotations).verdict.warnings == ()


def test_only_the_first_policy_that_sets_the_label_is_told():
    policies = [cluster_policy(name, nodeSelector={"env": name}) for name in ("b", "a")]
    selector = {KUBERNETES: "env=test", **OPT_IN}
    (warning,) = asked(workload(), *policies, annotations=selector).verdict.warnings
    assert warning.text.startswith("ClusterPodSchedulingPolicy a sets env=a, ")
    assert asked(workload("Pod"), *policies, annotations=selector).verdict.codes == (
        *asked(workload("Pod"), *policies, annotations=OPT_IN).verdict.codes,
    )


def test_a_recording_has_the_class_and_the_selector_of_the_namespace():
    namespaces = [{"metadata": {"name": "ns1", "annotations": {KUBERNETES: "disk=hdd,a=b"}}}]
    engine = engine_of((), LINUX, namespaces=namespaces)
    labels = {"windows": {OS: "windows"}, "other": {OS: "plan9"}}
    snapshot = msgspec.structs.replace(engine.snapshot, class_labels=labels)
    question = review(workload(runtimeClassName="windows"))
    line, response, outcome = record_of(question, engine.with_snapshot(snapshot))
    assert outcome == WRITTEN
    assert replayed_response(line) == response
    assert json.loads(line)["classLabels"] == {"windows": {OS: "windows"}}
    assert response.count(CODE.encode()) == 1


def test_the_explanation_says_what_the_class_has():
    snapshot = Snapshot(class_labels={"windows": {OS: "windows"}})
    kind = KINDS["apps", "v1", "Deployment"]
    pod = kind.read(json.dumps(workload(runtimeClassName="windows")).encode())
    candidate = ExplainedPolicy(read_policy(LINUX)[0])
    told = explain(
        snapshot.with_class(pod), kind.pointer, "ns1", {}, [candidate], MergeOptions()
    ).policies[0]
    assert {(item.rule, item.why) for item in told.contributions} == {
        ("left-out", "the RuntimeClass has windows"),
        ("added", ""),
    }
