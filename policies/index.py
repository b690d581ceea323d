"""The compiled, immutable set of all policies, indexed so that a pod meets only its candidates.

Each policy is filed under one label (of the pod or of its namespace) that it cannot do without,
the one that fewest policies ask for. A review looks up the labels that it has; what has no such
label is tried always. Namespaced policies are filed by namespace first.

A change makes a new set that shares with the old one all parts of the index without that policy.
"""

from __future__ import annotations

from collections import Counter
from itertools import filterfalse, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from harbourmaster.policies.compiled import CompiledPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harbourmaster.api.selectors import Matcher

_POD: Final = "pod"
_NAMESPACE: Final = "namespace"

Anchor: TypeAlias = "tuple[str | int | None, ...]"
"""The place of a policy in the index: its namespace (None: cluster), whose label, and the key; then
None if any value will do, else the value's share of all values, and the value."""
_SHARES: Final = 1024
"""The number of parts of the values of a key; a change copies only the parts that it touches."""
_MAX_VALUES: Final = 32
"""With more values a policy is filed by the key alone, so that a change takes little time."""
_MAX_OPTIONS: Final = 8
"""Requirements of a selector that are compared, for the same reason."""
_rank: Final = attrgetter("rank")
_NOTHING: Final[dict[Any, Any]] = {}


class _Edit(Struct, gc=False):
    removed: set[CompiledPolicy]
    added: list[CompiledPolicy]


class PolicySet(Struct, frozen=True, gc=False):
    """All policies; build it with ``policy_set``, match with ``match``."""

    filed: dict[CompiledPolicy, frozenset[Anchor]] = {}
    """All policies, each with where it is filed; nowhere if it can never match."""
    indexes: dict[str | None, dict[str, dict[str, dict[int | None, Any]]]] = {}
    """Policies by the parts of their anchors."""
    audits: bool = False
    """Whether audited policies match, and no others; else the others, and they are only counted."""
    cluster_size: int = 0
    namespaced_size: int = 0
    invalid: int = 0

    @property
    def references(self) -> frozenset[str]:
        """The references of all policies, including those that can never match."""
        return frozenset(policy.reference for policy in self.filed)

    def match(
        self,
        namespace: str,
        namespace_labels: Mapping[str, str],
        pod_labels: Mapping[str, str],
        kinds: tuple[str, ...] = ("Pod",),
    ) -> tuple[CompiledPolicy, ...]:
        """The policies that select the pod, in the order in which they apply (decision D3).

        ``kinds`` are those of ``PodView``.
        """
        matching: list[CompiledPolicy] = []
        if (index := self.indexes.get(None)) is not None:
            for policy in _candidates(index, namespace_labels, pod_labels):
                namespaces, pods = policy.namespaces, policy.pods
                if (
                    namespaces is not None
                    and pods is not None
                    and namespaces.matches(namespace_labels)
                    and pods.matches(pod_labels)
                    and policy.excluded_kinds.isdisjoint(kinds)
                ):
                    matching.append(policy)
        if (index := self.indexes.get(namespace)) is not None:
            matching += [
                policy
                for policy in _candidates(index, _NOTHING, pod_labels)
                if policy.pods is not None
                and policy.pods.matches(pod_labels)
                and policy.excluded_kinds.isdisjoint(kinds)
            ]
        if len(matching) > 1:
            matching.sort(key=_rank)
        return tuple(matching)

    def with_changes(
        self, removed: Iterable[CompiledPolicy], added: Iterable[CompiledPolicy]
    ) -> PolicySet:
        """This set without some of its policies and with others; this one stays as it is."""
        filed = self.filed.copy()
        sizes = [self.cluster_size, self.namespaced_size, self.invalid]
        edits: dict[Any, Any] = {}
        for policy in removed:
            _count(sizes, policy, -1)
            for anchor in filed.pop(policy):
                _edit(edits, anchor).removed.add(policy)
        options = {
            policy: _anchors(policy)
            if policy.is_audited == self.audits and not policy.is_left_out
            else []
            for policy in added
        }
        load = Counter(
            anchor for sets in options.values() for anchors in sets for anchor in anchors
        )
        for anchor in load:
            below: Any = self.indexes
            for part in anchor:
                below = below.get(part, _NOTHING)
            load[anchor] += len(below)
        for policy, sets in options.items():
            _count(sizes, policy, 1)
            rarest = min(
                sets, key=lambda anchors: sum(map(load.__getitem__, anchors)), default=frozenset()
            )
            filed[policy] = rarest
            for anchor in rarest:
                _edit(edits, anchor).added.append(policy)
        return PolicySet(filed, _apply_edits(self.indexes, edits), self.audits, *sizes)


def _candidates(
    index: Mapping[str, Any], namespace_labels: Mapping[str, str], pod_labels: Mapping[str, str]
) -> list[CompiledPolicy]:
    candidates: list[CompiledPolicy] = []
    every = ("", {"": ""}), (_NAMESPACE, namespace_labels), (_POD, pod_labels)
    for whose, labels in every:
        anchored = index.get(whose)
        if anchored is None:
            continue
        for key, value in labels.items():
            filed = anchored.get(key)
            if filed is not None:
                candidates += filed.get(hash(value) % _SHARES, _NOTHING).get(value, ())
                candidates += filed.get(None, ())
    return candidates


def policy_set(policies: Iterable[CompiledPolicy]) -> PolicySet:
    """Index policies; those that can never match are only counted."""
    return PolicySet().with_changes((), policies)


def audited_set(policies: Iterable[CompiledPolicy]) -> PolicySet:
    """Index those that are only evaluated."""
    return PolicySet(audits=True).with_changes(
        (), (policy for policy in policies if policy.is_audited)
    )


def _count(sizes: list[int], policy: CompiledPolicy, by: int) -> None:
    sizes[policy.namespace is not None] += by
    sizes[2] += by * (policy.fault is not None)


def _edit(edits: Any, anchor: Anchor) -> _Edit:  # noqa: ANN401 - a part of any depth
    for part in anchor[:-1]:
        edits = edits.setdefault(part, {})
    edit: _Edit = edits.setdefault(anchor[-1], _Edit(set(), []))
    return edit


def _apply_edits(index: Any, edits: Any) -> Any:  # noqa: ANN401 - as above
    """Copy what changes; a part that is empty then is left out."""
    if isinstance(edits, _Edit):
        return (*filterfalse(edits.removed.__contains__, index or ()), *edits.added)
    copied = index.copy() if index else {}
    for name, below in edits.items():
        part = _apply_edits(copied.get(name), below)
        if part:
            copied[name] = part
        else:
            copied.pop(name, None)
    return copied


def _anchors(policy: CompiledPolicy) -> list[frozenset[Anchor]]:
    """Sets of labels of which each must have one that is there; empty if it can never match."""
    matchers = {_POD: policy.pods}
    if policy.namespace is None:
        matchers = {_NAMESPACE: policy.namespaces, **matchers}
    anchors: list[frozenset[Anchor]] = []
    for whose, matcher in matchers.items():
        if matcher is None:
            return []
        anchors += islice(_matcher_anchors((policy.namespace, whose), matcher), _MAX_OPTIONS)
    return anchors or [frozenset(((policy.namespace, "", "", None),))]


def _matcher_anchors(start: Anchor, matcher: Matcher) -> Iterator[frozenset[Anchor]]:
    for key, values in matcher.one_of:
        if len(values) <= _MAX_VALUES:
            yield frozenset((*start, key, hash(value) % _SHARES, value) for value in values)
    many = (key for key, values in matcher.one_of if len(values) > _MAX_VALUES)
    for key in (*many, *matcher.present):
        yield frozenset(((*start, key, None),))
