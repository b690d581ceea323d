"""The place of an application and the reason, for the Application itself and what it placed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import APPLICATIONS, CLUSTERS
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.why.application_lines import ShownApplication, lines, report_of
from harbourmaster.cli.why.model import Section, from_text
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle.gate_verdict import release_command
from harbourmaster.placement.checking import (
    CHECK_FAILED,
    CHECKING,
    DEPLOYING,
    POST_CHECK_FAILED,
    REVERTED,
)
from harbourmaster.placement.manifests import NAME_LABEL, NAMESPACE_LABEL, UID_LABEL
from harbourmaster.placement.model import FALSE, NOT_CONFIRMED, TRUE, Application

if TYPE_CHECKING:
    from harbourmaster.cli.why.model import State, WhyContext


_REPEATABLE: Final = frozenset((CHECK_FAILED, POST_CHECK_FAILED, REVERTED))


class PlacementDetail(Struct, frozen=True, rename="camel", kw_only=True):
    """The details of a placement for programs."""

    application: str
    """``namespace/name``, as the labels of the placed object say it."""
    placed: str
    """The object that carries the labels: the subject itself, or an owner of it."""
    record: ShownApplication | None = None
    unread: str = ""
    """Why there is no record to show."""


async def section(context: WhyContext) -> Section | None:
    """Explain an Application, or the placement of what it created and of the dependents."""
    if context.subject.kind == APPLICATIONS.kind:
        return await _section_of_application(context)
    for placed in (context.subject, *context.owners):
        metadata = metadata_in(placed.raw)
        if metadata.labels.get(UID_LABEL):
            break
    else:
        return None
    namespace, name = metadata.labels.get(NAMESPACE_LABEL, ""), metadata.labels.get(NAME_LABEL, "")
    application = f"{namespace}/{name}"
    record, unread = None, ""
    try:
        raw = await context.live.find(APPLICATIONS, name, namespace) if namespace and name else None
        decoded = msgspec.json.decode(raw, type=Application) if raw is not None else None
        if decoded is None:
            unread = (
                "it is not in this cluster: ask the cluster that manages placement with "
                f"harbourmaster why application {application} --context NAME"
            )
        elif decoded.metadata.uid != metadata.labels[UID_LABEL]:
            unread = f"Application {application} is another one than the one that placed it"
        else:
            record = report_of(decoded)
    except ApiError as error:
        unread = read_error(error, f"Application {application}")
    except ValueError as error:
        unread = f"Application {application}: {error}"
    code, state, text = _state_of(record)
    return Section(
        name="placement",
        state=state,
        summary=f"{placed.reference} is of application {application}{text or f'; {unread}'}",
        code=code,
        lines=tuple(from_text(lines(record))) if record else (),
        detail=PlacementDetail(
            application=application, placed=placed.reference, record=record, unread=unread
        ),
    )


async def _section_of_application(context: WhyContext) -> Section:
    own, live = context.subject, context.live
    record = report_of(msgspec.json.decode(own.raw, type=Application))
    (_, *shown), key = lines(record), f"{own.namespace}/{own.name}"
    code, state, text = _state_of(record)
    settings, doubt = await live.assumed_settings(CONTROLLER, ControllerSettings)
    named = f"{APPLICATIONS.name}/{own.name}"
    edit = f"correct what it names: kubectl -n {own.namespace} edit {named}"
    step = f"kubectl -n {own.namespace} describe {named} shows its conditions"
    if record.scheduled is None and not (doubt or settings.placement.enabled):
        code, state, text = "placement-off", "fault", ": placement is off, so it has no effect"
        controller = f"kubectl -n {live.namespace} edit deployment {CONTROLLER}"
        step = f"add deploy/components/placement, or set placement.enabled: {controller}"
    elif code == "refused" and record.scheduled and record.scheduled.reason == NOT_CONFIRMED:
        step = f"harbourmaster placement confirm {key}"
    elif code == "refused":
        step = f"{edit}; kubectl get {CLUSTERS.name} -A --show-labels lists clusters"
    elif record.checked and code == "not-checked" and record.checked.reason in _REPEATABLE:
        target = f"application/{own.name} -n {own.namespace}"
        step = f"correct its cause, and run {release_command(target, 'checks-failed', 'rerun')}"
    elif code == "not-deployed" or (code == "not-checked" and state == "fault"):
        step = edit
    return Section(
        name="placement",
        state=state,
        code=code,
        summary=f"application {key}{text}",
        step=step,
        lines=tuple(from_text(shown)),
        detail=PlacementDetail(application=key, placed=own.reference, record=record),
    )


def _state_of(record: ShownApplication | None) -> tuple[str, State, str]:
    """Code, state and what is said of the application; the code of no record is ``unknown``."""
    if record is None:
        return "unknown", "unknown", ""
    if record.scheduled is not None and record.scheduled.status == FALSE:
        return "refused", "fault", f": {record.scheduled.reason}: {record.scheduled.message}"
    target, deployed, ready = record.scheduled_to, record.deployed, record.ready
    if target and deployed is not None and deployed.status == FALSE:
        text = f", which is not deployed on '{target}': {deployed.reason}: {deployed.message}"
        return "not-deployed", "fault", text.rstrip(": ")
    checked = record.checked
    if checked is not None and checked.status != TRUE and checked.reason != DEPLOYING:
        state: State = "waits" if checked.reason == CHECKING else "fault"
        return "not-checked", state, f": {checked.reason}: {checked.message}"
    if not target:
        return "unplaced", "waits", ", which is not placed"
    if record.running_on != target:
        where = f", and runs on '{record.running_on}'" if record.running_on else ""
        return "moving", "waits", f", which is on its way to '{target}'{where}"
    if ready is not None and ready.status == FALSE:
        text = f", which is not ready on '{target}': {ready.reason}: {ready.message}"
        return "not-ready", "waits", text.rstrip(": ")
    return "placed", "fine", f", which is placed on '{target}'"
