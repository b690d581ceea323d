"""Decides which nodes a workload version has failed on, for how long, and when they are cleared.

The nodes are recorded in the version's status. All times follow from those of the failures, so a
failure that is seen twice is recorded once. Pure.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from harbourmaster.api.times import format_rfc3339, moment, seconds_between
from harbourmaster.gates.release import OURS
from harbourmaster.lifecycle.model import FAILED, FailedNode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.lifecycle.model import WorkloadVersion

CLEAR_KEY: Final = f"{OURS}clear-failed-nodes"
"""Annotation of a workload version: time until which failures do not count, or any other text to
request it."""
MOST: Final = 50
"""Maximum nodes of a version; the newest are kept."""
STARTING: Final = 120.0
"""Seconds in which a pod starts; a later failure is not a failed start."""
WAITING_REASONS: Final = frozenset(
    (
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImagePull",
        "ImagePullBackOff",
        "RunContainerError",
    )
)
"""Reasons for which a container waits that does not start."""


class NodeFailure(Struct, frozen=True, gc=False):
    """A failure of a version on a node; ``reason`` is read before "on this node"."""

    node: str
    reason: str
    at: datetime


class Start(Struct, frozen=True, gc=False):
    """The progress of a pod's start. ``turned`` is when its readiness changed last.

    ``reasons`` are those for which its containers wait.
    """

    phase: str = ""
    is_ready: bool = False
    started: str = ""
    turned: str = ""
    reasons: tuple[str, ...] = ()


def start_failure(start: Start) -> str:
    """Return why a pod failed to start, or "" if it did not."""
    waiting_reason = next((reason for reason in start.reasons if reason in WAITING_REASONS), "")
    if start.phase != FAILED and not waiting_reason:
        return ""
    if start.is_ready or (seconds_between(start.started, start.turned) or 0.0) > STARTING:
        return ""
    return f"pod {waiting_reason}" if waiting_reason else "pod failed"


def is_clear_wanted(version: WorkloadVersion) -> bool:
    """Whether clearing the nodes was requested and is not done yet."""
    text = version.metadata.annotations.get(CLEAR_KEY)
    return text is not None and moment(text) is None


def nodes_to_record(
    version: WorkloadVersion, failures: Iterable[NodeFailure], *, seconds: float, now: datetime
) -> tuple[FailedNode, ...]:
    """Return the nodes to record, those that expire last at the end.

    ``seconds`` is how long a failure counts.
    """
    if is_clear_wanted(version):
        return ()
    kept = {node.name: node for node in unexpired_nodes(version, now)}
    since = moment(version.metadata.annotations.get(CLEAR_KEY))
    for failure in failures:
        end = failure.at + timedelta(seconds=seconds)
        if end <= now or (since is not None and failure.at <= since):
            continue
        before = kept.get(failure.node)
        if before is None or format_rfc3339(end) > before.expires:
            kept[failure.node] = FailedNode(
                name=failure.node, reason=failure.reason, expires=format_rfc3339(end)
            )
    return tuple(sorted(kept.values(), key=lambda node: (node.expires, node.name))[-MOST:])


def unexpired_nodes(version: WorkloadVersion, now: datetime) -> tuple[FailedNode, ...]:
    """Return the recorded nodes that still count."""
    return tuple(
        node
        for node in version.status.failed_nodes
        if (end := moment(node.expires)) is not None and end > now
    )


def seconds_to_expiry(nodes: Iterable[FailedNode], now: datetime) -> float | None:
    """Return the seconds until the first node expires, or None if there is none."""
    ends = [end for node in nodes if (end := moment(node.expires)) is not None]
    return max((min(ends) - now).total_seconds(), 0.0) if ends else None


def with_inherited_nodes(
    version: WorkloadVersion, previous: WorkloadVersion | None, now: datetime
) -> WorkloadVersion:
    """Return a version that begins, with the nodes of the previous one."""
    nodes = unexpired_nodes(previous, now) if previous is not None else ()
    if not nodes:
        return version
    return structs.replace(version, status=structs.replace(version.status, failed_nodes=nodes))
