"""What a preview is made from: policies, and a cluster as it is read, of which little is kept.

Of a workload that would not change nothing stays but who owns its pods; pods stay as the
rescheduler knows them, a few hundred bytes each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api import resources
from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.api.metadata import OwnerReference
from harbourmaster.cli.batches import shown
from harbourmaster.cli.live.files import read_paths
from harbourmaster.cli.live.kinds import Condition
from harbourmaster.cli.preview.compare import difference
from harbourmaster.cli.preview.fitting import Places
from harbourmaster.cli.preview.model import ChangedWorkload, PreviewedPolicies
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.model import CLUSTER_POLICY, POLICY
from harbourmaster.policies.pods import KINDS
from harbourmaster.rescheduling.wire import decode_namespace, decode_node, decode_present
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

    from harbourmaster.cli.preview.compare import Difference
    from harbourmaster.cli.preview.model import Fit
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
"""What must be known before workloads are looked at."""
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
"""In this order: an owner before what it owns."""
_NOTES: Final = 10


class UnusableError(StartError):
    """No preview can be made; the text is one line."""


def of_files(paths: list[Path], problems: list[str]) -> ByReference:
    """The policies in files and folders, by reference; what is wrong there goes to ``problems``."""
    found = list(read_paths(paths))
    wrong = [each for each in found if isinstance(each, Problem)]
    documents = [each for each in found if isinstance(each, Document)]
    policies = policies_in(documents, wrong, keeps=True)
    problems += map(str, wrong)
    return policies


def _say_the_same(one: CompiledPolicy, other: CompiledPolicy) -> bool:
    """Whether both ask for the same, however they are written."""
    try:
        return decode_policy(one.source).spec == decode_policy(other.source).spec
    except MalformedError:
        if not (one.source and other.source):
            return (one.source, one.fault) == (other.source, other.fault)
        specs = [_objects.decode(each.source).get("spec") for each in (one, other)]
        return specs[0] == specs[1]


def previewed(
    now: ByReference, given: ByReference, deleted: list[str], *, is_all: bool
) -> tuple[ByReference, PreviewedPolicies]:
    """The policies that would be in force, and what is new about them. Raises UnusableError."""
    then = {} if is_all else dict(now)
    then.update(given)
    for name in deleted:
        reference = f"{POLICY} {name}" if "/" in name else f"{CLUSTER_POLICY} {name}"
        if reference not in now:
            raise UnusableError(f"--delete {name}: there is no {reference}{_others(now)}")
        then.pop(reference, None)
    kept = now.keys() & then.keys()
    changed = {each for each in kept if not _say_the_same(now[each], then[each])}
    return then, PreviewedPolicies(
        added=tuple(sorted(then.keys() - now.keys())),
        changed=tuple(sorted(changed)),
        removed=tuple(sorted(now.keys() - then.keys())),
        unchanged=len(kept) - len(changed),
    )


def _others(now: ByReference) -> str:
    if not now:
        return ", nor any other policy"
    return f"; there are {shown(sorted(now), _OTHERS)}"


_ENDED: Final = frozenset(("Complete", "Failed"))


class Key(NamedTuple):
    """A workload, as people name it."""

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
        """Whether it wants no pods, as the ReplicaSet of an earlier revision."""
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
    """A cluster; ``take`` objects of the kinds in FIRST, then ``begin``, then of those in THEN."""

    def __init__(self, excluded: frozenset[str]) -> None:
        self.policies: ByReference = {}
        self.namespaces: dict[str, Namespace] = {}
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        """By UID."""
        self.workloads: set[Key] = set()
        self.faults: list[str] = []
        """Objects that can't be read."""
        self._excluded = excluded
        self._labels: dict[str, dict[str, str]] = {}
        self._owners: dict[str, Key] = {}
        """Whose pods are those of a controller of that UID."""
        self._members: dict[Key, set[str]] = {}
        self._found: dict[Key, Difference] = {}
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
        """Look at one object; what can't be read is noted, and harms no other."""
        try:
            self._take(kind, raw)
        except MalformedError as error:
            self.faults.append(f"{kind}{_name_of(raw)}: {error}")

    def changed(self) -> Iterator[ChangedWorkload]:
        """The workloads that would change, by their names."""
        places = Places(self.nodes.values(), self.pods.values(), self._labels)
        for key, found in sorted(self._found.items()):
            pods = [self.pods[uid] for uid in sorted(self._members.get(key, ()))]
            yield ChangedWorkload(
                kind=key.kind,
                namespace=key.namespace,
                name=key.name,
                path=_path(key.kind),
                pods=len(pods),
                changes=found.changes,
                warnings=found.warnings,
                fit=self._fit(places, key, found, pods),
            )

    def _fit(self, places: Places, key: Key, found: Difference, pods: list[Pod]) -> Fit | None:
        if not places.nodes or not found.changes:
            return None
        try:
            return places.judge(found, pods, is_daemon=key.kind == resources.DAEMON_SETS.kind)
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
            self.namespaces[name] = decode(_namespaces, raw, "").known()
        elif kind == resources.NODES.kind:
            node = decode_node(raw)
            self.nodes[node.name] = node
        elif kind == resources.PODS.kind:
            self._pod(raw)
        elif kind in _KINDS:
            self._workload(_KINDS[kind], raw)

    def _workload(self, kind: Kind, raw: Raw) -> None:
        found = decode(_read, raw, "")
        meta, owner = found.metadata, found.controller
        namespace = meta.namespace or "default"
        key = Key(kind.name, namespace, meta.name)
        if owner is not None and kind.name in {resources.REPLICA_SETS.kind, resources.JOBS.kind}:
            above = self._owners.get(owner.uid)
            if above is not None and meta.uid:
                self._owners[meta.uid] = above
                return
            key = Key(owner.kind, namespace, owner.name)
        if found.is_over or (kind.name == resources.REPLICA_SETS.kind and owner and found.is_empty):
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
            # Nobody here knows a template, so the pod speaks for those like it.
            kind, name = (owner.kind, owner.name) if owner else (resources.PODS.kind, pod.name)
            key = Key(kind, pod.namespace, name)
            if not pod.is_mirror:
                self._compare(_KINDS[resources.PODS.kind], key, raw)
        if not pod.uid:
            # In a file nobody need have given it one.
            pod = replace(pod, uid=pod.key)
        self.pods[pod.uid] = pod
        self._members.setdefault(key, set()).add(pod.uid)

    def _compare(self, kind: Kind, key: Key, raw: Raw) -> None:
        self.workloads.add(key)
        if key.namespace in self._excluded or key in self._found or self._engines is None:
            return
        found = difference(kind, key.namespace, raw, *self._engines)
        if found is not None:
            self._found[key] = found

    def notes(self) -> Iterator[str]:
        """The objects that could not be read, or the first of them."""
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
