"""Contradictions between requirements on a node.

The check is syntactic and linear: all constraints on one key are taken together, and different
keys never exclude each other. An unknown operator, or a bound that is not an integer, excludes
nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harbourmaster.api.field_errors import quote
from harbourmaster.api.names import MAX_LABEL

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    Json = dict[str, Any]

Constraint: TypeAlias = "tuple[str, frozenset[str]]"
"""Operator and values."""
ConstraintKey: TypeAlias = "tuple[str, str]"
"""Scope (one of SCOPES) and the label key or field."""
Constraints: TypeAlias = "dict[ConstraintKey, list[Constraint]]"

EXPRESSIONS: Final = "matchExpressions"
FIELDS: Final = "matchFields"
SCOPES: Final = (EXPRESSIONS, FIELDS)
_NEED_A_VALUE: Final = frozenset(("In", "Exists", "Gt", "Lt"))
_SHOWN: Final = 3
_INTEGER: Final = re.compile(r"[+-]?[0-9]++")
_LARGEST_INTEGER: Final = 2**63 - 1


def constraints_of(term: Json, among: Container[ConstraintKey] | None = None) -> Constraints:
    """Index what ``term`` requires; only the keys in ``among``, where it is given."""
    constraints: Constraints = {}
    for scope in SCOPES:
        for requirement in term.get(scope) or ():
            key = (scope, requirement.get("key") or "")
            if among is None or key in among:
                values = frozenset(requirement.get("values") or ())
                constraints.setdefault(key, []).append((requirement.get("operator") or "", values))
    return constraints


def excluding(mine: Constraints, theirs: Constraints) -> Iterator[ConstraintKey]:
    """Find the keys that both sides constrain, and on which no node satisfies both.

    What excludes a term also excludes every term that asks for more.
    """
    for key, constraints in mine.items():
        others = theirs.get(key)
        if others and is_contradictory([*constraints, *others]):
            yield key


def is_contradictory(constraints: Sequence[Constraint]) -> bool:
    """Whether no value of a key, nor the absence of one, satisfies all constraints."""
    operators = {operator for operator, _ in constraints}
    if "DoesNotExist" in operators:
        return not operators.isdisjoint(_NEED_A_VALUE)
    above = max(_bounds(constraints, "Gt"), default=None)
    below = min(_bounds(constraints, "Lt"), default=None)
    if "In" not in operators:
        return above is not None and below is not None and below - above <= 1
    one_of = [values for operator, values in constraints if operator == "In"]
    none_of = (values for operator, values in constraints if operator == "NotIn")
    candidates = one_of[0].intersection(*one_of[1:]).difference(*none_of)
    return not any(_is_between(value, above, below) for value in candidates)


def integer(text: str) -> int | None:
    """Read a 64-bit integer as the scheduler does; None for any other text."""
    if len(text) > MAX_LABEL or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_LARGEST_INTEGER - 1 <= number <= _LARGEST_INTEGER else None


def describe(key: ConstraintKey, constraints: Sequence[Constraint]) -> str:
    """Write what is asked of a key as people do: ``zone In [a, b] and zone Exists``."""
    texts = [_describe_constraint(key[1], *constraint) for constraint in constraints[:_SHOWN]]
    return " and ".join(texts) + (" and more" if len(constraints) > _SHOWN else "")


def _describe_constraint(key: str, operator: str, values: frozenset[str]) -> str:
    text = f"{_printable(key)} {_printable(operator)}"
    if not values:
        return text
    shown = list(map(_printable, sorted(values)[:_SHOWN]))
    if len(values) > _SHOWN:
        shown.append("...")
    return f"{text} [{', '.join(shown)}]"


def _printable(text: str) -> str:
    return text if text.isprintable() else quote(text)


def _bounds(constraints: Sequence[Constraint], wanted: str) -> Iterator[int]:
    for operator, values in constraints:
        if operator == wanted and len(values) == 1:
            bound = integer(next(iter(values)))
            if bound is not None:
                yield bound


def _is_between(value: str, above: int | None, below: int | None) -> bool:
    if above is None and below is None:
        return True
    number = integer(value)
    if number is None:
        return False
    return (above is None or number > above) and (below is None or number < below)
