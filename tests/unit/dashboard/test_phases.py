"""The phases of a version as they are shown."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harbourmaster.dashboard.pages.applications import phase_rows, steps
from harbourmaster.lifecycle.model import ItemStatus, WorkloadVersionStatus
from helpers.lifecycle_objects import workload_version

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PASSED = dict.fromkeys(
    (
        "pre_deployment_status",
        "pre_deployment_evaluation_status",
        "deployment_status",
        "post_deployment_status",
        "post_deployment_evaluation_status",
    ),
    "Succeeded",
)


def words(version):
    rows = phase_rows(version, NOW, NOW, NOW)
    assert [row.state for row in rows] == [state for _, state in steps(version)]
    return [(row.state.word, row.state.tone) for row in rows]


NONE, GOOD = ("No checks", "idle"), ("Succeeded", "good")


def test_a_phase_that_passed_without_a_check_is_not_green():
    version = workload_version(status=WorkloadVersionStatus(**PASSED))
    assert words(version) == [NONE, NONE, GOOD, NONE, NONE]


@pytest.mark.parametrize("listed", [("migrate",), ()], ids=["listed", "listed before"])
def test_a_phase_with_a_check_is_as_the_check_is(listed):
    items = (ItemStatus(definition_name="migrate", status="Succeeded"),)
    status = WorkloadVersionStatus(**PASSED, pre_deployment_task_status=items)
    version = workload_version(status=status, pre_deployment_tasks=listed)
    assert words(version)[:2] == [GOOD, NONE]


def test_a_phase_without_a_check_that_has_not_begun_is_pending():
    assert {word for word, _ in words(workload_version(status=WorkloadVersionStatus()))} == {
        "Pending"
    }
