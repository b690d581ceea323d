"""What a preview is made from: policies, and a cluster as it is read, of which little is kept.

Of a workload that would not change nothing stays but who owns its pods; pods stay as the
rescheduler knows them, a few hundred bytes each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from harbourmaster.cli.live.files import read_paths
from harbourmaster.cli.live.kinds import Condition
from harbourmaster.cli.preview.compare import difference
from harbourmaster.cli.preview.fitting import Places
from harbourmaster.cli.preview.model import Policies, Workload
from harbourmaster.policies.compiled import CompiledPolicy
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.model import API_VERSION, CLUSTER_POLICY, POLICY
from harbourmaster.policies.pods import KINDS
from harbourmaster.rescheduling.wire import decode_namespace, decode_node, decode_present
from harbourmaster.serving.documents import Problem
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.policy_objects import convert_policy
from harbourmaster.webhook.snapshot import NamespaceObject, Snapshot
from harbourmaster.webhook.sources import read_policy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from msgspec import Raw

    from harbourmaster.cli.preview.compare import Difference
    from harbourmaster.cli.preview.model import Fit
    from harbourmaster.policies.pods import Kind
    from harbourmaster.rescheduling.model import Node, Pod
    from harbourmaster.webhook.settings import AdmissionSettings
    from harbourmaster.webhook.snapshot import Namespace

_SILENTLY_SKIPPED: Final = frozenset(("Kustomization", "CustomResourceDefinition"))
_OTHERS: Final = 10
_objects: Final = msgspec.json.Decoder(dict[str, Any])
FIRST: Final = (CLUSTER_POLICIES, POLICIES, NAMESPACES, NODES)
"""What must be known before workloads are looked at."""
THEN: Final = (
    DEPLOYMENTS,
    STATEFUL_SETS,
    DAEMON_SETS,
    CRON_JOBS,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    JOBS,
    PODS,
)
"""In this order: an owner before what it owns."""
_NOTES: Final = 10
_DAEMON_SET: Final = DAEMON_SETS.kind


class Given(Struct, frozen=True):
    """A policy, and the object it was read from."""

    compiled: CompiledPolicy
    value: dict[str, Any]

    def says_the_same(self, other: Given) -> bool:
        """Whether both ask for the same, however they are written."""
        try:
            return convert_policy(self.value).spec == convert_policy(other.value).spec
        except MalformedError:
            return self.value.get("spec") == other.value.get("spec")


class UnknownError(Exception):
    """A policy to be taken away is not there; the text is one line."""


def of_files(paths: list[Path], problems: list[str]) -> dict[str, Given]:
    """The policies in files and folders, by reference; what is wrong there goes to ``problems``."""
    found: dict[str, Given] = {}
    for item in read_paths(paths):
        if isinstance(item, Problem):
            problems.append(str(item))
            continue
        value = item.value
        kind = value.get("kind")
        if value.get("apiVersion") != API_VERSION or kind not in {POLICY, CLUSTER_POLICY}:
            if kind not in _SILENTLY_SKIPPED:
                expected = f"{POLICY} or {CLUSTER_POLICY} of {API_VERSION}"
                given = f"{value.get('apiVersion')}, Kind={kind}"
                problems.append(str(item.problem(f"kind: expected {expected}, got {given}")))
            continue
        compiled, errors = read_policy(value)
        problems += [str(item.problem(text)) for text in errors]
        if compiled.reference in found:
            problems.append(str(item.problem(f"{compiled.reference} was defined before: ignored")))
        else:
            found[compiled.reference] = Given(compiled, value)
    return found


def previewed(
    now: Mapping[str, Given], given: Mapping[str, Given], deleted: list[str], *, is_all: bool
) -> tuple[dict[str, Given], Policies]:
    """The policies that would be in force, and what is new about them. Raises UnknownError."""
    then = {} if is_all else dict(now)
    then.update(given)
    for name in deleted:
        reference = f"{POLICY} {name}" if "/" in name else f"{CLUSTER_POLICY} {name}"
        if reference not in now:
            raise UnknownError(f"--delete {name}: there is no {reference}{_others(now)}")
        then.pop(reference, None)
    kept = now.keys() & then.keys()
    changed = {each for each in kept if not now[each].says_the_same(then[each])}
    return then, Policies(
        added=tuple(sorted(then.keys() - now.keys())),
        changed=tuple(sorted(changed)),
        removed=tuple(sorted(now.keys() - then.keys())),
        unchanged=len(kept) - len(changed),
    )


def _others(now: Mapping[str, Given]) -> str:
    if not now:
        return ", nor any other policy"
    names = sorted(now)
    more = f" and {len(names) - _OTHERS} more" if len(names) > _OTHERS else ""
    return f"; there are {', '.join(names[:_OTHERS])}{more}"


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
    phase: str = ""


class _Object(Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec | None = None
    status: _Status | None = None


_read: Final = msgspec.json.Decoder(_Object)
_namespaces: Final = msgspec.json.Decoder(NamespaceObject)
_ENDED: Final = frozenset(("Complete", "Failed"))
_DONE: Final = frozenset(("Succeeded", "Failed"))
_KINDS: Final = {kind.name: kind for kind in KINDS.values() if kind.version == "v1"}


class Inputs:
    """A cluster; ``take`` objects of the kinds in FIRST, then ``begin``, then of those in THEN."""

    def __init__(self, excluded: frozenset[str]) -> None:
        self.policies: dict[str, Given] = {}
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

    def begin(self, then: Mapping[str, Given], settings: AdmissionSettings) -> None:
        """Compare with these policies from now on."""
        namespaces = self.namespaces or None
        now, later = (
            Engine(
                Snapshot(policy_set(each.compiled for each in policies.values()), namespaces),
                settings,
            )
            for policies in (self.policies, then)
        )
        self._engines = now, later

    def take(self, kind: str, raw: Raw) -> None:
        """Look at one object; what can't be read is noted, and harms no other."""
        try:
            self._take(kind, raw)
        except MalformedError as error:
            self.faults.append(f"{kind}{_name_of(raw)}: {error}")

    def changed(self) -> Iterator[Workload]:
        """The workloads that would change, by their names."""
        places = Places(self.nodes.values(), self.pods.values(), self._labels)
        for key, found in sorted(self._found.items()):
            pods = [self.pods[uid] for uid in sorted(self._members.get(key, ()))]
            yield Workload(
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
            return places.judge(found, pods, is_daemon=key.kind == _DAEMON_SET)
        except MalformedError as error:
            self.faults.append(f"{key.kind} {key.namespace}/{key.name}: {error}")
            return None

    def _take(self, kind: str, raw: Raw) -> None:
        if kind in {CLUSTER_POLICIES.kind, POLICIES.kind}:
            value = decode(_objects, raw, "")
            given = Given(read_policy(value)[0], value)
            self.policies[given.compiled.reference] = given
        elif kind == NAMESPACES.kind:
            name, self._labels[name] = decode_namespace(raw)
            self.namespaces[name] = decode(_namespaces, raw, "").known()
        elif kind == NODES.kind:
            node = decode_node(raw)
            self.nodes[node.name] = node
        elif kind == PODS.kind:
            self._pod(raw)
        elif kind in _KINDS:
            self._workload(_KINDS[kind], raw)

    def _workload(self, kind: Kind, raw: Raw) -> None:
        found = decode(_read, raw, "")
        meta, owner = found.metadata, _controller(found.metadata)
        namespace = meta.namespace or "default"
        key = Key(kind.name, namespace, meta.name)
        if owner is not None:
            above = self._owners.get(owner.uid)
            if above is not None and meta.uid and kind.name in {REPLICA_SETS.kind, JOBS.kind}:
                self._owners[meta.uid] = above
                return
            if kind.name in {REPLICA_SETS.kind, JOBS.kind}:
                key = Key(owner.kind, namespace, owner.name)
        if _is_over(found) or (kind.name == REPLICA_SETS.kind and owner and not _replicas(found)):
            return
        if meta.uid:
            self._owners[meta.uid] = key
        self._compare(kind, key, raw)

    def _pod(self, raw: Raw) -> None:
        pod = decode_present(raw)
        if pod.is_finished:
            return
        found = decode(_read, raw, "")
        owner = _controller(found.metadata)
        key = None if owner is None else self._owners.get(owner.uid)
        if key is None:
            # Nobody here knows a template, so the pod speaks for those like it.
            kind, name = (owner.kind, owner.name) if owner else (PODS.kind, pod.name)
            key = Key(kind, pod.namespace, name)
            if not pod.is_mirror:
                self._compare(_KINDS[PODS.kind], key, raw)
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


def _controller(meta: _Meta) -> OwnerReference | None:
    return next((each for each in meta.owner_references or () if each.controller), None)


def _is_over(found: _Object) -> bool:
    status = found.status
    if status is None:
        return False
    return status.phase in _DONE or any(
        each.type in _ENDED and each.status == "True" for each in status.conditions or ()
    )


def _replicas(found: _Object) -> int:
    replicas = found.spec.replicas if found.spec is not None else None
    return 1 if replicas is None else replicas


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
