"""Settings of the rescheduler: which pods are critical, and what may be done to others for them."""

from __future__ import annotations

import random
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from harbourmaster.api.selectors import LabelSelector, compile_selector
from harbourmaster.api.settings import (
    Count,
    CountFromZero,
    DescribedSettings,
    Percent,
    Seconds,
    SecondsFromZero,
)
from harbourmaster.rescheduling.flow import Times
from harbourmaster.rescheduling.limits import AttemptBackoff, EvictionLimits
from harbourmaster.rescheduling.model import TAINT_KEY, Criteria
from harbourmaster.rescheduling.plans import Mode, NonDrainable, PlannerSettings, ScoreOrder

_SPARE: Final = 30.0
"""Seconds that a pod may take beyond its grace period."""


class ReschedulingSettings(DescribedSettings, frozen=True, kw_only=True):
    """Settings of the rescheduler. Off by default: it evicts pods of users."""

    enabled: Annotated[
        bool,
        "make room for critical add-ons by evicting other pods; false only releases reserved nodes",
    ] = False
    dry_run: Annotated[
        bool, "plan, try evictions as a dry run and report by events; nothing is changed"
    ] = False
    kill_switch: Annotated[
        str,
        'ConfigMap in our namespace that stops rescheduling with enabled: "false", at once and '
        "without a restart",
    ] = "harbourmaster-rescheduling"
    system_namespaces: Annotated[
        tuple[str, ...],
        "namespaces of critical add-ons; pods of other namespaces are never critical",
    ] = ("kube-system",)
    critical_classes: Annotated[
        tuple[str, ...],
        "priority classes of critical add-ons, in addition to priorities of at least 2000000000 "
        "and the annotation scheduler.alpha.kubernetes.io/critical-pod",
    ] = ("system-cluster-critical", "system-node-critical")
    critical_selector: Annotated[
        dict[str, Any] | None, "label selector of more critical add-ons"
    ] = None
    taint_key: Annotated[
        str, "key of the taint that reserves a node; critical add-ons must tolerate it"
    ] = TAINT_KEY
    inject_toleration: Annotated[
        bool,
        "add the toleration to a waiting critical add-on that lacks it, which cannot be undone; "
        "false only reports it by an event",
    ] = False
    mode: Annotated[
        Mode,
        "complement waits settleDelaySeconds for the scheduler's own preemption; standalone does "
        "not wait, for schedulers that do not preempt",
    ] = "complement"
    settle_delay_seconds: Annotated[
        SecondsFromZero,
        "seconds for which a pod must be unschedulable without preemption by the scheduler; set "
        "120 or more with an autoscaler that adds nodes",
    ] = 10.0
    initial_delay_seconds: Annotated[
        SecondsFromZero, "seconds that a new leader waits before its first plan"
    ] = 30.0
    grace_period_limit_seconds: Annotated[
        int,
        Meta(ge=-1),
        "maximum grace period of an evicted pod in seconds; -1 keeps each pod's own",
    ] = 10
    shorten_preemption: Annotated[
        bool,
        "also shorten the grace period of pods that the scheduler preempts for a critical add-on",
    ] = False
    allow_pdb_violation: Annotated[
        bool,
        "delete pods against their disruption budget if nothing else helps; the component "
        "rescheduling sets false",
    ] = True
    non_drainable: Annotated[
        NonDrainable,
        "pods that kubectl drain would not evict (no controller, local data, marked): avoid "
        "evicting them, forbid it, forbidMarked only for those with a mark, or ignore the "
        "difference",
    ] = "avoid"
    max_victim_priority: Annotated[
        int, "pods with this priority or a higher one are never evicted"
    ] = 2_000_000_000
    protected_namespaces: Annotated[
        tuple[str, ...], "namespaces whose pods are never evicted; ours is always included"
    ] = ()
    score_order: Annotated[
        ScoreOrder,
        "order in which nodes are compared: documented, priorityFirst (as the scheduler does), or "
        "random within the best tier",
    ] = "documented"
    seed: Annotated[
        int | None,
        "random seed of scoreOrder random, for repeatable choices; by default different in each "
        "process",
    ] = None
    prefer_relocatable: Annotated[bool, "prefer nodes whose victims fit elsewhere"] = False
    housekeeping_interval_seconds: Annotated[
        Seconds, "seconds between two passes without a change"
    ] = 10.0
    verify_delay_seconds: Annotated[
        SecondsFromZero,
        "seconds between the reservation of a node and reading its pods again, so that pods that "
        "are being bound are seen",
    ] = 1.0
    evict_timeout_seconds: Annotated[
        Seconds, "seconds for which an eviction is retried that a disruption budget refuses"
    ] = 60.0
    victim_gone_timeout_seconds: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        "seconds until evicted pods must be gone; by default gracePeriodLimitSeconds plus 30",
    ] = None
    bind_timeout_seconds: Annotated[
        Seconds, "seconds within which the scheduler must bind the add-on"
    ] = 60.0
    pod_scheduled_timeout_seconds: Annotated[Seconds, "time limit of one attempt in seconds"] = (
        600.0
    )
    max_concurrent_reservations: Annotated[
        Count,
        "nodes that are reserved at the same time; at most one in twenty of the ready nodes, but "
        "at least one",
    ] = 3
    max_victims_per_pod: Annotated[
        Count, "maximum number of pods evicted for one critical add-on"
    ] = 10
    evictions_per_minute: Annotated[Count, "maximum number of evictions in a minute"] = 20
    evictions_per_hour: Annotated[Count, "maximum number of evictions in an hour"] = 60
    pdb_violations_per_hour: Annotated[
        CountFromZero, "maximum number of violated disruption budgets in an hour"
    ] = 5
    max_not_ready_percent: Annotated[
        Percent,
        "maximum share of nodes that are not ready, in percent; one is always tolerated; above it "
        "nothing is evicted",
    ] = 30
    attempts_per_pod: Annotated[Count, "attempts for one pod; afterwards it is ignored"] = 5
    attempts_per_owner: Annotated[Count, "attempts in an hour for the pods of one owner"] = 10
    backoff_seconds: Annotated[
        Seconds,
        "seconds before the next attempt, doubled each time up to ten minutes, with a fifth of "
        "jitter",
    ] = 30.0
    adopt_legacy_taints: Annotated[
        bool, "remove taints of the original rescheduler (kube-system_NAME) whose pod does not wait"
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
        """The durations of the steps of a flow."""
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
    def limits(self) -> EvictionLimits:
        """The limits of evictions."""
        return msgspec.convert(self, EvictionLimits, from_attributes=True)

    @property
    def backoff(self) -> AttemptBackoff:
        """The pauses after failed attempts."""
        return AttemptBackoff(first=self.backoff_seconds, limit=max(600.0, self.backoff_seconds))


def criteria_of(settings: ReschedulingSettings) -> Criteria:
    """Return what makes a pod critical."""
    selector = None
    if settings.critical_selector is not None:
        selector = compile_selector(msgspec.convert(settings.critical_selector, LabelSelector))
    return Criteria(
        namespaces=frozenset(settings.system_namespaces),
        classes=frozenset(settings.critical_classes),
        selector=selector,
        taint_key=settings.taint_key,
    )


def planner_settings(settings: ReschedulingSettings, namespace: str) -> PlannerSettings:
    """Return the settings of plans; no pod of our own ``namespace`` is ever evicted."""
    return PlannerSettings(
        allow_pdb_violation=settings.allow_pdb_violation,
        non_drainable=settings.non_drainable,
        grace_limit=settings.grace_period_limit_seconds,
        max_victims=settings.max_victims_per_pod,
        max_victim_priority=settings.max_victim_priority,
        protected_namespaces=frozenset((*settings.protected_namespaces, namespace)),
        score_order=settings.score_order,
        seed=_seed(settings),
        prefer_relocatable=settings.prefer_relocatable,
        taint_key=settings.taint_key,
        mode=settings.mode,
    )


def _seed(settings: ReschedulingSettings) -> int:
    if settings.score_order != "random":
        return 0
    return random.getrandbits(32) if settings.seed is None else settings.seed
