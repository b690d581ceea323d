"""Whether the webhook configurations are as the controller would write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.cli.doctor.model import fault, note, warning
from harbourmaster.cli.doctor.settings import UnknownSettingsError
from harbourmaster.controller.registry import REGISTRATION
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.registration.break_glass import is_open, opened, standing
from harbourmaster.registration.desired import NAME, Home, desired
from harbourmaster.registration.drift import compare

if TYPE_CHECKING:
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.doctor.model import Finding
    from harbourmaster.registration.break_glass import BreakGlass
    from harbourmaster.registration.drift import Repair

CHECK: Final = "configurations"
_OURS: Final = ".harbourmaster.dev"
_SHOWN: Final = 80
_HARMLESS: Final = "metadata."
_SERVICE: Final = "clientConfig.service."
_APPLY: Final = "make deploy-with-certmanager IMG=..., or apply your overlay"


async def check(context: Context) -> list[Finding]:
    """What is missing, what differs, and a broken glass."""
    try:
        settings = await context.controller_settings()
    except UnknownSettingsError:
        settings = None
    home = await context.home()
    wanted = desired(
        (settings or ControllerSettings()).webhook,
        Home(context.namespace, home.uid if home else None),
        None,
    )
    keeps = settings is None or REGISTRATION in settings.running
    findings: list[Finding] = []
    unknown: dict[str, Repair] = {}
    for resource, one in (await context.configurations()).items():
        if one is None:
            findings.append(_missing(resource, keeps=keeps))
            continue
        glass = standing(one)
        if glass is not None:
            findings.append(_broken(resource, one, glass, keeps=keeps))
            # Who is closed all the same is told there.
            one = opened(one)  # noqa: PLW2901
        expected = opened(wanted[resource]) if glass is not None else wanted[resource]
        for repair in compare(one, expected):
            if settings is None and repair.field.startswith(_SERVICE):
                # Where the process runs is its own matter, and the canary tells if nobody is there.
                continue
            if settings is None and repair.setting:
                unknown[repair.setting] = repair
            else:
                findings.append(_drift(resource, repair, keeps=keeps))
    findings += [_unknown(repair) for repair in unknown.values()]
    return [*findings, *await _twins(context)]


def _broken(resource: Resource, one: dict[str, Any], glass: BreakGlass, *, keeps: bool) -> Finding:
    entries = one.get("webhooks") or ()
    closed = [str(entry.get("name")) for entry in entries if not is_open(entry)]
    end = "harbourmaster doctor --break-glass off, when the trouble is over"
    if not closed:
        text = f"break-glass {glass}: all its webhooks fail open"
        return warning(CHECK, resource.kind, text, end)
    text = f"break-glass {glass}: yet {', '.join(closed)} fails closed"
    again = "harbourmaster doctor --break-glass on once more"
    who = "the controller opens it where it runs" if keeps else "stop whoever applies the manifests"
    return warning(CHECK, resource.kind, text, f"{who}; {again}, or off")


def _unknown(repair: Repair) -> Finding:
    """What a setting may have asked for, where nobody says which settings there are."""
    text = f"is {_value(repair.observed)}, by default {_value(repair.wanted)}"
    return note(CHECK, repair.setting, f"{text}; no Deployment says which it should be")


def _missing(resource: Resource, *, keeps: bool) -> Finding:
    remedy = (
        "the controller makes it within seconds where it runs: see its Lease and log"
        if keeps
        else _APPLY
    )
    text = "is not there: the API server asks us about nothing that it would name"
    return fault(CHECK, f"{resource.kind} {NAME}", text, remedy)


def _drift(resource: Resource, repair: Repair, *, keeps: bool) -> Finding:
    short = "mutating" if resource.kind.startswith("Mutating") else "validating"
    subject = f"{repair.subject} ({short})"
    if not repair.field:
        text = "is missing" if repair.observed is None else "is none of ours"
    else:
        text = f"is {_value(repair.observed)}, {_value(repair.wanted)} expected"
    if repair.field.startswith(_HARMLESS):
        return warning(CHECK, subject, text, "the controller puts it right where it runs")
    if not keeps:
        remedy = _APPLY
    elif repair.setting:
        remedy = f"the controller puts it right where it runs; to keep it, set {repair.setting}"
    else:
        remedy = "the controller puts it right where it runs: see its Lease and log"
    return fault(CHECK, subject, text, remedy)


def _value(value: Any) -> str:  # noqa: ANN401
    if value is None:
        return "absent"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


async def _twins(context: Context) -> list[Finding]:
    """Configurations of another name with webhooks of ours: each object is reviewed twice."""
    findings = []
    for resource in await context.configurations():
        for one in await context.all_configurations(resource):
            name = (one.get("metadata") or {}).get("name")
            entries = [str(each.get("name")) for each in one.get("webhooks") or ()]
            if name != NAME and any(each.endswith(_OURS) for each in entries):
                text = f"has webhooks of ours as well as {NAME}: each object is reviewed twice"
                remedy = f"kubectl delete {resource.plural} {name}"
                findings.append(warning(CHECK, f"{resource.kind} {name}", text, remedy))
    return findings
