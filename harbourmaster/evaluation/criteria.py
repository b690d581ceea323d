"""Criteria of failure and of warning: ``{lessThan: {fixedValue: 500m}}`` (keptn-spec 4.5).

A criterion has one operator. Objects that bypassed admission may have several, of which any
fulfils the criterion, or none, which no value fulfils. Values are compared as floats.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.quantities import Quantity, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable

FIXED: Final = "fixedValue"
LOW: Final = "lowBound"
HIGH: Final = "highBound"
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "lessThanOrEqual": operator.le,
    "lessThan": operator.lt,
    "greaterThan": operator.gt,
    "greaterThanOrEqual": operator.ge,
    "equalTo": operator.eq,
}
_MET: Final = {
    "lessThanOrEqual": ">",
    "lessThan": ">=",
    "greaterThan": "<=",
    "greaterThanOrEqual": "<",
    "equalTo": "!=",
}
"""The comparisons of values that do not fulfil a criterion, as in targets of evaluations."""
_IN: Final = "inRange"
OPERATORS: Final = (*_COMPARISONS, _IN, "notInRange")
"""The names of all operators, in the order of Keptn's output."""


class CriterionOperator(Struct, frozen=True, gc=False):
    """A comparison with ``bounds``: ``fixedValue``, or ``lowBound`` and ``highBound``."""

    name: str
    bounds: dict[str, Quantity]

    def holds(self, value: float) -> bool:
        """Return whether ``value`` fulfils the comparison; a range includes its bounds."""
        compare = _COMPARISONS.get(self.name)
        if compare is not None:
            return compare(value, float(self.bounds[FIXED]))
        is_inside = float(self.bounds[LOW]) <= value <= float(self.bounds[HIGH])
        return is_inside if self.name == _IN else not is_inside

    def encode_bounds(self) -> dict[str, str]:
        """Return the bounds as Keptn writes them in JSON."""
        return {name: bound.text for name, bound in self.bounds.items()}


class ObjectiveCriteria(Struct, frozen=True, gc=False):
    """The criteria of an objective; no value fulfils a criterion that is None."""

    failure: tuple[CriterionOperator, ...] | None = None
    warning: tuple[CriterionOperator, ...] | None = None

    @property
    def target(self) -> str:
        """The condition of values without a failure, as a target of an evaluation; "" for a gap."""
        parts = []
        for comparison in self.failure or ():
            low, *high = (f"{float(bound):g}" for bound in comparison.bounds.values())
            if sign := _MET.get(comparison.name):
                parts.append(f"{sign}{low}")
            elif comparison.name != _IN:
                parts.append(f">={low},<={high[0]}")
        return ",".join(parts)

    def encode(self) -> dict[str, Any]:
        """Return the criteria as Keptn writes them in JSON."""
        criteria = (("failure", self.failure), ("warning", self.warning))
        return {
            name: {comparison.name: comparison.encode_bounds() for comparison in criterion}
            for name, criterion in criteria
            if criterion is not None
        }


def is_fulfilled(criterion: tuple[CriterionOperator, ...] | None, value: float) -> bool:
    """Return whether ``value`` fulfils any operator of the criterion."""
    return any(comparison.holds(value) for comparison in criterion or ())


def decode_target(given: object) -> ObjectiveCriteria:
    """Decode the target of an objective. Raises ValueError with one line."""
    if given is None:
        return ObjectiveCriteria()
    fields = _as_mapping(given, "target")
    return ObjectiveCriteria(
        failure=_decode_criterion(fields.get("failure"), "target.failure"),
        warning=_decode_criterion(fields.get("warning"), "target.warning"),
    )


def _decode_criterion(given: object, path: str) -> tuple[CriterionOperator, ...] | None:
    if given is None:
        return None
    fields = _as_mapping(given, path)
    unknown = sorted(set(fields) - set(OPERATORS))
    if unknown:
        raise ValueError(f"{path}.{unknown[0]}: unknown operator: use {', '.join(OPERATORS)}")
    return tuple(
        _decode_operator(name, fields[name], f"{path}.{name}")
        for name in OPERATORS
        if fields.get(name) is not None
    )


def _decode_operator(name: str, given: object, path: str) -> CriterionOperator:
    fields = _as_mapping(given, path)
    bounds = {}
    for key in (FIXED,) if name in _COMPARISONS else (LOW, HIGH):
        bound = fields.get(key)
        if not isinstance(bound, str | int | float):
            raise ValueError(f"{path}.{key}: a quantity is needed")  # noqa: TRY004 - one class
        try:
            bounds[key] = parse_quantity(bound)
        except ValueError as error:
            raise ValueError(f"{path}.{key}: {error}") from None
    return CriterionOperator(name, bounds)


def _as_mapping(given: object, path: str) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{path}: an object is needed")  # noqa: TRY004 - one class for all
    return given
