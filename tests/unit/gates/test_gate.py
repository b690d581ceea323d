"""Tests of the patch that makes a pod wait."""

from __future__ import annotations

import jsonpatch
import pytest

from harbourmaster.gates.gate import GATE, PROVISIONAL, SCHEDULER_NAME, hold_operations, is_gated

OURS = {"name": GATE}
THEIRS = {"name": "example.com/quota"}


def with_gate(pod, annotations, **options):
    metadata, spec = pod["metadata"], pod["spec"]
    operations = hold_operations(
        annotations,
        has_annotations=metadata.get("annotations") is not None,
        gates=spec.get("schedulingGates"),
        **options,
    )
    return operations, jsonpatch.apply_patch(pod, operations)


@pytest.mark.parametrize("annotations", [None, {}, {"a/b~c": "d"}])
@pytest.mark.parametrize("gates", [None, [], [THEIRS]])
@pytest.mark.parametrize("added", [{}, PROVISIONAL, {"k~/": "1", "keptn.sh/app": "a"}])
def test_c22_the_gate_and_annotations_are_added_and_all_else_stays(annotations, gates, added):
    pod = {"metadata": {"name": "web"}, "spec": {"containers": []}}
    if annotations is not None:
        pod["metadata"]["annotations"] = annotations
    if gates is not None:
        pod["spec"]["schedulingGates"] = gates
    operations, after = with_gate(pod, added)
    assert {operation["op"] for operation in operations} == {"add"}
    assert after["spec"] == {"containers": [], "schedulingGates": [*(gates or []), OURS]}
    expected = {**(annotations or {}), **added}
    assert after["metadata"].get("annotations", {}) == expected
    assert after["metadata"]["name"] == "web"


def test_null_counts_as_absent():
    pod = {"metadata": {"annotations": None}, "spec": {"schedulingGates": None}}
    _, after = with_gate(pod, PROVISIONAL)
    assert after == {"metadata": {"annotations": PROVISIONAL}, "spec": {"schedulingGates": [OURS]}}


def test_the_gate_is_not_added_twice():
    pod = {"metadata": {}, "spec": {"schedulingGates": [OURS, THEIRS]}}
    operations, after = with_gate(pod, {})
    assert operations == []
    assert after == pod


@pytest.mark.parametrize("gates", [[], [THEIRS], [{}], [None], ["x"]])
def test_others_gates_are_not_ours(gates):
    assert not is_gated(gates)


@pytest.mark.parametrize("before", [None, "", "default-scheduler"])
@pytest.mark.parametrize("gates", [None, [], [THEIRS]])
def test_a_scheduler_is_named_instead_of_a_gate(before, gates):
    pod = {"metadata": {}, "spec": {"containers": []}}
    if before is not None:
        pod["spec"]["schedulerName"] = before
    if gates is not None:
        pod["spec"]["schedulingGates"] = gates
    operations, after = with_gate(pod, PROVISIONAL, scheduler_name=SCHEDULER_NAME)
    assert {operation["op"] for operation in operations} == {"add"}
    assert after["spec"] == {**pod["spec"], "schedulerName": SCHEDULER_NAME}
    assert after["metadata"] == {"annotations": PROVISIONAL}


def test_a_pod_that_names_it_gets_annotations_only():
    pod = {"metadata": {"annotations": {}}, "spec": {"schedulerName": SCHEDULER_NAME}}
    _, after = with_gate(pod, PROVISIONAL, scheduler_name="")
    assert after == {**pod, "metadata": {"annotations": PROVISIONAL}}
    assert with_gate(pod, {}, scheduler_name="")[0] == []
