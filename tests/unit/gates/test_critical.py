"""Tests of the definition of a critical add-on (decision D12, rescheduler-spec 1.2, 6.1)."""

from __future__ import annotations

import pytest

from harbourmaster.gates.critical import Importance, Toleration, is_critical

MARK = {"scheduler.alpha.kubernetes.io/critical-pod": ""}
TOLERATES = (Toleration("CriticalAddonsOnly", "Exists"),)
BY_CLASS = Importance(priority_class_name="system-cluster-critical", tolerations=TOLERATES)


@pytest.mark.parametrize(
    ("annotations", "spec"),
    [
        (MARK, Importance(tolerations=TOLERATES)),
        ({}, Importance(2_000_000_000, tolerations=TOLERATES)),
        ({}, Importance(2_000_001_000, tolerations=TOLERATES)),
        ({}, BY_CLASS),
        ({}, Importance(priority_class_name="system-node-critical", tolerations=TOLERATES)),
        ({}, Importance(2_000_000_000, tolerations=(Toleration(None, "Exists"),))),
        (
            {},
            Importance(
                2_000_000_000,
                tolerations=(Toleration("CriticalAddonsOnly", "Exists", "NoSchedule"),),
            ),
        ),
    ],
)
def test_an_add_on_of_a_system_namespace_that_is_marked_and_tolerates(annotations, spec):
    assert is_critical("kube-system", annotations, spec)
    assert not is_critical("default", annotations, spec)


@pytest.mark.parametrize(
    ("annotations", "spec"),
    [
        ({}, Importance(tolerations=TOLERATES)),
        ({}, Importance(1_999_999_999, "high", TOLERATES)),
        ({**MARK, next(iter(MARK)): "true"}, Importance(tolerations=TOLERATES)),
        (MARK, Importance()),
        (MARK, Importance(tolerations=(Toleration("other", "Exists"),))),
        (MARK, Importance(tolerations=(Toleration("CriticalAddonsOnly", "Equal"),))),
        (MARK, Importance(tolerations=(Toleration("CriticalAddonsOnly"),))),
        (MARK, Importance(tolerations=(Toleration("CriticalAddonsOnly", "Exists", "NoExecute"),))),
    ],
)
def test_half_of_the_definition_is_no_bypass(annotations, spec):
    assert not is_critical("kube-system", annotations, spec)
