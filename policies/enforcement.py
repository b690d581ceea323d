"""Who enforces a policy, and whether it is enforced at all (decision D21)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.policies.model import ON_TOO_LARGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.policies.model import Policy

ENFORCEMENT_KEY: Final = "harbourmaster.dev/enforcement"
"""Annotation of a policy: who sets its fields in pods; one of ENFORCEMENTS."""
WEBHOOK: Final = "Webhook"
API_SERVER: Final = "APIServer"
BOTH: Final = "Both"
ENFORCEMENTS: Final = (API_SERVER, BOTH, WEBHOOK)
MODE_KEY: Final = "harbourmaster.dev/mode"
"""Annotation of a policy: whether it changes pods or is only evaluated; one of MODES."""
AUDIT: Final = "Audit"
ENFORCE: Final = "Enforce"
MODES: Final = (AUDIT, ENFORCE)

_HASH_DIGITS: Final = 16
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def enforcement_of(annotations: Mapping[str, str]) -> str:
    """One of ENFORCEMENTS; an unknown value counts as Webhook."""
    value = annotations.get(ENFORCEMENT_KEY, WEBHOOK)
    return value if value in ENFORCEMENTS else WEBHOOK


def is_audited(annotations: Mapping[str, str]) -> bool:
    """Whether the policy is evaluated and counted, and changes nothing."""
    return annotations.get(MODE_KEY) == AUDIT


def policy_hash(policy: Policy) -> str:
    """Sixteen hexadecimal digits that differ when the policy's effect does.

    Read from the decoded fields, so the same for a file and for the stored object.
    """
    on_too_large = (policy.metadata.annotations or {}).get(ON_TOO_LARGE)
    content = _encode((policy.reference, policy.spec, on_too_large))
    return hashlib.sha256(content).hexdigest()[:_HASH_DIGITS]
