"""Which references across namespaces lack consent (decision D17)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from harbourmaster.api.references import DEFAULT_MODE
from harbourmaster.cli.diagnosis import note, warning
from harbourmaster.cli.references import unconsented

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Each reference without consent; where all are open, what would be refused by default."""
    mode = (await live.known_settings()).cross_namespace_references
    is_open = mode == "Open"
    found = await unconsented(live, mode)
    for each in found:
        subject = f"{each.to.resource.kind} {each.to.namespace}/{each.to.name}"
        origins = ", ".join(each.origins)
        remedy = f"to consent: kubectl {shlex.join(each.command)}"
        text = f"references from {origins} have no consent: crossNamespaceReferences is {mode}, so"
        if is_open:
            yield note(subject, f"{text} they are followed", remedy)
        else:
            yield warning(subject, f"{text} they are refused", remedy)
    if is_open and not found:
        text = "it is Open, and every reference to a provider or project has consent"
        remedy = f"set it to {DEFAULT_MODE}: docs/reference/metrics.md#references-across-namespaces"
        yield note("crossNamespaceReferences", text, remedy)
