"""References across namespaces on which an object depends, and those that are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.resources import ANALYSES, MAGNUM_CLUSTERS
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.installation import NOT_INSTALLED
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.references import KINDS, references_in, shared_namespaces
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.evaluation.model import Analysis
from harbourmaster.kube.errors import ApiError
from harbourmaster.placement.model import FALSE, SCHEDULED, MagnumCluster, condition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.cli.why.model import Subject, WhyContext

_KINDS: Final = {resource.kind: resource for resource in KINDS}


async def section(context: WhyContext) -> Section | None:
    """Explain the references of an object, and those of the objects to which it refers."""
    subject, live = context.subject, context.live
    settings, doubt = await live.assumed_settings(CONTROLLER, ControllerSettings)
    mode, shared = settings.cross_namespace_references, shared_namespaces(live, settings)
    resource = _KINDS[subject.kind]
    told = [Line(text, label="status", tone="bad") for text in _reported_refusals(subject)]
    refused, unknown = [], [doubt] if doubt and not doubt.startswith(NOT_INSTALLED) else []
    waiting = list(references_in(subject.raw, resource))
    while waiting:
        to = waiting.pop(0)
        try:
            raw = await live.find(to.resource, to.name, to.namespace)
        except ApiError as error:
            what = f"{to.resource.kind} {to.namespace}/{to.name}"
            if to.needs_consent(mode, shared):
                what = f"whether there is consent ({to.command}): {what}"
            unknown.append(read_error(error, what))
            continue
        annotations = None if raw is None else metadata_in(raw).annotations
        if not to.is_allowed(mode, annotations, shared):
            refused.append(Line(to.refusal, label="refused", tone="bad"))
        elif raw is not None and to.resource in KINDS and to.resource != resource:
            waiting += references_in(raw, to.resource)
    doubts = [Line(text, label="unknown", tone="dim") for text in dict.fromkeys(unknown)]
    what = "a reference has no consent" if refused else "no reference is known to be refused"
    return Section(
        name="references",
        state="fault" if refused or told else "unknown" if doubts else "fine",
        code="no-consent" if refused or told else "unread" if doubts else "allowed",
        summary=f"{what} (crossNamespaceReferences is {mode})",
        step=next((line.text.rpartition(": ")[2] for line in (*refused, *told)), ""),
        lines=(*told, *refused, *doubts),
    )


def _reported_refusals(subject: Subject) -> Iterator[str]:
    if subject.kind == ANALYSES.kind:
        values = msgspec.json.decode(subject.raw, type=Analysis).status.stored_values
        yield from (value.err_msg for value in values.values() if value.err_msg)
    elif subject.kind == MAGNUM_CLUSTERS.kind:
        conditions = msgspec.json.decode(subject.raw, type=MagnumCluster).status.conditions
        scheduled = condition(conditions, SCHEDULED)
        if scheduled is not None and scheduled.status == FALSE:
            yield scheduled.message
