"""What its scheduler says of a pod that has no node, and whether one has looked at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.times import parse
from harbourmaster.cli.live.kinds import decode_workload
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.policies.merge import DEFAULT_SCHEDULER

if TYPE_CHECKING:
    from harbourmaster.cli.why.model import WhyContext

SILENT_SECONDS: Final = 5.0
"""After that a pod that no scheduler has said anything of is one that no scheduler looks at."""
_SCHEDULED: Final = "PodScheduled"
_GATED: Final = "SchedulingGated"


class Scheduling(Struct, frozen=True):
    """What programs read."""

    scheduler: str
    reason: str = ""
    message: str = ""
    since: str = ""


async def section(context: WhyContext) -> Section | None:
    """The section of a pod that waits for a node behind no gate; None for any other."""
    if not context.is_pod:
        return None
    pod = decode_workload(context.subject.raw)
    spec, status = pod.spec, pod.status
    if spec.node_name or spec.scheduling_gates or status.phase not in {"", "Pending"}:
        return None
    if pod.metadata.deletion_timestamp:
        # Schedulers pass over what is being deleted.
        return None
    scheduler = spec.scheduler_name or DEFAULT_SCHEDULER
    found = pod.condition(_SCHEDULED)
    if found is None or found.reason == _GATED:
        age = (context.now - parse(pod.metadata.creation_timestamp)).total_seconds()
        if age < SILENT_SECONDS:
            return None
        return Section(
            name="scheduling",
            state="fault",
            code="not-looked-at",
            summary=f"no scheduler has looked at it: is {scheduler} running?",
            detail=Scheduling(scheduler=scheduler),
        )
    since = found.last_transition_time or ""
    lines = [Line(f"by {scheduler}, since {since}", tone="dim")]
    if status.nominated_node_name:
        lines.append(Line(f"room is being made on node {status.nominated_node_name}"))
    return Section(
        name="scheduling",
        state="waits",
        code="unschedulable" if found.reason == "Unschedulable" else "waits",
        summary=found.message or "it waits for a node",
        lines=tuple(lines),
        detail=Scheduling(scheduler, found.reason, found.message, since),
    )
