"""Ids of spans."""

from __future__ import annotations

import re

import pytest

from harbourmaster.lifecycle.tracing import ids_from, phase_carrier, phase_ids, root_ids

HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_same_uid_gives_the_same_ids_and_another_gives_others():
    carrier = phase_carrier(None, "u-1", "AppDeploy")
    assert carrier == phase_carrier({}, "u-1", "AppDeploy")
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", carrier["traceparent"])
    different = [
        phase_carrier(None, "u-2", "AppDeploy"),
        phase_carrier(None, "u-1", "AppPreDeployTasks"),
        root_ids(None, "u-1").carrier,
    ]
    assert len({headers["traceparent"] for headers in (carrier, *different)}) == 4


def test_phases_are_children_of_their_object_and_of_one_trace():
    root = root_ids(None, "u-1")
    phase = phase_ids(None, "u-1", "AppDeploy")
    assert root.parent == 0
    assert (phase.trace, phase.parent) == (root.trace, root.span)


def test_a_workload_goes_on_with_the_trace_of_its_app():
    deployment = phase_carrier(None, "app", "AppDeploy")
    above = ids_from(deployment)
    workload = root_ids(deployment, "workload")
    assert (workload.trace, workload.parent) == (above.trace, above.span)
    phase = phase_ids(deployment, "workload", "WorkloadDeploy")
    assert (phase.trace, phase.parent) == (above.trace, workload.span)


@pytest.mark.parametrize(
    "carrier",
    [
        None,
        {},
        {"traceparent": ""},
        {"traceparent": "nonsense"},
        {"traceparent": HEADER.replace("00f067aa0ba902b7", "0" * 16)},
        {"traceparent": HEADER.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)},
        {"traceparent": HEADER.upper()},
    ],
)
def test_a_malformed_carrier_counts_as_none(carrier):
    assert ids_from(carrier) is None
    assert root_ids(carrier, "u") == root_ids(None, "u")


def test_a_carrier_is_read_as_it_was_written():
    assert ids_from({"traceparent": HEADER}).carrier == {"traceparent": HEADER}
