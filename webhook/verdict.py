"""Verdicts of admission: what was decided on one object, and how verdicts are combined."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.policies.compiled import CompiledPolicy
from harbourmaster.policies.model import AdmissionWarning
from harbourmaster.policies.pods import Kind, PodView
from harbourmaster.webhook.review import Response, allow, deny, patch, patch_with

if TYPE_CHECKING:
    from harbourmaster.policies.merge import Merged
    from harbourmaster.webhook.gating import Gating

MUTATED: Final = "mutated"
"""A patch was sent."""
GATED: Final = "gated"
"""The pod waits at our gate or with our scheduler, whatever else the patch has."""
UNCHANGED: Final = "unchanged"
"""Policies matched, but the pod already has everything that they set."""
UNMATCHED: Final = "unmatched"
"""No policy matched, or the object is one that is never changed."""
SKIPPED: Final = "skipped"
"""The object was allowed as it is because the mutation could not be made."""
DENIED: Final = "denied"
"""A pod was denied that may have to wait, and can't: not even the fixed patch could be made, or it
names another scheduler and the settings deny that. Or a pod that cannot get a policy that must not
be skipped. Or an object with an unknown key, where the settings deny that."""
VALID: Final = "valid"
"""An object that is only checked passed validation."""
INVALID: Final = "invalid"
"""An object that is only checked did not pass validation."""
MALFORMED: Final = "malformed"
"""The body could not be read as a review."""
OUTCOMES: Final = (
    MUTATED,
    GATED,
    UNCHANGED,
    UNMATCHED,
    SKIPPED,
    DENIED,
    VALID,
    INVALID,
    MALFORMED,
)


class Audit(Struct, frozen=True, gc=False):
    """An object under review, with the policies that were enforced and those to audit."""

    kind: Kind
    pod: PodView
    enforced: tuple[CompiledPolicy, ...]
    audited: tuple[CompiledPolicy, ...]
    waiting: tuple[bool, str]
    """The options of ``Engine.merge``: whether nodeName is a field, and where the pod waits."""


class Verdict(Struct, frozen=True, gc=False):
    """The decision on one object, for the answer, the log and the metrics."""

    outcome: str
    response: Response
    policies: tuple[str, ...] = ()
    operations: int = 0
    warnings: tuple[AdmissionWarning, ...] = ()
    audit: Audit | None = None
    """The evaluation of policies in Audit mode, which happens after the answer."""

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the warnings."""
        return tuple(warning.code for warning in self.warnings)


LEFT_ALONE: Final = Verdict(UNMATCHED, allow())
"""The verdict on an object that nothing changes."""


def skip(code: str, text: str) -> Verdict:
    """Allow an object as it is, with a warning that says why nothing was decided."""
    warnings = (AdmissionWarning(code, text),)
    return Verdict(SKIPPED, allow(text, warnings), warnings=warnings)


def from_merge(kind: Kind, merged: Merged, policies: tuple[CompiledPolicy, ...]) -> Verdict:
    """Return the verdict of policies that were merged into an object."""
    warnings = tuple(merged.warnings)
    references = tuple(policy.reference for policy in policies)
    if merged.refusal and not kind.is_template:
        return Verdict(DENIED, deny(merged.refusal), references, warnings=warnings)
    if merged.operations:
        outcome, response = MUTATED, patch(merged.operations, warnings)
    else:
        outcome, response = UNCHANGED, allow(warnings=warnings)
    return Verdict(outcome, response, references, len(merged.operations), warnings)


def combine(gating: Gating, merged: Verdict | None) -> Verdict:
    """Combine what gates and policies set into one patch; they set different fields.

    Where the pod waits with our scheduler, ``merged`` sets no schedulerName.
    """
    if merged and merged.outcome == DENIED:
        return merged
    if gating.refusal:
        return Verdict(DENIED, deny(gating.refusal), warnings=gating.warnings)
    if not gating.patch and not gating.warnings:
        return merged or _left_alone(gating.reason)
    merged = merged or _left_alone(None)
    warnings = merged.warnings + gating.warnings
    patch = _join_patches(merged.response.patch, gating.patch)
    if patch is None:
        return Verdict(SKIPPED, allow(warnings=warnings), merged.policies, warnings=warnings)
    changed = GATED if gating.waits else MUTATED
    return Verdict(
        changed if gating.patch else merged.outcome,
        patch_with(patch, warnings),
        merged.policies,
        merged.operations + gating.operations,
        warnings,
    )


def with_warnings(verdict: Verdict, warnings: tuple[AdmissionWarning, ...]) -> Verdict:
    """Return the verdict with further warnings; a refusal gets none, because it has its reason."""
    response = verdict.response
    if not warnings or not response.allowed:
        return verdict
    warnings = verdict.warnings + warnings
    if response.patch:
        response = patch_with(response.patch, warnings)
    else:
        response = allow(response.reason, warnings)
    return replace(verdict, response=response, warnings=warnings)


@cache
def _left_alone(reason: str | None) -> Verdict:
    return Verdict(UNMATCHED, allow(reason))


def _join_patches(first: bytes | None, second: bytes) -> bytes | None:
    # Both are JSON lists of operations, and neither is decoded.
    if not first or not second:
        return first or second or None
    return b"%b,%b" % (first[:-1], second[1:])
