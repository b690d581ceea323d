"""Whether all parts are there, run and are ready, and somebody leads."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.resources import DEPLOYMENTS, PODS, SERVICE_ACCOUNTS, SERVICES
from harbourmaster.cli.doctor.context import together
from harbourmaster.cli.doctor.model import fault, note, warning
from harbourmaster.cli.doctor.objects import decode_pod, decode_service
from harbourmaster.cli.doctor.settings import UnknownSettingsError
from harbourmaster.cli.installed import COMPONENT_LABEL, CONTROLLER, NAME_LABEL, WEBHOOK
from harbourmaster.cli.metadata import metadata_in
from harbourmaster.cli.migrate.objects import decode_slice
from harbourmaster.cli.migrate.survey import SLICES
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.errors import ApiError, ForbiddenError
from harbourmaster.webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.doctor.model import Finding
    from harbourmaster.cli.doctor.objects import Deployment

CHECK: Final = "installation"
DEPLOY: Final = "install it again: make deploy IMG=..., or apply your overlay"
_OURS: Final = f"{NAME_LABEL}=harbourmaster"
_LATE: Final = 3
"""Durations of a Lease after which a holder that does not renew it is gone for good."""


async def absent(context: Context) -> Finding | None:
    """The one thing to say where nothing of ours is in this namespace. Raises ApiError."""
    deployments = await together(context.deployment(CONTROLLER), context.deployment(WEBHOOK))
    if any(deployments) or await context.lease() is not None:
        return None
    places = _called(await context.configurations())
    if context.namespace in places:
        return None
    places |= await _elsewhere(context)
    where = f", but in {', '.join(sorted(places))}" if places else ""
    return fault(
        CHECK,
        "Harbourmaster",
        f"is not installed in namespace {context.namespace}{where}",
        f"say where it is: --namespace {min(places)}"
        if places
        else "make deploy IMG=..., or say where it is by --namespace",
    )


def _called(configurations: Mapping[Resource, dict[str, Any] | None]) -> set[str]:
    """The namespaces of the Services that our configurations call."""
    services = (
        (entry.get("clientConfig") or {}).get("service") or {}
        for one in configurations.values()
        for entry in (one or {}).get("webhooks") or ()
    )
    return {str(each["namespace"]) for each in services if each.get("namespace")}


async def _elsewhere(context: Context) -> set[str]:
    """The namespaces with Deployments of ours."""
    try:
        found = await context.items(DEPLOYMENTS, metadata_in, label_selector=_OURS)
    except ApiError:
        return set()
    return {one.namespace for one in found}


async def check(context: Context) -> list[Finding]:
    """Parts that are missing, replicas that are not ready, and a lease that nobody holds."""
    controller, webhook = await together(
        context.deployment(CONTROLLER), context.deployment(WEBHOOK)
    )
    findings = [*await _parts(context, controller, webhook), *await _settings(context)]
    for deployment in (controller, webhook):
        if deployment is not None:
            findings += await _replicas(context, deployment)
    findings += await _leader(context, controller)
    if controller is None and webhook is None and not findings:
        text = "no Deployments in the cluster, yet the Lease is renewed: it runs outside of it"
        return [note(CHECK, context.namespace, text)]
    if controller is not None and webhook is not None and controller.image != webhook.image:
        text = f"controller and webhook run different images: {controller.image}, {webhook.image}"
        findings.append(warning(CHECK, "Deployments", text, f"wait for the rollout, or {DEPLOY}"))
    return findings


async def _parts(
    context: Context, controller: Deployment | None, webhook: Deployment | None
) -> list[Finding]:
    missing = []
    if await context.home() is None:
        missing.append(f"Namespace {context.namespace}")
    for name, one in ((CONTROLLER, controller), (WEBHOOK, webhook)):
        other = webhook if one is controller else controller
        if one is None and other is not None:
            missing.append(f"Deployment {name}")
        if await context.get(SERVICE_ACCOUNTS, name, context.namespace) is None:
            missing.append(f"ServiceAccount {name}")
    settings = (await context.known_settings()).webhook
    home = settings.service_namespace or context.namespace
    service = await context.get(SERVICES, settings.service_name, home)
    if service is None:
        missing.append(f"Service {home}/{settings.service_name}")
    findings = []
    if missing:
        findings.append(
            fault(CHECK, "Harbourmaster", f"is half installed: no {', no '.join(missing)}", DEPLOY)
        )
    elif service is not None and not decode_service(service).is_external:
        findings += await _endpoints(context, home, settings.service_name)
    return findings


async def _endpoints(context: Context, namespace: str, name: str) -> list[Finding]:
    selector = f"kubernetes.io/service-name={name}"
    slices = await context.items(SLICES, decode_slice, namespace=namespace, label_selector=selector)
    if any(one.is_ready for one in slices):
        return []
    text = "has no ready endpoint, so the API server reaches no webhook"
    remedy = f"kubectl -n {namespace} get pods; see why they are not ready"
    return [fault(CHECK, f"Service {namespace}/{name}", text, remedy)]


async def _settings(context: Context) -> list[Finding]:
    findings = []
    for name, kind in ((CONTROLLER, ControllerSettings), (WEBHOOK, WebhookSettings)):
        try:
            if kind is ControllerSettings:
                await context.controller_settings()
            else:
                await context.webhook_settings()
        except UnknownSettingsError as error:
            text = f"its settings can't be used: {error}"
            remedy = f"kubectl -n {context.namespace} edit deployment {name}"
            findings.append(fault(CHECK, f"Deployment {name}", text, remedy))
    return findings


async def _replicas(context: Context, deployment: Deployment) -> list[Finding]:
    name, wanted = deployment.metadata.name, deployment.spec.replicas
    subject, ready = f"Deployment {name}", deployment.status.ready_replicas
    if wanted == 0:
        remedy = f"kubectl -n {context.namespace} scale deployment {name} --replicas=2"
        return [fault(CHECK, subject, "is scaled to none", remedy)]
    if ready >= wanted:
        return []
    why = await _why_not_ready(context, deployment)
    text = f"{ready} of {wanted} replicas are ready{f': {why}' if why else ''}"
    remedy = f"kubectl -n {context.namespace} describe pods -l {_OURS}; logs deployment/{name}"
    return [(warning if ready else fault)(CHECK, subject, text, f"kubectl {remedy[8:]}")]


async def _why_not_ready(context: Context, deployment: Deployment) -> str:
    component = deployment.metadata.label(COMPONENT_LABEL)
    selector = f"{_OURS},{COMPONENT_LABEL}={component}"
    try:
        pods = await context.items(
            PODS, decode_pod, namespace=context.namespace, label_selector=selector
        )
    except ForbiddenError:
        return ""
    return next((f"{one.metadata.name} {one.why_not}" for one in pods if not one.is_ready), "")


async def _leader(context: Context, controller: Deployment | None) -> list[Finding]:
    settings = await context.known_settings()
    if not settings.leader_election.enabled:
        return []
    name = f"Lease {context.namespace}/{settings.leader_election.lease_name}"
    logs = f"kubectl -n {context.namespace} logs deployment/{CONTROLLER}"
    remedy = (
        f"see why no controller leads: {logs}"
        if controller
        else f"start the controller; no Deployment {CONTROLLER} is here: make deploy IMG=..."
    )
    lease = await context.lease()
    if lease is None:
        text = "is not there: no controller has led yet, so nothing is registered or renewed"
        return [fault(CHECK, name, text, remedy)]
    if not lease.holder:
        return [fault(CHECK, name, "is held by nobody: no controller runs", remedy)]
    age = await context.overdue(lease)
    if age is not None:
        duration = timedelta(seconds=lease.spec.lease_duration_seconds or 0)
        gone = "is gone" if age > _LATE * duration else "is late"
        seconds = int(age.total_seconds())
        text = f"was renewed {seconds} s ago by {lease.holder}, who {gone}: nobody leads"
        return [fault(CHECK, name, text, remedy)]
    return []
