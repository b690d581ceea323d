"""Gates are removed from pods whose checks passed (keptn-spec 3.6)."""

from __future__ import annotations

import jsonpatch
import pytest

from harbourmaster.gates.release import (
    CHECKING,
    FAILED,
    LATE,
    PASSED,
    WAITING,
    Approval,
    may_release,
    next_checks_value,
    removal,
    says_passed,
    wakeup_patch,
)

GATE = "keptn-prechecks-gate"
REMOVED = "keptn.sh/scheduling-gate-removed"
FREE = Approval("Succeeded", "Succeeded", "Progressing", frozenset(("a", "b")))


def pod(*gates, annotations=None, uid="u"):
    metadata = {"uid": uid, "name": "p"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": {"schedulingGates": [{"name": gate} for gate in gates]}}


@pytest.mark.parametrize(
    ("states", "is_free"),
    [
        (("Succeeded", "Succeeded", "Progressing"), True),
        (("Succeeded", "Succeeded", "Succeeded"), True),
        (("Warning", "Warning", "Progressing"), True),
        # A deployment that failed had begun: its checks passed.
        (("Succeeded", "Succeeded", "Failed"), True),
        (("Failed", "Deprecated", "Deprecated"), False),
        (("Succeeded", "Failed", "Deprecated"), False),
        (("Succeeded", "Succeeded", "Pending"), False),
        (("Succeeded", "Succeeded", "Deprecated"), False),
        (("Succeeded", "Progressing", "Succeeded"), False),
        (("Pending", "Succeeded", "Succeeded"), False),
        (("Deprecated", "Succeeded", "Succeeded"), False),
        (("", "", ""), False),
        (("Unknown", "Succeeded", "Succeeded"), False),
    ],
)
def test_who_is_free(states, is_free):
    assert may_release(Approval(*states, frozenset(("a",))), "a") is is_free


def test_only_pods_of_recorded_owners_are_meant():
    assert may_release(FREE, "b")
    assert not may_release(FREE, "c")
    assert not may_release(Approval("Succeeded", "Succeeded", "Succeeded", frozenset(("",))), "")
    assert not may_release(None, "a")


@pytest.mark.parametrize(
    ("gates", "left"),
    [
        ([GATE], []),
        (["x", GATE], ["x"]),
        ([GATE, "y"], ["y"]),
        (["x", GATE, "y"], ["x", "y"]),
    ],
)
@pytest.mark.parametrize("annotations", [None, {}, {"a": "b"}, {REMOVED: "false"}])
def test_only_our_gate_goes(gates, left, annotations):
    before = pod(*gates, annotations=annotations)
    after = jsonpatch.apply_patch(before, removal("u", gates, annotations))
    assert [gate["name"] for gate in after["spec"]["schedulingGates"]] == left
    assert after["metadata"]["annotations"] == {**(annotations or {}), REMOVED: "true"}


@pytest.mark.parametrize("changed", [pod("x", GATE), pod(), pod("x"), pod(GATE, uid="other")])
def test_a_pod_that_changed_is_not_touched(changed):
    with pytest.raises(jsonpatch.JsonPatchException):
        jsonpatch.apply_patch(changed, removal("u", [GATE], None))


def apply_wakeup(annotations, add, drop=()):
    before = pod(annotations=annotations)
    operations = wakeup_patch("u", annotations, add, drop=drop)
    return operations and jsonpatch.apply_patch(before, operations)["metadata"]["annotations"]


@pytest.mark.parametrize("annotations", [None, {}, {"a/b": "c"}])
def test_a_wakeup_sets_what_is_new_and_nothing_else(annotations):
    after = apply_wakeup(annotations, {"x/checks": "late"})
    assert after == {**(annotations or {}), "x/checks": "late"}


def test_a_wakeup_takes_away_what_is_there():
    assert apply_wakeup({"a": "1", "b": "2"}, {}, ("b", "c")) == {"a": "1"}


def test_what_changes_nothing_wakes_nothing():
    assert wakeup_patch("u", {"a": "1"}, {"a": "1"}, drop=("b",)) is None
    assert wakeup_patch("u", None, {}, drop=("b",)) is None


@pytest.mark.parametrize("annotations", [None, {}])
def test_only_a_map_that_is_written_whole_is_bound_to_what_was_seen(annotations):
    """Another client may have written the map meanwhile, for example to release the pod by hand."""
    held = {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    patches = [
        wakeup_patch("u", annotations, {"a": "1"}, revision="7"),
        removal("u", [GATE], annotations, revision="7"),
    ]
    assert [held in patch for patch in patches] == [annotations is None] * 2


def test_a_wakeup_is_for_one_very_pod():
    operations = wakeup_patch("other", {}, {"a": "1"})
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(pod(annotations={}), operations)


@pytest.mark.parametrize(
    ("told", "state", "again", "value"),
    [
        ("", WAITING, False, ""),
        ("", LATE, False, LATE),
        ("", PASSED, False, PASSED),
        (LATE, LATE, False, ""),
        (LATE, LATE, True, ""),
        (LATE, FAILED, False, FAILED),
        (LATE, WAITING, False, WAITING),
        (FAILED, PASSED, True, PASSED),
        (PASSED, PASSED, False, ""),
        (PASSED, PASSED, True, "passed-2"),
        ("passed-2", PASSED, True, "passed-3"),
        ("passed-9", PASSED, False, ""),
        ("passed-x", PASSED, True, "passed-2"),
        (f"passed-{'9' * 5000}", PASSED, True, "passed-2"),
        ("", CHECKING, False, CHECKING),
        (CHECKING, CHECKING, False, ""),
        (CHECKING, WAITING, False, WAITING),
        ("passed-9", WAITING, True, WAITING),
    ],
)
def test_what_a_pod_is_told(told, state, again, value):
    assert next_checks_value(told, state, again=again) == value


def test_who_was_told_that_checks_passed():
    assert [says_passed(value) for value in (PASSED, "passed-2", "", LATE)] == [
        True,
        True,
        False,
        False,
    ]
