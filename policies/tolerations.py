"""Tolerations of failed nodes: those that the API server adds to pods, and which one counts.

It adds them before webhooks, for taints that no toleration of the pod covers. Of several that cover
a taint, the first counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harbourmaster.policies.keys import toleration_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    Json = dict[str, Any]

EFFECT: Final = "NoExecute"
DEFAULTS: Final[dict[str, Json]] = {
    taint: {"key": taint, "operator": "Exists", "effect": EFFECT, "tolerationSeconds": 300}
    for taint in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
}
"""The tolerations that the API server adds, by taint."""
DEFAULT_KEYS: Final[dict[str, Hashable]] = {
    taint: toleration_key(toleration) for taint, toleration in DEFAULTS.items()
}


def covers(toleration: Json, taint: str) -> bool:
    """Whether the toleration matches the taint of a failed node, which has no value."""
    if (toleration.get("effect") or EFFECT) != EFFECT:
        return False
    key = toleration.get("key") or ""
    if toleration.get("operator") == "Exists":
        return key in {"", taint}
    is_equal = (toleration.get("operator") or "Equal") == "Equal"
    return key == taint and is_equal and not toleration.get("value")


def counting(tolerations: Sequence[Json], taint: str) -> Json | None:
    """Return the toleration that counts for a taint."""
    return next((item for item in tolerations if covers(item, taint)), None)


def unset_defaults(tolerations: Sequence[Json]) -> dict[str, Hashable]:
    """Return the keys of the defaults that count, by taint: a policy may replace them."""
    counted = ((taint, counting(tolerations, taint)) for taint in DEFAULTS)
    return {
        taint: key
        for taint, item in counted
        if item is not None and (key := toleration_key(item)) == DEFAULT_KEYS[taint]
    }
