"""Pods that no node has yet, as far as they wait for us: at our gate, or in a scheduler (D8, D9).

Neither is bound, so the API server is asked for unbound pods only.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Condition, Metadata, OwnerReference
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import PARENT_KEY, REMOVED_KEY, UNRESOLVED
from harbourmaster.gates.release import CHECKS_KEY, RELEASED_KEY, is_told_passed
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.scheduling import is_refusal
from harbourmaster.lifecycle.workloads import names_of_pod

PENDING_PODS: Final = "spec.nodeName=,status.phase=Pending"
REVISION_LABEL: Final = "controller-revision-hash"
"""On the pods of StatefulSets: which of their revisions a pod is of."""
GENERATION_LABEL: Final = "pod-template-generation"
"""On the pods of DaemonSets: the generation of the template a pod was made of."""
_PREFIXES: Final = ("keptn.sh/", "app.kubernetes.io/", "gates.harbourmaster.dev/")
_KEYS: Final = frozenset((REVISION_LABEL, GENERATION_LABEL))
_SCHEDULED: Final = "PodScheduled"
_KEPTN: Final = "keptn.sh/"
_DEFAULT_SCHEDULER: Final = "default-scheduler"


class _Gate(Struct, frozen=True, gc=False):
    name: str = ""


class _Metadata(Struct, frozen=True, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class _Spec(Struct, frozen=True, gc=False, rename="camel"):
    scheduling_gates: tuple[_Gate, ...] = ()
    scheduler_name: str = ""
    node_name: str = ""


class _Status(Struct, frozen=True, gc=False):
    conditions: tuple[Condition, ...] = ()


class _Pod(Struct, frozen=True, gc=False):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class Pod(Struct, frozen=True, gc=False):
    """An unbound pod; one that does not wait for us is kept nearly empty."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    is_ending: bool = False
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    has_annotations: bool = False
    owner_references: tuple[OwnerReference, ...] = ()
    gates: tuple[str, ...] = ()
    is_in_scheduler: bool = False
    """Whether it has no gate of ours, and a scheduler asks us about it."""
    refusal: str = ""
    """What the scheduler said of it last, where that is a word of ours."""
    elsewhere: str = ""
    """Of one that does not wait for us: the scheduler in which it may wait for its checks."""

    @property
    def is_gated(self) -> bool:
        """Whether it has our gate."""
        return GATE in self.gates

    @property
    def is_ours(self) -> bool:
        """Whether it waits for us, or did and its scheduler has yet to find it a node."""
        return self.is_gated or self.is_in_scheduler

    @property
    def is_held(self) -> bool:
        """Whether it waits for us, as far as can be seen by itself."""
        return self.is_gated or (self.is_in_scheduler and not is_told_passed(self.told))

    @property
    def told(self) -> str:
        """What it was told of its checks; empty for nothing."""
        return self.annotations.get(CHECKS_KEY, "")

    @property
    def key(self) -> str:
        """As in the stores: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def metadata(self) -> Metadata:
        """As of any other object, for what is told about the pod."""
        return Metadata(name=self.name, namespace=self.namespace, uid=self.uid)


_UNGATED: Final = Pod()
_decode: Final = msgspec.json.Decoder(_Pod).decode


def decode_pod(raw: msgspec.Raw | bytes, scheduler: str = "") -> Pod:
    """A pod from its JSON; ``scheduler``: the one that asks us about its pods, if one does."""
    found = _decode(raw)
    is_gated = any(each.name == GATE for each in found.spec.scheduling_gates)
    if not is_gated and not _is_in(scheduler, found):
        elsewhere = found.spec.scheduler_name
        return Pod(elsewhere=elsewhere) if _may_wait_in(elsewhere, found) else _UNGATED
    return _whole(found, scheduler)


def decode_whole(raw: msgspec.Raw | bytes, scheduler: str = "") -> Pod:
    """The same of any pod, whether or not it waits for us."""
    return _whole(_decode(raw), scheduler)


def _whole(found: _Pod, scheduler: str) -> Pod:
    gates = tuple(each.name for each in found.spec.scheduling_gates)
    is_in_scheduler = GATE not in gates and _is_in(scheduler, found)
    metadata = found.metadata
    return Pod(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        creation_timestamp=metadata.creation_timestamp,
        is_ending=bool(metadata.deletion_timestamp),
        labels=_ours(metadata.labels),
        annotations=_ours(metadata.annotations),
        has_annotations=metadata.annotations is not None,
        owner_references=metadata.owner_references,
        gates=gates,
        is_in_scheduler=is_in_scheduler,
        refusal=_refusal(found) if is_in_scheduler else "",
    )


def versions_of_pod(pod: Pod) -> list[tuple[str, str]]:
    """The workload version that a waiting pod waits for, by namespace and name; and see below.

    The same index finds the pods of an app and of a workload, by ``app_mark`` and
    ``workload_mark``, which are names of no version: they have a slash.
    """
    if not pod.is_ours:
        return []
    described = workload_of(pod.annotations, pod.labels)
    if described is None:
        return []
    names = names_of_pod(described)
    namespace = pod.namespace
    return [
        (namespace, names.version),
        (namespace, app_mark(names.app)),
        (namespace, workload_mark(names.workload)),
    ]


def app_mark(name: str) -> str:
    """Where the index by versions has the waiting pods of a KeptnApp."""
    return f"app/{name}"


def workload_mark(name: str) -> str:
    """Where the index by versions has the waiting pods of a KeptnWorkload."""
    return f"workload/{name}"


def _is_in(scheduler: str, pod: _Pod) -> bool:
    """Whether the pod is one that the scheduler asks us about, and that may have to wait."""
    return bool(scheduler) and pod.spec.scheduler_name == scheduler and _may_wait(pod)


def _may_wait_in(other: str, pod: _Pod) -> bool:
    """Whether admission may have given a pod of Keptn's another scheduler than settings say here.

    Other common annotations do not indicate that.
    """
    if other in {"", _DEFAULT_SCHEDULER} or not _may_wait(pod):
        return False
    keys = (*(pod.metadata.annotations or ()), *(pod.metadata.labels or ()))
    return any(key == PARENT_KEY or key.startswith(_KEPTN) for key in keys)


def _may_wait(pod: _Pod) -> bool:
    if pod.spec.node_name:
        return False
    annotations = pod.metadata.annotations or {}
    if annotations.get(RELEASED_KEY) or annotations.get(REMOVED_KEY):
        return False
    if annotations.get(PARENT_KEY) == UNRESOLVED:
        return True
    return workload_of(annotations, pod.metadata.labels or {}) is not None


def _refusal(pod: _Pod) -> str:
    for each in pod.status.conditions:
        if each.type == _SCHEDULED and each.status == "False" and is_refusal(each.message):
            return each.message
    return ""


def _ours(found: dict[str, str] | None) -> dict[str, str]:
    return {
        key: value
        for key, value in (found or {}).items()
        if key.startswith(_PREFIXES) or key in _KEYS
    }
