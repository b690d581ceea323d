"""Why a workload has no pods, or none of its current template; None where nothing says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.cli.why.missing_gate import pods_of, why_not_made
from harbourmaster.cli.why.model import Section
from harbourmaster.cli.why.pod_causes import refusal_step

if TYPE_CHECKING:
    from harbourmaster.cli.why.model import WhyContext


async def section(context: WhyContext) -> Section | None:
    """Explain what keeps the controller of a workload from creating its pods."""
    if context.is_pod:
        return None
    reason = await why_not_made(context, await pods_of(context))
    if reason is None:
        return None
    code, state, text = reason
    step = refusal_step(text, context.subject.namespace) if code == "pods-refused" else ""
    return Section(name="pods", state=state, code=code, summary=text, step=step)
