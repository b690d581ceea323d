"""Candidates as processes against the real API server: stopped and told to end."""

from __future__ import annotations

import json
import signal
import time

import pytest

from helpers.candidate_process import Candidates


@pytest.fixture
def candidates(control_plane, namespace):
    candidates = Candidates(control_plane.kubeconfig, namespace)
    yield candidates
    candidates.stop()
    assert candidates.overlaps() == []


@pytest.fixture
def lease(kubectl, namespace):
    """Return a function that reads the spec of the Lease."""

    def read():
        result = kubectl("get", "lease/candidates", f"--namespace={namespace}", "-o=json")
        return json.loads(result.stdout)["spec"]

    return read


def start_candidates(candidates, names):
    for name in names:
        candidates.start(name)
    leader, _ = candidates.until_working(*names)
    return leader, [name for name in names if name != leader]


@pytest.mark.gate
def test_a_leader_alone_leaves_an_empty_lease(candidates, lease):
    leader, _ = start_candidates(candidates, "a")
    candidates.send(leader, signal.SIGTERM)
    assert candidates.wait(leader) == 0
    spec = lease()
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)
    assert spec["renewTime"].endswith("Z")


@pytest.mark.gate
def test_a_leader_that_stood_still_does_no_more(candidates):
    leader, others = start_candidates(candidates, "abc")
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
    for candidate in others:
        candidates.send(candidate, signal.SIGKILL)
    candidates.until_working(leader, since=time.monotonic())
