"""Decides whether an object is ready, by kind.

Users say by a ReadinessTest when a kind is ready. Another kind without a rule of its own is ready
unless it says otherwise: by ``observedGeneration``, or by the conditions that most controllers
write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from harbourmaster.api.field_tests import describe_condition, describe_field, field_of
from harbourmaster.placement.inventory import ObjectSelector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


READY_REASON: Final = "ObjectsReady"
NOT_READY: Final = "ObjectsNotReady"
NO_ADDRESS: Final = "WaitingForAddress"
"""The reason of an application whose objects all work, but whose Services have no address yet."""


class Readiness(Struct, frozen=True, gc=False):
    """Whether an object is ready; ``text`` says why not. ``failed``: waiting does not help.

    ``is_assumed``: it counts as ready only because it has no status yet. ``is_finished``: a Job has
    completed. ``reason`` is that of a condition.
    """

    is_ready: bool
    text: str = ""
    failed: bool = False
    is_assumed: bool = False
    is_finished: bool = False
    reason: str = NOT_READY


class ReadinessTest(ObjectSelector, frozen=True, gc=False, kw_only=True):
    """A test of the objects of a kind: ready are those whose condition or field has a value."""

    condition: str = ""
    field: str = ""
    """A path with dots, where numbers are indexes."""
    values: tuple[str, ...] = ()
    """Without values, a condition must be True."""


READY: Final = Readiness(True)
FINISHED: Final = Readiness(True, is_finished=True)
"""The state of a Job that has completed."""
_Fields: TypeAlias = dict[str, Any]
_STATELESS: Final = frozenset(
    (
        ("", "ConfigMap"),
        ("", "Endpoints"),
        ("", "LimitRange"),
        ("", "Secret"),
        ("", "ServiceAccount"),
        ("batch", "CronJob"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("networking.k8s.io", "NetworkPolicy"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("rbac.authorization.k8s.io", "Role"),
        ("rbac.authorization.k8s.io", "RoleBinding"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("storage.k8s.io", "StorageClass"),
    )
)


def has_state(group: str, kind: str) -> bool:
    """Whether more than its metadata must be read to say that it is ready."""
    return (group, kind) not in _STATELESS


def readiness(obj: _Fields, tests: Sequence[ReadinessTest] = ()) -> Readiness:
    """The state of an object as the API has it, whatever strangers wrote into it.

    ``tests`` are those that cover it; all must hold, in place of the rule of its kind.
    """
    metadata = _part(obj, "metadata")
    if metadata.get("deletionTimestamp"):
        return Readiness(False, "is being deleted")
    group = str(obj.get("apiVersion") or "").rpartition("/")[0]
    kind = str(obj.get("kind") or "")
    if not has_state(group, kind):
        return READY
    status, spec = _part(obj, "status"), _part(obj, "spec")
    observed, generation = status.get("observedGeneration"), metadata.get("generation")
    if isinstance(observed, int) and isinstance(generation, int) and observed < generation:
        return Readiness(False, "its controller has not observed the latest change yet")
    if (group, kind) == ("", "PersistentVolumeClaim") and _awaits_consumer(metadata, spec):
        return READY
    state = _RULES.get((group, kind), _other)(spec, status)
    if not tests:
        return state
    text = "; ".join(filter(None, (_unmet(test, obj, status) for test in tests)))
    return Readiness(not text, text, is_finished=state.is_finished)


def summary(states: Iterable[tuple[str, Readiness]], limit: int = 5) -> str:
    """Return the objects that are not ready, in one line: the first few, and how many more."""
    waiting = [f"{name}: {state.text}" for name, state in states if not state.is_ready]
    more = f"; and {len(waiting) - limit} more" if len(waiting) > limit else ""
    return "; ".join(waiting[:limit]) + more


def reason_of_all(states: Iterable[Readiness]) -> str:
    """Return the reason of a condition for objects of which at least one is not ready."""
    reasons = {state.reason for state in states if not state.is_ready}
    return NOT_READY if NOT_READY in reasons else min(reasons)


def _unmet(test: ReadinessTest, obj: _Fields, status: _Fields) -> str:
    """Return why a test does not hold; empty if it does."""
    wanted = test.values or ("True",)
    if test.condition:
        condition = _condition(status, test.condition)
        known, reason = condition.get("status", "missing"), condition.get("reason") or ""
        return describe_condition(test.condition, wanted, str(known), str(reason))
    path = test.field.removeprefix(".")
    return describe_field(path, wanted, field_of(obj, path))


def _deployment(spec: _Fields, status: _Fields) -> Readiness:
    progress = _condition(status, "Progressing")
    if progress.get("reason") == "ProgressDeadlineExceeded":
        return Readiness(False, str(progress.get("message") or "makes no progress"), failed=True)
    if "observedGeneration" not in status:
        return _UNSEEN
    wanted = _replicas(spec)
    available = _require("available", _count(status, "availableReplicas"), wanted)
    if spec.get("paused") is True:
        return available or READY
    return (
        _require("updated", _count(status, "updatedReplicas"), wanted)
        or available
        or _require_no_old(_count(status, "replicas") - wanted)
    )


def _stateful_set(spec: _Fields, status: _Fields) -> Readiness:
    if "observedGeneration" not in status:
        return _UNSEEN
    wanted = _replicas(spec)
    strategy = _part(spec, "updateStrategy")
    partition = _count(_part(strategy, "rollingUpdate"), "partition")
    is_rolling = strategy.get("type") != "OnDelete"
    updated = _count(status, "updatedReplicas")
    if is_rolling and status.get("currentRevision") == status.get("updateRevision"):
        # All are of one revision, and the count of updated ones may be left out.
        updated = wanted
    return (
        (is_rolling and _require("updated", updated, max(wanted - partition, 0)))
        or _require("ready", _count(status, "readyReplicas"), wanted)
        or READY
    )


def _daemon_set(spec: _Fields, status: _Fields) -> Readiness:
    if "observedGeneration" not in status:
        return _UNSEEN
    wanted = _count(status, "desiredNumberScheduled")
    is_rolling = _part(spec, "updateStrategy").get("type") != "OnDelete"
    return (
        (is_rolling and _require("updated", _count(status, "updatedNumberScheduled"), wanted))
        or _require("available", _count(status, "numberAvailable"), wanted)
        or READY
    )


def _replica_set(spec: _Fields, status: _Fields) -> Readiness:
    return _require("available", _count(status, "availableReplicas"), _replicas(spec)) or READY


def _job(spec: _Fields, status: _Fields) -> Readiness:
    """A Job is ready when it is done, and while all the pods that it wants now are at work."""
    failed = _condition(status, "Failed")
    if failed.get("status") == "True":
        return Readiness(False, str(failed.get("message") or "has failed"), failed=True)
    if _condition(status, "Complete").get("status") == "True":
        return FINISHED
    succeeded = _condition(status, "SuccessCriteriaMet")
    if spec.get("suspend") is True or succeeded.get("status") == "True":
        return READY
    left = _replicas(spec, "parallelism")
    if spec.get("completions") is not None:
        left = min(left, max(_replicas(spec, "completions") - _count(status, "succeeded"), 0))
    return _require("at work", _count(status, "ready"), max(left, 1)) or READY


def _pod(_spec: _Fields, status: _Fields) -> Readiness:
    phase = status.get("phase")
    if phase == "Succeeded":
        return READY
    if phase == "Failed":
        return Readiness(False, str(status.get("message") or "has failed"), failed=True)
    ready = _condition(status, "Ready")
    if ready.get("status") == "True":
        return READY
    return Readiness(False, str(ready.get("message") or f"is {phase or 'not seen by a node yet'}"))


def _awaits_consumer(metadata: _Fields, spec: _Fields) -> bool:
    """Whether a claim with a class waits for the first pod that uses it: nothing provisions it."""
    annotations = _part(metadata, "annotations")
    is_begun = any(
        field.endswith(("/storage-provisioner", "/selected-node")) for field in annotations
    )
    return bool(spec.get("storageClassName")) and not spec.get("volumeName") and not is_begun


def _claim(_spec: _Fields, status: _Fields) -> Readiness:
    phase = status.get("phase")
    if phase == "Bound":
        return READY
    return Readiness(False, f"is {phase or 'Pending'}", failed=phase == "Lost")


def _definition(_spec: _Fields, status: _Fields) -> Readiness:
    names = _condition(status, "NamesAccepted")
    if names.get("status") == "False":
        return Readiness(False, str(names.get("message") or "its names are taken"), failed=True)
    if _condition(status, "Established").get("status") == "True":
        return READY
    return Readiness(False, "is not established yet")


def _service(spec: _Fields, status: _Fields) -> Readiness:
    has_address = spec.get("externalIPs") or _part(status, "loadBalancer").get("ingress")
    if spec.get("type") != "LoadBalancer" or has_address:
        return READY
    return Readiness(False, "has no load balancer yet", reason=NO_ADDRESS)


def _namespace(_spec: _Fields, status: _Fields) -> Readiness:
    is_active = status.get("phase") in {None, "Active"}
    return READY if is_active else Readiness(False, "is being deleted")


def _api_service(_spec: _Fields, status: _Fields) -> Readiness:
    available = _condition(status, "Available")
    if available.get("status") == "True":
        return READY
    return Readiness(False, str(available.get("message") or "is not available yet"))


def _virtual_machine(spec: _Fields, status: _Fields) -> Readiness:
    is_halted = spec.get("running") is False or spec.get("runStrategy") == "Halted"
    return READY if is_halted else _other(spec, status)


def _other(_spec: _Fields, status: _Fields) -> Readiness:
    stalled = _condition(status, "Stalled")
    if stalled.get("status") == "True":
        return Readiness(False, str(stalled.get("message") or "is stalled"), failed=True)
    if _condition(status, "Reconciling").get("status") == "True":
        return Readiness(False, "is being reconciled")
    negative = _condition(status, "NotReady")
    if negative.get("status") == "True":
        return Readiness(False, str(negative.get("message") or "is not ready"))
    for field, value in _states(status):
        if value.lower() in _BAD_STATES:
            return Readiness(False, f"its {field} is {value}")
    for name in ("Ready", "Available"):
        matching = _condition(status, name)
        if matching.get("status") in {"False", "Unknown"}:
            return Readiness(
                False, str(matching.get("message") or f"{name} is {matching['status']}")
            )
    return READY if status else Readiness(True, is_assumed=True)


_BAD_STATES: Final = frozenset(("degraded", "error", "failed", "failing", "missing")) | {
    *("red", "submission_failed", "unhealthy", "unknown")
}


def _states(status: _Fields) -> Iterator[tuple[str, str]]:
    """Yield the fields in which operators write the state of an object, with their values."""
    fields = ("health", "healthStatus", "jobStatus", "lifecycleState", "phase", "state")
    for field in (*fields, "applicationState", "jobManagerDeploymentStatus"):
        value = status.get(field)
        if isinstance(value, dict):
            value = value.get("status") or value.get("state")
        if isinstance(value, str):
            yield field, value


_UNSEEN: Final = Readiness(False, "its controller has not observed it yet")
_RULES: Final[dict[tuple[str, str], Callable[[_Fields, _Fields], Readiness]]] = {
    ("", "Namespace"): _namespace,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): _pod,
    ("", "ReplicationController"): _replica_set,
    ("", "Service"): _service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("apiregistration.k8s.io", "APIService"): _api_service,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("batch", "Job"): _job,
    ("kubevirt.io", "VirtualMachine"): _virtual_machine,
}


def _require(what: str, count: int, wanted: int) -> Readiness | None:
    return Readiness(False, f"{count} of {wanted} are {what}") if count < wanted else None


def _require_no_old(old: int) -> Readiness:
    return Readiness(False, f"{old} old ones are still there") if old > 0 else READY


def _replicas(spec: _Fields, field: str = "replicas") -> int:
    """A number that is 1 where nothing is said."""
    value = spec.get(field)
    return value if isinstance(value, int) else 1


def _count(fields: _Fields, field: str) -> int:
    value = fields.get(field)
    return value if isinstance(value, int) else 0


def _part(fields: _Fields, field: str) -> _Fields:
    value = fields.get(field)
    return value if isinstance(value, dict) else {}


def _condition(status: _Fields, name: str) -> _Fields:
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("type") == name:
            return condition
    return {}
