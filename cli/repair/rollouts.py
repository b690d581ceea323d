"""Whether a workload may be restarted, what that disrupts, and when it is complete; pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harbourmaster.api.resources import DAEMON_SETS, DEPLOYMENTS, STATEFUL_SETS
from harbourmaster.cli.why.steps import renewal
from harbourmaster.rescheduling.budgets import BLOCKED, BudgetLedger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harbourmaster.rescheduling.model import Budget, Pod

    Json = dict[str, Any]

RESTARTED: Final = {
    (each.group, each.kind): each for each in (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)
}
"""The kinds that are restarted, by group and kind."""


def strategy_of(workload: Json) -> Json:
    """The update strategy of a workload of one of these kinds."""
    spec = workload["spec"]
    found: Json = spec.get("strategy") or spec.get("updateStrategy") or {}
    return found


def why_not(workload: Json) -> str:
    """Why the workload is not restarted; empty where it may be."""
    metadata, spec, strategy = workload["metadata"], workload["spec"], strategy_of(workload)
    key = f"-n {metadata['namespace']} {workload['kind'].lower()}/{metadata['name']}"
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    if spec.get("paused"):
        return f"it is paused: kubectl rollout resume {key}, then run the command again"
    if strategy.get("type") == "OnDelete":
        return "its update strategy is OnDelete: delete its pods one by one"
    if (strategy.get("rollingUpdate") or {}).get("partition"):
        return f"its update strategy has a partition: remove it with kubectl edit {key}"
    return ""


def disrupted(workload: Json) -> int:
    """The most pods that a restart makes unavailable at one time; at least one."""
    spec, strategy = workload["spec"], strategy_of(workload)
    if strategy.get("type") == "Recreate":
        return max(1, _replicas(workload))
    limits = strategy.get("rollingUpdate") or {}
    if workload["kind"] == DAEMON_SETS.kind:
        status = workload.get("status") or {}
        number = status.get("desiredNumberScheduled") or 0
        return max(1, _scaled(limits.get("maxUnavailable", 1), number, math.ceil))
    default = "25%" if "strategy" in spec else 1
    return max(1, _scaled(limits.get("maxUnavailable", default), _replicas(workload), math.floor))


def _scaled(amount: int | str, number: int, rounded: Any) -> int:  # noqa: ANN401 - floor or ceil
    if isinstance(amount, str) and amount.endswith("%"):
        return int(rounded(number * int(amount[:-1]) / 100))
    return int(amount)


def _replicas(workload: Json) -> int:
    found = workload["spec"].get("replicas")
    return 1 if found is None else int(found)


def exceeded(
    budgets: Iterable[Budget], pods: Sequence[Pod], members: Sequence[Pod], disruptions: int
) -> str:
    """Why disruption budgets forbid a restart of ``members``, or an empty text.

    ``pods`` are all of the namespace, read after the budgets: a pod that is not ready any more may
    not be counted in the status of its budget yet.
    """
    known = {each.key: each for each in budgets}
    ledger = BudgetLedger(known, {})
    ready = [each for each in pods if each.is_ready and each.deletion is None]
    current = {
        key: replace(
            budget,
            allowed=min(
                budget.allowed,
                sum(budget in ledger.matching(each) for each in ready) - budget.desired_healthy,
            ),
        )
        for key, budget in known.items()
    }
    ledger = BudgetLedger(current, {})
    guards = [ledger.guard(each) for each in members]
    if BLOCKED in guards:
        blocked = members[guards.index(BLOCKED)]
        names = ", ".join(each.name for each in ledger.matching(blocked))
        return f"PodDisruptionBudget {names} allows no disruption"
    for key in sorted(set(filter(None, guards))):
        needed = min(disruptions, guards.count(key))
        if current[key].allowed < needed:
            text = f"PodDisruptionBudget {current[key].name} allows {current[key].allowed}"
            return f"{text} disruptions, a restart can cause {needed}"
    return ""


def is_complete(workload: Json) -> bool:
    """Whether all pods of the current revision are there and available, as for kubectl."""
    metadata, status = workload["metadata"], workload.get("status") or {}
    if (status.get("observedGeneration") or 0) < (metadata.get("generation") or 0):
        return False
    if workload["kind"] == DAEMON_SETS.kind:
        wanted = status.get("desiredNumberScheduled") or 0
        updated, usable = status.get("updatedNumberScheduled"), status.get("numberAvailable")
        return (updated or 0) >= wanted and (usable or 0) >= wanted
    wanted = _replicas(workload)
    counts = [status.get(each) or 0 for each in ("updatedReplicas", "replicas")]
    if workload["kind"] == STATEFUL_SETS.kind:
        is_new = status.get("currentRevision") == status.get("updateRevision")
        return is_new and (status.get("readyReplicas") or 0) == wanted
    return counts == [wanted, wanted] and (status.get("availableReplicas") or 0) == wanted


def sample_pod(workload: Json) -> Json:
    """A pod as the workload makes it, to be tried by a dry run."""
    template = workload["spec"]["template"]
    name = workload["metadata"]["name"]
    given = template.get("metadata") or {}
    metadata = {key: given[key] for key in ("labels", "annotations") if given.get(key)}
    spec = dict(template["spec"])
    claims = [
        {"name": each["metadata"]["name"], "persistentVolumeClaim": {"claimName": f"{name}-claim"}}
        for each in workload["spec"].get("volumeClaimTemplates") or ()
    ]
    if claims:
        spec["volumes"] = [*(spec.get("volumes") or ()), *claims]
    metadata["generateName"] = f"{name[:50]}-"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def not_restarted(kind: str, namespace: str, name: str) -> str:
    """Why pods of this controller, or without one, are only listed, and what to do."""
    if kind == "Job":
        return (
            "pods of Jobs are never restarted: wait for its end, or delete it and create it again"
        )
    if kind == "Pod":
        return f"it has no controller: {renewal(kind, namespace, name)}"
    return f"{kind} is not restarted by this command: {renewal(kind, namespace, name)}"
