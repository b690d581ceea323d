from __future__ import annotations

import json

import pytest

from harbourmaster.cli.reschedule.fit import judge
from helpers.fit_cases import CASES
from helpers.fitting import NAMESPACES

KNOWN = [{"metadata": {"name": name, "labels": labels}} for name, labels in NAMESPACES.items()]


@pytest.mark.parametrize("case", CASES, ids=lambda one: one.name)
def test_the_verdict_is_that_of_the_scheduler(case):
    node, present, pod = case.on("fit-1")
    line = {"node": node, "pods": present, "pod": pod, "namespaces": KNOWN}
    found = judge(json.dumps(line).encode())
    assert (found.fits, bool(found.reasons)) == (case.fits, not case.fits)


def test_names_are_unique():
    names = [one.name for one in CASES]
    assert len(set(names)) == len(names)
