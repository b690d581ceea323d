"""Nobody goes whose checks have not passed, whoever may go does, and events say why others wait."""

from __future__ import annotations

import jsonpatch
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.gates.release import Approval, may_release, removal
from harbourmaster.lifecycle.gate_waits import HEALTHY, REPEAT, SETTLED, GateWait, next_event
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


WAITS = st.one_of(
    st.none(),
    st.builds(
        lambda reason, check, text: GateWait(
            reason=reason, identity=f"{reason}/shop-1/{check}", text=text
        ),
        st.sampled_from(["GateWaiting", "GateBlocked"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["value 1", "value 2"]),
    ),
)
WAITING = st.lists(st.sampled_from(["owner", "p1", "p2", "p3"]), unique=True, max_size=4)
STEPS = st.lists(
    st.tuples(WAITS, WAITING, st.sampled_from([0.0, 1.0, SETTLED, HEALTHY, 60.0, REPEAT])),
    max_size=12,
)


def history(steps):
    """The reports while the world goes through these states, with a look whenever one is due."""
    told, now, sent = None, 0.0, []
    for wait, uids, seconds in steps:
        end = now + seconds
        while True:
            step = next_event(wait, uids, told, now)
            told = step.told
            if step.due:
                sent.append((now, step.due, wait))
            elif step.requeue_after is None or now + step.requeue_after > end:
                break
            else:
                now += step.requeue_after
        now = end
    return sent


def states(steps):
    """Each state with the time at which it begins and ends."""
    now = 0.0
    for wait, uids, seconds in steps:
        yield now, now + seconds, wait, uids
        now += seconds


@settings(max_examples=cases(500))
@given(STEPS)
def test_only_what_holds_now_is_told_and_only_of_what_waits(steps):
    wrong = [
        (now, uid)
        for now, uid, wait in history(steps)
        if wait is None
        or not any(
            start <= now <= end and wait is given and uid in uids
            for start, end, given, uids in states(steps)
        )
    ]
    assert wrong == []


@settings(max_examples=cases(500))
@given(STEPS)
def test_one_identity_is_repeated_no_earlier_than_after_45_minutes_unless_another_came_between(
    steps,
):
    last, early = {}, []
    for now, uid, wait in history(steps):
        before = last.get(uid)
        changed = [
            given
            for start, end, given, uids in states(steps)
            if before is not None
            and end >= before[0]
            and start <= now
            and (given is None or given.identity != wait.identity or uid not in uids)
        ]
        if before is not None and before[1] == wait.identity and not changed:
            early += [now - before[0]] if now - before[0] < REPEAT else []
        last[uid] = (now, wait.identity)
    assert early == []


@settings(max_examples=cases(500))
@given(WAITS.filter(bool), WAITING.filter(bool), st.sampled_from([0.0, 1.0, 2.5]))
def test_what_goes_on_is_told_to_each_once_after_its_delay_and_again_before_it_expires(
    wait, uids, repeats
):
    delay = SETTLED if wait.is_warning else HEALTHY
    sent = history([(wait, uids, delay + repeats * REPEAT)])
    times = {delay + number * REPEAT for number in range(int(repeats) + 1)}
    assert {now for now, *_ in sent} == times
    assert [uid for _, uid, _ in sent] == uids * len(times)


@settings(max_examples=cases(500))
@given(STEPS, WAITS.filter(bool), WAITING.filter(bool), st.sampled_from(["value 3", "value 1"]))
def test_another_value_is_no_news(steps, wait, uids, text):
    gate_wait = GateWait(reason=wait.reason, identity=wait.identity, text=text)
    first = [*steps, (wait, uids, 20.0)]
    assert len(history([*first, (gate_wait, uids, 20.0)])) == len(
        history([*first, (wait, uids, 20.0)])
    )


@settings(max_examples=cases(500))
@given(STEPS, WAITING)
def test_a_wait_that_is_over_is_forgotten(steps, uids):
    told = None
    looks = [step[:2] for step in steps for _ in range(4)]
    for at, (wait, given_uids) in enumerate(looks):
        told = next_event(wait, given_uids, told, at * 20.0).told
        assert told is None or told.at.keys() <= {*given_uids}
    assert next_event(None, uids, told, 1e6) == (None, "", None)
    assert next_event(wait if steps else None, [], told, 1e6) == (None, "", None)
