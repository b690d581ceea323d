"""Builds the pages of policies, of the pods that they select, and of one pod with its fields."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import CLUSTER_POLICIES, PODS, POLICIES
from harbourmaster.dashboard.pages.gates import GateRow, gate_of
from harbourmaster.dashboard.pages.states import Notice, StateCount, Topic
from harbourmaster.dashboard.query import Listing, select_page
from harbourmaster.dashboard.sources import Conflict, MatchCounts, lookup, values
from harbourmaster.dashboard.visibility import ListScope
from harbourmaster.policies.explain import OWN, ExplainedPolicy, FieldReport, explain
from harbourmaster.policies.field_text import requirement, sentence
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.merge import MergeOptions
from harbourmaster.policies.model import TOLERATIONS
from harbourmaster.policies.owned_fields import REQUIRED_TERMS, list_path
from harbourmaster.policies.pods import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from harbourmaster.api.selectors import LabelSelector
    from harbourmaster.dashboard.pages.states import Tally, Tone
    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.slicing import Sliced
    from harbourmaster.dashboard.sources import KnownPolicy, PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.model import PolicySpec

    Json = dict[str, Any]

PATH: Final = "/policies"
_TOPIC: Final = Topic("Policies", PATH, ("policy", "policies"), ((POLICIES,), (CLUSTER_POLICIES,)))
MOST: Final = 100
"""Maximum fields of a policy that are shown."""
FAULTY: Final = "faulty"
UNUSED: Final = "unused"
CONFLICTING: Final = "conflicting"
_PARTS: Final[tuple[tuple[str, str, Tone], ...]] = (
    (FAULTY, "with a fault, skipped", "bad"),
    (CONFLICTING, "in conflict", "warn"),
    (UNUSED, "without a pod", "idle"),
)


class Selects(Struct, frozen=True, gc=False):
    """A selector in words."""

    what: str
    terms: tuple[str, ...]
    """The terms; none select everything."""
    is_absent: bool = False
    """Whether there is no selector, which selects nothing."""


class PolicyRow(Struct, frozen=True, gc=False):
    """A policy as it is shown."""

    kind: str
    namespace: str
    name: str
    selects: tuple[Selects, ...]
    sets: tuple[str, ...]
    has_more: bool
    """Whether it sets more than MOST fields."""
    pods: int | None
    """The number of selected pods that the user may see; None if that is not known."""
    fault: str
    reference: str
    conflicts: tuple[Conflict, ...]


class PoliciesPage(Struct, frozen=True):
    """The page of policies."""

    listing: Listing[PolicyRow]
    parts: tuple[StateCount, ...]
    pods: int
    """The number of pods that the user may see."""
    counts: MatchCounts
    """The counts, which say whether all pods and conflicts are known."""
    scope: ListScope
    """The namespaces in which the user may see pods."""


class _CountedPolicy(NamedTuple):
    """A policy with its number of pods and its conflicts."""

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
    """Build the page in the order in which policies apply, invalid ones first."""
    counted = _count_policies(sources, visible)
    listing = select_page(
        counted,
        query,
        namespace=lambda policy: policy.known.policy.metadata.namespace or "",
        texts=lambda policy: policy.known.compiled.reference.split("/"),
        key=lambda policy: (policy.known.compiled.fault is None, policy.known.compiled.rank),
        row=_row,
        holds=lambda policy: policy.is_in(query.state),
    )
    scope = visible.of(PODS)
    pods = sum(count for space, count in sources.counts.pods.items() if scope.sees(space))
    return PoliciesPage(
        listing,
        tuple(_parts(counted)),
        pods,
        counts=sources.counts,
        scope=scope,
    )


def tally(sources: PageSources, visible: Visibility, _now: datetime) -> Tally:
    """Count policies for the overview."""
    counted = _count_policies(sources, visible)
    faulty = [policy.known.compiled for policy in counted if policy.is_in(FAULTY)]
    faulty.sort(key=lambda policy: policy.rank)
    notices = [
        Notice("bad", "Policy", policy.reference, policy.fault or "", PATH) for policy in faulty
    ]
    notices += (
        Notice(
            "warn",
            "Policies",
            " and ".join(conflict.policies),
            conflict.text,
            f"{PATH}?state={CONFLICTING}",
        )
        for conflict in dict.fromkeys(
            conflict for policy in counted for conflict in policy.conflicts
        )
    )
    return _TOPIC.tally(sources, visible, counted, _parts(counted), notices, lambda notice: notice)


def _count_policies(sources: PageSources, visible: Visibility) -> list[_CountedPolicy]:
    known = visible_policies(sources, visible)
    conflicts: dict[str, list[Conflict]] = {policy.compiled.reference: [] for policy in known}
    for conflict in sources.counts.conflicts:
        if conflicts.keys() >= set(conflict.policies):
            for reference in conflict.policies:
                conflicts[reference].append(conflict)
    return [
        _CountedPolicy(
            policy, _count(sources, visible, policy), conflicts[policy.compiled.reference]
        )
        for policy in known
    ]


def visible_policies(sources: PageSources, visible: Visibility) -> list[KnownPolicy]:
    """Return the policies of both kinds that the user may see."""
    scope = visible.of(POLICIES)
    known = [
        value
        for value in values(sources.policies)
        if scope.sees(value.policy.metadata.namespace or "")
    ]
    if visible.sees(CLUSTER_POLICIES):
        known += values(sources.cluster_policies)
    return known


def _count(sources: PageSources, visible: Visibility, policy: KnownPolicy) -> int | None:
    scope = visible.of(PODS)
    namespace = policy.policy.metadata.namespace
    if not sources.counts.is_whole or scope.is_empty or (namespace and not scope.sees(namespace)):
        return None
    pods = sources.counts.by_policy.get(policy.compiled.reference, {})
    return sum(count for space, count in pods.items() if scope.sees(space))


def _parts(counted: list[_CountedPolicy]) -> Iterator[StateCount]:
    for state, label, tone in _PARTS:
        if count := sum(policy.is_in(state) for policy in counted):
            yield StateCount(label, count, tone, state)


def _row(counted: _CountedPolicy) -> PolicyRow:
    policy, compiled = counted.known.policy, counted.known.compiled
    sets = list(islice(_sets(compiled), MOST + 1))
    return PolicyRow(
        kind="Cluster policy" if policy.is_cluster_scoped else "Policy",
        namespace=policy.metadata.namespace or "",
        name=policy.metadata.name or "",
        selects=tuple(_selects(policy.spec, is_cluster=policy.is_cluster_scoped)),
        sets=tuple(sets[:MOST]),
        has_more=len(sets) > MOST,
        pods=counted.pods,
        fault=compiled.fault or "",
        reference=compiled.reference,
        conflicts=tuple(counted.conflicts),
    )


def _selects(spec: PolicySpec | None, *, is_cluster: bool) -> Iterator[Selects]:
    if is_cluster:
        yield _selector("namespaces", spec.namespace_selector if spec else None)
    yield _selector("pods", spec.pod_selector if spec else None)


def _selector(what: str, selector: LabelSelector | None) -> Selects:
    if selector is None:
        return Selects(what, (), is_absent=True)
    terms = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    terms += map(requirement, msgspec.to_builtins(selector.match_expressions or ()))
    return Selects(what, tuple(terms))


def _sets(policy: CompiledPolicy) -> Iterator[str]:
    """Yield the fields that a policy sets, with their values or in sentences; none if broken."""
    if policy.node_name:
        yield f"nodeName: {policy.node_name}"
    for key, value in policy.node_selector:
        yield f"nodeSelector: {key}={value}"
    if policy.scheduler_name:
        yield f"schedulerName: {policy.scheduler_name}"
    if policy.required:
        yield sentence(f"spec.{REQUIRED_TERMS}", policy.required.terms.terms[:MOST])
    lists = [(list_path(*slot), entries) for slot, entries in policy.lists]
    for path, entries in ((TOLERATIONS, policy.tolerations), *lists):
        for item, _ in entries:
            yield sentence(f"spec.{path}[", item)


PODS_PATH: Final = f"{PATH}/pods"
_END: Final = re.compile(r"[.\[]")
SLICE: Final = 500
"""Pods that are matched before other tasks may run."""


def pods(
    sources: PageSources, visible: Visibility, query: PageQuery, _now: datetime
) -> Sliced[Listing[str]]:
    """List the keys of unfinished pods, or of those that the policy ``query.state`` selects."""
    scope, state = visible.of(PODS), query.state
    compiled = (policy.compiled for policy in visible_policies(sources, visible))
    chosen = policy_set(policy for policy in compiled if policy.reference == state)
    keys = []
    for number, key in enumerate(tuple(sources.labels.store) if sources.labels else (), 1):
        if not number % SLICE:
            yield
        pod, space = lookup(sources.labels, key), key.partition("/")[0]
        labels = lookup(sources.namespaces, space) or {}
        if pod and scope.sees(space) and (not state or chosen.match(space, labels, pod.labels)):
            keys.append(key)
    return select_page(
        keys,
        query,
        namespace=lambda key: key.partition("/")[0],
        texts=lambda key: (key,),
        key=str,
        row=str,
        holds=bool,
    )


class FieldRow(Struct, frozen=True, gc=False):
    """A field of the pod, the policies that ask for its value, and its last writer."""

    report: FieldReport
    text: str
    """The value in a sentence."""
    manager: Json | None
    """The entry of managedFields, which never has changes by admission."""


class PodPage(Struct, frozen=True):
    """The page of a pod."""

    created: str
    policies: tuple[str, ...]
    fields: tuple[FieldRow, ...]
    gate: GateRow | None
    """The reason why the pod waits; None if it does not wait."""


def pod(
    sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> PodPage | None:
    """Build the page of the pod in the sources; None without it."""
    raw: bytes | msgspec.Raw | None = sources.read
    view = KINDS["", "v1", "Pod"].read(raw) if raw else None
    if raw is None or view is None:
        return None
    metadata = msgspec.json.decode(raw)["metadata"]
    candidates = [ExplainedPolicy(policy.compiled) for policy in visible_policies(sources, visible)]
    options = MergeOptions(node_name_as_field=bool(view.spec and view.spec.has_gates))
    labels = lookup(sources.namespaces, query.namespace) or {}
    known = explain(view, "/spec", query.namespace, labels, candidates, options)
    return PodPage(
        metadata["creationTimestamp"],
        tuple(policy.reference for policy in known.policies if policy.matched),
        # The pod does not have the other fields: a policy would set them in a new pod.
        tuple(
            FieldRow(field, sentence(field.path, field.value), _manager(field.path, metadata))
            for field in known.fields
            if field.set_by == (OWN,)
        ),
        gate_of(sources, visible, f"{query.namespace}/{query.name}", now),
    )


def _manager(path: str, metadata: Json) -> Json | None:
    name = f"f:{_END.split(path)[1]}"
    managers = [
        {"time": "", **field}
        for field in metadata.get("managedFields", ())
        if name in field.get("fieldsV1", {}).get("f:spec", ())
    ]
    return max(managers, key=lambda manager: manager["time"], default=None)
