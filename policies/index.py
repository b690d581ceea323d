"""The compiled, immutable set of all policies, indexed so that a pod meets only its candidates.

Each policy is filed under one label (of the pod or of its namespace) that it cannot do without,
the one that fewest policies ask for. A review looks up the labels that it has; what has no such
label is tried always. Namespaced policies are filed by namespace first.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from harbourmaster.policies.compiled import CompiledPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harbourmaster.api.selectors import Matcher

_POD: Final = "pod"
_NAMESPACE: Final = "namespace"

Anchor: TypeAlias = "tuple[str, str, str | None]"
"""Whose label, its key, and its value; None where the key alone must be there."""
_Anchored: TypeAlias = "dict[str, dict[str | None, tuple[CompiledPolicy, ...]]]"
"""By key, then by value."""


class _Index(Struct, frozen=True, gc=False):
    by_namespace_label: _Anchored
    by_pod_label: _Anchored
    unanchored: tuple[CompiledPolicy, ...]
    """Tried for every pod."""

    def candidates(
        self, namespace_labels: Mapping[str, str], pod_labels: Mapping[str, str]
    ) -> list[CompiledPolicy]:
        found = list(self.unanchored)
        for anchored, labels in (
            (self.by_namespace_label, namespace_labels),
            (self.by_pod_label, pod_labels),
        ):
            if not anchored:
                continue
            for key, value in labels.items():
                filed = anchored.get(key)
                if filed is not None:
                    found += filed.get(value, ())
                    found += filed.get(None, ())
        return found


class PolicySet(Struct, frozen=True, gc=False):
    """All policies; build it with ``policy_set``, match with ``match``."""

    cluster: _Index
    namespaced: dict[str, _Index]
    cluster_size: int
    namespaced_size: int
    invalid: int
    references: frozenset[str]
    """Of all, also of those that can never match."""

    def match(
        self, namespace: str, namespace_labels: Mapping[str, str], pod_labels: Mapping[str, str]
    ) -> tuple[CompiledPolicy, ...]:
        """The policies that select the pod, in the order in which they apply (decision D3)."""
        found = []
        for policy in self.cluster.candidates(namespace_labels, pod_labels):
            namespaces, pods = policy.namespaces, policy.pods
            if namespaces is None or pods is None:
                continue
            if namespaces.matches(namespace_labels) and pods.matches(pod_labels):
                found.append(policy)
        local = self.namespaced.get(namespace)
        if local is not None:
            found += [
                policy
                for policy in local.candidates({}, pod_labels)
                if policy.pods is not None and policy.pods.matches(pod_labels)
            ]
        if len(found) > 1:
            found.sort(key=_rank)
        return tuple(found)


def policy_set(policies: Iterable[CompiledPolicy]) -> PolicySet:
    """Index policies; those that can never match are only counted."""
    cluster: list[CompiledPolicy] = []
    namespaced: dict[str, list[CompiledPolicy]] = {}
    sizes = {True: 0, False: 0}
    invalid = 0
    references: set[str] = set()
    for policy in policies:
        references.add(policy.reference)
        sizes[policy.namespace is None] += 1
        invalid += policy.fault is not None
        if policy.pods is None or (policy.namespace is None and policy.namespaces is None):
            continue
        target = (
            cluster if policy.namespace is None else namespaced.setdefault(policy.namespace, [])
        )
        target.append(policy)
    return PolicySet(
        cluster=_index(cluster),
        namespaced={name: _index(found) for name, found in namespaced.items()},
        cluster_size=sizes[True],
        namespaced_size=sizes[False],
        invalid=invalid,
        references=frozenset(references),
    )


def _index(policies: list[CompiledPolicy]) -> _Index:
    options = [(policy, list(_anchors(policy))) for policy in policies]
    asked = Counter(anchor for _, sets in options for anchors in sets for anchor in anchors)
    anchored: dict[Anchor, list[CompiledPolicy]] = {}
    unanchored: list[CompiledPolicy] = []
    for policy, sets in options:
        if not sets:
            unanchored.append(policy)
            continue
        for anchor in min(sets, key=lambda anchors: sum(asked[anchor] for anchor in anchors)):
            anchored.setdefault(anchor, []).append(policy)
    return _Index(_filed(anchored, _NAMESPACE), _filed(anchored, _POD), tuple(unanchored))


def _filed(anchored: Mapping[Anchor, list[CompiledPolicy]], scope: str) -> _Anchored:
    filed: _Anchored = {}
    for (whose, key, value), found in anchored.items():
        if whose == scope:
            filed.setdefault(key, {})[value] = tuple(found)
    return filed


def _anchors(policy: CompiledPolicy) -> Iterator[frozenset[Anchor]]:
    """Each set of labels of which one must be there for the policy to match."""
    if policy.namespace is None and policy.namespaces is not None:
        yield from _matcher_anchors(_NAMESPACE, policy.namespaces)
    if policy.pods is not None:
        yield from _matcher_anchors(_POD, policy.pods)


def _matcher_anchors(scope: str, matcher: Matcher) -> Iterator[frozenset[Anchor]]:
    for key, values in matcher.one_of:
        yield frozenset((scope, key, value) for value in values)
    for key in matcher.present:
        yield frozenset(((scope, key, None),))


def _rank(policy: CompiledPolicy) -> tuple[bool, str, str]:
    return policy.rank
