"""What policies in Audit mode would do to an object that was answered: counted, never written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.policies.compiled import CompiledPolicy
from harbourmaster.policies.pods import Kind, PodView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.webhook.engine import Engine

MAX_AUDITED: Final = 8
"""Policies that are evaluated for one object, in their order."""
UNCHANGED: Final = "unchanged"
WOULD_CHANGE: Final = "would_change"
FITS_NO_NODE: Final = "fits_no_node"
"""It would change the object, and then no node would match, though one does now."""


class Audit(Struct, frozen=True, gc=False):
    """An object as it was asked about, with the policies that were enforced, and those to audit."""

    kind: Kind
    pod: PodView
    enforced: tuple[CompiledPolicy, ...]
    audited: tuple[CompiledPolicy, ...]
    waiting: tuple[bool, str]
    """The options of ``Engine.merge``: whether nodeName is a field, and where the pod waits."""


def results(audit: Audit, engine: Engine) -> Iterator[tuple[str, str]]:
    """Each audited policy and its result, as if it alone were enforced besides the others."""
    kind, pod, enforced, waiting = audit.kind, audit.pod, audit.enforced, audit.waiting

    def merged(policies: tuple[CompiledPolicy, ...]) -> tuple[bool, bytes]:
        found = engine.merge(
            kind, pod, policies, node_name_as_field=waiting[0], waits=waiting[1]
        ).response
        return found.allowed, found.patch or b""

    before = merged(enforced)
    # Meanwhile no review is answered.
    for policy in audit.audited[:MAX_AUDITED]:
        together = tuple(sorted((*enforced, policy), key=lambda each: each.rank))
        if merged(together) == before:
            yield policy.reference, UNCHANGED
            continue
        unmet = engine.node_warnings(kind, pod, together, waiting)
        fits = not unmet or engine.node_warnings(kind, pod, enforced, waiting)
        yield policy.reference, WOULD_CHANGE if fits else FITS_NO_NODE
