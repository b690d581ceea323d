"""Why a placed object is in this cluster: the record of its application's last decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.reader import unreadable
from harbourmaster.cli.placement.why import Shown, lines, reported
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.kube.errors import ApiError
from harbourmaster.placement.manifests import NAME_LABEL, NAMESPACE_LABEL, UID_LABEL
from harbourmaster.placement.model import FALSE, Application

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.cli.why.model import State, Subject, WhyContext


class PlacementDetail(Struct, frozen=True, rename="camel", kw_only=True):
    """What programs read."""

    application: str
    """``namespace/name``, as the labels of the placed object say it."""
    placed: str
    """The object that carries the labels: the subject itself, or an owner of it."""
    record: Shown | None = None
    unread: str = ""
    """Why there is no record to show."""


async def section(context: WhyContext) -> Section | None:
    """Of what an Application put into this cluster, and what that made in turn."""
    found = next(
        (
            (each, metadata)
            for each in (context.subject, *context.owners)
            if (metadata := metadata_in(each.raw)).labels.get(UID_LABEL, "")
        ),
        None,
    )
    if found is None:
        return None
    placed, metadata = found
    detail = await _detail(context, placed, metadata)
    state, summary = _verdict(detail)
    below = []
    if detail.record is not None:
        first, *rest = lines(detail.record)
        below = [Line(each.removeprefix("  "), depth=_depth(each)) for each in (first, *rest)]
    return Section(
        name="placement",
        title="Placement",
        state=state,
        summary=summary,
        code=_code(detail),
        lines=tuple(below),
        detail=detail,
    )


async def _detail(context: WhyContext, placed: Subject, metadata: Metadata) -> PlacementDetail:
    namespace, name = metadata.labels.get(NAMESPACE_LABEL, ""), metadata.labels.get(NAME_LABEL, "")
    shown = f"{namespace}/{name}"
    detail = PlacementDetail(application=shown, placed=placed.shown)
    elsewhere = (
        "it is not in this cluster: ask the cluster that manages placement with harbourmaster "
        f"placement why {shown} --context ..."
    )
    if not context.live.has_cluster or not (namespace and name):
        return msgspec.structs.replace(detail, unread=elsewhere)
    try:
        raw = await context.live.find(APPLICATIONS, name, namespace)
        if raw is None:
            return msgspec.structs.replace(detail, unread=elsewhere)
        application = msgspec.json.decode(raw, type=Application)
    except ApiError as error:
        return msgspec.structs.replace(detail, unread=unreadable(error, f"Application {shown}"))
    except (msgspec.DecodeError, ValueError) as error:
        return msgspec.structs.replace(detail, unread=f"Application {shown}: {error}")
    if application.metadata.uid != metadata.labels.get(UID_LABEL, ""):
        return msgspec.structs.replace(
            detail, unread=f"Application {shown} is another one than the one that placed it"
        )
    return msgspec.structs.replace(detail, record=reported(application))


def _verdict(detail: PlacementDetail) -> tuple[State, str]:
    whose = f"{detail.placed} is of application {detail.application}"
    record = detail.record
    if record is None:
        return "unknown", f"{whose}; {detail.unread}"
    if record.scheduled is not None and record.scheduled.status == FALSE:
        return "fault", f"{whose}: {record.scheduled.reason}: {record.scheduled.message}"
    if record.scheduled_to and record.running_on != record.scheduled_to:
        return "waits", f"{whose}, which is on its way to '{record.scheduled_to}'"
    if not record.scheduled_to:
        return "waits", f"{whose}, which is not placed"
    return "fine", f"{whose}, which is placed on '{record.scheduled_to}'"


def _code(detail: PlacementDetail) -> str:
    """``placed``, ``moving``, ``unplaced``, ``refused``, or ``unknown``."""
    record = detail.record
    if record is None:
        return "unknown"
    if record.scheduled is not None and record.scheduled.status == FALSE:
        return "refused"
    if not record.scheduled_to:
        return "unplaced"
    return "placed" if record.running_on == record.scheduled_to else "moving"


def _depth(line: str) -> int:
    return (len(line) - len(line.lstrip())) // 2
