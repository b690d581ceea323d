"""Checks of labels and label selectors, wherever they stand in a policy (kupid-spec 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.api.field_errors import forbidden, invalid, required
from harbourmaster.api.names import label_value, qualified_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harbourmaster.api.field_errors import FieldError
    from harbourmaster.api.selectors import LabelSelector, LabelSelectorRequirement
    from harbourmaster.policies.model import NodeSelectorRequirement


def labels(values: Mapping[str, str] | None, path: str) -> Iterator[FieldError]:
    """Check keys and values; every error stands at ``path``, without the key, as upstream."""
    for key, value in (values or {}).items():
        yield from label_key(key, path)
        for fault in label_value(value):
            yield invalid(path, value, fault)


def label_key(key: str | None, path: str) -> Iterator[FieldError]:
    """Check one label key."""
    for fault in qualified_name(key or ""):
        yield invalid(path, key or "", fault)


def label_selector(
    selector: LabelSelector | None, path: str, *, with_values: bool = True
) -> Iterator[FieldError]:
    """Check a selector; ``with_values`` says whether the values of expressions count too."""
    if selector is None:
        return
    yield from labels(selector.match_labels, f"{path}.matchLabels")
    for index, requirement in enumerate(selector.match_expressions or ()):
        at = f"{path}.matchExpressions[{index}]"
        match requirement.operator:
            case "In" | "NotIn" | "Exists" | "DoesNotExist":
                yield from value_count(requirement, at)
            case operator:
                yield unknown_operator(operator, at)
        yield from label_key(requirement.key, f"{at}.key")
        if with_values:
            yield from _values(requirement, at)


def label_selector_values(selector: LabelSelector | None, path: str) -> Iterator[FieldError]:
    """Check nothing but the values of expressions."""
    if selector is not None:
        for index, requirement in enumerate(selector.match_expressions or ()):
            yield from _values(requirement, f"{path}.matchExpressions[{index}]")


def value_count(
    requirement: LabelSelectorRequirement | NodeSelectorRequirement, path: str
) -> Iterator[FieldError]:
    """Check that In and NotIn have values, and Exists and DoesNotExist none."""
    match requirement.operator:
        case "In" | "NotIn" if not requirement.values:
            yield required(f"{path}.values", "operators In and NotIn need at least one value")
        case "Exists" | "DoesNotExist" if requirement.values:
            yield forbidden(f"{path}.values", "operators Exists and DoesNotExist take no values")


def unknown_operator(operator: str | None, path: str) -> FieldError:
    """Say that the requirement at ``path`` has an operator that is not allowed there."""
    return invalid(f"{path}.operator", operator or "", "not a valid selector operator")


def _values(requirement: LabelSelectorRequirement, path: str) -> Iterator[FieldError]:
    if requirement.operator in {"In", "NotIn"}:
        for index, value in enumerate(requirement.values or ()):
            for fault in label_value(value):
                yield invalid(f"{path}.values[{index}]", value, fault)
