"""Phases of tasks and of evaluations: one child for each definition, all at once.

See keptn-spec 3.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api.times import stamp
from harbourmaster.lifecycle.model import COMPLETED, FAILED, PENDING, WARNING, ItemStatus
from harbourmaster.lifecycle.overall import overall
from harbourmaster.lifecycle.phases import EVALUATION, SETTLED, TASK
from harbourmaster.lifecycle.steps import Creation, PhaseNotice, Step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from harbourmaster.lifecycle.model import Version
    from harbourmaster.lifecycle.phases import Phase, Status
    from harbourmaster.lifecycle.steps import Inputs, Rules

_WORDS: Final = {TASK: "Task", EVALUATION: "Evaluation"}


def run_checks(
    phase: Phase, version: Version, status: Status, inputs: Inputs, rules: Rules, now: datetime
) -> Step:
    """Follow the children, and ask for those that are missing.

    A definition that is listed twice counts once. A missing one keeps its item waiting,
    and only that one.
    """
    items: tuple[ItemStatus, ...] = getattr(status, phase.items)
    # In reverse, so that of two items of one definition the first counts.
    before = {item.definition_name: item for item in reversed(items)}
    after: list[ItemStatus] = []
    notices: list[PhaseNotice] = []
    creations: list[Creation] = []
    for definition in dict.fromkeys(getattr(version.spec, phase.checks)):
        old = before.get(definition)
        found = _followed(phase, old, definition, inputs, stamp(now))
        if isinstance(found, Creation):
            creations.append(found)
            found = old or ItemStatus(definition_name=definition)
        after.append(found)
        notices += _changes(phase, old, found, inputs)
    state = overall([item.status for item in after], len(after))
    if state == FAILED and not rules.is_blocking:
        state = WARNING
    return Step(
        status=replace(status, **{phase.items: tuple(after), phase.state: state}),
        state=state,
        notices=tuple(notices),
        creations=tuple(creations),
    )


def _followed(
    phase: Phase, old: ItemStatus | None, definition: str, inputs: Inputs, now: str
) -> ItemStatus | Creation:
    """The item as it is now, or the child that it needs."""
    if old is not None and old.status in SETTLED:
        return old
    if old is not None and old.name:
        state = inputs.children.get((phase.kind, old.name))
        if state is not None:
            return _in_state(old, state, now)
    made = inputs.made.get((phase.name, definition))
    if made is not None:
        fresh = ItemStatus(definition_name=definition, name=made.name, start_time=now)
        return _in_state(fresh, made.state, now)
    is_defined = (phase.kind, definition) in inputs.definitions
    if is_defined and (phase.name, definition) not in inputs.refused:
        return Creation(phase, definition, previous=old.name if old is not None else "")
    if old is not None and is_defined:
        # The deleted child's name is what its successor's follows from.
        return replace(old, status=PENDING)
    return ItemStatus(definition_name=definition)


def _in_state(item: ItemStatus, state: str, now: str) -> ItemStatus:
    state = state or PENDING
    return replace(item, status=state, end_time=now if state in COMPLETED else item.end_time)


def _changes(
    phase: Phase, old: ItemStatus | None, new: ItemStatus, inputs: Inputs
) -> Iterator[PhaseNotice]:
    """The notices about an item: each change once, because the old status was written."""
    word = _WORDS[phase.kind]
    was = old.status if old is not None else ""
    if new.status != was:
        text = f"{word.lower()} status changed from {was} to {new.status}"
        failed = new.name if new.status == FAILED and phase.kind == TASK else ""
        yield PhaseNotice(
            phase=f"Reconcile{word}",
            state="StatusChanged",
            text=text,
            failed_task=failed,
            is_minor=new.status == PENDING,
        )
        if new.status == FAILED and phase.kind == EVALUATION:
            yield PhaseNotice(phase="ReconcileEvaluation", state="Failed", about=new.name)
    is_undefined = (phase.kind, new.definition_name) not in inputs.definitions
    if not new.name and is_undefined and (old is None or old.name):
        missing = f'{phase.kind}Definition "{new.definition_name}"'
        text = f"{missing} not found; waiting for it to be created"
        yield PhaseNotice(phase=f"Create{word}", state="NotFound", text=text, warning=True)
