"""Break-glass mode: while a configuration is annotated, its webhooks fail open, which is not drift.

The annotation alone decides, so ``harbourmaster doctor`` and ``kubectl annotate`` can set it while
the controller is down. Without it the settings apply again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.registration.desired import GATED_PODS, RERUNS, TASK_DEFINITIONS_ENTRY
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

ANNOTATION: Final = "harbourmaster.dev/break-glass"
OPEN: Final = "Ignore"
"""The failurePolicy of every webhook meanwhile."""
_POLICY: Final = "failurePolicy"
_CLOSED: Final = "Fail"
_BY_DEFAULT_CLOSED: Final = frozenset((GATED_PODS, RERUNS, TASK_DEFINITIONS_ENTRY))


class BreakGlass(Struct, frozen=True):
    """The content of the annotation; all fields may be empty, because its presence counts."""

    by: str = ""
    at: str = ""
    reason: str = ""
    before: dict[str, str] = {}
    """The failurePolicy of each webhook before, by its name."""

    def has_noted(self, name: str) -> bool:
        """Return whether the policy of this webhook can be restored."""
        return self.before.get(name) in {OPEN, _CLOSED}

    def __str__(self) -> str:
        """Return in one line who started the mode, when and why."""
        said = (f"by {self.by}" if self.by else "", f"at {self.at}" if self.at else "")
        who = " ".join(filter(None, said)) or "by an unknown user"
        # The annotation can have any text, and it goes into events.
        return clean(f"{who}: {self.reason}" if self.reason else who)


_decode: Final = msgspec.json.Decoder(BreakGlass).decode


def break_glass_of(configuration: Mapping[str, Any] | None) -> BreakGlass | None:
    """The break-glass mode of a stored configuration; None while it is off.

    A text that is not ours, such as one written by hand, is the reason.
    """
    metadata = (configuration or {}).get("metadata") or {}
    text = (metadata.get("annotations") or {}).get(ANNOTATION)
    if not isinstance(text, str):
        return None
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return BreakGlass(reason=" ".join(text.split()))


def with_open_webhooks(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with every webhook failing open."""
    entries = [{**entry, _POLICY: OPEN} for entry in configuration.get("webhooks") or ()]
    return {**configuration, "webhooks": entries}


def with_break_glass(configuration: Mapping[str, Any], glass: BreakGlass) -> dict[str, Any]:
    """A stored configuration in break-glass mode; ``before`` is filled in, or kept as it was."""
    earlier = break_glass_of(configuration)
    policies = {
        entry["name"]: entry.get(_POLICY, _CLOSED)
        for entry in configuration.get("webhooks") or ()
        # In break-glass mode already, an open webhook does not show how it was before.
        if earlier is None or not is_open(entry)
    }
    # What was noted first is restored, however often the mode is started.
    before = {**policies, **(earlier.before if earlier else {})}
    noted = msgspec.structs.replace(glass, before=before)
    return _with_annotation(with_open_webhooks(configuration), msgspec.json.encode(noted).decode())


def without_break_glass(configuration: Mapping[str, Any], glass: BreakGlass) -> dict[str, Any]:
    """A stored configuration as it was before break-glass mode.

    Webhooks without a note are closed if they hold back gated pods, as by default; others stay.
    """
    entries = [
        {**entry, _POLICY: _before(entry, glass)} for entry in configuration.get("webhooks") or ()
    ]
    return _with_annotation({**configuration, "webhooks": entries}, None)


def is_open(entry: Mapping[str, Any]) -> bool:
    """Return whether objects are admitted that the webhook does not answer."""
    return entry.get(_POLICY) == OPEN


def _before(entry: Mapping[str, Any], glass: BreakGlass) -> str:
    if glass.has_noted(entry["name"]):
        return glass.before[entry["name"]]
    return _CLOSED if entry["name"] in _BY_DEFAULT_CLOSED else entry.get(_POLICY, _CLOSED)


def _with_annotation(configuration: dict[str, Any], text: str | None) -> dict[str, Any]:
    metadata = dict(configuration.get("metadata") or {})
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key != ANNOTATION
    }
    if text is not None:
        annotations[ANNOTATION] = text
    metadata["annotations"] = annotations
    if not annotations:
        del metadata["annotations"]
    return {**configuration, "metadata": metadata}
