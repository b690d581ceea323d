"""The three languages by the name of what they constrain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from harbourmaster.placement.custom_resources import CustomResourceConstraint, parse_custom_resource
from harbourmaster.placement.labels import LabelConstraint, parse_label
from harbourmaster.placement.metrics import MetricConstraint, parse_metric

if TYPE_CHECKING:
    from collections.abc import Callable

Language = Literal["label", "metric", "customResource"]
Constraint: TypeAlias = LabelConstraint | MetricConstraint | CustomResourceConstraint

PARSERS: Final[dict[Language, Callable[[str], Constraint]]] = {
    "label": parse_label,
    "metric": parse_metric,
    "customResource": parse_custom_resource,
}
"""Each raises ConstraintError."""
