"""What stored pods and templates lack of the policies in force, and what is done about it; pure.

The API server allows only some changes of a pod: tolerations while it has no node, and stricter
node selectors and node affinity while it has a scheduling gate.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.resources import DAEMON_SETS, DEPLOYMENTS, STATEFUL_SETS
from harbourmaster.cli.batches import many, shown
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.why.steps import renewal
from harbourmaster.policies.affinity import required_terms
from harbourmaster.policies.compiled import NODE_TERMS
from harbourmaster.policies.merge import merge, merged_fields, owned_fields
from harbourmaster.policies.model import AFFINITY, NODE_SELECTOR, REQUIRED, TOLERATIONS
from harbourmaster.policies.requirements import SCOPES
from harbourmaster.rescheduling.budgets import BudgetLedger
from harbourmaster.rescheduling.model import Budget, Pod

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Raw

    from harbourmaster.policies.pods import Kind
    from harbourmaster.webhook.engine import Engine

    Json = dict[str, Any]

RESTARTED: Final = {
    (each.group, each.kind): each for each in (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)
}
"""The kinds that are restarted, by group and kind."""
RESTART: Final = "restart"
_DONE: Final = {"tighten": "tightened", "tolerate": "tolerations added", RESTART: "restarted"}
_LABEL_KEYS: Final = b"atchLabelKeys"
_NODE_AFFINITY: Final = "nodeAffinity"


class Workload(NamedTuple):
    """The controller of pods, or a pod without one; ``group`` is its API group."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Lack(Struct, frozen=True):
    """What one object lacks; ``operations`` add what can be added, ``rest`` are other fields."""

    fields: tuple[str, ...]
    policies: tuple[str, ...]
    """References of those that would change the object."""
    operations: tuple[dict[str, Any], ...] = ()
    rest: tuple[str, ...] = ()
    refusal: str = ""
    """Why a review would refuse the object."""


class StoredPod(Struct, frozen=True):
    """A pod, whose controller's pod it is, and what it lacks."""

    pod: Pod
    workload: Workload
    version: str
    lack: Lack | None = None

    @property
    def action(self) -> Literal["tighten", "tolerate", "restart", "list"]:
        """What is done about what it lacks."""
        lack = self.lack
        if lack and not lack.rest and not lack.refusal:
            return "tolerate" if lack.fields == (TOLERATIONS,) else "tighten"
        is_restarted = self.workload[:2] in RESTARTED and lack and not lack.refusal
        return "restart" if is_restarted else "list"


class Observed(Struct, frozen=True):
    """The pods of a namespace, the templates that lack something, and disruption budgets."""

    pods: tuple[StoredPod, ...]
    templates: tuple[tuple[Workload, Lack], ...]
    budgets: tuple[Budget, ...]

    def lacking(self, workload: Workload) -> list[StoredPod]:
        """The pods of a workload that only a restart repairs."""
        return [pod for pod in self.pods if (pod.workload, pod.action) == (workload, RESTART)]


class RepairItem(Struct, frozen=True):
    """Pods of one workload that lack the same, or without pods its template."""

    group: str
    kind: str
    namespace: str
    name: str
    action: str
    fields: tuple[str, ...]
    policies: tuple[str, ...]
    done: bool
    why: str
    """Why nothing, or not all, is done."""
    pods: tuple[str, ...] = ()

    def __str__(self) -> str:
        whose = f"{many(len(self.pods), 'pod')} ({shown(self.pods)})" if self.pods else "template"
        end = _DONE[self.action] if self.done else self.action
        what = f"{whose} without {', '.join(self.fields)} of {shown(self.policies)}"
        return f"{self.kind} {self.namespace}/{self.name}: {what}: " + ": ".join(
            filter(None, (end, self.why))
        )


def lack_of(kind: Kind, raw: Raw | bytes, namespace: str, engine: Engine) -> Lack | None:
    """What a review would add to the object; None for nothing. Raises MalformedError."""
    view, known = kind.read(raw), engine.snapshot.namespace(namespace)
    if view is None or view.is_left_alone or known is None or namespace in engine.snapshot.excluded:
        return None
    policies = engine.match(namespace, known, view.labels)
    if _LABEL_KEYS in bytes(raw) and not kind.is_template:
        # The API server has rewritten such terms, so that they can't be compared any more.
        policies = tuple(
            replace(policy, lists=tuple(one for one in policy.lists if one[0][0] == _NODE_AFFINITY))
            for policy in policies
        )
    is_gated = view.spec is not None and bool(view.spec.scheduling_gates)
    has_gates = kind.is_template and engine.has_gates(namespace, known)
    waits = engine.template_waits(kind) if has_gates else ""
    options = engine.settings.merge_options(node_name_as_field=is_gated or has_gates, waits=waits)
    merged = merge(view, kind.pointer, policies, options)
    if not merged.operations and not merged.refusal:
        return None
    before, after, rest = owned_fields(view), merged_fields(view, policies, options), view
    done = {}
    if view.spec is not None and not view.spec.node_name and not kind.is_template:
        allowed = _allowed(before, after, is_gated=is_gated)
        done = {field: allowed[field] for field in _differing(before, allowed)}
        pod = decode_anything(raw)
        rest = kind.read(msgspec.json.encode({**pod, "spec": {**pod["spec"], **done}})) or view
    own = (each for each in policies if merge(view, kind.pointer, (each,), options).operations)
    return Lack(
        fields=_differing(before, after),
        policies=tuple(each.reference for each in own),
        operations=tuple(
            {"op": "add", "path": f"{kind.pointer}/{field}", "value": value}
            for field, value in done.items()
        ),
        rest=_differing(owned_fields(rest), merged_fields(rest, policies, options)),
        refusal=merged.refusal,
    )


def _differing(before: Json, after: Json) -> tuple[str, ...]:
    return tuple(sorted(field for field in after if after[field] != before.get(field)))


def _allowed(before: Json, after: Json, *, is_gated: bool) -> Json:
    """The fields of ``after`` that may be set in a stored pod, as far as they may."""
    fields = (TOLERATIONS, NODE_SELECTOR) if is_gated else (TOLERATIONS,)
    found = {field: after[field] for field in fields if field in after}
    was = before.get(AFFINITY) or {}
    wanted = (after.get(AFFINITY) or {}).get(_NODE_AFFINITY)
    if is_gated and wanted:
        old, new = required_terms(was), required_terms({_NODE_AFFINITY: wanted})
        terms = list(map(_stricter, old, new)) if len(old) == len(new) else []
        if old:
            terms = terms if all(terms) else []
            wanted = {**wanted, REQUIRED: {NODE_TERMS: terms or list(old)}}
        found[AFFINITY] = {**was, _NODE_AFFINITY: wanted}
    return found


def _stricter(old: Json, new: Json) -> Json:
    """The new term with the requirements of the old one first; empty if it lacks one of them."""
    json: Json = {}
    for scope in SCOPES:
        before, after = old.get(scope) or [], new.get(scope) or []
        if any(each not in after for each in before):
            return {}
        json[scope] = [*before, *(each for each in after if each not in before)]
    return json if any(map(old.get, SCOPES)) else {}


def items_of(
    seen: Observed,
    patched: Mapping[str, tuple[Lack | None, str]],
    restarted: Mapping[Workload, str],
) -> list[RepairItem]:
    """What pods and templates lack; one item for all pods of which the same is to be said.

    ``patched`` has what pods lack after their patch, and why; ``restarted`` why a workload is not
    right, empty where it is.
    """
    found: dict[RepairItem, list[str]] = {}
    for each in seen.pods:
        if each.lack is None:
            continue
        action, (rest, why) = each.action, patched.get(each.pod.name, (each.lack, ""))
        done = rest is None
        if action == RESTART:
            why = restarted.get(each.workload, "")
            done = each.workload in restarted and not why
        elif action == "list":
            why = each.lack.refusal or _not_restarted(each.workload)
        lack = rest or each.lack
        item = RepairItem(*each.workload, action, lack.fields, lack.policies, done, why)
        found.setdefault(item, []).append(each.pod.name)
    named = {pod.workload for pod in seen.pods if pod.lack}
    why = "its pods get it when they are created, its template when it is changed"
    return [replace(each, pods=tuple(sorted(names))) for each, names in found.items()] + [
        RepairItem(*workload, "list", lack.fields, lack.policies, False, why)
        for workload, lack in seen.templates
        if workload not in named
    ]


def _not_restarted(workload: Workload) -> str:
    """Why pods of this controller, or without one, are only listed, and what to do."""
    _, kind, namespace, name = workload
    why = "it has no controller" if kind == "Pod" else f"{kind}s are not restarted"
    return f"{why}: {renewal(kind, namespace, name)}"


def why_not(workload: Json) -> str:
    """Why the workload is not restarted; empty where it may be."""
    spec, strategy = workload["spec"], _strategy(workload)
    again = "then run this command again"
    if spec.get("paused"):
        return f"it is paused: run kubectl rollout resume, {again}"
    if strategy.get("type") == "OnDelete":
        return "its update strategy is OnDelete: delete its pods one by one"
    is_partial = bool((strategy.get("rollingUpdate") or {}).get("partition"))
    return f"its update strategy has a partition: remove it, {again}" if is_partial else ""


def disruptions(workload: Json) -> int:
    """The most pods that a restart makes unavailable at one time; at least one."""
    strategy, number = _strategy(workload), _wanted(workload)
    if strategy.get("type") == "Recreate":
        return max(1, number)
    limits = strategy.get("rollingUpdate") or {}
    default = "25%" if "strategy" in workload["spec"] else 1
    amount = limits.get("maxUnavailable", default)
    if isinstance(amount, str):
        rounded = math.ceil if workload["kind"] == DAEMON_SETS.kind else math.floor
        return max(1, rounded(number * int(amount.rstrip("%")) / 100))
    return max(1, int(amount))


def _strategy(workload: Json) -> Any:  # noqa: ANN401
    return workload["spec"].get("strategy") or workload["spec"].get("updateStrategy") or {}


def _wanted(workload: Json) -> int:
    """How many pods it should have."""
    if workload["kind"] == DAEMON_SETS.kind:
        return (workload.get("status") or {}).get("desiredNumberScheduled") or 0
    replicas = workload["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def is_complete(workload: Json) -> bool:
    """Whether all pods of the current revision are there and available, as for kubectl."""
    status: Json = workload.get("status") or {}
    if status.get("observedGeneration", 0) < workload["metadata"].get("generation", 0):
        return False
    names = ["updatedReplicas", "replicas", "availableReplicas"]
    if workload["kind"] == DAEMON_SETS.kind:
        names = ["updatedNumberScheduled", "numberAvailable"]
    return all(status.get(name, 0) == _wanted(workload) for name in names)


def exceeded(seen: Observed, members: Sequence[Pod], needed: int) -> str:
    """Why budgets forbid a restart of ``members``, ``needed`` pods at one time; empty if not.

    Pods that have just become unready are not counted in the status of a budget yet.
    """
    known = {budget.key: budget for budget in seen.budgets}
    ledger = BudgetLedger(known, {})
    ready = (each.pod for each in seen.pods if each.pod.is_ready and each.pod.deletion is None)
    healthy = Counter(each.key for pod in ready for each in ledger.matching(pod))
    current = {
        key: replace(each, allowed=min(each.allowed, healthy[key] - each.desired_healthy))
        for key, each in known.items()
    }
    ledger = BudgetLedger(current, {})
    guards = [ledger.guard(member) for member in members]
    for pod, guard in zip(members, guards, strict=True):
        allowed = current[guard].allowed if guard in current else 0
        if guard and allowed < min(needed, guards.count(guard)):
            names = shown([each.name for each in ledger.matching(pod)])
            return f"PodDisruptionBudget {names} allows {allowed} disruptions, not {needed}"
    return ""
