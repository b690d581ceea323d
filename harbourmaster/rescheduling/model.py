"""Pods, nodes and budgets as the rescheduler keeps them (rescheduler-spec 4, 5.8).

Times are float seconds since the epoch, in UTC. Amounts are integers: CPU in milli, memory, storage
and huge pages in bytes, all else in counts. Equal labels and equal requests are one object, so
they must never be changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from harbourmaster.api.selectors import Matcher

if TYPE_CHECKING:
    from collections.abc import Hashable

DOMAIN: Final = "rescheduler.harbourmaster.dev"
RESERVATIONS: Final = f"{DOMAIN}/reservations"
"""The annotation of a node that says for whom it is reserved."""
NEVER_EVICT: Final = f"{DOMAIN}/never-evict"
"""A label or annotation of pods that must not be evicted; ``false`` revokes it."""
TAINT_KEY: Final = "CriticalAddonsOnly"

Requests: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts by resource, sorted by name, without those that are 0 and without ``pods``."""


class Toleration(Struct, frozen=True, gc=False):
    """A toleration; an empty field is one that is absent."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Taint(Struct, frozen=True, gc=False):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


class HostPort(Struct, frozen=True, gc=False):
    """A port of the node; an empty ``ip`` means all of its addresses."""

    protocol: str
    ip: str
    number: int

    def __str__(self) -> str:
        return f"{self.number}/{self.protocol}"


class PodTerm(Struct, frozen=True, gc=False):
    """Pods from which one is kept apart, or near which it must be.

    ``selector`` None matches no pod. ``namespaces`` has the pod's own one where the term names
    none; ``namespace_selector`` adds those that it matches.
    """

    selector: Matcher | None
    namespaces: frozenset[str]
    namespace_selector: Matcher | None
    topology_key: str


class SpreadConstraint(Struct, frozen=True, gc=False, kw_only=True):
    """A topology spread constraint that must hold; ``selector`` None matches no pod."""

    topology_key: str
    selector: Matcher | None
    max_skew: int = 1
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


class NodeRequirement(Struct, frozen=True, gc=False):
    """One expression on a node's labels, or on its name."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(Struct, frozen=True, gc=False):
    """Requirements that must all hold; without any, the term matches no node."""

    expressions: tuple[NodeRequirement, ...] = ()
    fields: tuple[NodeRequirement, ...] = ()


class Pod(Struct, frozen=True, gc=False, kw_only=True):
    """A pod, whether it has a node or not.

    ``deletion`` is when its grace ends. ``controller_kind`` is empty for a bare pod.
    ``is_non_drainable`` says nothing of bare and of marked ones (rescheduler-spec 5.1).
    ``marked_until`` is when the mark against its eviction ends, infinite without an end.
    ``is_grouped``: its group restarts with it. ``runs_once``: its work is lost with it.
    ``preempts``: its scheduler may evict others for it. ``is_restricted``: its own constraints
    exclude nodes. ``is_critical`` does not ask for the toleration. ``has_claim``: a volume of it is
    a PersistentVolumeClaim.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    labels: dict[str, str] = {}
    requests: Requests = ()
    ports: tuple[HostPort, ...] = ()
    priority: int = 0
    grace: int = 30
    created: float = 0.0
    started: float | None = None
    phase: str = "Running"
    is_ready: bool = True
    deletion: float | None = None
    controller_kind: str = ""
    owner: str = ""
    is_mirror: bool = False
    is_critical: bool = False
    is_never_evicted: bool = False
    is_non_drainable: bool = False
    marked_until: float = 0.0
    is_grouped: bool = False
    runs_once: bool = False
    preempts: bool = True
    is_restricted: bool = False
    evicts_in_background: bool = False
    has_claim: bool = False
    anti_affinity: tuple[PodTerm, ...] = ()

    @property
    def key(self) -> str:
        """The key of the object in the stores: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def is_same(self, pod: Pod) -> bool:
        """Whether both are one pod; without a UID it equals none."""
        return bool(self.uid) and self.uid == pod.uid

    @property
    def is_finished(self) -> bool:
        """Whether it holds nothing of its node any more."""
        return self.phase in {"Succeeded", "Failed"}


class PendingPod(Struct, frozen=True, gc=False, kw_only=True):
    """A pod without a node, with all that says where it may go.

    ``node_terms`` is None where it has no required node affinity. ``claims`` are the names of its
    PersistentVolumeClaims, True for one that the pod itself makes. ``volumes`` has the node
    affinity of their volumes by name, None for none. ``unsupported`` has, in words, the constraints
    that are not supported; claims are, until their volumes are known.
    """

    pod: Pod
    node_name: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduler: str = "default-scheduler"
    nominated: str = ""
    is_unschedulable: bool = False
    is_gated: bool = False
    tolerates_reservation: bool = False
    affinity: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    claims: dict[str, bool] = {}
    volumes: dict[str, tuple[NodeTerm, ...] | None] = {}
    unsupported: tuple[str, ...] = ()
    k8s_app: str = ""


class Node(Struct, frozen=True, gc=False, kw_only=True):
    """A node; what ``allocatable`` lacks, it has none of. ``reservations`` is the raw text."""

    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    allocatable: dict[str, int] = {}
    is_ready: bool = True
    is_cordoned: bool = False
    is_deleting: bool = False
    is_deletion_candidate: bool = False
    reservations: str | None = None
    resource_version: str = ""


class Budget(Struct, frozen=True, gc=False, kw_only=True):
    """A PodDisruptionBudget; ``disrupted`` counts the pods that are said to be going."""

    namespace: str
    name: str
    selector: Matcher | None = None
    allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    is_observed: bool = True
    disrupted: int = 0
    always_allow_unhealthy: bool = False

    @property
    def key(self) -> str:
        """The key of the object in the stores: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Criteria(Struct, frozen=True, gc=False, kw_only=True):
    """The definition of a critical pod (rescheduler-spec 6.1), and the taint it must tolerate."""

    namespaces: frozenset[str] = frozenset(("kube-system",))
    classes: frozenset[str] = frozenset(("system-cluster-critical", "system-node-critical"))
    selector: Matcher | None = None
    least_priority: int = 2_000_000_000
    taint_key: str = TAINT_KEY


class FitVerdict(Struct, frozen=True, gc=False):
    """Whether a pod fits; None if unknown. ``reasons`` say why it does not."""

    fits: bool | None
    reasons: tuple[str, ...] = ()


_Value = TypeVar("_Value")
_MOST: Final = 65_536
"""Maximum shared values of a kind; then all are dropped, so that unused ones are freed."""


class Shared(Generic[_Value]):
    """Values by what they are equal by."""

    def __init__(self, most: int = _MOST) -> None:
        self._values: dict[Hashable, _Value] = {}
        self._most = most

    def __call__(self, key: Hashable, value: _Value) -> _Value:
        """The first one that was given with this key."""
        shared = self._values.get(key)
        if shared is None:
            if len(self._values) >= self._most:
                self._values.clear()
            self._values[key] = shared = value
        return shared


_labels: Final = Shared[dict[str, str]]()
_requests: Final = Shared[Requests]()
_texts: Final = Shared[str]()
_NO_LABELS: Final[dict[str, str]] = {}


def shared_labels(labels: dict[str, str] | None) -> dict[str, str]:
    """Return the shared copy of these labels, which must not be changed."""
    return _labels(frozenset(labels.items()), labels) if labels else _NO_LABELS


def shared_requests(requests: Requests) -> Requests:
    """Return the shared copy of these requests."""
    return _requests(requests, requests) if requests else ()


def shared_text(text: str) -> str:
    """Return the shared copy of this text."""
    return _texts(text, text)
