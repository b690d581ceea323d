"""Decides which pods may be evicted from a node, and at what cost (rescheduler-spec 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from harbourmaster.rescheduling.model import Pod
    from harbourmaster.rescheduling.plans import PlannerSettings

SHORT: Final = 16
"""Flag of a pod: it would get less than its own grace period."""
BARE: Final = 8
"""No controller replaces it."""
CLAIM: Final = 4
"""The flag of a pod whose volumes have to follow it."""
NON_DRAINABLE: Final = 2
RUNNING: Final = 1
_DAEMON_SET: Final = "DaemonSet"
_FLAGS: Final = SHORT | BARE | CLAIM | NON_DRAINABLE | RUNNING
_ABOVE_PRIORITY: Final = 34
_HIGHEST: Final = 2**31


def is_required(pod: Pod, settings: PlannerSettings) -> bool:
    """Whether the pod must not be evicted."""
    return (
        pod.is_mirror
        or pod.is_critical
        or pod.is_never_evicted
        or pod.controller_kind == _DAEMON_SET
        or pod.priority >= settings.max_victim_priority
        or pod.namespace in settings.protected_namespaces
        or (settings.non_drainable == "forbid" and is_non_drainable(pod, settings))
    )


def is_non_drainable(pod: Pod, settings: PlannerSettings) -> bool:
    """Whether a drain would stop at the pod."""
    return settings.non_drainable != "ignore" and (not pod.controller_kind or pod.is_non_drainable)


def flags_of(pod: Pod, settings: PlannerSettings) -> int:
    """The reasons against evicting the pod, as flags."""
    flags = SHORT if pod.grace > settings.long_grace else 0
    if not pod.controller_kind:
        flags |= BARE
    if pod.has_claim:
        flags |= CLAIM
    if is_non_drainable(pod, settings):
        flags |= NON_DRAINABLE
    if pod.phase != "Pending":
        flags |= RUNNING
    return flags


def rank_of(flags: int, priority: int) -> int:
    """The place in the order of importance, the most important pod first, as far as it is coarse.

    Size, age and name decide between equal ones.
    """
    return ((_FLAGS - flags) << _ABOVE_PRIORITY) + _HIGHEST - priority


def start_time(pod: Pod) -> float:
    """Return the time at which the pod started, or was created."""
    return pod.created if pod.started is None else pod.started


def is_as_good_as_gone(pod: Pod, settings: PlannerSettings, now: float) -> bool:
    """Whether the pod terminates soon enough; without a grace limit, any terminating pod does."""
    if pod.deletion is None:
        return False
    return settings.grace_limit < 0 or pod.deletion - now <= settings.long_grace


def new_grace(pod: Pod, settings: PlannerSettings) -> int:
    """The grace that the pod is evicted with: never 0, after which its object vanishes first."""
    if pod.deletion is not None:
        return settings.long_grace
    own = pod.grace if settings.grace_limit < 0 else min(pod.grace, settings.grace_limit)
    return max(own, 1)
