"""Whether member clusters answer, and applications run on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.json import Decoder

from harbourmaster.api.resources import APPLICATIONS, CLUSTERS
from harbourmaster.cli.batches import many
from harbourmaster.cli.diagnosis import note, warning
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.placement.cluster_state import INVALID_CREDENTIALS
from harbourmaster.placement.deployed import READY, DeployedApplication, MemberCluster
from harbourmaster.placement.model import NODES_READY, REACHABLE, SCHEDULED, TRUE, condition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Clusters that get no applications, and applications that are not ready or left copies."""
    applications = await live.items(APPLICATIONS, Decoder(DeployedApplication).decode)
    clusters = await live.items(CLUSTERS, Decoder(MemberCluster).decode)
    settings, unknown = await live.assumed_settings(CONTROLLER, ControllerSettings)
    if applications and not unknown and not settings.placement.enabled:
        text = f"placement is off, so {many(len(applications), 'Application')} have no effect"
        yield warning("placement", text, "add the component deploy/components/placement")
        return
    for cluster in clusters:
        if finding := _cluster(cluster):
            yield finding
    for application in applications:
        for finding in _application(application):
            yield finding


def _cluster(found: MemberCluster) -> Finding | None:
    own, secret = found.metadata, found.spec.kubeconfig_secret_ref
    every = (condition(found.status.conditions, each) for each in (REACHABLE, NODES_READY))
    fault = next((each for each in every if each is not None and each.status != TRUE), None)
    if fault is None:
        return None
    text = f"gets no applications: {fault.message or fault.reason}"
    remedy = "check its nodes"
    if fault.reason == INVALID_CREDENTIALS and secret is not None:
        remedy = f"renew the kubeconfig: kubectl -n {own.namespace} edit secret {secret.name}"
    elif fault.type == REACHABLE:
        delete = f"kubectl -n {own.namespace} delete {CLUSTERS.name} {own.name}"
        remedy = f"check its API server and the network; if it is gone for good: {delete}"
    return warning(f"Cluster {own.key}", text, remedy)


def _application(found: DeployedApplication) -> Iterator[Finding]:
    own = found.metadata
    subject, remedy = f"Application {own.key}", f"harbourmaster placement why {own.key}"
    every = (condition(found.status.conditions, each) for each in (SCHEDULED, READY))
    fault = next((each for each in every if each is not None and each.status != TRUE), None)
    if fault is not None:
        yield warning(subject, f"{fault.reason}: {fault.message}".rstrip(": "), remedy)
    if left := [each.cluster for each in found.status.pending_cleanup]:
        text = f"may also run on {', '.join(left)}, where it is deleted when the cluster answers"
        yield note(subject, text)
