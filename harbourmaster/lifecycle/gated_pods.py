"""Decodes unbound pods that wait for us: at our gate, or in a scheduler (D8, D9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata, OwnerReference
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import PARENT_KEY, UNRESOLVED
from harbourmaster.gates.mistakes import Mistake, key_mistakes, owner_mistakes
from harbourmaster.gates.owners import HASHES
from harbourmaster.gates.release import CHECKS_KEY, NONE, says_passed, was_released
from harbourmaster.gates.waits import MET, WAIT_FOR_KEY, WAITED_KEY, Waits, waits_of
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.scheduling import is_refusal
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    from harbourmaster.gates.waits import WaitItem

PENDING_PODS: Final = "spec.nodeName=,status.phase=Pending"
REVISION_LABEL: Final = "controller-revision-hash"
"""Label on the pods of StatefulSets with their revision."""
GENERATION_LABEL: Final = "pod-template-generation"
"""Label on the pods of DaemonSets with the generation of their template."""
ONLY_WAITS: Final = "waits/"
_PREFIXES: Final = ("keptn.sh/", "app.kubernetes.io/", "gates.harbourmaster.dev/")
_KEYS: Final = frozenset((REVISION_LABEL, GENERATION_LABEL, *HASHES))
_SCHEDULED: Final = "PodScheduled"
_KEPTN: Final = "keptn.sh/"
_DEFAULT_SCHEDULER: Final = "default-scheduler"


class Gate(Struct, frozen=True, gc=False):
    """A scheduling gate."""

    name: str = ""


class PodSpec(Struct, frozen=True, gc=False, rename="camel"):
    """The node of a pod, and what it waits for before it gets one."""

    scheduling_gates: tuple[Gate, ...] = ()
    scheduler_name: str = ""
    node_name: str = ""


class PodCondition(Struct, frozen=True, gc=False, rename="camel"):
    """A condition with its time, which the API server may write as null."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ContainerWaiting(Struct, frozen=True, gc=False):
    """The reason why a container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerTerminated(Struct, frozen=True, gc=False, rename="camel"):
    """The end of a container; ``message`` is its last output, if the container allows it."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""


class ContainerState(Struct, frozen=True, gc=False):
    """The state of a container, unless it runs."""

    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(Struct, frozen=True, gc=False, rename="camel"):
    """The status of a container; ``last_state`` is from before it was restarted."""

    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(Struct, frozen=True, gc=False, rename="camel"):
    """The progress of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str = ""
    conditions: tuple[PodCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodObject(Struct, frozen=True, gc=False):
    """A pod as the API server has it."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


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
    """The scheduler's last message, if it quotes our refusal."""
    elsewhere: str = ""
    """The scheduler in which it may wait for its checks, if it does not wait for us."""
    wait_conditions: Waits | None = None
    """The objects for which it waits besides its checks."""
    mistakes: tuple[Mistake, ...] = ()
    """Keys that were meant for gates and have no effect; they count only where gates are on."""

    @property
    def is_gated(self) -> bool:
        """Whether it has our gate."""
        return GATE in self.gates

    @property
    def is_ours(self) -> bool:
        """Whether it waits for us, or did and has no node yet."""
        return self.is_gated or self.is_in_scheduler

    @property
    def is_held(self) -> bool:
        """Whether it waits for us, judged by the pod alone."""
        return self.is_gated or (self.is_in_scheduler and not says_passed(self.checks_state))

    @property
    def checks_state(self) -> str:
        """The state of its checks in its annotation; empty for none."""
        return self.annotations.get(CHECKS_KEY, "")

    @property
    def has_waited(self) -> bool:
        """Whether it waits for its checks alone, or for nothing."""
        return self.wait_conditions is None or self.annotations.get(WAITED_KEY) == MET

    @property
    def has_checks(self) -> bool:
        """Whether it waits for checks, too, and not for objects alone."""
        return self.checks_state != NONE or self.annotations.get(PARENT_KEY) == UNRESOLVED

    @property
    def key(self) -> str:
        """The key ``namespace/name``, as in the stores."""
        return f"{self.namespace}/{self.name}"

    @property
    def metadata(self) -> Metadata:
        """The metadata for reports about the pod."""
        return Metadata(name=self.name, namespace=self.namespace, uid=self.uid)


_UNGATED: Final = Pod()
decode_object: Final = msgspec.json.Decoder(PodObject).decode


def decode_pod(raw: msgspec.Raw | bytes, scheduler: str = "") -> Pod:
    """Decode a pod from its JSON; ``scheduler`` is the one that asks us about its pods, if any."""
    pod = decode_object(raw)
    is_gated = any(gate.name == GATE for gate in pod.spec.scheduling_gates)
    if not is_gated and not _is_in(scheduler, pod):
        elsewhere = pod.spec.scheduler_name
        if not _may_wait_in(elsewhere, pod):
            elsewhere = ""
        mistakes = _mistakes(pod)
        if not mistakes:
            return Pod(elsewhere=elsewhere) if elsewhere else _UNGATED
        own = pod.metadata
        return Pod(own.name, own.namespace, own.uid, elsewhere=elsewhere, mistakes=mistakes)
    return _whole(pod, scheduler)


def decode_whole(raw: msgspec.Raw | bytes, scheduler: str = "") -> Pod:
    """Decode any pod, whether or not it waits for us."""
    return _whole(decode_object(raw), scheduler)


def _whole(pod: PodObject, scheduler: str) -> Pod:
    gates = tuple(gate.name for gate in pod.spec.scheduling_gates)
    is_in_scheduler = GATE not in gates and _is_in(scheduler, pod)
    metadata = pod.metadata
    return Pod(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        creation_timestamp=metadata.creation_timestamp,
        is_ending=bool(metadata.deletion_timestamp),
        # Waits of other pods may select it.
        labels=metadata.labels if WAIT_FOR_KEY in metadata.annotations else _ours(metadata.labels),
        annotations=_ours(metadata.annotations),
        has_annotations=bool(metadata.annotations),
        owner_references=metadata.owner_references,
        gates=gates,
        is_in_scheduler=is_in_scheduler,
        wait_conditions=waits_of(metadata.annotations),
        refusal=_refusal(pod) if is_in_scheduler else "",
        mistakes=_mistakes(pod),
    )


def _mistakes(pod: PodObject) -> tuple[Mistake, ...]:
    own = pod.metadata
    return (
        *key_mistakes(own.annotations, own.labels),
        *owner_mistakes(own.annotations, own.labels, own.owner_references),
    )


def versions_of_pod(pod: Pod) -> list[tuple[str, str]]:
    """Return namespace and name of a waiting pod's workload version, and its marks.

    The same index finds the pods of an app and of a workload, by ``app_mark`` and
    ``workload_mark``, which are not names of versions because they have a slash. So has ONLY_WAITS
    with the UID of an owner, or of a pod, for pods without checks.
    """
    if not pod.is_ours:
        return []
    described = workload_of(pod.annotations, pod.labels)
    if not pod.has_checks:
        owner = pod.owner_references[-1].uid if pod.owner_references else pod.uid
        return [(pod.namespace, f"{ONLY_WAITS}{owner}")]
    if described is None:
        return []
    names = names_of_pod(described)
    namespace = pod.namespace
    return [
        (namespace, names.version),
        (namespace, app_mark(names.app)),
        (namespace, workload_mark(names.workload)),
    ]


def items_of_pod(pod: Pod) -> list[tuple[str, WaitItem]]:
    """Return the items that a waiting pod waits for, each with its namespace."""
    conditions = pod.wait_conditions if pod.is_ours else None
    return [(pod.namespace, item) for item in conditions.items] if conditions is not None else []


def app_mark(name: str) -> str:
    """Return the key of a KeptnApp's waiting pods in the index by versions."""
    return f"app/{name}"


def workload_mark(name: str) -> str:
    """Return the key of a KeptnWorkload's waiting pods in the index by versions."""
    return f"workload/{name}"


def _is_in(scheduler: str, pod: PodObject) -> bool:
    """Whether the pod is one that the scheduler asks us about, and that may have to wait."""
    return bool(scheduler) and pod.spec.scheduler_name == scheduler and _may_wait(pod)


def _may_wait_in(scheduler: str, pod: PodObject) -> bool:
    """Whether admission may have given the pod another scheduler than our settings name.

    Only Keptn's own keys indicate that.
    """
    if scheduler in {"", _DEFAULT_SCHEDULER} or not _may_wait(pod):
        return False
    keys = (*pod.metadata.annotations, *pod.metadata.labels)
    return any(key == PARENT_KEY or key.startswith(_KEPTN) for key in keys)


def _may_wait(pod: PodObject) -> bool:
    if pod.spec.node_name:
        return False
    annotations = pod.metadata.annotations
    if was_released(annotations):
        return False
    if annotations.get(PARENT_KEY) == UNRESOLVED:
        return True
    if annotations.get(CHECKS_KEY) == NONE:
        return WAIT_FOR_KEY in annotations and annotations.get(WAITED_KEY) != MET
    return workload_of(annotations, pod.metadata.labels) is not None


def _refusal(pod: PodObject) -> str:
    for condition in pod.status.conditions:
        if (
            condition.type == _SCHEDULED
            and condition.status == "False"
            and is_refusal(condition.message)
        ):
            return condition.message
    return ""


def _ours(pairs: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in pairs.items() if key.startswith(_PREFIXES) or key in _KEYS}
