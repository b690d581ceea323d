"""Decides which failed checks of a version are repeated, and for whom. Pure.

A label asks for it, and admission writes who asks and which failed tasks and evaluations are meant.
Each has a name of its own, so a request is spent once they are replaced (keptn-spec 3.14).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.api.patches import add
from harbourmaster.gates.release import (
    RERUN_BY_KEY,
    RERUN_CHECKS_KEY,
    RERUN_KEY,
    RERUN_NOTES,
    RERUN_REASON_KEY,
)
from harbourmaster.lifecycle.events import STARTED
from harbourmaster.lifecycle.model import FAILED
from harbourmaster.lifecycle.phases import phases_of, state_of
from harbourmaster.lifecycle.steps import PhaseNotice

if TYPE_CHECKING:
    from harbourmaster.api.patches import Operation
    from harbourmaster.lifecycle.model import Version


def failed_checks(version: Version) -> frozenset[str]:
    """Return the names of the tasks or evaluations by which a version failed."""
    return frozenset(
        item.name
        for phase in phases_of(version)
        if phase.kind and FAILED == state_of(version.status, phase) == version.status.status
        for item in getattr(version.status, phase.items)
        if item.status == FAILED
    )


def checks_to_repeat(version: Version) -> frozenset[str]:
    """Return the names of the children whose results no longer count."""
    notes = version.metadata.annotations
    if RERUN_KEY not in version.metadata.labels or not notes.get(RERUN_BY_KEY):
        return frozenset()
    return frozenset(notes.get(RERUN_CHECKS_KEY, "").split(","))


def is_rerun_wanted(version: Version) -> bool:
    """Whether a failed version is to run its failed checks again."""
    names = failed_checks(version)
    return bool(names) and names <= checks_to_repeat(version)


def stamp_operations(version: Version, former: Version, user: str) -> list[Operation]:
    """Return the operations that write who asks and for what, and keep both from other changes."""
    notes, before = version.metadata.annotations, former.metadata.annotations
    request = version.metadata.labels.get(RERUN_KEY)
    if request is None:
        return []
    stamps = {key: before.get(key) for key in RERUN_NOTES}
    if request != former.metadata.labels.get(RERUN_KEY):
        checks = ",".join(sorted(failed_checks(version)))
        stamps = {RERUN_BY_KEY: user, RERUN_CHECKS_KEY: checks}
    stamped = {key: text for key, text in (notes | stamps).items() if text is not None}
    return [add("/metadata/annotations", stamped)] if stamped != notes else []


def rerun_notice(version: Version) -> PhaseNotice:
    """Return the notice that a version runs its failed checks again."""
    notes = version.metadata.annotations
    why = notes.get(RERUN_REASON_KEY) or "no reason is given"
    text = f"failed checks are repeated for {notes[RERUN_BY_KEY]}: {why}"
    return PhaseNotice(phase="RepeatChecks", state=STARTED, text=text)
