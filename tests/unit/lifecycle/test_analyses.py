"""A stage has its analyses: one query without an answer fails the stage."""

from __future__ import annotations

from datetime import timedelta

import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.evaluation.analysis import resolve_timeframe
from harbourmaster.evaluation.model import (
    Analysis,
    AnalysisDefinition,
    AnalysisStatus,
    StoredValue,
    Timeframe,
)
from harbourmaster.lifecycle.analyses import (
    MOST_NAMES,
    NO_POD,
    analysis_for,
    pods_pattern,
    state_of_analysis,
)
from harbourmaster.lifecycle.model import StageResult, StageStatus, WorkloadVersionStatus
from harbourmaster.lifecycle.subjects import subject
from helpers.phased import NOW, STAMP, workload_version

DEFINITION = AnalysisDefinition(metadata=Metadata(name="error-rate", namespace="keptn-system"))
PODS = {"pods": "web-1-[a-z0-9]+", "oldPods": "-"}
EARLIER = "2026-11-21T17:40:00Z"


def made(stage=None, started=EARLIER, previous=""):
    status = WorkloadVersionStatus(stage=stage, deployment_start_time=started)
    version = workload_version(status=status)
    return analysis_for(version, DEFINITION, "stage-2-analysis", previous, PODS, NOW)


def test_a_stage_has_its_analysis():
    analysis = made()
    name = analysis["metadata"]["name"]
    assert name.startswith("stage-2-analysis-error-rate-")
    (owner,) = analysis["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"]) == ("KeptnWorkloadVersion", True)
    assert analysis["spec"] == {
        "timeframe": {"from": EARLIER, "to": STAMP},
        "analysisDefinition": {"name": "error-rate", "namespace": "keptn-system"},
        "args": {
            "namespace": "prod",
            "workload": "shop-cart",
            "version": "2.0",
            "stage": "2",
            **PODS,
        },
    }
    assert made()["metadata"]["name"] == name
    assert made(previous=name)["metadata"]["name"] != name


def test_the_timeframe_begins_with_the_stage():
    ended = "2026-11-21T17:50:00Z"
    stage = StageStatus(number=2, results=(StageResult(number=1, state="Passed", end_time=ended),))
    assert made(stage)["spec"]["timeframe"] == {"from": ended, "to": STAMP}


@pytest.mark.parametrize("started", ["", STAMP, "2026-11-21T18:00:09Z"])
def test_the_timeframe_is_never_empty(started):
    timeframe = made(started=started)["spec"]["timeframe"]
    fixed = resolve_timeframe(
        Timeframe(from_=timeframe["from"], to=timeframe["to"]), NOW + timedelta(minutes=1)
    )
    assert fixed.from_ == "2026-11-21T17:59:59Z"


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "Pending"),
        ({"state": "Pending", "stored_values": {"a": StoredValue(err_msg="refused")}}, "Pending"),
        ({"state": "Progressing"}, "Progressing"),
        ({"state": "Progressing", "stored_values": {"a": StoredValue(value="1")}}, "Progressing"),
        (
            {
                "state": "Progressing",
                "stored_values": {
                    "a": StoredValue(value="1"),
                    "b": StoredValue(err_msg="no values"),
                },
            },
            "Failed",
        ),
        ({"state": "Completed", "passed": True}, "Succeeded"),
        ({"state": "Completed", "warning": True}, "Warning"),
        ({"state": "Completed", "passed": True, "warning": True}, "Warning"),
        ({"state": "Completed"}, "Failed"),
    ],
)
def test_no_data_is_a_failure(fields, state):
    analysis = Analysis(metadata=Metadata(name="a"), status=AnalysisStatus(**fields))
    assert state_of_analysis(analysis) == state


def test_names_become_a_regular_expression():
    assert pods_pattern([]) == NO_POD
    assert pods_pattern(["web-1", "db.0"]) == "db[.]0|web-1"
    assert pods_pattern(["web-7d9f-"], "[a-z0-9]+") == "web-7d9f-[a-z0-9]+"
    many = pods_pattern(f"agent-{number:05}" for number in range(5000))
    assert many.count("|") == MOST_NAMES - 1


def test_an_event_names_the_workload_and_the_definition():
    analysis = Analysis(metadata=Metadata(name="stage-1-analysis-x", namespace="prod"))
    assert subject(analysis).fields["analysisName"] == "stage-1-analysis-x"
