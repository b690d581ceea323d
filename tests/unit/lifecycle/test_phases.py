from __future__ import annotations

import pytest

from harbourmaster.lifecycle import events
from harbourmaster.lifecycle.model import (
    AppVersionSpec,
    AppVersionStatus,
    WorkloadVersionSpec,
    WorkloadVersionStatus,
)
from harbourmaster.lifecycle.phases import APP_PHASES, WORKLOAD_PHASES

KINDS = [
    (APP_PHASES, AppVersionSpec, AppVersionStatus),
    (WORKLOAD_PHASES, WorkloadVersionSpec, WorkloadVersionStatus),
]


def test_the_phases_are_those_that_events_know_in_their_order():
    assert [phase.name for phase in APP_PHASES] == list(events.APP_PHASES)
    assert [workload_phase.name for workload_phase in WORKLOAD_PHASES] == list(
        events.WORKLOAD_PHASES
    )


@pytest.mark.parametrize(("phases", "spec", "status"), KINDS)
def test_every_field_is_one_of_the_model(phases, spec, status):
    for phase in phases:
        assert phase.state in status.__struct_fields__
        if phase.kind:
            assert phase.items in status.__struct_fields__
            assert phase.checks in spec.__struct_fields__
            assert phase.check_type
    states = [phase.state for phase in phases]
    assert len(set(states)) == len(states)


def test_children_are_named_after_what_they_check():
    assert [phase.check_type for phase in APP_PHASES] == [
        "pre",
        "pre-eval",
        "",
        "post",
        "post-eval",
        "promotion",
    ]
    assert [workload_phase.check_type for workload_phase in WORKLOAD_PHASES] == [
        "pre",
        "pre-eval",
        "",
        "post",
        "post-eval",
    ]
