"""Node selectors and required node affinity (rescheduler-spec 4.2, item 3).

A term that the scheduler can't read matches no node; the others still may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.names import label_value, qualified_name
from harbourmaster.policies.requirements import integer

if TYPE_CHECKING:
    from harbourmaster.rescheduling.model import Node, NodeRequirement, NodeTerm, PendingPod

_NAME: Final = "metadata.name"


def matches(pending: PendingPod, node: Node) -> bool:
    """Whether the pod's selector and one of its terms, if it has any, match the node."""
    labels = node.labels
    if any(labels.get(key) != value for key, value in pending.node_selector):
        return False
    terms = pending.node_terms
    return terms is None or any(_holds(term, node) for term in terms)


def is_readable(requirement: NodeRequirement) -> bool:
    """Whether the scheduler understands an expression on labels."""
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn":
            is_counted = bool(values)
        case "Exists" | "DoesNotExist":
            is_counted = not values
        case "Gt" | "Lt":
            is_counted = len(values) == 1 and integer(values[0]) is not None
        case _:
            is_counted = False
    return (
        is_counted
        and not qualified_name(requirement.key)
        and not any(label_value(value) for value in values)
    )


def is_readable_field(requirement: NodeRequirement) -> bool:
    """Whether the scheduler understands an expression on the name."""
    return (
        requirement.key == _NAME
        and requirement.operator in {"In", "NotIn"}
        and len(requirement.values) == 1
    )


def _holds(term: NodeTerm, node: Node) -> bool:
    if not term.expressions and not term.fields:
        return False
    return all(
        _holds_on_labels(expression, node.labels) for expression in term.expressions
    ) and all((node.name in field.values) is (field.operator == "In") for field in term.fields)


def _holds_on_labels(requirement: NodeRequirement, labels: dict[str, str]) -> bool:
    label = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return label in requirement.values
        case "NotIn":
            return label not in requirement.values
        case "Exists":
            return label is not None
        case "DoesNotExist":
            return label is None
        case operator:
            return label is not None and _compares(operator, label, requirement.values[0])


def _compares(operator: str, label: str, wanted: str) -> bool:
    left, right = integer(label), integer(wanted)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right
