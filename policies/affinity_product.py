"""Required node affinity: what the pod asks AND what a policy asks, as terms that are ORed.

The product of both term lists, with absorption: a pod term that already holds all requirements of
one policy term stays as it is (kupid-spec 3.8). So applying a policy twice changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.policies.keys import node_term_key, requirement_key
from harbourmaster.policies.requirements import (
    EXPRESSIONS,
    SCOPES,
    Constraint,
    ConstraintKey,
    Constraints,
    constraints_of,
    excluding,
    is_contradictory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    Json = dict[str, Any]

T = TypeVar("T")
TermKey: TypeAlias = "frozenset[Hashable]"
_Clash: TypeAlias = "tuple[ConstraintKey, Sequence[Constraint], Sequence[Constraint]]"
"""A key, and what the policy and the other side ask of it."""

MAX_TERMS: Final = 512
MAX_BYTES: Final = 256 * 1024


class NodeTerms(Struct, frozen=True, gc=False):
    """Node selector terms with their keys; ``size`` bounds their JSON text from above, in bytes."""

    terms: tuple[Json, ...]
    keys: tuple[TermKey, ...]
    size: int


class Requirement(Struct, frozen=True, gc=False):
    """The compiled node requirement of one policy."""

    terms: NodeTerms
    constraints: tuple[Constraints, ...]
    """The constraints of each term."""
    constrained: frozenset[ConstraintKey]
    """Every key that some term constrains."""
    filed: dict[Hashable, list[TermKey]]
    """The terms' keys, each under the one of its members that fewest have."""
    anchors: frozenset[Hashable]
    """The members that ``filed`` knows."""
    has_empty_term: bool

    def absorbs(self, key: TermKey) -> bool:
        """Whether a pod term with this key already holds all that one of the terms requires."""
        for member in self.anchors & key:
            for asked in self.filed[member]:
                if asked <= key:
                    return True
        return self.has_empty_term


class Conflict(Struct, frozen=True, gc=False):
    """The constraints of a policy and of the pod on one key, which no node satisfies together."""

    key: ConstraintKey
    policy: tuple[Constraint, ...]
    present: tuple[Constraint, ...]
    is_left_out: bool = False
    """Whether the policy's requirements that exclude others were left out for it."""


class ProductTooLargeError(Exception):
    """The product would pass a bound; the text says which."""


ONE_EMPTY_TERM: Final = NodeTerms(({},), (frozenset(),), 0)
_encode: Final = msgspec.json.Encoder().encode


def node_terms(terms: Sequence[Json], size: int | None = None) -> NodeTerms:
    """Index terms by key; ``size`` saves encoding them where a bound is known."""
    if size is None:
        size = sum(map(_encoded_size, terms))
    return NodeTerms(tuple(terms), tuple(map(node_term_key, terms)), size)


def compile_requirement(terms: Sequence[Json]) -> Requirement:
    """Prepare a policy's terms for any number of products."""
    size = sum(map(_encoded_size, terms))
    indexed = NodeTerms(tuple(terms), each_once(node_term_key, terms), size)
    constraints = each_once(constraints_of, terms)
    filed = _file(indexed.keys)
    return Requirement(
        terms=indexed,
        constraints=constraints,
        constrained=frozenset(key for constraint in constraints for key in constraint),
        filed=filed,
        anchors=frozenset(filed),
        has_empty_term=frozenset() in indexed.keys,
    )


def each_once(make: Callable[[Json], T], items: Sequence[Json]) -> tuple[T, ...]:
    """Apply ``make`` to each item; equal references share one result, which saves memory."""
    made = {id(item): make(item) for item in {id(item): item for item in items}.values()}
    return tuple(made[id(item)] for item in items)


def _file(keys: Sequence[TermKey]) -> dict[Hashable, list[TermKey]]:
    uses = Counter(member for key in keys for member in key)
    filed: dict[Hashable, list[TermKey]] = {}
    for key in filter(None, set(keys)):
        filed.setdefault(min(key, key=uses.__getitem__), []).append(key)
    return filed


def conjunction(
    pod: NodeTerms | None,
    policy: Requirement,
    node_selector: Mapping[str, str],
    *,
    skip_conflicts: bool,
    brought: NodeTerms | None = None,
) -> tuple[NodeTerms | None, Conflict | None]:
    """AND a policy's required terms with the pod's; ``pod`` is None for a pod without terms.

    Terms are ORed, so the result has one term for each pair. With the pod's terms
    ``[zone=a, ssd], [zone=b]`` and the policy's ``[ssd], [gpu]``, the first term of the pod stays,
    because it has all of ``[ssd]``, and the second is multiplied:
    ``[zone=a, ssd], [ssd, zone=b], [gpu, zone=b]``. A pod that absorbs the policy everywhere gets
    ``pod`` itself back, so merging twice changes nothing.

    The second value is a conflict if no pair can be satisfied, the node selector included. With
    ``zone=c`` in the policy, no node would fit: both are ANDed all the same (decision D3), or with
    ``skip_conflicts`` the policy's requirements on ``zone`` are left out.

    ``brought`` is what the pod had before any policy, and raises the limit of terms to its own.
    Raises ProductTooLargeError before anything is compared or built.
    """
    context = _context(node_selector, policy.constrained)
    start = pod
    if start is None:
        if not context and len(policy.terms.terms) <= MAX_TERMS and policy.terms.size <= MAX_BYTES:
            return policy.terms, None
        start = ONE_EMPTY_TERM
    alternatives: dict[TermKey, Json] = {}
    for term, key in _pairs(start):
        alternatives.setdefault(key, term)
    open_keys = {key for key in alternatives if pod is None or not policy.absorbs(key)}
    size = _bounded_size(start, alternatives, open_keys, policy, brought) if open_keys else 0
    clash = _clash(alternatives, open_keys, policy, context)
    if not open_keys:
        return pod, _conflict(clash)
    if clash is None or not skip_conflicts:
        if pod is None:
            return policy.terms, _conflict(clash)
        factors = dict.fromkeys(open_keys, policy.terms)
    else:
        # What excludes a term excludes all that it grows to: a second pass leaves out the same.
        factors = _factors_without_conflicts(alternatives, open_keys, policy, context)
    merged = _multiply(alternatives, factors, size) if factors else pod
    return merged, _conflict(clash, is_left_out=skip_conflicts)


def selector_conflict(terms: Sequence[Json], added: Mapping[str, str]) -> Conflict | None:
    """Find the first conflict, where every term excludes a label of the node selector ``added``."""
    if not any(item.get("key") in added for item in terms[0].get(EXPRESSIONS) or ()):
        return None
    context = _context(added)
    first: _Clash | None = None
    for term in terms:
        theirs = constraints_of(term, context)
        key = next(excluding(theirs, context), None) if theirs else None
        if key is None:
            return None
        first = first or (key, context[key], theirs[key])
    return _conflict(first)


def _pairs(terms: NodeTerms) -> Iterator[tuple[Json, TermKey]]:
    return zip(terms.terms, terms.keys, strict=True)


def _context(
    labels: Mapping[str, str], among: Container[ConstraintKey] | None = None
) -> Constraints:
    return {
        (EXPRESSIONS, key): [("In", frozenset((value,)))]
        for key, value in labels.items()
        if among is None or (EXPRESSIONS, key) in among
    }


def _conflict(clash: _Clash | None, *, is_left_out: bool = False) -> Conflict | None:
    if clash is None:
        return None
    key, ours, theirs = clash
    # What the policy brought in an earlier pass is on both sides.
    same = frozenset(ours)
    others = [constraint for constraint in theirs if constraint not in same] or theirs
    return Conflict(key, tuple(ours), tuple(others), is_left_out)


# Bounds


def _bounded_size(
    start: NodeTerms,
    alternatives: Mapping[TermKey, Json],
    open_keys: set[TermKey],
    policy: Requirement,
    brought: NodeTerms | None,
) -> int:
    """Bound the bytes of the product from above. Raises ProductTooLargeError."""
    multiplied, factor = len(open_keys), len(policy.terms.terms)
    count = len(alternatives) - multiplied + multiplied * factor
    if count > MAX_TERMS:
        limit = max(MAX_TERMS, len(set(brought.keys)) if brought else 0)
        if count > limit:
            raise ProductTooLargeError(f"{count} terms, more than {limit}")
    added = multiplied * policy.terms.size
    size = start.size * factor + added
    if size <= MAX_BYTES:
        return size
    size = added + sum(
        _encoded_size(term) * (factor if key in open_keys else 1)
        for key, term in alternatives.items()
    )
    if size > MAX_BYTES and not (factor == 1 and added <= MAX_BYTES and _is_oversized(brought)):
        raise ProductTooLargeError(f"about {size // 1024} KiB, more than {MAX_BYTES // 1024} KiB")
    return size


def _is_oversized(brought: NodeTerms | None) -> bool:
    if brought is None or brought.size <= MAX_BYTES:
        return False
    return sum(map(_encoded_size, brought.terms)) > MAX_BYTES


def _encoded_size(term: Json) -> int:
    """Count the bytes of a term in a list."""
    return len(_encode(term)) + 1


# Conflicts


def _clash(
    alternatives: Mapping[TermKey, Json],
    open_keys: set[TermKey],
    policy: Requirement,
    context: Constraints,
) -> _Clash | None:
    """Find the first clash, where no alternative can be satisfied with one of the policy's."""
    first: _Clash | None = None
    for key, term in alternatives.items():
        mine = constraints_of(term, policy.constrained)
        find = _clash_of_pairs if key in open_keys else _clash_within
        clash = find(mine, policy, context) if mine or context else None
        if clash is None:
            return None
        first = first or clash
    return first


def _clash_of_pairs(mine: Constraints, policy: Requirement, context: Constraints) -> _Clash | None:
    mine = _with_context(mine, context)
    first: _Clash | None = None
    for constraints in policy.constraints:
        key = next(excluding(constraints, mine), None)
        if key is None:
            return None
        first = first or (key, constraints[key], mine[key])
    return first


def _clash_within(mine: Constraints, policy: Requirement, context: Constraints) -> _Clash | None:
    """Look at a term that holds one of the policy's: it can be satisfied with it, or not at all."""
    for key, own in mine.items():
        constraints = [*own, *context.get(key, ())]
        if is_contradictory(constraints):
            ours = next(constraint[key] for constraint in policy.constraints if key in constraint)
            return key, ours, constraints
    return None


def _with_context(constraints: Constraints, context: Constraints) -> Constraints:
    for key, more in context.items():
        constraints.setdefault(key, []).extend(more)
    return constraints


def _factors_without_conflicts(
    alternatives: Mapping[TermKey, Json],
    open_keys: set[TermKey],
    policy: Requirement,
    context: Constraints,
) -> dict[TermKey, NodeTerms]:
    """Leave out of each policy term, for each pod term, what is asked of the keys in conflict."""
    factors: dict[TermKey, NodeTerms] = {}
    for key, term in alternatives.items():
        if key not in open_keys:
            continue
        mine = _with_context(constraints_of(term, policy.constrained), context)
        rest = node_terms(
            [
                _without(candidate, set(excluding(constraints, mine)))
                for candidate, constraints in zip(
                    policy.terms.terms, policy.constraints, strict=True
                )
            ],
            policy.terms.size,
        )
        if not any(asked <= key for asked in rest.keys):
            factors[key] = rest
    return factors


def _without(term: Json, left_out: set[ConstraintKey]) -> Json:
    kept: Json = {}
    for scope in SCOPES:
        requirements = [
            requirement
            for requirement in term.get(scope) or ()
            if (scope, requirement.get("key") or "") not in left_out
        ]
        if requirements:
            kept[scope] = requirements
    return kept


# Building


def _multiply(
    alternatives: Mapping[TermKey, Json], factors: Mapping[TermKey, NodeTerms], size: int
) -> NodeTerms:
    """Build the product; equal terms are built once, terms with no factor stay as they are."""
    result: dict[TermKey, Json] = {}
    for key, term in alternatives.items():
        factor = factors.get(key)
        if factor is None:
            result.setdefault(key, term)
            continue
        for policy_term, policy_key in _pairs(factor):
            merged_key = key | policy_key
            if merged_key not in result:
                result[merged_key] = _merge(term, policy_term)
    return NodeTerms(tuple(result.values()), tuple(result), size)


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
