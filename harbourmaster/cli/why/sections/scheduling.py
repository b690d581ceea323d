"""The scheduler's message about a pod without a node, or that no scheduler has looked at it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from harbourmaster.api.resources import NODES
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.cli.live.kinds import decode_workload
from harbourmaster.cli.why.model import Line, Section, State
from harbourmaster.cli.why.policy_lines import NO_POLICY
from harbourmaster.cli.why.sections.policies import origins_in
from harbourmaster.policies.field_text import format_value
from harbourmaster.policies.merge import DEFAULT_SCHEDULER
from harbourmaster.policies.owned_fields import REQUIRED_TERMS, label_path
from harbourmaster.rescheduling.decoding import decode_node, decode_pending
from harbourmaster.rescheduling.fit import static_reasons
from harbourmaster.rescheduling.model import NodeRequirement, NodeTerm
from harbourmaster.rescheduling.node_affinity import matches
from harbourmaster.rescheduling.unmet import parts

if TYPE_CHECKING:
    from harbourmaster.cli.why.model import WhyContext

SILENT_SECONDS: Final = 5.0
"""After that a pod that no scheduler has said anything of is one that no scheduler looks at."""
_Exclusions: TypeAlias = tuple[str, State, list[str]]
_SCHEDULED: Final = "PodScheduled"
_GATED: Final = "SchedulingGated"


class Scheduling(Struct, frozen=True):
    """The scheduler's condition of a pod, for programs."""

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
    scheduled = pod.condition(_SCHEDULED)
    if scheduled is None or scheduled.reason == _GATED:
        age = (context.now - parse_rfc3339(pod.metadata.creation_timestamp)).total_seconds()
        if age < SILENT_SECONDS:
            return None
        return Section(
            name="scheduling",
            state="fault",
            code="not-looked-at",
            summary=f"no scheduler has looked at it: is {scheduler} running?",
            detail=Scheduling(scheduler=scheduler),
        )
    since = scheduled.last_transition_time or ""
    given: _Exclusions = ("waits", "waits", [])
    if scheduled.reason == "Unschedulable":
        given = await _find_exclusions(context)
    code, state, texts = given
    message = scheduled.message or "it waits for a node"
    lines = [Line(text, tone="bad") for text in texts[1:]]
    lines += [Line(message, tone="dim")] if texts else []
    lines.append(Line(f"by {scheduler}, since {since}", tone="dim"))
    if status.nominated_node_name:
        lines.append(Line(f"room is being made on node {status.nominated_node_name}"))
    return Section(
        name="scheduling",
        state=state,
        code=code,
        summary=texts[0] if texts else message,
        lines=tuple(lines),
        detail=Scheduling(scheduler, scheduled.reason, scheduled.message, since),
    )


async def _find_exclusions(context: WhyContext) -> _Exclusions:
    """Why no node may have the pod, whatever runs there: a code, and who requires what."""
    pending = decode_pending(context.subject.raw)
    nodes = await context.live.attempt(context.live.items(NODES, decode_node), [])
    if not nodes or any(not static_reasons(pending, node, reserving=False) for node in nodes):
        return "unschedulable", "waits", []
    asked: list[tuple[str, tuple[NodeTerm, ...]]] = [
        (label_path(key), (NodeTerm((NodeRequirement(key, "In", (value,)),)),))
        for key, value in pending.node_selector
    ]
    terms = pending.node_terms or ()
    asked += [(REQUIRED_TERMS, (part,)) for part in parts(terms[0])] if len(terms) == 1 else []
    asked += [(REQUIRED_TERMS, terms)] if len(terms) > 1 else []
    who = await origins_in(context)
    texts = []
    for path, node in asked:
        alone = replace(pending, node_selector=(), node_terms=node)
        if not any(matches(alone, node) for node in nodes):
            by = who.get(path) or "the pod"
            requires = "require" if " and " in by else "requires"
            why = f"; {by} requires it" if by == NO_POLICY else f", which {by} {requires}"
            texts.append(f"no node has {_format_terms(node)}{why}")
    fitting = [node for node in nodes if matches(pending, node)]
    if not texts and not fitting:
        every = " and ".join(_format_terms(node) for _, node in asked)
        texts.append(f"no node has all of {every}")
    if texts:
        return "no-node-matches", "fault", texts
    counts = Counter(
        reason for node in fitting for reason in static_reasons(pending, node, reserving=False)
    )
    which = "nodes" if not asked else "nodes that match"
    texts = [f"{count} of {len(fitting)} {which}: {node}" for node, count in counts.most_common()]
    return "node-excluded", "fault", texts


def _format_terms(terms: tuple[NodeTerm, ...]) -> str:
    wanted = [
        {"matchExpressions": to_builtins(term.expressions), "matchFields": to_builtins(term.fields)}
        for term in terms
    ]
    return format_value(".nodeSelectorTerms", wanted)
