"""Nobody goes whose checks have not passed, and whoever may go does, in any world."""

from __future__ import annotations

import jsonpatch
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.gates.release import Approval, may_release, removal
from helpers.properties import cases

GATE = "keptn-prechecks-gate"
REMOVED = "keptn.sh/scheduling-gate-removed"
STATES = st.sampled_from(
    ["", "Pending", "Progressing", "Succeeded", "Failed", "Warning", "Deprecated", "Unknown"]
)
UIDS = st.sampled_from(["", "a", "b", "c"])
NAMES = st.sampled_from([GATE, "example.com/a", "example.com/b", "example.com/c"])
KEYS = st.sampled_from(["a", "b/c", "d~e", "f~1g/h", REMOVED, "gates.harbourmaster.dev/parent"])
PASSED = {"Succeeded", "Warning"}


@settings(max_examples=cases(2000))
@given(st.none() | st.builds(Approval, STATES, STATES, STATES, st.frozensets(UIDS)), UIDS)
def test_who_goes(approval, owner):
    is_free = may_release(approval, owner)
    if approval is None or not owner:
        assert not is_free
        return
    passed = {approval.pre_tasks, approval.pre_evaluations} <= PASSED
    begun = approval.deployment not in {"", "Pending", "Deprecated", "Unknown"}
    assert is_free == (passed and begun and owner in approval.owners)


@settings(max_examples=cases(2000))
@given(
    st.lists(NAMES, max_size=5, unique=True),
    st.none() | st.dictionaries(KEYS, st.text(max_size=3), max_size=5),
    st.dictionaries(KEYS, st.text(max_size=3), max_size=3),
    st.lists(KEYS, max_size=3),
)
def test_only_the_gate_and_what_is_named_changes(gates, annotations, add, drop):
    metadata = {"uid": "u"} | ({} if annotations is None else {"annotations": dict(annotations)})
    pod = {"metadata": metadata, "spec": {"schedulingGates": [{"name": gate} for gate in gates]}}
    operations = removal("u", gates, annotations, add=add, drop=drop)
    if GATE not in gates:
        assert operations is None
        return
    after = jsonpatch.apply_patch(pod, operations)
    left = [scheduling_gate["name"] for scheduling_gate in after["spec"]["schedulingGates"]]
    assert left == [name for name in gates if name != GATE]
    added = {REMOVED: "true", **add}
    kept = {
        key: value
        for key, value in (annotations or {}).items()
        if key not in added and key not in drop
    }
    assert after["metadata"]["annotations"] == {**kept, **added}
