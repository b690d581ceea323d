"""Compares targets with the constraints of an object (krake-spec 2, 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from harbourmaster.placement.constraints import (
    CustomResourceConstraint,
    KindConstraint,
    LabelConstraint,
    MetricConstraint,
    parse_custom_resource,
    parse_label,
    parse_metric,
)
from harbourmaster.placement.lexer import ConstraintError
from harbourmaster.placement.measurements import Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from harbourmaster.placement.constraints import Constraint
    from harbourmaster.placement.model import TargetConstraints, TargetReference, Term
    from harbourmaster.placement.rules import ConstraintValue

    Parsed = TypeVar("Parsed")


Outage: TypeAlias = Literal["", "NodesNotReady", "NoAnswer", "Unknown"]
"""Why a cluster gets no new applications although no user has excluded it.

Unknown: its state cannot be determined, as it rejects our credentials or was not asked yet.
"""


class Candidate(Struct, frozen=True, gc=False):
    """A cluster, a cloud or a project; ``unready`` says why it is excluded, empty if it is not."""

    kind: str
    namespace: str
    name: str
    uid: str
    unready: str
    labels: Mapping[str, str]
    measured: Measurement
    label: str
    """The name among the candidates, with the namespace if these are of several."""
    custom_resources: frozenset[str] = frozenset()
    served_kinds: frozenset[str] = frozenset("*")
    """``*`` if they are unknown."""
    generation: int = 0
    reachable_since: str = ""
    """The time of the last change of whether it is reachable."""
    outage: Outage = ""
    """Empty also for a cluster that users have excluded: applications have to leave it."""

    def is_at(self, reference: TargetReference | None, namespace: str) -> bool:
        """Whether a reference in an object of that namespace is to this target."""
        return (
            reference is not None
            and reference.name == self.name
            and (reference.namespace or namespace) == (self.namespace or namespace)
            and reference.kind in {"", self.kind}
            and (not reference.uid or not self.uid or reference.uid == self.uid)
        )


class InvalidConstraintError(ValueError):
    """A stored constraint that is invalid; the text is one line and names the field."""


class Compiled(Struct, frozen=True, gc=False):
    """Constraints of one object, parsed."""

    labels: tuple[LabelConstraint, ...] = ()
    custom_resources: tuple[CustomResourceConstraint, ...] = ()
    metrics: tuple[MetricConstraint, ...] = ()
    kinds: tuple[KindConstraint, ...] = ()
    """Not written by users: those of the manifests."""

    @property
    def every(self) -> tuple[Constraint, ...]:
        """All of them in the order of checking: labels, custom resources, kinds, metrics."""
        return (*self.labels, *self.custom_resources, *self.kinds, *self.metrics)


@lru_cache(maxsize=4096)
def compile_constraints(constraints: TargetConstraints | None, at: str) -> Compiled:
    """Parse what stands at a field, such as ``spec.constraints.cluster``.

    Raises InvalidConstraintError.
    """
    if constraints is None:
        return Compiled()
    return Compiled(
        _parse_all(parse_label, constraints.labels, f"{at}.labels"),
        _parse_all(parse_custom_resource, constraints.custom_resources, f"{at}.customResources"),
        _parse_all(parse_metric, constraints.metrics, f"{at}.metrics"),
    )


def _parse_all(
    parse: Callable[[str], Parsed], texts: tuple[str, ...] | None, at: str
) -> tuple[Parsed, ...]:
    constraints = []
    for index, text in enumerate(texts or ()):
        try:
            constraints.append(parse(text))
        except ConstraintError as error:
            raise InvalidConstraintError(f"{at}[{index}]: {error}") from None
    return tuple(constraints)


def mismatches(target: Candidate, wanted: Compiled, value: ConstraintValue) -> Iterator[str]:
    """Why the target does not meet constraints, in their order."""
    return filter(None, (mismatch(target, constraint, value) for constraint in wanted.every))


def mismatch(target: Candidate, constraint: Constraint, value: ConstraintValue) -> str:
    """Why the target does not meet a constraint; empty if it does."""
    match constraint:
        case LabelConstraint():
            return constraint.mismatch(target.labels)
        case KindConstraint():
            return constraint.mismatch(target.served_kinds)
        case CustomResourceConstraint():
            return constraint.mismatch(target.custom_resources)
        case MetricConstraint():
            term = target.measured.by_name.get(constraint.key)
            return constraint.mismatch(None if term is None else compared_value(term, value))


def compared_value(term: Term, value: ConstraintValue) -> float:
    """The value that a metric constraint compares (decision D11)."""
    if value == "Raw":
        return term.value
    return term.normalised * (term.weight if value == "Weighted" else 1.0)
