from __future__ import annotations

import json

import pytest

from harbourmaster.cli.reschedule.fit import judge
from helpers import fit_domains
from helpers.fit_cases import CASES
from helpers.fitting import NAMESPACES

KNOWN = [{"metadata": {"name": name, "labels": labels}} for name, labels in NAMESPACES.items()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_verdict_is_that_of_the_scheduler(case):
    node, present, pod = case.on("fit-1")
    line = {"node": node, "pods": present, "pod": pod, "namespaces": KNOWN}
    verdict = judge(json.dumps(line).encode())
    assert (verdict.fits, bool(verdict.reasons)) == (case.fits, not case.fits)


def test_names_are_unique():
    names = [case.name for case in (*CASES, *fit_domains.CASES)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", fit_domains.CASES, ids=lambda case: case.name)
def test_what_depends_on_other_nodes(case):
    node, present, pod = case.on("fit-1")
    for present_pod in present:
        if present_pod.pop("leaving", False):
            present_pod["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    given = (json.dumps(node), map(json.dumps, case.others_on("fit-1")), map(json.dumps, present))
    verdict = fit_domains.verdict(*given, json.dumps(pod), NAMESPACES)
    assert verdict.fits is case.fits, verdict.reasons
