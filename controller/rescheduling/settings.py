"""Settings of the rescheduler: which pods are critical, and what may be done to others for them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from harbourmaster.api.settings import DescribedSettings
from harbourmaster.rescheduling.flow import Times
from harbourmaster.rescheduling.limits import Backoff, Limits
from harbourmaster.rescheduling.model import TAINT_KEY
from harbourmaster.rescheduling.plans import Mode, NonDrainable, ScoreOrder

_SPARE: Final = 30.0
"""Seconds that a pod may take beyond its grace period."""


class ReschedulingSettings(DescribedSettings, frozen=True, kw_only=True):
    """How room is made for critical add-ons. Off by default: it evicts other people's pods."""

    enabled: Annotated[
        bool,
        Meta(
            description="make room for critical add-ons by evicting other pods; false releases "
            "the nodes that were kept for them, and does nothing else"
        ),
    ] = False
    dry_run: Annotated[
        bool,
        Meta(
            description="plan, try evictions without doing them, and tell by events; nothing is "
            "changed"
        ),
    ] = False
    kill_switch: Annotated[
        str,
        Meta(
            description='ConfigMap in our namespace that stops all of it with enabled: "false", '
            "at once and without a restart"
        ),
    ] = "harbourmaster-rescheduling"
    system_namespaces: Annotated[
        tuple[str, ...], Meta(description="namespaces of critical add-ons; elsewhere no pod is one")
    ] = ("kube-system",)
    critical_classes: Annotated[
        tuple[str, ...],
        Meta(
            description="priority classes of critical add-ons, besides priorities from 2000000000 "
            "and the annotation scheduler.alpha.kubernetes.io/critical-pod"
        ),
    ] = ("system-cluster-critical", "system-node-critical")
    critical_selector: Annotated[
        dict[str, Any] | None,
        Meta(description="label selector of further critical add-ons; by default none"),
    ] = None
    taint_key: Annotated[
        str, Meta(description="taint by which a node is kept; critical add-ons must tolerate it")
    ] = TAINT_KEY
    inject_toleration: Annotated[
        bool,
        Meta(
            description="add the toleration to a waiting critical add-on that lacks it, which "
            "can't be undone; false tells by an event"
        ),
    ] = False
    mode: Annotated[
        Mode,
        Meta(
            description="complement waits settleDelaySeconds for the scheduler's own preemption; "
            "standalone does not, for schedulers that don't preempt"
        ),
    ] = "complement"
    settle_delay_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="seconds for which a pod must be unschedulable, and the scheduler find no "
            "way; 120 or more where nodes are added by an autoscaler",
        ),
    ] = 10.0
    initial_delay_seconds: Annotated[
        float, Meta(ge=0, description="seconds that a new leader waits before its first plan")
    ] = 30.0
    grace_period_limit_seconds: Annotated[
        int,
        Meta(
            ge=-1,
            description="longest grace of an evicted pod, in seconds; -1 leaves each pod its own",
        ),
    ] = 10
    shorten_preemption: Annotated[
        bool,
        Meta(
            description="give pods that the scheduler itself preempts for a critical add-on no "
            "more than that grace, too"
        ),
    ] = False
    allow_pdb_violation: Annotated[
        bool,
        Meta(
            description="where nothing else helps, delete pods whose disruption budget forbids "
            "it; the component rescheduling sets false"
        ),
    ] = True
    non_drainable: Annotated[
        NonDrainable,
        Meta(
            description="pods that kubectl drain would not move (no controller, local data, "
            "marked): avoid, forbid to evict them, or ignore that"
        ),
    ] = "avoid"
    max_victim_priority: Annotated[
        int, Meta(description="pods of this priority or more are never evicted")
    ] = 2_000_000_000
    protected_namespaces: Annotated[
        tuple[str, ...],
        Meta(description="namespaces no pod of which is evicted; our own always is one"),
    ] = ()
    score_order: Annotated[
        ScoreOrder,
        Meta(
            description="which of several nodes: documented, priorityFirst (as the scheduler), or "
            "random within the best tier"
        ),
    ] = "documented"
    seed: Annotated[
        int | None,
        Meta(
            description="number from which scoreOrder random draws, and draws the same again; by "
            "default another one in each process"
        ),
    ] = None
    prefer_relocatable: Annotated[
        bool, Meta(description="prefer nodes whose victims fit elsewhere")
    ] = False
    housekeeping_interval_seconds: Annotated[
        float, Meta(gt=0, description="seconds between two looks that no event asks for")
    ] = 10.0
    verify_delay_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="seconds between keeping a node and reading its pods anew: pods that are "
            "on their way arrive meanwhile",
        ),
    ] = 1.0
    evict_timeout_seconds: Annotated[
        float,
        Meta(gt=0, description="seconds for which a disruption budget may refuse an eviction"),
    ] = 60.0
    victim_gone_timeout_seconds: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(
            description="seconds for evicted pods to go; by default the limit of the grace and 30 "
            "more"
        ),
    ] = None
    bind_timeout_seconds: Annotated[
        float, Meta(gt=0, description="seconds for the scheduler to use the room")
    ] = 60.0
    pod_scheduled_timeout_seconds: Annotated[
        float, Meta(gt=0, description="seconds for one attempt as a whole")
    ] = 600.0
    max_concurrent_reservations: Annotated[
        int,
        Meta(
            ge=1,
            description="nodes that are kept at the same time; never more than one in twenty "
            "of the ready ones, but always one",
        ),
    ] = 3
    max_victims_per_pod: Annotated[
        int, Meta(ge=1, description="pods that may be evicted for one critical add-on")
    ] = 10
    evictions_per_minute: Annotated[
        int, Meta(ge=1, description="pods that may be evicted in a minute")
    ] = 20
    evictions_per_hour: Annotated[int, Meta(ge=1, description="the same in an hour")] = 60
    pdb_violations_per_hour: Annotated[
        int, Meta(ge=0, description="disruption budgets that may be violated in an hour")
    ] = 5
    attempts_per_pod: Annotated[
        int, Meta(ge=1, description="attempts for one pod; after them it is left alone")
    ] = 5
    attempts_per_owner: Annotated[
        int, Meta(ge=1, description="attempts in an hour for the pods of one owner")
    ] = 10
    backoff_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="seconds before another attempt, doubled each time up to ten minutes, "
            "a fifth more or less",
        ),
    ] = 30.0
    adopt_legacy_taints: Annotated[
        bool,
        Meta(
            description="remove taints of the first rescheduler (kube-system_NAME) whose pod does "
            "not wait"
        ),
    ] = False

    def __post_init__(self) -> None:
        """Raise ValueError for a grace period of 0."""
        if self.grace_period_limit_seconds == 0:
            raise ValueError(
                "gracePeriodLimitSeconds: must be at least 1, or -1 to keep each pod's own grace "
                "period: 0 kills pods before their node is free"
            )

    @property
    def times(self) -> Times:
        """How long each step may take."""
        limit = max(self.grace_period_limit_seconds, 0)
        gone = self.victim_gone_timeout_seconds
        is_own = self.grace_period_limit_seconds < 0
        return Times(
            settle=0.0 if self.mode == "standalone" else self.settle_delay_seconds,
            verify=self.verify_delay_seconds,
            evict=self.evict_timeout_seconds,
            gone=gone if gone is not None else limit + _SPARE,
            adds_grace=gone is None and is_own,
            bind=self.bind_timeout_seconds,
        )

    @property
    def limits(self) -> Limits:
        """How much may be done."""
        return Limits(
            evictions_per_minute=self.evictions_per_minute,
            evictions_per_hour=self.evictions_per_hour,
            pdb_violations_per_hour=self.pdb_violations_per_hour,
            attempts_per_pod=self.attempts_per_pod,
            attempts_per_owner=self.attempts_per_owner,
        )

    @property
    def backoff(self) -> Backoff:
        """How long to wait after a failed attempt."""
        return Backoff(first=self.backoff_seconds, limit=max(600.0, self.backoff_seconds))
