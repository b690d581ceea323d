"""Policies: what each selects, what it sets, and how many pods it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from harbourmaster.api.resources import CLUSTER_POLICIES, PODS, POLICIES
from harbourmaster.dashboard.conflicts import Conflict
from harbourmaster.dashboard.pages.states import Notice, StateCount, Topic
from harbourmaster.dashboard.query import Listing, select_page
from harbourmaster.dashboard.sources import MatchCounts, values
from harbourmaster.dashboard.visibility import ListScope

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from harbourmaster.api.selectors import LabelSelector
    from harbourmaster.dashboard.pages.states import Tally, Tone
    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import KnownPolicy, PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.policies.model import PolicySpec

PATH: Final = "/policies"
_TOPIC: Final = Topic("Policies", PATH, ("policy", "policies"), ((POLICIES,), (CLUSTER_POLICIES,)))
FAULTY: Final = "faulty"
UNUSED: Final = "unused"
CONFLICTING: Final = "conflicting"
_PARTS: Final[tuple[tuple[str, str, Tone], ...]] = (
    (FAULTY, "with a fault, skipped", "bad"),
    (CONFLICTING, "in conflict", "warn"),
    (UNUSED, "without a pod", "idle"),
)


class Selects(Struct, frozen=True, gc=False):
    """One selector; its terms are in the words of kubectl."""

    what: str
    terms: tuple[str, ...]
    """None for all."""
    is_absent: bool = False
    """It selects nothing."""


class PolicyRow(Struct, frozen=True, gc=False):
    """One policy."""

    kind: str
    namespace: str
    name: str
    selects: tuple[Selects, ...]
    sets: tuple[str, ...]
    pods: int | None
    """That it selects among those that may be seen; None where none may, or not all are here."""
    fault: str
    reference: str
    conflicts: tuple[Conflict, ...]


class PoliciesPage(Struct, frozen=True):
    """The page."""

    listing: Listing[PolicyRow]
    parts: tuple[StateCount, ...]
    pods: int
    """That may be seen."""
    counts: MatchCounts
    """Whether all pods are known, and so how many are selected, and whether all conflicts are."""
    scope: ListScope
    """Where pods may be seen."""


class _Judged(NamedTuple):
    """A policy with what is to be said of it."""

    known: KnownPolicy
    pods: int | None
    conflicts: list[Conflict]

    def is_in(self, state: str) -> bool:
        return {
            FAULTY: self.known.compiled.fault is not None,
            CONFLICTING: bool(self.conflicts),
            UNUSED: self.pods == 0,
        }.get(state, not state)


def policies(
    sources: PageSources, visible: Visibility, query: PageQuery, _now: datetime
) -> PoliciesPage:
    """The page, in the order in which policies apply; those at fault first."""
    judged = _judged(sources, visible)
    listing = select_page(
        judged,
        query,
        namespace=lambda each: each.known.policy.metadata.namespace or "",
        texts=lambda each: each.known.compiled.reference.split("/"),
        key=lambda each: (each.known.compiled.fault is None, each.known.compiled.rank),
        row=_row,
        holds=lambda each: each.is_in(query.state),
    )
    scope = visible.of(PODS)
    pods = sum(count for space, count in sources.counts.pods.items() if scope.sees(space))
    return PoliciesPage(
        listing,
        tuple(_parts(judged)),
        pods,
        counts=sources.counts,
        scope=scope,
    )


def tally(sources: PageSources, visible: Visibility, _now: datetime) -> Tally:
    """What the overview says of them."""
    judged = _judged(sources, visible)
    faulty = [each.known.compiled for each in judged if each.is_in(FAULTY)]
    faulty.sort(key=lambda each: each.rank)
    notices = [Notice("bad", "Policy", each.reference, each.fault or "", PATH) for each in faulty]
    notices += (
        Notice(
            "warn",
            "Policies",
            " and ".join(fromkey.policies),
            fromkey.text,
            f"{PATH}?state={CONFLICTING}",
        )
        for fromkey in dict.fromkeys(conflict for each in judged for conflict in each.conflicts)
    )
    return _TOPIC.tally(sources, visible, judged, _parts(judged), notices, lambda each: each)


def _judged(sources: PageSources, visible: Visibility) -> list[_Judged]:
    known = seen(sources, visible)
    conflicts: dict[str, list[Conflict]] = {each.compiled.reference: [] for each in known}
    for conflict in sources.counts.conflicts:
        if conflicts.keys() >= set(conflict.policies):
            for reference in conflict.policies:
                conflicts[reference].append(conflict)
    return [
        _Judged(each, _count(sources, visible, each), conflicts[each.compiled.reference])
        for each in known
    ]


def seen(sources: PageSources, visible: Visibility) -> list[KnownPolicy]:
    """The policies of both kinds that may be seen."""
    scope = visible.of(POLICIES)
    found = [
        value
        for value in values(sources.policies)
        if scope.sees(value.policy.metadata.namespace or "")
    ]
    if visible.sees(CLUSTER_POLICIES):
        found += values(sources.cluster_policies)
    return found


def _count(sources: PageSources, visible: Visibility, policy: KnownPolicy) -> int | None:
    scope = visible.of(PODS)
    namespace = policy.policy.metadata.namespace
    if not sources.counts.is_whole or scope.is_empty or (namespace and not scope.sees(namespace)):
        return None
    found = sources.counts.by_policy.get(policy.compiled.reference, {})
    return sum(count for space, count in found.items() if scope.sees(space))


def _parts(judged: list[_Judged]) -> Iterator[StateCount]:
    for state, label, tone in _PARTS:
        if count := sum(each.is_in(state) for each in judged):
            yield StateCount(label, count, tone, state)


def _row(judged: _Judged) -> PolicyRow:
    policy, compiled = judged.known.policy, judged.known.compiled
    return PolicyRow(
        kind="Cluster policy" if policy.is_cluster_scoped else "Policy",
        namespace=policy.metadata.namespace or "",
        name=policy.metadata.name or "",
        selects=tuple(_selects(policy.spec, is_cluster=policy.is_cluster_scoped)),
        sets=tuple(_sets(policy.spec)),
        pods=judged.pods,
        fault=compiled.fault or "",
        reference=compiled.reference,
        conflicts=tuple(judged.conflicts),
    )


def _selects(spec: PolicySpec | None, *, is_cluster: bool) -> Iterator[Selects]:
    if is_cluster:
        yield _selector("namespaces", spec.namespace_selector if spec else None)
    yield _selector("pods", spec.pod_selector if spec else None)


def _selector(what: str, selector: LabelSelector | None) -> Selects:
    if selector is None:
        return Selects(what, (), is_absent=True)
    terms = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    for expression in selector.match_expressions or ():
        operands = ", ".join(expression.values or ())
        match expression.operator:
            case "In":
                terms.append(f"{expression.key} in ({operands})")
            case "NotIn":
                terms.append(f"{expression.key} notin ({operands})")
            case "Exists":
                terms.append(f"{expression.key}")
            case "DoesNotExist":
                terms.append(f"!{expression.key}")
            case _:
                terms.append(f"{expression.key} {expression.operator} ({operands})")
    return Selects(what, tuple(terms))


def _sets(spec: PolicySpec | None) -> Iterator[str]:
    """What it may inject, with the value where that is short."""
    if spec is None:
        return
    if spec.node_name:
        yield f"nodeName: {spec.node_name}"
    for key, value in (spec.node_selector or {}).items():
        yield f"nodeSelector: {key}={value}"
    if spec.scheduler_name:
        yield f"schedulerName: {spec.scheduler_name}"
    for toleration in spec.tolerations or ():
        value = f"={toleration.value}" if toleration.value else ""
        effect = f":{toleration.effect}" if toleration.effect else ""
        yield f"toleration: {toleration.key or 'any taint'}{value}{effect}"
    affinity = spec.affinity
    if affinity is None:
        return
    for name, found in (
        ("node affinity", affinity.node_affinity),
        ("pod affinity", affinity.pod_affinity),
        ("pod anti-affinity", affinity.pod_anti_affinity),
    ):
        if found is not None and found.required:
            yield f"{name}: required"
        if found is not None and found.preferred:
            yield f"{name}: preferred"
