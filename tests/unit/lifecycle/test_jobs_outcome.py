from __future__ import annotations

import pytest

from harbourmaster.api.metadata import Condition
from harbourmaster.lifecycle.jobs import JobResult, result_of

SUCCEEDED = JobResult("Succeeded")
EXCEEDED = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")


def condition(kind, status="True", reason="", message=""):
    return Condition(type=kind, status=status, reason=reason, message=message)


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        ([], None),
        ([condition("Suspended")], None),
        ([condition("Complete")], SUCCEEDED),
        ([condition("SuccessCriteriaMet")], SUCCEEDED),
        ([condition("SuccessCriteriaMet"), condition("Complete")], SUCCEEDED),
        ([condition("Failed", "True", *EXCEEDED)], JobResult("Failed", *EXCEEDED)),
        ([condition("FailureTarget", "True", *EXCEEDED)], JobResult("Failed", *EXCEEDED)),
    ],
)
def test_what_became_of_a_job(conditions, outcome):
    assert result_of(conditions) == outcome


@pytest.mark.parametrize("kind", ["Complete", "SuccessCriteriaMet", "Failed", "FailureTarget"])
@pytest.mark.parametrize("status", ["False", "Unknown", ""])
def test_a_condition_that_is_not_true_means_nothing(kind, status):
    assert result_of([condition(kind, status)]) is None


def test_a_failures_text_is_that_of_its_own_condition():
    result = result_of(
        [
            condition("Suspended", "False", "JobResumed", "Job resumed"),
            condition("Complete", "False", "Reconciling", "not yet"),
            condition("Failed", "True", "DeadlineExceeded", "Job was active longer"),
        ]
    )
    assert result == JobResult("Failed", "DeadlineExceeded", "Job was active longer")
