from __future__ import annotations

import pytest

from harbourmaster.rescheduling.model import Node, NodeRequirement, NodeTerm, PendingPod, Pod
from harbourmaster.rescheduling.node_affinity import is_readable, is_readable_field, matches

POD = Pod(uid="u", namespace="shop", name="p")


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ("a",), True),
        ("In", (), False),
        ("In", ("a", "not a value"), False),
        ("In", ("",), True),
        ("NotIn", ("a", "b"), True),
        ("NotIn", (), False),
        ("NotIn", ("-a",), False),
        ("Exists", (), True),
        ("Exists", ("a",), False),
        ("DoesNotExist", (), True),
        ("DoesNotExist", ("a",), False),
        ("Gt", ("1",), True),
        ("Gt", ("01",), True),
        ("Gt", (str(2**63 - 1),), True),
        ("Gt", (str(2**63),), False),
        ("Gt", ("1" * 5000,), False),
        ("Gt", ("-1",), False),
        ("Gt", ("1_0",), False),
        ("Gt", ("\u0661",), False),
        ("Gt", (" 1",), False),
        ("Lt", ("1", "2"), False),
        ("Lt", (), False),
        ("Lt", ("1.5",), False),
        ("Is", ("a",), False),
        ("", ("a",), False),
    ],
)
def test_valid_expressions_are_those_of_the_scheduler(operator, values, expected):
    assert is_readable(NodeRequirement("example.com/a", operator, values)) is expected
    assert not is_readable(NodeRequirement("no key", operator, values))


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("metadata.name", "In", ("n",), True),
        ("metadata.name", "NotIn", ("n",), True),
        ("metadata.name", "Exists", ("n",), False),
        ("metadata.name", "In", ("n", "m"), False),
        ("metadata.name", "In", (), False),
        ("spec.unschedulable", "In", ("n",), False),
    ],
)
def test_fields_that_the_scheduler_can_read(key, operator, values, expected):
    assert is_readable_field(NodeRequirement(key, operator, values)) is expected


@pytest.mark.parametrize(
    ("label", "operator", "expected"),
    [
        ("5", "Gt", False),
        ("6", "Gt", True),
        ("006", "Gt", True),
        ("4", "Lt", True),
        ("-4", "Lt", True),
        ("+4", "Lt", True),
        ("", "Lt", False),
        ("4x", "Lt", False),
        (str(2**63), "Gt", False),
        (str(-(2**63)), "Lt", True),
        (str(-(2**63) - 1), "Lt", False),
    ],
)
def test_numbers(label, operator, expected):
    term = NodeTerm((NodeRequirement("size", operator, ("5",)),))
    pending = PendingPod(pod=POD, node_terms=(term,))
    assert matches(pending, Node(name="n", labels={"size": label})) is expected
