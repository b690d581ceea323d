from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from harbourmaster.evaluation.model import PENDING, PROGRESSING
from harbourmaster.evaluation.objectives import Objective, Reading, Result, missing_metric
from harbourmaster.evaluation.progress import (
    FAILED,
    SUCCEEDED,
    Progress,
    fail_after_tries,
    max_tries,
    measure,
    summarize_unmet,
    wait_for_definition,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CPUS = Objective("cpus", ">5")
ERRORS = Objective("errors", "<1")


class Metrics:
    """The values of metrics by name; ``asked`` has the names that were read."""

    def __init__(self, **values):
        self.values = values
        self.asked = []

    def __call__(self, objective):
        self.asked.append(objective.metric)
        value = self.values.get(objective.metric)
        return missing_metric(objective.metric, ["shop"]) if value is None else Reading(value)


def test_without_objectives_it_succeeds_at_once():
    assert measure(Progress(), [], Metrics()) == Progress(1, {}, SUCCEEDED)


def test_it_goes_on_until_all_objectives_are_met():
    metrics = Metrics(cpus="3", errors="0")
    progress = measure(Progress(), [CPUS, ERRORS], metrics)
    assert (progress.tries, progress.state, progress.is_over) == (1, PROGRESSING, False)
    metrics.values["cpus"] = "6"
    progress = measure(progress, [CPUS, ERRORS], metrics)
    assert (progress.tries, progress.state, progress.is_over) == (2, SUCCEEDED, True)


def test_c76_an_objective_once_met_stays_met_and_is_not_read_again():
    metrics = Metrics(cpus="6", errors="7")
    progress = measure(Progress(), [CPUS, ERRORS], metrics)
    metrics.values = {"cpus": "0", "errors": "7"}
    progress = measure(progress, [CPUS, ERRORS], metrics)
    metrics.values = {"errors": "0"}
    progress = measure(progress, [CPUS, ERRORS], metrics)
    assert (progress.tries, progress.state) == (3, SUCCEEDED)
    assert progress.results["cpus"] == Result("6", SUCCEEDED, "value '6' met objective '>5'")
    assert metrics.asked == ["cpus", "errors", "errors", "errors"]


def test_a_success_is_measured_again_where_the_target_has_changed():
    progress = measure(Progress(), [CPUS, ERRORS], Metrics(cpus="6", errors="7"))
    stricter = msgspec.structs.replace(CPUS, target=">50")
    progress = measure(progress, [stricter, ERRORS], Metrics(cpus="6", errors="0"))
    assert (progress.state, progress.results["cpus"].status) == (PROGRESSING, FAILED)


def test_without_stickiness_all_are_met_by_the_same_measurement():
    progress = measure(Progress(), [CPUS, ERRORS], Metrics(cpus="6", errors="7"), is_sticky=False)
    progress = measure(progress, [CPUS, ERRORS], Metrics(cpus="0", errors="0"), is_sticky=False)
    assert (progress.state, progress.results["cpus"].status) == (PROGRESSING, FAILED)
    progress = measure(progress, [CPUS, ERRORS], Metrics(cpus="6", errors="0"), is_sticky=False)
    assert progress.state == SUCCEEDED


def test_a_summary_keeps_what_was_not_met_and_what_is_inconclusive_apart():
    third = Objective("time", "<1")
    progress = measure(Progress(), [CPUS, ERRORS, third], Metrics(cpus="6", errors="7"))
    assert summarize_unmet(progress) == "not met: errors; inconclusive: time"
    assert summarize_unmet(measure(Progress(), [CPUS], Metrics(cpus="6"))) == ""


def test_an_objective_that_is_gone_is_forgotten():
    progress = measure(Progress(), [CPUS, ERRORS], Metrics(errors="0"))
    progress = measure(progress, [ERRORS], Metrics())
    assert (progress.state, list(progress.results)) == (SUCCEEDED, ["errors"])


def test_two_objectives_for_one_metric_are_both_needed():
    progress = measure(Progress(), [CPUS, Objective("cpus", "<10")], Metrics(cpus="20"))
    assert progress.state == PROGRESSING
    assert {result.status for result in progress.results.values()} == {SUCCEEDED, FAILED}


def test_the_verdict_after_the_last_try_keeps_what_was_measured():
    progress = measure(Progress(), [CPUS], Metrics(cpus="3"))
    assert fail_after_tries(progress) == Progress(1, progress.results, FAILED)


@pytest.mark.parametrize(("retries", "tries"), [(-1, 1), (0, 1), (1, 1), (10, 10)])
def test_there_are_as_many_measurements_as_retries_and_one_at_least(retries, tries):
    assert max_tries(retries) == tries


def test_without_its_definition_it_waits_and_says_so():
    progress = wait_for_definition(Progress(), "checks")
    waiting = Result("", PENDING, "keptnevaluationdefinition 'checks' not found")
    assert progress == Progress(0, {"checks": waiting}, PENDING)
    assert wait_for_definition(progress, "checks") == progress


def test_what_was_measured_outlives_the_loss_of_the_definition():
    named = Objective("checks", ">5")
    before = measure(Progress(), [named, ERRORS], Metrics(checks="6"))
    after = wait_for_definition(before, "checks")
    assert after.results == before.results
    assert measure(after, [named, ERRORS], Metrics(errors="0")).state == SUCCEEDED
