"""When an objective has failed, or is to be warned of: ``{lessThan: {fixedValue: 500m}}``.

A criterion holds one operator. Objects that came past the admission may have several, of which any
is enough, or none, which nothing fulfils. Values are compared as floats (keptn-spec 4.5).
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
_IN: Final = "inRange"
OPERATORS: Final = (*_COMPARISONS, _IN, "notInRange")
"""All of them, as they are printed one after the other."""


class CriterionOperator(Struct, frozen=True, gc=False):
    """One comparison; ``bounds`` by name: ``fixedValue``, or ``lowBound`` and ``highBound``."""

    name: str
    bounds: dict[str, Quantity]

    def holds(self, value: float) -> bool:
        """Whether ``value`` is as it says; a range includes its bounds."""
        compare = _COMPARISONS.get(self.name)
        if compare is not None:
            return compare(value, float(self.bounds[FIXED]))
        is_inside = float(self.bounds[LOW]) <= value <= float(self.bounds[HIGH])
        return is_inside if self.name == _IN else not is_inside

    @property
    def wire(self) -> dict[str, dict[str, str]]:
        """As it is printed."""
        return {self.name: {name: bound.text for name, bound in self.bounds.items()}}


class ObjectiveCriteria(Struct, frozen=True, gc=False):
    """The criteria of an objective; None for none, which nothing fulfils."""

    failure: tuple[CriterionOperator, ...] | None = None
    warning: tuple[CriterionOperator, ...] | None = None

    @property
    def wire(self) -> dict[str, Any]:
        """As it is printed."""
        criteria = {"failure": self.failure, "warning": self.warning}
        return {
            name: encode_criterion(found) for name, found in criteria.items() if found is not None
        }


def is_fulfilled(criterion: tuple[CriterionOperator, ...] | None, value: float) -> bool:
    """Whether any of the operators holds."""
    return any(each.holds(value) for each in criterion or ())


def encode_criterion(criterion: tuple[CriterionOperator, ...] | None) -> dict[str, Any]:
    """A criterion as it is printed; empty where there is none."""
    return {name: bounds for each in criterion or () for name, bounds in each.wire.items()}


def decode_target(given: object) -> ObjectiveCriteria:
    """The criteria as they stand in an AnalysisDefinition. Raises ValueError with one line."""
    if given is None:
        return ObjectiveCriteria()
    fields = _fields(given, "target")
    return ObjectiveCriteria(
        failure=_criterion(fields.get("failure"), "target.failure"),
        warning=_criterion(fields.get("warning"), "target.warning"),
    )


def _criterion(given: object, path: str) -> tuple[CriterionOperator, ...] | None:
    if given is None:
        return None
    fields = _fields(given, path)
    unknown = sorted(set(fields) - set(OPERATORS))
    if unknown:
        raise ValueError(f"{path}.{unknown[0]}: unknown operator: use {', '.join(OPERATORS)}")
    return tuple(
        _operator(name, fields[name], f"{path}.{name}")
        for name in OPERATORS
        if fields.get(name) is not None
    )


def _operator(name: str, given: object, path: str) -> CriterionOperator:
    fields = _fields(given, path)
    bounds = {}
    for each in (FIXED,) if name in _COMPARISONS else (LOW, HIGH):
        bound = fields.get(each)
        if not isinstance(bound, str | int | float):
            raise ValueError(f"{path}.{each}: a quantity is needed")  # noqa: TRY004 - one class
        try:
            bounds[each] = parse_quantity(bound)
        except ValueError as error:
            raise ValueError(f"{path}.{each}: {error}") from None
    return CriterionOperator(name, bounds)


def _fields(given: object, path: str) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{path}: an object is needed")  # noqa: TRY004 - one class for all
    return given
