"""Whether anything may be done for a pod now: the checks before a plan (rescheduler-spec 6.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import LEASES, PODS
from harbourmaster.controller.rescheduling import notices as reasons
from harbourmaster.controller.rescheduling.context import MANY_BUSY
from harbourmaster.kube.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from harbourmaster.kube.lease import decode_lease
from harbourmaster.rescheduling.decoding import decode_pending
from harbourmaster.rescheduling.limits import Renewals, too_many_not_ready
from harbourmaster.rescheduling.taints import NO_SCHEDULE

if TYPE_CHECKING:
    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.rescheduling.flow_model import EvictionFlow
    from harbourmaster.rescheduling.model import PendingPod

FRESH: Final = 60.0
"""Seconds after which a scheduler that has not renewed its Lease is taken for dead."""
LOOK_AGAIN: Final = 5.0
"""Seconds between two looks at a Lease that seems old; a scheduler renews it every two."""
LATER: Final = 600.0
"""Seconds until another look at what only a change of the pod can mend."""
_LEASE: Final = ("kube-system", "kube-scheduler")


class _Spec(Struct, frozen=True):
    tolerations: list[dict[str, Any]] | None = None


class _Pod(Struct, frozen=True):
    metadata: Metadata
    spec: _Spec


_decode_pod: Final = msgspec.json.Decoder(_Pod).decode


class Qualification:
    """The checks of one term, which began at ``begun``."""

    def __init__(self, context: ReschedulingContext, begun: float) -> None:
        self._context = context
        self._begun = begun
        self._lease = Renewals(FRESH)
        self.why_open = ""
        """Why no plan is started; empty if plans can start."""

    async def wait(self, flow: EvictionFlow, pending: PendingPod) -> float | None:
        """Seconds until another look; None where a plan may be made. Raises ApiError."""
        context, now = self._context, self._context.clock()
        left = self._begun + context.settings.initial_delay_seconds - now
        if left > 0:
            return left
        key = context.settings.taint_key
        if not pending.tolerates_reservation:
            if context.settings.inject_toleration and not context.settings.dry_run:
                await self._inject(pending, key)
                return LOOK_AGAIN
            note = f"the critical pod does not tolerate the taint {key}: add a toleration for it"
            context.notices.report_on_pod(
                flow, reasons.MISSING_TOLERATION, note, "Warning", once=True
            )
            return LATER
        pending = await context.with_volumes(pending)
        if pending.unsupported:
            note = f"unsupported constraints, so no plan is made: {', '.join(pending.unsupported)}"
            context.notices.report_on_pod(flow, reasons.UNSUPPORTED, note, "Warning", once=True)
            return FRESH if pending.claims else LATER
        owner, attempts = pending.pod.owner, context.history.attempts
        losses = attempts.count_losses(
            owner, flow.first_seen, self._is_running, now, context.chance()
        )
        left_of_attempts = attempts.wait(flow.uid, owner, now)
        if left_of_attempts is None:
            note = "too many attempts for this pod did not help: no further attempt is made"
            context.notices.report_on_pod(flow, reasons.DELAYED, note, "Warning", once=True)
            return LATER
        if left_of_attempts > 0:
            reason = reasons.REPEATED if losses else reasons.DELAYED
            note = (
                "pods of this owner were gone within a minute of getting room, in the last hour "
                f"{losses}x: look for what removes them"
                if losses
                else "attemptsPerOwner is reached for the pods of this owner in the last hour"
            )
            note = f"{note}; the next attempt is in {left_of_attempts:.0f}s"
            context.notices.report_on_pod(flow, reason, note, "Warning", once=True)
            return left_of_attempts
        closed = await self._until_closed(flow, now)
        return closed if closed > 0 else None

    def _is_running(self, uid: str) -> bool:
        pod = self._context.caches.cluster.pod(uid)
        return pod is not None and pod.deletion is None

    async def _until_closed(self, flow: EvictionFlow, now: float) -> float:
        """Seconds until plans can start; 0 for now."""
        context = self._context
        was_open, self.why_open = bool(self.why_open), ""
        left = context.history.breaker.wait(flow.uid, now)
        if left > 0:
            self.why_open = "eviction did not make room several times in a row"
        elif unready := too_many_not_ready(
            context.caches.cluster.nodes(), context.settings.max_not_ready_percent
        ):
            left, self.why_open = FRESH, unready
        elif context.history.busy.count("", now) >= MANY_BUSY:
            left, self.why_open = FRESH, "the API server is overloaded"
        elif not await self._scheduler_lives(now):
            left, self.why_open = LOOK_AGAIN, "the scheduler does not renew its Lease"
        if self.why_open and not was_open:
            note = f"rescheduling paused: {self.why_open}"
            context.notices.report_on_pod(flow, reasons.CIRCUIT, note, "Warning", once=True)
        return left

    async def _scheduler_lives(self, now: float) -> bool:
        """Whether it renews its Lease; yes where there is none, or none for us to see.

        A renewal is one whatever time it says: clocks differ, and are set.
        """
        namespace, name = _LEASE
        try:
            lease = decode_lease(await self._context.client.get(LEASES, name, namespace))
        except (NotFoundError, ForbiddenError, msgspec.DecodeError):
            return True
        return self._lease.record(lease.spec.renew_time or "", now, self._context.now())

    async def _inject(self, pending: PendingPod, key: str) -> None:
        """Add the toleration to the pod, which brings it here again. Raises ApiError."""
        pod, client = pending.pod, self._context.client
        toleration = {"key": key, "operator": "Exists", "effect": NO_SCHEDULE}
        try:
            raw = await client.get(PODS, pod.name, pod.namespace)
            if decode_pending(raw, self._context.criteria).tolerates_reservation:
                # It has it already; the watch is behind.
                return
            stored = _decode_pod(raw)
            before = stored.spec.tolerations
            patch: list[dict[str, Any]] = [
                {"op": "test", "path": "/metadata/uid", "value": pod.uid},
                {"op": "test", "path": "/spec/tolerations", "value": before},
                {"op": "add", "path": "/spec/tolerations", "value": [*(before or ()), toleration]},
            ]
            await client.patch(PODS, pod.name, JsonPatch(patch), pod.namespace)
        except (NotFoundError, ConflictError, InvalidError):
            # It is another one by now, which the watch brings.
            return
