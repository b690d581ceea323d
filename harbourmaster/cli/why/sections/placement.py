"""Why a placed object is in this cluster: the record of its application's last decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.placement.why import ShownApplication, lines, report_of
from harbourmaster.cli.why.model import Section, from_text
from harbourmaster.kube.errors import ApiError
from harbourmaster.placement.manifests import NAME_LABEL, NAMESPACE_LABEL, UID_LABEL
from harbourmaster.placement.model import FALSE, Application

if TYPE_CHECKING:
    from harbourmaster.cli.why.model import State, WhyContext


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
    """Explain the placement of an object that an Application created, or of its dependents."""
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
                f"harbourmaster placement why {application} --context ..."
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


def _state_of(record: ShownApplication | None) -> tuple[str, State, str]:
    """Code, state and what is said of the application; the code of no record is ``unknown``."""
    if record is None:
        return "unknown", "unknown", ""
    if record.scheduled is not None and record.scheduled.status == FALSE:
        return "refused", "fault", f": {record.scheduled.reason}: {record.scheduled.message}"
    target = record.scheduled_to
    if not target:
        return "unplaced", "waits", ", which is not placed"
    if record.running_on != target:
        return "moving", "waits", f", which is on its way to '{target}'"
    return "placed", "fine", f", which is placed on '{target}'"
