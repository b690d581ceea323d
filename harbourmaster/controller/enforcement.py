"""Writes the condition of policies that says who enforces them; see ``policies.enforcement``.

Only policies that have or had the annotation for enforcement get the condition.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import CLUSTER_POLICIES, POLICIES
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller import names
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.runtime import Runnables
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.kube.quiet_watch import QuietWatch
from harbourmaster.kube.reflector import Reflector
from harbourmaster.policies.enforcement import (
    COMPILED_SELECTORS,
    CONDITION,
    ENFORCED,
    QUIET,
    REASONS,
    UNKNOWN,
    WAITING,
    WEBHOOK,
    decode_compiled,
    enforcement_of,
    is_audited,
    known_of,
    policy_hash,
    reason_of,
)
from harbourmaster.policies.model import Policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.policies.enforcement import CompiledObject, Known


class _Version(Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""
    generation: int = 0


class _Status(Struct, frozen=True, gc=False):
    conditions: list[dict[str, Any]] | None = None


class _More(Struct, frozen=True, gc=False):
    metadata: _Version = _Version()
    status: _Status | None = None


_decode_policy = msgspec.json.Decoder(Policy).decode
_decode_more = msgspec.json.Decoder(_More).decode


class PolicyProjection(Struct, frozen=True, gc=False):
    """The fields of a policy that decide about its condition."""

    reference: str
    name: str
    namespace: str | None
    enforcement: str
    is_audited: bool
    hash: str
    version: _Version
    conditions: tuple[dict[str, Any], ...]

    @property
    def condition(self) -> dict[str, Any]:
        """The stored condition; empty without one."""
        return next((item for item in self.conditions if item.get("type") == CONDITION), {})


def decode(raw: msgspec.Raw | bytes) -> PolicyProjection:
    """Decode a policy of either kind from JSON."""
    policy, more = _decode_policy(raw), _decode_more(raw)
    annotations = policy.metadata.annotations or {}
    enforcement = enforcement_of(annotations)
    return PolicyProjection(
        policy.reference,
        policy.metadata.name or "",
        policy.metadata.namespace,
        enforcement,
        is_audited(annotations),
        policy_hash(policy) if enforcement != WEBHOOK else "",
        more.metadata,
        tuple((more.status.conditions if more.status else None) or ()),
    )


def decide_condition(policy: PolicyProjection, known: Known, now: str) -> dict[str, Any] | None:
    """Return the wanted condition; None if the policy has it or needs none."""
    before = policy.condition
    reason = reason_of(
        (policy.reference, policy.hash), policy.enforcement, known, is_audited=policy.is_audited
    )
    if not before and policy.enforcement == WEBHOOK:
        return None
    if reason == WAITING and before.get("status") == "True":
        # The API server has enforced it before, and the webhook does meanwhile.
        reason = ENFORCED
    status = {ENFORCED: "True", UNKNOWN: UNKNOWN}.get(reason, "False")
    wanted = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": REASONS[reason],
        "observedGeneration": policy.version.generation,
    }
    since = before.get("lastTransitionTime") if before.get("status") == status else now
    wanted["lastTransitionTime"] = since or now
    return None if wanted == before else wanted


class EnforcementReconciler:
    """Keeps the condition of each policy; keys are those of the caches."""

    def __init__(
        self,
        runtime: Runtime,
        caches: Mapping[Resource, Reflector[PolicyProjection]],
        watch: QuietWatch[CompiledObject, Known],
    ) -> None:
        self._runtime = runtime
        self._caches = caches
        self._watch = watch

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Select the keys of policies whose condition must be written."""
        if keys is None:
            keys = list(chain.from_iterable(cache.store.keys() for cache in self._caches.values()))
        return (key for key in keys if self._find_change(key) is not None)

    async def reconcile(self, key: str) -> None:
        """Write the condition of one policy. Raises ApiError."""
        change = self._find_change(key)
        if change is None:
            return
        resource, policy, condition = change
        foreign = [item for item in policy.conditions if item.get("type") != CONDITION]
        patch = {
            "metadata": {"resourceVersion": policy.version.resource_version},
            "status": {"conditions": [*foreign, condition]},
        }
        try:
            await self._runtime.client.patch(
                resource, policy.name, MergePatch(patch), policy.namespace, subresource="status"
            )
        except NotFoundError:
            # The policy was deleted, or an older definition of it has no status.
            return

    def _find_change(self, key: str) -> tuple[Resource, PolicyProjection, dict[str, Any]] | None:
        resource = POLICIES if "/" in key else CLUSTER_POLICIES
        policy = self._caches[resource].store.get(key)
        if policy is None:
            return None
        condition = decide_condition(
            policy, self._watch.summary, format_rfc3339(self._runtime.now())
        )
        return (resource, policy, condition) if condition else None


def start(runtime: Runtime) -> Runnables:
    """Start the controller."""
    metrics = runtime.metrics
    caches = {
        resource: Reflector(runtime.client, resource, decode, metrics=metrics.watches)
        for resource in (CLUSTER_POLICIES, POLICIES)
    }

    def enqueue_all() -> None:
        controller.enqueue_all()

    watch = QuietWatch(
        runtime.client,
        COMPILED_SELECTORS,
        decode_compiled,
        known_of,
        enqueue_all,
        quiet_seconds=QUIET,
        metrics=metrics.watches,
    )

    def begin(_queue: WorkQueue) -> EnforcementReconciler:
        return EnforcementReconciler(runtime, caches, watch)

    controller = Controller(names.POLICIES, begin, metrics, reflectors=tuple(caches.values()))
    for cache in caches.values():
        cache.subscribe(controller.enqueue)
    # The controller must work without the permission that this watch needs.
    return Runnables(controllers=(controller,), background=(watch.run,))
