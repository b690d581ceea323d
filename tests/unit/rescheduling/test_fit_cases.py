from __future__ import annotations

import pytest

from helpers.fit_cases import AMONG_DOMAINS, CASES, KNOWN, verdict


@pytest.mark.parametrize("case", [*CASES, *AMONG_DOMAINS], ids=lambda case: case.name)
def test_the_verdict_is_that_of_the_scheduler(case):
    node, present, pod = case.on("fit-1")
    for present_pod in present:
        if present_pod.pop("leaving", False):
            present_pod["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    judged = verdict(node, case.others_on("fit-1"), present, pod, KNOWN)
    assert (judged.fits, bool(judged.reasons)) == (case.fits, not case.fits), judged.reasons


def test_names_are_unique():
    names = [case.name for case in (*CASES, *AMONG_DOMAINS)]
    assert len(set(names)) == len(names)
