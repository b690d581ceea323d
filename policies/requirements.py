"""When two requirements on a node can't both hold.

Pairwise and syntactic: two requirements on one key whose values exclude each other. An operator
that is not known excludes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    Json = dict[str, Any]

Constraint: TypeAlias = "tuple[str, frozenset[str]]"
"""Operator and values."""
ConstraintKey: TypeAlias = "tuple[str, str]"
"""Scope (one of SCOPES) and the label key or field."""
Constraints: TypeAlias = "dict[ConstraintKey, list[Constraint]]"

EXPRESSIONS: Final = "matchExpressions"
FIELDS: Final = "matchFields"
SCOPES: Final = (EXPRESSIONS, FIELDS)
_SHOWN_VALUES: Final = 3


def constraints_of(term: Json, among: Mapping[ConstraintKey, object] | None = None) -> Constraints:
    """Index what ``term`` requires; only the keys in ``among``, where it is given."""
    found: Constraints = {}
    for scope in SCOPES:
        for requirement in term.get(scope) or ():
            key = (scope, requirement.get("key") or "")
            if among is None or key in among:
                values = frozenset(requirement.get("values") or ())
                found.setdefault(key, []).append((requirement.get("operator") or "", values))
    return found


def excluding(
    mine: Constraints, theirs: Constraints
) -> tuple[ConstraintKey, Constraint, Constraint] | None:
    """Find the first pair, one of each side, that no node satisfies together."""
    for key, constraints in mine.items():
        for other in theirs.get(key, ()):
            for constraint in constraints:
                if are_disjoint(constraint, other):
                    return key, constraint, other
    return None


def are_disjoint(one: Constraint, other: Constraint) -> bool:
    """Whether no value, nor the absence of one, satisfies both constraints on a key."""
    if one == other:
        return False
    first, second = sorted((one, other), key=_rank)
    operator, values = first
    match operator:
        case "DoesNotExist":
            return second[0] in {"In", "Exists", "Gt", "Lt"}
        case "In":
            return not any(_satisfies(value, second) for value in values)
        case "Gt" | "Lt" if second[0] in {"Gt", "Lt"} and operator != second[0]:
            above, below = (values, second[1]) if operator == "Gt" else (second[1], values)
            low, high = _bound(above), _bound(below)
            return low is not None and high is not None and high - low <= 1
    return False


def describe(key: ConstraintKey, constraint: Constraint) -> str:
    """Write a constraint as people do: ``zone In [a, b]``."""
    operator, values = constraint
    shown = sorted(values)[:_SHOWN_VALUES]
    if len(values) > _SHOWN_VALUES:
        shown.append("...")
    return f"{key[1]} {operator}" + (f" [{', '.join(shown)}]" if values else "")


def _rank(constraint: Constraint) -> int:
    order = ("DoesNotExist", "In", "Gt", "Lt")
    return order.index(constraint[0]) if constraint[0] in order else len(order)


def _satisfies(value: str, constraint: Constraint) -> bool:
    operator, values = constraint
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Gt" | "Lt":
            number, bound = _integer(value), _bound(values)
            if bound is None:
                return True
            return number is not None and (number > bound if operator == "Gt" else number < bound)
    return True


def _bound(values: frozenset[str]) -> int | None:
    return _integer(next(iter(values))) if len(values) == 1 else None


def _integer(text: str) -> int | None:
    # 20 characters hold every 64-bit integer, and keep int() away from absurd input.
    if len(text) > 20:  # noqa: PLR2004
        return None
    try:
        return int(text)
    except ValueError:
        return None
