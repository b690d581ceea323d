"""Critical add-ons for which no room can be made, or that others may move (rescheduler-spec)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.resources import DISRUPTION_BUDGETS, NODES, PODS
from harbourmaster.cli.batches import many, shown
from harbourmaster.cli.doctor.context import together
from harbourmaster.cli.doctor.model import note, warning
from harbourmaster.cli.metadata import metadata_in
from harbourmaster.controller.rescheduling.rules import criteria_of
from harbourmaster.rescheduling import reservation
from harbourmaster.rescheduling.model import RESERVATIONS, PendingPod, Toleration
from harbourmaster.rescheduling.taints import tolerates_reservation
from harbourmaster.rescheduling.wire import decode_budget, decode_pod

if TYPE_CHECKING:
    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.doctor.model import Finding
    from harbourmaster.rescheduling.model import Budget, Criteria

CHECK: Final = "rescheduling"
SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_SHOWN: Final = 5


class _Metadata(Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Spec(Struct, frozen=True):
    tolerations: tuple[Toleration, ...] | None = None


class _Given(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class AddOn(Struct, frozen=True):
    """A critical add-on, as far as something may be wrong with it."""

    namespace: str
    name: str
    labels: dict[str, str]
    tolerates: bool
    is_safe_to_evict: bool
    owner: str


_decode: Final = msgspec.json.Decoder(_Given).decode


async def check(context: Context) -> list[Finding]:
    """Pods without the toleration, with a budget or safe-to-evict, and nodes left reserved."""
    settings = (await context.known_settings()).rescheduling
    criteria = criteria_of(settings)

    def pick(raw: msgspec.Raw) -> AddOn | None:
        return add_on(raw, criteria)

    if not settings.enabled:
        return _left(await context.items(NODES, _kept, metadata_only=True))
    spaces = sorted(settings.system_namespaces)
    found = [
        one for namespace in spaces for one in await context.items(PODS, pick, namespace=namespace)
    ]
    budgets = await together(
        *(context.items(DISRUPTION_BUDGETS, decode_budget, namespace=each) for each in spaces)
    )
    findings: list[Finding] = []
    lacking = _once([one for one in found if not one.tolerates])
    if lacking and not settings.inject_toleration:
        text = f"does not tolerate {criteria.taint_key}:NoSchedule: no room is made for it"
        remedy = f"add to its template: {{key: {criteria.taint_key}, operator: Exists}}"
        findings += _each(lacking, text, remedy)
    safe = _once([one for one in found if one.is_safe_to_evict])
    text = f"has {SAFE}: Cluster Autoscaler may take it from its node"
    findings += _each(safe, text, "take that annotation off its template")
    for budget in (each for some in budgets for each in some):
        findings += _budgeted(budget, found)
    return findings


def add_on(raw: msgspec.Raw | bytes, criteria: Criteria) -> AddOn | None:
    """A critical pod that wants a node or has one; None for any other."""
    try:
        found = decode_pod(raw, criteria)
    except MalformedError:
        return None
    pod = found.pod if isinstance(found, PendingPod) else found
    if not pod.is_critical or pod.is_finished or pod.is_mirror or pod.deletion is not None:
        return None
    given = _decode(raw)
    return AddOn(
        namespace=pod.namespace,
        name=pod.name,
        labels=pod.labels,
        tolerates=tolerates_reservation(given.spec.tolerations or (), criteria.taint_key),
        is_safe_to_evict=(given.metadata.annotations or {}).get(SAFE) == "true",
        owner=pod.owner or pod.name,
    )


def _kept(raw: msgspec.Raw) -> str | None:
    """The name of a node that is reserved for somebody."""
    metadata = metadata_in(raw)
    return metadata.name if reservation.parse(metadata.annotation(RESERVATIONS)) else None


def _left(kept: list[str]) -> list[Finding]:
    if not kept:
        return []
    text = f"still reserved for critical add-ons though rescheduling is off: {shown(sorted(kept))}"
    remedy = "the controller releases them where it runs: see its Lease and log"
    return [warning(CHECK, many(len(kept), "node"), text, remedy)]


def _once(found: list[AddOn]) -> list[AddOn]:
    """One pod of each owner: the others say the same."""
    return list({(one.namespace, one.owner): one for one in reversed(found)}.values())[::-1]


def _each(found: list[AddOn], text: str, remedy: str) -> list[Finding]:
    told = [
        warning(CHECK, f"pod {one.namespace}/{one.name}", text, remedy) for one in found[:_SHOWN]
    ]
    if found[_SHOWN:]:
        told.append(note(CHECK, "pods", f"{len(found) - _SHOWN} more of this kind"))
    return told


def _budgeted(budget: Budget, found: list[AddOn]) -> list[Finding]:
    selector = budget.selector
    covered = [
        one
        for one in found
        if selector is not None
        and one.namespace == budget.namespace
        and selector.matches(one.labels)
    ]
    if not covered:
        return []
    text = f"covers the critical add-on {covered[0].name}: whoever drains its node waits for it"
    remedy = "take it away, unless add-ons of this kind must not be moved at the same time"
    return [note(CHECK, f"PodDisruptionBudget {budget.key}", text, remedy)]
