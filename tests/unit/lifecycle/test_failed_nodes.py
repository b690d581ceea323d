"""A workload version avoids nodes for a time, until they are cleared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from harbourmaster.api.times import format_rfc3339
from harbourmaster.lifecycle.failed_nodes import (
    CLEAR_KEY,
    MOST,
    NodeFailure,
    Start,
    is_clear_wanted,
    nodes_to_record,
    seconds_to_expiry,
    start_failure,
    unexpired_nodes,
    with_inherited_nodes,
)
from harbourmaster.lifecycle.model import FailedNode, WorkloadVersionStatus
from helpers.lifecycle_objects import metadata, workload_version

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = 3600.0


def version(*nodes, clear=None):
    annotations = {} if clear is None else {CLEAR_KEY: clear}
    current = workload_version(status=WorkloadVersionStatus(failed_nodes=nodes))
    return replace(current, metadata=metadata("shop-front-7", annotations=annotations))


def node(name="n1", *, minutes=30.0, reason="pod failed"):
    return FailedNode(
        name=name, reason=reason, expires=format_rfc3339(NOW + timedelta(minutes=minutes))
    )


def failure(name="n1", *, ago=60.0, reason="pod failed"):
    return NodeFailure(name, reason, NOW - timedelta(seconds=ago))


def record(before, *failures, seconds=HOUR):
    return nodes_to_record(before, failures, seconds=seconds, now=NOW)


def test_a_failure_counts_from_its_own_time():
    (nodes,) = record(version(), failure(ago=600, reason="task migrate failed"))
    assert nodes == node(minutes=50, reason="task migrate failed")


def test_the_same_failure_is_recorded_once():
    first = record(version(), failure())
    assert record(version(*first), failure(), failure()) == first


def test_the_newest_failure_on_a_node_wins():
    (nodes,) = record(version(node(minutes=10)), failure(ago=0), failure(ago=1800))
    assert nodes == node(minutes=60)
    (nodes,) = record(version(node(minutes=60)), failure(ago=1800))
    assert nodes == node(minutes=60)


def test_what_is_over_is_left_out():
    assert record(version(node(minutes=0)), failure(ago=HOUR)) == ()
    assert record(version(FailedNode(name="n1", expires="soon"))) == ()
    assert record(version(), failure(ago=0), seconds=0) == ()


def test_of_too_many_the_newest_are_kept():
    failures = [failure(f"n{number}", ago=number) for number in range(MOST + 10)]
    nodes = record(version(), *failures)
    assert {kept.name for kept in nodes} == {f"n{number}" for number in range(MOST)}
    assert nodes[-1].name == "n0"


@pytest.mark.parametrize("text", ["", "wanted", "true"])
def test_a_request_clears_all(text):
    current = version(node(), clear=text)
    assert is_clear_wanted(current)
    assert record(current, failure()) == ()


def test_what_failed_before_it_was_cleared_comes_not_back():
    current = version(clear=format_rfc3339(NOW - timedelta(seconds=30)))
    assert not is_clear_wanted(current)
    assert record(current, failure(ago=31), failure("n2", ago=29)) == record(
        version(), failure("n2", ago=29)
    )


def test_how_long_nodes_count():
    assert seconds_to_expiry((), NOW) is None
    assert seconds_to_expiry((node(minutes=2), node("n2", minutes=1)), NOW) == 60.0
    assert seconds_to_expiry((node(minutes=-1),), NOW) == 0.0
    assert unexpired_nodes(version(node("n1", minutes=0), node("n2")), NOW) == (node("n2"),)


def test_a_version_begins_with_the_nodes_of_the_one_before():
    nodes = with_inherited_nodes(version(), version(node("old", minutes=0), node("n2")), NOW)
    assert nodes.status.failed_nodes == (node("n2"),)
    assert with_inherited_nodes(version(), None, NOW) == version()
    assert with_inherited_nodes(version(), version(), NOW) == version()


BEGUN = format_rfc3339(NOW)
LATER = format_rfc3339(NOW + timedelta(seconds=121))


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (Start(), ""),
        (Start(phase="Pending", reasons=("ContainerCreating",)), ""),
        (Start(phase="Pending", reasons=("PodInitializing", "ErrImagePull")), "pod ErrImagePull"),
        (Start(phase="Pending", reasons=("ImagePullBackOff",)), "pod ImagePullBackOff"),
        (Start(phase="Pending", reasons=("CreateContainerError",)), "pod CreateContainerError"),
        (Start(phase="Running", reasons=("RunContainerError",)), "pod RunContainerError"),
        (
            Start(phase="Pending", reasons=("CreateContainerConfigError",)),
            "pod CreateContainerConfigError",
        ),
        (
            Start(phase="Running", started=BEGUN, turned=BEGUN, reasons=("CrashLoopBackOff",)),
            "pod CrashLoopBackOff",
        ),
        (Start(phase="Running", started=BEGUN, turned=LATER, reasons=("CrashLoopBackOff",)), ""),
        (Start(phase="Running", is_ready=True, reasons=("CrashLoopBackOff",)), ""),
        (Start(phase="Running", is_ready=True), ""),
        (Start(phase="Succeeded"), ""),
        (Start(phase="Failed"), "pod failed"),
        (Start(phase="Failed", started=BEGUN, turned=BEGUN), "pod failed"),
        (Start(phase="Failed", started=BEGUN, turned=LATER), ""),
        (Start(phase="Failed", started="?", turned="?"), "pod failed"),
    ],
)
def test_what_is_a_failed_start(start, reason):
    assert start_failure(start) == reason
