"""The effect that policies in Audit mode would have, which is counted and never written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.webhook.verdict import UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.webhook.engine import Engine
    from harbourmaster.webhook.verdict import Audit

MAX_AUDITED: Final = 8
"""Policies that are evaluated for one object, in their order."""
WOULD_CHANGE: Final = "would_change"
FITS_NO_NODE: Final = "fits_no_node"
"""The policy would change the object so that no node matches, although one does now."""


def audit_results(audit: Audit, engine: Engine) -> Iterator[tuple[str, str]]:
    """Yield each audited policy and its result, as if only it were enforced besides the others."""
    kind, pod, enforced, waiting = audit.kind, audit.pod, audit.enforced, audit.waiting

    def merge_result(policies: tuple[CompiledPolicy, ...]) -> tuple[bool, bytes]:
        verdict = engine.merge(
            kind, pod, policies, node_name_as_field=waiting[0], waits=waiting[1]
        ).response
        return verdict.allowed, verdict.patch or b""

    before = merge_result(enforced)
    # Meanwhile no review is answered.
    for policy in audit.audited[:MAX_AUDITED]:
        together = tuple(sorted((*enforced, policy), key=lambda compiled: compiled.rank))
        if merge_result(together) == before:
            yield policy.reference, UNCHANGED
            continue
        unmet = engine.node_warnings(kind, pod, together, waiting)
        fits = not unmet or engine.node_warnings(kind, pod, enforced, waiting)
        yield policy.reference, WOULD_CHANGE if fits else FITS_NO_NODE
