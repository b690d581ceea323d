"""Candidates as processes against the real API server: killed, stopped, told to end, cut off."""

from __future__ import annotations

import itertools
import json
import signal
import time

import pytest

from helpers.candidate_process import TIMES, Candidates

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

LEASE = TIMES["lease_duration"]
DEADLINE = TIMES["renew_deadline"]
PERIOD = TIMES["retry_period"] * 1.25
# A machine under load may wake us late.
LATE = 1.5


@pytest.fixture
def candidates(control_plane, namespace):
    found = Candidates(control_plane.kubeconfig, namespace)
    yield found
    found.stop()
    assert found.overlaps() == []


@pytest.fixture
def lease(kubectl, namespace):
    """Return a function that reads the spec of the Lease."""

    def read():
        found = kubectl("get", "lease/candidates", f"--namespace={namespace}", "-o=json")
        return json.loads(found.stdout)["spec"]

    return read


@pytest.fixture
def edit(kubectl, namespace):
    """Return a function that changes the spec of the Lease by hand."""

    def patch(**spec):
        kubectl(
            "patch",
            "lease/candidates",
            f"--namespace={namespace}",
            "--type=merge",
            f"--patch={json.dumps({'spec': spec})}",
        )

    return patch


def started(candidates, names):
    for name in names:
        candidates.start(name)
    leader, _ = candidates.until_working(*names)
    return leader, [name for name in names if name != leader]


def test_a_leader_killed_is_followed_when_its_lease_is_over(candidates, lease):
    leader, others = started(candidates, "abc")
    time.sleep(2 * PERIOD)
    candidates.send(leader, signal.SIGKILL)
    killed = time.monotonic()
    _, begun = candidates.until_working(*others, since=killed)
    assert LEASE - PERIOD - LATE < begun - killed < LEASE + 2 * PERIOD + LATE
    assert lease()["leaseTransitions"] == 1
    assert lease()["leaseDurationSeconds"] == 4


def test_a_leader_that_ends_is_followed_at_once(candidates, lease):
    leader, (other,) = started(candidates, "ab")
    # The other must have been there to see it.
    time.sleep(2)
    candidates.send(leader, signal.SIGTERM)
    told = time.monotonic()
    assert candidates.wait(leader) == 0
    _, begun = candidates.until_working(other, since=told)
    assert begun - told < PERIOD + LATE
    assert lease()["holderIdentity"].startswith(f"{other}_")


@pytest.mark.gate
def test_a_leader_alone_leaves_an_empty_lease(candidates, lease):
    leader, _ = started(candidates, "a")
    candidates.send(leader, signal.SIGTERM)
    candidates.wait(leader)
    spec = lease()
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)
    assert spec["renewTime"].endswith("Z")


@pytest.mark.gate
def test_a_leader_that_stood_still_does_no_more(candidates):
    leader, others = started(candidates, "abc")
    time.sleep(1)
    candidates.send(leader, signal.SIGSTOP)
    stopped = time.monotonic()
    candidates.until_working(*others, since=stopped)
    # Before it can wake: it may end before the next line here.
    woke = time.monotonic()
    candidates.send(leader, signal.SIGCONT)
    candidates.until_idle(leader, woke)
    steps = [instant for instant, who, what in candidates.lines if who == leader and what == "step"]
    assert max(steps) < woke
    # It goes on as a candidate: with the others gone it leads again.
    for other in others:
        candidates.send(other, signal.SIGKILL)
    candidates.until_working(leader, since=time.monotonic())


def test_leaders_killed_and_stopped_in_turn_never_work_together(candidates):
    names = iter(f"c{number}" for number in itertools.count())
    alive = [next(names) for _ in range(3)]
    leader, _ = started(candidates, alive)
    for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
        candidates.send(leader, number)
        since = time.monotonic()
        if number == signal.SIGSTOP:
            left = [name for name in alive if name != leader]
            stopped = leader
            leader, _ = candidates.until_working(*left, since=since)
            candidates.send(stopped, signal.SIGCONT)
            continue
        alive.remove(leader)
        alive.append(next(names))
        candidates.start(alive[-1])
        leader, _ = candidates.until_working(*alive, since=since + 0.1)
    begins = [name for _, name, what in sorted(candidates.lines) if what == "begin"]
    assert len(begins) >= 6


def test_a_lease_handed_on_by_hand_ends_the_work(candidates, edit, lease):
    leader, _ = started(candidates, "a")
    time.sleep(1)
    before = time.monotonic()
    edit(holderIdentity="someone")
    edited = time.monotonic()
    # It may have ended before kubectl did.
    candidates.until_idle(leader, before)
    assert candidates.last(leader) - edited < PERIOD + LATE
    candidates.until_working(leader, since=edited + LEASE - 0.5)
    assert lease()["leaseTransitions"] == 1


def test_a_lease_deleted_is_made_again_by_its_holder(candidates, kubectl, namespace, lease):
    leader, others = started(candidates, "ab")
    time.sleep(2)
    holder = lease()["holderIdentity"]
    kubectl("delete", "lease/candidates", f"--namespace={namespace}")
    deleted = time.monotonic()
    time.sleep(LEASE + 1)
    assert lease()["holderIdentity"] == holder
    assert candidates.last(leader) > deleted + LEASE
    assert not [line for line in candidates.lines if line[1] in others]


def test_without_an_api_server_work_ends_in_time_and_goes_on_after(throwaway_control_plane):
    plane = throwaway_control_plane(optional=())
    candidates = Candidates(plane.kubeconfig, "default")
    try:
        leader, _ = started(candidates, "ab")
        time.sleep(2)
        before = time.monotonic()
        plane.kill("kube-apiserver")
        gone = time.monotonic()
        candidates.until_idle(leader, before)
        assert candidates.last(leader) - gone < DEADLINE + LATE
        plane.restart("kube-apiserver")
        candidates.until_working("a", "b", since=time.monotonic())
    finally:
        candidates.stop()
    assert candidates.overlaps() == []
