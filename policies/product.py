"""Required node affinity: what the pod asks AND what a policy asks, as terms that are ORed.

The product of both term lists, with absorption: a pod term that already holds all requirements of
one policy term stays as it is (kupid.md 3.8). So applying a policy twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from policies.keys import node_term_key, requirement_key
from policies.requirements import (
    EXPRESSIONS,
    SCOPES,
    ConstraintKey,
    Constraints,
    constraints_of,
    describe,
    excluding,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policies.requirements import Constraint

    Json = dict[str, Any]

MAX_TERMS: Final = 512
MAX_BYTES: Final = 256 * 1024


class NodeTerms(Struct, frozen=True, gc=False):
    """Node selector terms with their keys; ``size`` bounds their JSON text from above, in bytes."""

    terms: tuple[Json, ...]
    keys: tuple[frozenset[Hashable], ...]
    size: int


class Requirement(Struct, frozen=True, gc=False):
    """What one policy requires of the node, compiled."""

    terms: NodeTerms
    constraints: tuple[Constraints, ...]
    """Of each term."""
    constrained: frozenset[ConstraintKey]
    """Every key that some term constrains."""


class Conflict(Struct, frozen=True, gc=False):
    """Two requirements that no node satisfies together."""

    policy: str
    pod: str


class TooLargeError(Exception):
    """The product would pass MAX_TERMS or MAX_BYTES; the text says which."""


ONE_EMPTY_TERM: Final = NodeTerms(({},), (frozenset(),), 2)
_encoded_size: Final = msgspec.json.Encoder().encode


def node_terms(terms: Sequence[Json], size: int | None = None) -> NodeTerms:
    """Index terms by key; ``size`` saves encoding them where a bound is known."""
    if size is None:
        size = sum(len(_encoded_size(term)) + 1 for term in terms)
    return NodeTerms(tuple(terms), tuple(map(node_term_key, terms)), size)


def compile_requirement(terms: Sequence[Json]) -> Requirement:
    """Prepare a policy's terms for any number of products."""
    constraints = tuple(map(constraints_of, terms))
    return Requirement(
        node_terms(terms), constraints, frozenset(key for c in constraints for key in c)
    )


def conjunction(
    pod: NodeTerms | None,
    policy: Requirement,
    node_selector: Mapping[str, str],
    *,
    skip_conflicts: bool,
) -> tuple[NodeTerms | None, Conflict | None]:
    """AND a policy's requirement onto the pod's terms (None where the pod has none).

    Returns the pod's own object where nothing changes. The conflict is given where no alternative
    of the policy can be satisfied with any of the pod's, its node selector included; with
    ``skip_conflicts`` the requirements that exclude each other are then left out of the policy's
    part, otherwise they are ANDed all the same (design D3). Raises TooLargeError before building.
    """
    start = ONE_EMPTY_TERM if pod is None else pod
    context = {
        (EXPRESSIONS, key): [("In", frozenset((value,)))]
        for key, value in node_selector.items()
        if (EXPRESSIONS, key) in policy.constrained
    }
    conflict = _conflict(start, policy, context)
    if pod is None and not skip_conflicts:
        _check_bounds(len(policy.terms.terms), policy.terms.size)
        return policy.terms, conflict
    factors: list[NodeTerms | None]
    if skip_conflicts:
        factors = [_compatible_factor(term, key, policy, context) for term, key in _pairs(start)]
    else:
        factors = [None if _absorbs(key, policy.terms) else policy.terms for key in start.keys]
    if not any(factors):
        return pod, conflict
    return _multiply(start, factors), conflict


def _pairs(terms: NodeTerms) -> Iterator[tuple[Json, frozenset[Hashable]]]:
    return zip(terms.terms, terms.keys, strict=True)


def _absorbs(key: frozenset[Hashable], policy: NodeTerms) -> bool:
    return any(policy_key <= key for policy_key in policy.keys)


def _compatible_factor(
    term: Json, key: frozenset[Hashable], policy: Requirement, context: Constraints
) -> NodeTerms | None:
    """Find what to multiply one pod term with when conflicts are skipped; None keeps the term."""
    if _absorbs(key, policy.terms):
        return None
    mine = _with_context(constraints_of(term, dict.fromkeys(policy.constrained)), context)
    fitting = [
        candidate
        for candidate, constraints in zip(policy.terms.terms, policy.constraints, strict=True)
        if excluding(constraints, mine) is None
    ]
    if not fitting:
        fitting = [_without_conflicts(candidate, mine) for candidate in policy.terms.terms]
    factor = node_terms(fitting, policy.terms.size)
    return None if _absorbs(key, factor) else factor


def _without_conflicts(term: Json, mine: Constraints) -> Json:
    kept: Json = {}
    for scope in SCOPES:
        requirements = [
            requirement
            for requirement in term.get(scope) or ()
            if excluding(constraints_of({scope: [requirement]}), mine) is None
        ]
        if requirements:
            kept[scope] = requirements
    return kept


def _multiply(start: NodeTerms, factors: Sequence[NodeTerms | None]) -> NodeTerms:
    """Build the product; equal terms are built once, terms with no factor stay as they are."""
    todo: dict[frozenset[Hashable], tuple[Json, NodeTerms | None]] = {}
    for (term, key), factor in zip(_pairs(start), factors, strict=True):
        todo.setdefault(key, (term, factor))
    count = sum(len(factor.terms) if factor else 1 for _, factor in todo.values())
    widest = max(len(factor.terms) for factor in factors if factor)
    largest = max(factor.size for factor in factors if factor)
    size = start.size * widest + len(todo) * largest
    if size > MAX_BYTES:
        size = _exact_size(todo.values())
    _check_bounds(count, size)
    result: dict[frozenset[Hashable], Json] = {}
    for key, (term, factor) in todo.items():
        if factor is None:
            result.setdefault(key, term)
            continue
        for policy_term, policy_key in _pairs(factor):
            merged_key = key | policy_key
            if merged_key not in result:
                result[merged_key] = _merge(term, policy_term)
    return NodeTerms(tuple(result.values()), tuple(result), size)


def _exact_size(pairs: Iterable[tuple[Json, NodeTerms | None]]) -> int:
    total = 0
    for term, factor in pairs:
        own = len(_encoded_size(term)) + 1
        total += own if factor is None else own * len(factor.terms) + factor.size
    return total


def _check_bounds(count: int, size: int) -> None:
    if count > MAX_TERMS:
        raise TooLargeError(f"{count} terms, more than {MAX_TERMS}")
    if size > MAX_BYTES:
        raise TooLargeError(f"about {size // 1024} KiB, more than {MAX_BYTES // 1024} KiB")


def _merge(term: Json, policy_term: Json) -> Json:
    """AND two terms: the policy's requirements first, then the pod's that are not among them."""
    merged = dict(term)
    for scope in SCOPES:
        requirements = list(policy_term.get(scope) or ())
        seen = set(map(requirement_key, requirements))
        for requirement in term.get(scope) or ():
            key = requirement_key(requirement)
            if key not in seen:
                seen.add(key)
                requirements.append(requirement)
        if requirements:
            merged[scope] = requirements
        else:
            merged.pop(scope, None)
    return merged


def _with_context(constraints: Constraints, context: Constraints) -> Constraints:
    for key, more in context.items():
        constraints.setdefault(key, []).extend(more)
    return constraints


def _conflict(start: NodeTerms, policy: Requirement, context: Constraints) -> Conflict | None:
    """Find the first conflict, where every pod term excludes every policy term."""
    first: tuple[ConstraintKey, Constraint, Constraint] | None = None
    among = dict.fromkeys(policy.constrained)
    for term in start.terms:
        mine = _with_context(constraints_of(term, among), context)
        for constraints in policy.constraints:
            found = excluding(constraints, mine) if mine else None
            if found is None:
                return None
            first = first or found
    if first is None:
        return None
    key, ours, theirs = first
    return Conflict(describe(key, ours), describe(key, theirs))
