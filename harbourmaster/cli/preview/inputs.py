"""Reads what a preview compares: policies, and a cluster of which little is kept.

Of a workload that would not change, only the owner of its pods is kept; of pods, a few hundred
bytes each, as the rescheduler decodes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api import resources
from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.api.metadata import OwnerReference
from harbourmaster.cli.batches import shorten
from harbourmaster.cli.live.files import read_paths
from harbourmaster.cli.live.kinds import Condition
from harbourmaster.cli.preview.compare import ChangedWorkload, PreviewedPolicies, compare_reviews
from harbourmaster.cli.preview.fitting import Places
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.model import CLUSTER_POLICY, POLICY
from harbourmaster.policies.pods import KINDS
from harbourmaster.rescheduling.decoding import decode_namespace, decode_node, decode_present
from harbourmaster.serving.documents import Document, Problem
from harbourmaster.serving.settings import StartError
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.policy_objects import decode_policy, source_of
from harbourmaster.webhook.snapshot import NamespaceObject, Snapshot
from harbourmaster.webhook.sources import policies_in, read_policy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from msgspec import Raw

    from harbourmaster.cli.preview.compare import Difference, Fit
    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.pods import Kind
    from harbourmaster.rescheduling.model import Node, Pod
    from harbourmaster.webhook.settings import AdmissionSettings
    from harbourmaster.webhook.snapshot import Namespace

    ByReference = dict[str, CompiledPolicy]

_OTHERS: Final = 10
_objects: Final = msgspec.json.Decoder(dict[str, Any])
FIRST: Final = (
    resources.CLUSTER_POLICIES,
    resources.POLICIES,
    resources.NAMESPACES,
    resources.NODES,
)
"""The kinds that must be read before workloads are compared."""
THEN: Final = (
    resources.DEPLOYMENTS,
    resources.STATEFUL_SETS,
    resources.DAEMON_SETS,
    resources.CRON_JOBS,
    resources.REPLICATION_CONTROLLERS,
    resources.REPLICA_SETS,
    resources.JOBS,
    resources.PODS,
)
"""The kinds to compare; an owner comes before what it owns."""
_NOTES: Final = 10


class UnusableError(StartError):
    """No preview can be made; the text is one line."""


def of_files(paths: list[Path], problems: list[str]) -> ByReference:
    """Read policies from files and folders, by reference; errors go to ``problems``."""
    results = list(read_paths(paths))
    wrong = [result for result in results if isinstance(result, Problem)]
    documents = [result for result in results if isinstance(result, Document)]
    policies = policies_in(documents, wrong, keeps=True)
    problems += map(str, wrong)
    return policies


def _have_same_spec(first: CompiledPolicy, second: CompiledPolicy) -> bool:
    """Whether both have the same spec, in any notation."""
    try:
        return decode_policy(first.source).spec == decode_policy(second.source).spec
    except MalformedError:
        if not (first.source and second.source):
            return (first.source, first.fault) == (second.source, second.fault)
        specs = [_objects.decode(policy.source).get("spec") for policy in (first, second)]
        return specs[0] == specs[1]


def preview_policies(
    now: ByReference, given: ByReference, deleted: list[str], *, is_all: bool
) -> tuple[ByReference, PreviewedPolicies]:
    """Return the policies that would apply, and what changes. Raises UnusableError."""
    then = {} if is_all else dict(now)
    then.update(given)
    for name in deleted:
        reference = f"{POLICY} {name}" if "/" in name else f"{CLUSTER_POLICY} {name}"
        if reference not in now:
            raise UnusableError(f"--delete {name}: there is no {reference}{_list_policies(now)}")
        then.pop(reference, None)
    kept = now.keys() & then.keys()
    changed = {
        reference for reference in kept if not _have_same_spec(now[reference], then[reference])
    }
    return then, PreviewedPolicies(
        added=tuple(sorted(then.keys() - now.keys())),
        changed=tuple(sorted(changed)),
        removed=tuple(sorted(now.keys() - then.keys())),
        unchanged=len(kept) - len(changed),
    )


def _list_policies(now: ByReference) -> str:
    if not now:
        return ", nor any other policy"
    return f"; there are {shorten(sorted(now), _OTHERS)}"


_ENDED: Final = frozenset(("Complete", "Failed"))


class Key(NamedTuple):
    """Kind, namespace and name of a workload."""

    kind: str
    namespace: str
    name: str


class _Meta(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    owner_references: tuple[OwnerReference, ...] | None = None


class _Spec(Struct, frozen=True):
    replicas: int | None = None


class _Status(Struct, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class _Object(Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec | None = None
    status: _Status | None = None

    @property
    def controller(self) -> OwnerReference | None:
        return next(
            (
                reference
                for reference in self.metadata.owner_references or ()
                if reference.controller
            ),
            None,
        )

    @property
    def is_empty(self) -> bool:
        """Whether it wants no pods, like the ReplicaSet of an earlier revision."""
        return self.spec is not None and self.spec.replicas == 0

    @property
    def is_over(self) -> bool:
        """Whether it is a Job that has ended."""
        conditions = self.status.conditions if self.status is not None else None
        return any(
            condition.type in _ENDED and condition.status == "True"
            for condition in conditions or ()
        )


_read: Final = msgspec.json.Decoder(_Object)
_namespaces: Final = msgspec.json.Decoder(NamespaceObject)
_KINDS: Final = {kind.name: kind for kind in KINDS.values() if kind.version == "v1"}


class PreviewInputs:
    """A cluster: ``take`` objects of kinds in FIRST, call ``begin``, ``take`` those of THEN."""

    def __init__(self, excluded: frozenset[str]) -> None:
        self.policies: ByReference = {}
        self.namespaces: dict[str, Namespace] = {}
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        """Pods by UID."""
        self.workloads: set[Key] = set()
        self.faults: list[str] = []
        """Objects that can't be read."""
        self._excluded = excluded
        self._labels: dict[str, dict[str, str]] = {}
        self._owners: dict[str, Key] = {}
        """The workload that a preview reports for pods whose controller has that UID."""
        self._members: dict[Key, set[str]] = {}
        self._differences: dict[Key, Difference] = {}
        self._engines: tuple[Engine, Engine] | None = None

    def begin(self, then: ByReference, settings: AdmissionSettings) -> None:
        """Compare with these policies from now on."""
        namespaces = self.namespaces or None
        now, later = (
            Engine(Snapshot(policy_set(policies.values()), namespaces), settings)
            for policies in (self.policies, then)
        )
        self._engines = now, later

    def take(self, kind: str, raw: Raw) -> None:
        """Add one object; if it is unreadable, add a fault instead."""
        try:
            self._take(kind, raw)
        except MalformedError as error:
            self.faults.append(f"{kind}{_name_of(raw)}: {error}")

    def changed_workloads(self) -> Iterator[ChangedWorkload]:
        """Yield the workloads that would change, by their names."""
        places = Places(self.nodes.values(), self.pods.values(), self._labels)
        for key, difference in sorted(self._differences.items()):
            pods = [self.pods[uid] for uid in sorted(self._members.get(key, ()))]
            yield ChangedWorkload(
                kind=key.kind,
                namespace=key.namespace,
                name=key.name,
                path=_path(key.kind),
                pods=len(pods),
                changes=difference.changes,
                warnings=difference.warnings,
                fit=self._fit(places, key, difference, pods),
            )

    def _fit(self, places: Places, key: Key, difference: Difference, pods: list[Pod]) -> Fit | None:
        if not places.nodes or not difference.changes:
            return None
        try:
            return places.judge(difference, pods, is_daemon=key.kind == resources.DAEMON_SETS.kind)
        except MalformedError as error:
            self.faults.append(f"{key.kind} {key.namespace}/{key.name}: {error}")
            return None

    def _take(self, kind: str, raw: Raw) -> None:
        if kind in {resources.CLUSTER_POLICIES.kind, resources.POLICIES.kind}:
            compiled, _ = read_policy(decode(_objects, raw, ""))
            policy = replace(compiled, source=source_of(raw))
            self.policies[policy.reference] = policy
        elif kind == resources.NAMESPACES.kind:
            name, self._labels[name] = decode_namespace(raw)
            self.namespaces[name] = decode(_namespaces, raw, "").to_namespace()
        elif kind == resources.NODES.kind:
            node = decode_node(raw)
            self.nodes[node.name] = node
        elif kind == resources.PODS.kind:
            self._pod(raw)
        elif kind in _KINDS:
            self._workload(_KINDS[kind], raw)

    def _workload(self, kind: Kind, raw: Raw) -> None:
        obj = decode(_read, raw, "")
        meta, owner = obj.metadata, obj.controller
        namespace = meta.namespace or "default"
        key = Key(kind.name, namespace, meta.name)
        if owner is not None and kind.name in {resources.REPLICA_SETS.kind, resources.JOBS.kind}:
            above = self._owners.get(owner.uid)
            if above is not None and meta.uid:
                self._owners[meta.uid] = above
                return
            key = Key(owner.kind, namespace, owner.name)
        if obj.is_over or (kind.name == resources.REPLICA_SETS.kind and owner and obj.is_empty):
            return
        if meta.uid:
            self._owners[meta.uid] = key
        self._compare(kind, key, raw)

    def _pod(self, raw: Raw) -> None:
        pod = decode_present(raw)
        if pod.is_finished:
            return
        owner = decode(_read, raw, "").controller
        key = None if owner is None else self._owners.get(owner.uid)
        if key is None:
            # Its template is unknown, so the pod stands for its siblings.
            kind, name = (owner.kind, owner.name) if owner else (resources.PODS.kind, pod.name)
            key = Key(kind, pod.namespace, name)
            if not pod.is_mirror:
                self._compare(_KINDS[resources.PODS.kind], key, raw)
        if not pod.uid:
            # A pod from a file can lack it.
            pod = replace(pod, uid=pod.key)
        self.pods[pod.uid] = pod
        self._members.setdefault(key, set()).add(pod.uid)

    def _compare(self, kind: Kind, key: Key, raw: Raw) -> None:
        self.workloads.add(key)
        if key.namespace in self._excluded or key in self._differences or self._engines is None:
            return
        change = compare_reviews(kind, key.namespace, raw, *self._engines)
        if change is not None:
            self._differences[key] = change

    def notes(self) -> Iterator[str]:
        """Yield the first objects that could not be read, and how many more."""
        yield from self.faults[:_NOTES]
        if len(self.faults) > _NOTES:
            yield f"{len(self.faults) - _NOTES} more objects can't be read"


def _path(kind: str) -> str:
    known = _KINDS.get(kind)
    pointer = "/spec" if known is None else known.pointer
    return pointer[1:].replace("/", ".")


def _name_of(raw: Raw) -> str:
    try:
        meta = decode(_read, raw, "").metadata
    except MalformedError:
        return ""
    return " " + "/".join(filter(None, (meta.namespace, meta.name)))
