"""Decides what stored pods and templates lack of the policies in force, and how to repair it; pure.

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
from harbourmaster.cli.batches import plural, shorten
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.preview.fitting import DAEMON_TOLERATIONS
from harbourmaster.cli.why.render import renewal
from harbourmaster.policies.affinity import required_terms
from harbourmaster.policies.compiled import NODE_TERMS
from harbourmaster.policies.merge import merge, merged_fields, owned_fields
from harbourmaster.policies.model import AFFINITY, NODE_SELECTOR, REQUIRED, TOLERATIONS
from harbourmaster.policies.requirements import SCOPES
from harbourmaster.policies.targets import ALL_CONTROLLERS
from harbourmaster.rescheduling.decoding import decode_pending
from harbourmaster.rescheduling.fit import static_reasons
from harbourmaster.rescheduling.model import Budget, Pod
from harbourmaster.rescheduling.victims import BudgetLedger
from harbourmaster.webhook.reviewed_object import read_object, view_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from msgspec import Raw

    from harbourmaster.policies.pods import Kind, PodView
    from harbourmaster.rescheduling.model import Node
    from harbourmaster.webhook.engine import Engine

    Json = dict[str, Any]

RESTARTED: Final = {
    (resource.group, resource.kind): resource
    for resource in (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)
}
"""The kinds that are restarted, by group and kind."""
RESTART: Final = "restart"
_DONE: Final = {"tighten": "tightened", "tolerate": "tolerations added", RESTART: "restarted"}
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
    """The fields that one object lacks; ``operations`` add some, ``rest`` are the others."""

    fields: tuple[str, ...]
    policies: tuple[str, ...]
    """References of those that would change the object."""
    operations: tuple[dict[str, Any], ...] = ()
    rest: tuple[str, ...] = ()
    refusal: str = ""
    """Why a review would refuse the object."""


class StoredPod(Struct, frozen=True):
    """A pod, its workload, and what it lacks."""

    pod: Pod
    workload: Workload
    version: str
    lack: Lack | None = None

    @property
    def action(self) -> Literal["tighten", "tolerate", "restart", "list"]:
        """The repair of what the pod lacks."""
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
        whose = (
            f"{plural(len(self.pods), 'pod')} ({shorten(self.pods)})" if self.pods else "template"
        )
        end = _DONE[self.action] if self.done else self.action
        what = f"{whose} without {', '.join(self.fields)} of {shorten(self.policies)}"
        return f"{self.kind} {self.namespace}/{self.name}: {what}: " + ": ".join(
            filter(None, (end, self.why))
        )


def lack_of(kind: Kind, raw: Raw | bytes, namespace: str, engine: Engine) -> Lack | None:
    """Return what a review would add to the object; None for nothing. Raises MalformedError."""
    view, known = _view(kind, raw), engine.snapshot.namespace(namespace)
    if view is None or view.is_left_alone or known is None or namespace in engine.snapshot.excluded:
        return None
    view = engine.snapshot.with_class(view)
    policies = engine.match(namespace, known, view)
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
        allowed = _allowed_fields(before, after, is_gated=is_gated)
        done = {field: allowed[field] for field in _differing(before, allowed)}
        pod = decode_anything(raw)
        rest = _view(kind, msgspec.json.encode({**pod, "spec": {**pod["spec"], **done}})) or view
    own = (
        policy for policy in policies if merge(view, kind.pointer, (policy,), options).operations
    )
    return Lack(
        fields=_differing(before, after),
        policies=tuple(policy.reference for policy in own),
        operations=tuple(
            {"op": "add", "path": f"{kind.pointer}/{field}", "value": value}
            for field, value in done.items()
        ),
        rest=_differing(owned_fields(rest), merged_fields(rest, policies, options)),
        refusal=merged.refusal,
    )


def _view(kind: Kind, raw: Raw | bytes) -> PodView | None:
    """View a stored object; a pod counts as created by the controller that owns it."""
    return view_of(kind, read_object(raw), ALL_CONTROLLERS)


def _differing(before: Json, after: Json) -> tuple[str, ...]:
    return tuple(sorted(field for field in after if after[field] != before.get(field)))


def _allowed_fields(before: Json, after: Json, *, is_gated: bool) -> Json:
    """Return the fields of ``after`` that the API server accepts in a stored pod."""
    fields = (TOLERATIONS, NODE_SELECTOR) if is_gated else (TOLERATIONS,)
    allowed = {field: after[field] for field in fields if field in after}
    own = before.get(TOLERATIONS) or []
    if after.get(TOLERATIONS, [])[: len(own)] != own:
        # A default was replaced.
        del allowed[TOLERATIONS]
    was = before.get(AFFINITY) or {}
    wanted = (after.get(AFFINITY) or {}).get(_NODE_AFFINITY)
    if is_gated and wanted:
        old, new = required_terms(was), required_terms({_NODE_AFFINITY: wanted})
        terms = list(map(_stricter, old, new)) if len(old) == len(new) else []
        if old:
            terms = terms if all(terms) else []
            wanted = {**wanted, REQUIRED: {NODE_TERMS: terms or list(old)}}
        allowed[AFFINITY] = {**was, _NODE_AFFINITY: wanted}
    return allowed


def _stricter(old: Json, new: Json) -> Json:
    """Return the new term with the old requirements first; empty if it lacks one of them."""
    json: Json = {}
    for scope in SCOPES:
        before, after = old.get(scope) or [], new.get(scope) or []
        if any(requirement not in after for requirement in before):
            return {}
        json[scope] = [
            *before,
            *(requirement for requirement in after if requirement not in before),
        ]
    return json if any(map(old.get, SCOPES)) else {}


def items_of(
    seen: Observed,
    patched: Mapping[str, tuple[Lack | None, str]],
    restarted: Mapping[Workload, str],
) -> list[RepairItem]:
    r"""Group pods and templates by what they lack and what is done about it.

    ``patched`` has by pod what it lacks after its patch, and why; ``restarted`` has by workload why
    it is not repaired, \"\" if it is.
    """
    pods_by_item: dict[RepairItem, list[str]] = {}
    for pod in seen.pods:
        if pod.lack is None:
            continue
        action, (rest, why) = pod.action, patched.get(pod.pod.name, (pod.lack, ""))
        done = rest is None
        if action == RESTART:
            why = restarted.get(pod.workload, "")
            done = pod.workload in restarted and not why
        elif action == "list":
            why = pod.lack.refusal or _not_restarted(pod.workload)
        lack = rest or pod.lack
        item = RepairItem(*pod.workload, action, lack.fields, lack.policies, done, why)
        pods_by_item.setdefault(item, []).append(pod.pod.name)
    named = {pod.workload for pod in seen.pods if pod.lack}
    why = "its pods get it when they are created, its template when it is changed"
    return [replace(item, pods=tuple(sorted(names))) for item, names in pods_by_item.items()] + [
        RepairItem(*workload, "list", lack.fields, lack.policies, False, why)
        for workload, lack in seen.templates
        if workload not in named
    ]


def _not_restarted(workload: Workload) -> str:
    """Return why pods of this workload are only listed, and what to do."""
    _, kind, namespace, name = workload
    why = "it has no controller" if kind == "Pod" else f"{kind}s are not restarted"
    return f"{why}: {renewal(kind, namespace, name)}"


def why_not(workload: Json) -> str:
    """Return why the workload must not be restarted, "" if it can be."""
    spec, strategy = workload["spec"], _strategy(workload)
    again = "then run this command again"
    if spec.get("paused"):
        return f"it is paused: run kubectl rollout resume, {again}"
    if strategy.get("type") == "OnDelete":
        return "its update strategy is OnDelete: delete its pods one by one"
    is_partial = bool((strategy.get("rollingUpdate") or {}).get("partition"))
    return f"its update strategy has a partition: remove it, {again}" if is_partial else ""


def disruptions(workload: Json) -> int:
    """Return the most pods that a restart makes unavailable at one time, at least 1."""
    strategy, number = _strategy(workload), _wanted_replicas(workload)
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


def _wanted_replicas(workload: Json) -> int:
    """Return how many pods the workload should have."""
    if workload["kind"] == DAEMON_SETS.kind:
        return (workload.get("status") or {}).get("desiredNumberScheduled") or 0
    replicas = workload["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def is_complete(workload: Json) -> bool:
    """Whether all pods of the current revision are available, by the rules of kubectl."""
    status: Json = workload.get("status") or {}
    if status.get("observedGeneration", 0) < workload["metadata"].get("generation", 0):
        return False
    names = ["updatedReplicas", "replicas", "availableReplicas"]
    if workload["kind"] == DAEMON_SETS.kind:
        names = ["updatedNumberScheduled", "numberAvailable"]
    return all(status.get(name, 0) == _wanted_replicas(workload) for name in names)


def why_not_placed(
    raw: bytes, nodes: Iterable[Node], members: Sequence[Pod], *, is_daemon: bool
) -> str:
    """Return why the new pod would not replace ready members of its workload, "" if it would."""
    pod = decode_pending(raw)
    if is_daemon:
        pod = replace(pod, tolerations=(*pod.tolerations, *DAEMON_TOLERATIONS))
        places = {member.node for member in members if member.is_ready}
        nodes = (node for node in nodes if node.name in places)
    reasons = {node.name: static_reasons(pod, node, reserving=False) for node in nodes}
    lost = next(filter(reasons.get, reasons), "")
    if not lost or not (is_daemon or all(reasons.values())):
        return ""
    return f"node {lost} would get no new pod of it: {reasons[lost][0]}"


def why_budgets_forbid(seen: Observed, members: Sequence[Pod], needed: int) -> str:
    """Return why budgets forbid to disrupt ``needed`` of the ``members`` at one time, or "".

    Pods that have just become unready are not counted in the status of a budget yet. The reason
    ends with what to do.
    """
    known = {budget.key: budget for budget in seen.budgets}
    ledger = BudgetLedger(known, {})
    staying = [stored.pod for stored in seen.pods if stored.pod.deletion is None]
    expected = Counter(budget.key for pod in staying for budget in ledger.matching(pod))
    healthy = Counter(
        budget.key for pod in staying if pod.is_ready for budget in ledger.matching(pod)
    )
    current = {
        key: replace(budget, allowed=min(budget.allowed, healthy[key] - budget.desired_healthy))
        for key, budget in known.items()
    }
    ledger = BudgetLedger(current, {})
    guards = [ledger.guard(member) for member in members]
    for pod, guard in zip(members, guards, strict=True):
        allowed = current[guard].allowed if guard in current else 0
        if guard and allowed < (least := min(needed, guards.count(guard))):
            matching = ledger.matching(pod)
            names = shorten([budget.name for budget in matching])
            why = f"PodDisruptionBudget {names} allows {allowed} disruptions, not {needed}"
            if len(matching) > 1:
                return f"{why}: the API server evicts no pod of two budgets: keep one"
            if expected[matching[0].key] - matching[0].desired_healthy < least:
                change = "lower its minAvailable, raise its maxUnavailable, or add replicas"
                return f"{why}, even while all its pods are ready: {change}"
            return f"{why}: run the command again later"
    return ""
