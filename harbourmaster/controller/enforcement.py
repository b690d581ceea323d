"""Says in the status of each policy who enforces it; see ``policies.enforcement``.

Only of policies that name, or once named, another than the webhook.
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


class AskedPolicy(Struct, frozen=True, gc=False):
    """What is kept of a policy: whom it names, and what its status says."""

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
        """Ours; empty where there is none."""
        return next((each for each in self.conditions if each.get("type") == CONDITION), {})


def decode(raw: msgspec.Raw | bytes) -> AskedPolicy:
    """A policy of either kind from its JSON."""
    policy, more = _decode_policy(raw), _decode_more(raw)
    annotations = policy.metadata.annotations or {}
    enforcement = enforcement_of(annotations)
    return AskedPolicy(
        policy.reference,
        policy.metadata.name or "",
        policy.metadata.namespace,
        enforcement,
        is_audited(annotations),
        policy_hash(policy) if enforcement != WEBHOOK else "",
        more.metadata,
        tuple((more.status.conditions if more.status else None) or ()),
    )


def decide(policy: AskedPolicy, known: Known, now: str) -> dict[str, Any] | None:
    """The condition that the policy should have; None where it has it, or never asked for it."""
    before = policy.condition
    reason = reason_of(
        (policy.reference, policy.hash), policy.enforcement, known, is_audited=policy.is_audited
    )
    if not before and policy.enforcement == WEBHOOK:
        return None
    if reason == WAITING and before.get("status") == "True":
        # The API server has enforced it before; webhooks do both meanwhile.
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


class EnforcementStatus:
    """Reconciles the condition of one policy; keys are those of the caches."""

    def __init__(
        self,
        runtime: Runtime,
        caches: Mapping[Resource, Reflector[AskedPolicy]],
        watch: QuietWatch[CompiledObject, Known],
    ) -> None:
        self._runtime = runtime
        self._caches = caches
        self._watch = watch

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Those of the keys whose condition is not as it should be."""
        if keys is None:
            keys = list(chain.from_iterable(cache.store.keys() for cache in self._caches.values()))
        return (key for key in keys if self._wanted(key) is not None)

    async def reconcile(self, key: str) -> None:
        """Write the condition. Raises ApiError."""
        wanted = self._wanted(key)
        if wanted is None:
            return
        resource, policy, condition = wanted
        others = [each for each in policy.conditions if each.get("type") != CONDITION]
        patch = {
            "metadata": {"resourceVersion": policy.version.resource_version},
            "status": {"conditions": [*others, condition]},
        }
        try:
            await self._runtime.client.patch(
                resource, policy.name, MergePatch(patch), policy.namespace, subresource="status"
            )
        except NotFoundError:
            # The policy is gone, or its definition is of an earlier version and has no status.
            return

    def _wanted(self, key: str) -> tuple[Resource, AskedPolicy, dict[str, Any]] | None:
        resource = POLICIES if "/" in key else CLUSTER_POLICIES
        policy = self._caches[resource].store.get(key)
        if policy is None:
            return None
        condition = decide(policy, self._watch.summary, format_rfc3339(self._runtime.now()))
        return (resource, policy, condition) if condition else None


def start(runtime: Runtime) -> Runnables:
    """Start the controller."""
    metrics = runtime.metrics
    caches = {
        each: Reflector(runtime.client, each, decode, metrics=metrics.watches)
        for each in (CLUSTER_POLICIES, POLICIES)
    }

    def changed() -> None:
        controller.changed_all()

    watch = QuietWatch(
        runtime.client,
        COMPILED_SELECTORS,
        decode_compiled,
        known_of,
        changed,
        quiet_seconds=QUIET,
        metrics=metrics.watches,
    )

    def begin(_queue: WorkQueue) -> EnforcementStatus:
        return EnforcementStatus(runtime, caches, watch)

    controller = Controller(names.POLICIES, begin, metrics, reflectors=tuple(caches.values()))
    for cache in caches.values():
        cache.subscribe(controller.changed)
    # Without the right to read them, the others must work.
    return Runnables(controllers=(controller,), background=(watch.run,))
