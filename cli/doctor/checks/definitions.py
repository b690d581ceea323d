"""Whether our kinds are there, in the versions that we ask for, and convert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.resources import API_SERVICES, DEFINITIONS
from harbourmaster.cli.doctor.context import together
from harbourmaster.cli.doctor.model import fault, note, warning
from harbourmaster.cli.doctor.objects import decode_api_service_status, decode_definition
from harbourmaster.cli.installed import KEPTN_RESOURCES, PLACEMENT_RESOURCES, POLICY_RESOURCES
from harbourmaster.controller.registration.api_services import SERVED
from harbourmaster.controller.registration.conversions import CONVERTED

if TYPE_CHECKING:
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.doctor.model import Finding
    from harbourmaster.cli.doctor.objects import Definition
    from harbourmaster.controller.settings import ControllerSettings

CHECK: Final = "definitions"
APPLY: Final = "kubectl apply --server-side -k deploy/crds"
_WEBHOOK: Final = "Webhook"


async def check(context: Context) -> list[Finding]:
    """Definitions that are absent, not served, of other versions, or that don't convert."""
    settings = await context.known_settings()
    resources = [*POLICY_RESOURCES, *KEPTN_RESOURCES]
    if settings.placement.enabled:
        resources += PLACEMENT_RESOURCES
    bodies = await together(*(context.get(DEFINITIONS, _name(each)) for each in resources))
    findings: list[Finding] = []
    missing = []
    for resource, body in zip(resources, bodies, strict=True):
        if body is None:
            missing.append(_name(resource))
        else:
            findings += _judged(resource, decode_definition(body), settings, context.namespace)
    if missing:
        listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
        text = "not there, so such objects can't be written and count for nothing"
        findings.insert(0, fault(CHECK, f"definition {listed}", text, APPLY))
    return [*findings, *await _api_services(context, settings)]


def _name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"


def _judged(
    resource: Resource, found: Definition, settings: ControllerSettings, namespace: str
) -> list[Finding]:
    subject = f"definition {_name(resource)}"
    findings = []
    established = found.condition("Established")
    names = found.condition("NamesAccepted")
    if names is not None and names.status == "False":
        text = f"is not served: {names.message}"
        findings.append(fault(CHECK, subject, text, "delete the definition that has its name"))
    elif established is None or established.status != "True":
        findings.append(fault(CHECK, subject, "is not served yet", f"wait, or {APPLY}"))
    if resource.version not in found.served:
        served = ", ".join(sorted(found.served)) or "none"
        text = f"does not serve {resource.version}, which we ask for, but {served}"
        findings.append(fault(CHECK, subject, text, APPLY))
    old = [each for each in found.status.stored_versions or () if each != found.storage]
    if old:
        text = f"some objects may still be stored as {', '.join(old)}"
        remedy = "nothing yet; before that version goes, write each object once (kubectl replace)"
        findings.append(note(CHECK, subject, text, remedy))
    if found.metadata.name in CONVERTED:
        findings += _conversion(subject, found, settings, namespace)
    return findings


def _conversion(
    subject: str, found: Definition, settings: ControllerSettings, namespace: str
) -> list[Finding]:
    conversion: dict[str, Any] = found.spec.conversion or {}
    home = settings.webhook.service_namespace or namespace
    if conversion.get("strategy") != _WEBHOOK:
        text = "does not convert its versions: fields of older ones are lost unseen"
        return [fault(CHECK, subject, text, APPLY)]
    client = (conversion.get("webhook") or {}).get("clientConfig") or {}
    service = client.get("service") or {}
    if (service.get("namespace"), service.get("name")) != (home, settings.webhook.service_name):
        where = (
            f"Service {service.get('namespace')}/{service.get('name')}"
            if service
            else str(client.get("url") or "nobody")
        )
        text = f"is converted by {where} and not by us"
        return [warning(CHECK, subject, text, f"{APPLY}, if that is what you want no more")]
    return []


async def _api_services(context: Context, settings: ControllerSettings) -> list[Finding]:
    if not settings.metrics.custom_metrics_api:
        return []
    findings = []
    for name in SERVED:
        body = await context.get(API_SERVICES, name)
        why = decode_api_service_status(body).why_unavailable if body is not None else ""
        if why:
            text = f"the API server can't reach it: {why}"
            remedy = "it looks twice a minute; if it stays so, see whether the controller runs"
            findings.append(warning(CHECK, f"APIService {name}", text, remedy))
    return findings
