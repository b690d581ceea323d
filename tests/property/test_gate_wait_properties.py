"""Events about waits: which one is due follows from the waits, the objects and what was told."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.lifecycle.gate_waits import HEALTHY, REPEAT, SETTLED, GateWait, next_event
from helpers.properties import cases

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
UIDS = st.lists(st.sampled_from(["owner", "p1", "p2", "p3"]), unique=True, max_size=4)
STEPS = st.lists(
    st.tuples(WAITS, UIDS, st.sampled_from([0.0, 1.0, SETTLED, HEALTHY, 60.0, REPEAT])),
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
@given(WAITS.filter(bool), UIDS.filter(bool), st.sampled_from([0.0, 1.0, 2.5]))
def test_what_goes_on_is_told_to_each_once_after_its_delay_and_again_before_it_expires(
    wait, uids, repeats
):
    delay = SETTLED if wait.is_warning else HEALTHY
    sent = history([(wait, uids, delay + repeats * REPEAT)])
    times = {delay + number * REPEAT for number in range(int(repeats) + 1)}
    assert {now for now, *_ in sent} == times
    assert [uid for _, uid, _ in sent] == uids * len(times)


@settings(max_examples=cases(500))
@given(STEPS, WAITS.filter(bool), UIDS.filter(bool), st.sampled_from(["value 3", "value 1"]))
def test_another_value_is_no_news(steps, wait, uids, text):
    gate_wait = GateWait(reason=wait.reason, identity=wait.identity, text=text)
    first = [*steps, (wait, uids, 20.0)]
    assert len(history([*first, (gate_wait, uids, 20.0)])) == len(
        history([*first, (wait, uids, 20.0)])
    )


@settings(max_examples=cases(500))
@given(STEPS, UIDS)
def test_a_wait_that_is_over_is_forgotten(steps, uids):
    told = None
    looks = [step[:2] for step in steps for _ in range(4)]
    for at, (wait, given_uids) in enumerate(looks):
        told = next_event(wait, given_uids, told, at * 20.0).told
        assert told is None or told.at.keys() <= {*given_uids}
    assert next_event(None, uids, told, 1e6) == (None, "", None)
    assert next_event(wait if steps else None, [], told, 1e6) == (None, "", None)
