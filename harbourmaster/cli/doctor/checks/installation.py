"""Whether all parts exist, run and are ready, and some controller leads."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.resources import DEPLOYMENTS, SERVICE_ACCOUNTS, SERVICES
from harbourmaster.cli.diagnosis import fault, ok, warning
from harbourmaster.cli.installed import CONTROLLER, NAME_LABEL, WEBHOOK
from harbourmaster.cli.live.installation import CONFIGURATIONS, UnknownSettingsError
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.reader import run_together
from harbourmaster.kube.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.live.kinds import Workload

DEPLOY: Final = "install it again: docs/howto/installing.md, or your overlay"
_OURS: Final = f"{NAME_LABEL}=harbourmaster"
_LATE: Final = 3
"""Durations of a Lease after which a holder that does not renew it is gone for good."""


async def missing_installation(live: Installation) -> Finding | None:
    """The one finding where nothing of ours is in this namespace. Raises ApiError."""
    if any(await _deployments(live)) or await live.lease() is not None:
        return None
    configurations = await run_together(*map(live.configuration, CONFIGURATIONS))
    places = {
        namespace
        for configuration in configurations
        if configuration
        for namespace, _ in configuration.services
        if namespace
    }
    if live.namespace in places:
        return None
    try:
        elsewhere = await live.items(DEPLOYMENTS, metadata_in, label_selector=_OURS)
        places |= {deployment.namespace for deployment in elsewhere}
    except ApiError:
        pass
    where = f", but in {', '.join(sorted(places))}" if places else ""
    text = f"is not installed in namespace {live.namespace}{where}"
    install = "install it: docs/howto/installing.md, or set --installed-in"
    remedy = f"set --installed-in {min(places)}" if places else install
    return msgspec.structs.replace(fault("Harbourmaster", text, remedy), check="installation")


async def _deployments(live: Installation) -> list[Workload | None]:
    return await run_together(live.deployment(CONTROLLER), live.deployment(WEBHOOK))


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Parts that are missing, replicas that are not ready, and a lease without a holder."""
    controller, webhook = await _deployments(live)
    findings = [
        *[part async for part in _parts(live, controller, webhook)],
        *[setting async for setting in _settings(live)],
        *[
            replica
            for deployment in (controller, webhook)
            if deployment is not None
            for replica in await _replicas(live, deployment)
        ],
        *[finding async for finding in _leader(live)],
    ]
    for finding in findings:
        yield finding
    if controller is None and webhook is None and not findings:
        yield ok("no Deployments in the cluster, but the Lease is renewed: it runs outside of it")
    if controller is not None and webhook is not None and controller.image != webhook.image:
        text = f"controller and webhook run different images: {controller.image}, {webhook.image}"
        yield warning("Deployments", text, f"wait for the rollout, or {DEPLOY}")


async def _parts(
    live: Installation, controller: Workload | None, webhook: Workload | None
) -> AsyncIterator[Finding]:
    missing = []
    if await live.home() is None:
        missing.append(f"Namespace {live.namespace}")
    for name, deployment, counterpart in (
        (CONTROLLER, controller, webhook),
        (WEBHOOK, webhook, controller),
    ):
        if deployment is None and counterpart is not None:
            missing.append(f"Deployment {name}")
        if await live.find(SERVICE_ACCOUNTS, name, live.namespace) is None:
            missing.append(f"ServiceAccount {name}")
    settings = (await live.known_settings()).webhook
    name, home = settings.service_name, settings.service_namespace or live.namespace
    if await live.find(SERVICES, name, home) is None:
        missing.append(f"Service {home}/{name}")
    if missing:
        text = f"is only partly installed: no {', no '.join(missing)}"
        yield fault("Harbourmaster", text, DEPLOY)
    elif await live.has_endpoint(home, name) is False:
        yield fault(
            f"Service {home}/{name}",
            "has no ready endpoint, so the API server reaches no webhook",
            f"kubectl -n {home} get pods; see why they are not ready",
        )


async def _settings(live: Installation) -> AsyncIterator[Finding]:
    for name, read in ((CONTROLLER, live.controller_settings), (WEBHOOK, live.webhook_settings)):
        try:
            await read()
        except UnknownSettingsError as error:
            remedy = f"kubectl -n {live.namespace} edit deployment {name}"
            yield fault(f"Deployment {name}", f"its settings are not valid: {error}", remedy)


async def _replicas(live: Installation, deployment: Workload) -> list[Finding]:
    name, ready = deployment.metadata.name, deployment.status.ready_replicas
    wanted = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    subject, kubectl = f"Deployment {name}", f"kubectl -n {live.namespace}"
    if wanted == 0:
        remedy = f"{kubectl} scale deployment {name} --replicas=2"
        return [fault(subject, "is scaled to 0 replicas", remedy)]
    if ready >= wanted:
        return []
    why = await live.why_not_ready(deployment)
    text = f"{ready} of {wanted} replicas are ready{f': {why}' if why else ''}"
    remedy = f"{kubectl} describe pods -l {_OURS}; {kubectl} logs deployment/{name}"
    return [(warning if ready else fault)(subject, text, remedy)]


async def _leader(live: Installation) -> AsyncIterator[Finding]:
    settings = await live.known_settings()
    if not settings.leader_election.enabled:
        return
    name = f"Lease {live.namespace}/{settings.leader_election.lease_name}"
    remedy = await live.leader_step()
    lease = await live.lease()
    if lease is None:
        text = "not found: no controller has led yet, so nothing is registered or renewed"
        yield fault(name, text, remedy)
    elif not lease.holder:
        yield fault(name, "has no holder: no controller runs", remedy)
    elif (age := await live.overdue(lease)) is not None:
        duration = timedelta(seconds=lease.spec.lease_duration_seconds or 0)
        gone = "is gone" if age > _LATE * duration else "is late"
        seconds = int(age.total_seconds())
        text = f"was renewed {seconds} s ago by {lease.holder}, which {gone}: no controller leads"
        yield fault(name, text, remedy)
