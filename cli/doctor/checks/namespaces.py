"""Whether namespaces that ask for gates carry the label by which webhooks find them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.cli.doctor.model import fault, warning
from harbourmaster.cli.doctor.selecting import named
from harbourmaster.cli.doctor.settings import UnknownSettingsError
from harbourmaster.controller.namespaces import ANNOTATED, ANNOTATION
from harbourmaster.controller.registry import LIFECYCLE, NAMESPACES
from harbourmaster.registration.desired import ENABLED, GATES_LABEL

if TYPE_CHECKING:
    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.doctor.model import Finding

CHECK: Final = "gates"


async def check(context: Context) -> list[Finding]:
    """Label and annotation that differ, and gates that nobody would ever open."""
    settings = await context.known_settings()
    excluded = {*settings.webhook.excluded_namespaces, context.namespace}
    lacking, left, asking = [], [], []
    for one in await context.namespaces():
        if one.name in excluded or one.deletion_timestamp:
            continue
        is_annotated = one.annotation(ANNOTATION) == ANNOTATED
        is_labelled = one.label(GATES_LABEL) == ENABLED
        if is_annotated:
            asking.append(one)
        if is_annotated and not is_labelled:
            lacking.append(one)
        if is_labelled and not is_annotated:
            left.append(one)
    findings = []
    remedy = "the controller mirrors it within seconds where it runs: see its Lease and log"
    if lacking:
        text = f"annotated {ANNOTATION}, without the label {GATES_LABEL}: their pods fail open"
        findings.append(fault(CHECK, f"namespace {named(lacking)}", text, remedy))
    if left:
        text = f"labelled {GATES_LABEL} without the annotation {ANNOTATION}"
        findings.append(warning(CHECK, f"namespace {named(left)}", text, remedy))
    if NAMESPACES not in settings.controllers:
        text = "does not mirror the annotation of namespaces, so no new one gets gates"
        add = f"add {NAMESPACES} to the setting controllers"
        findings.append(warning(CHECK, "controller", text, add))
    webhook = await _webhook_has_gates(context)
    if asking and webhook and LIFECYCLE not in settings.controllers:
        text = f"lets no pod go, and pods of {named(asking)} wait at gates"
        add = f"add {LIFECYCLE} to controllers, or take gates out of the webhook's features"
        findings.append(fault(CHECK, "controller", text, add))
    return findings


async def _webhook_has_gates(context: Context) -> bool:
    try:
        settings = await context.webhook_settings()
    except UnknownSettingsError:
        return True
    return settings is None or "gates" in settings.features
