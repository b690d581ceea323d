"""What is around us: who may reach the webhooks, versions, clocks, and what others left."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api.resources import Resource
from harbourmaster.cli.batches import many
from harbourmaster.cli.doctor.model import fault, note, unread, warning
from harbourmaster.cli.doctor.settings import UnknownSettingsError
from harbourmaster.cli.installed import CONTROLLER, WEBHOOK
from harbourmaster.cli.metadata import metadata_in
from harbourmaster.cli.migrate.findings import findings as judge
from harbourmaster.cli.migrate.survey import Survey
from harbourmaster.kube.server_version import ServerVersion, server_version

if TYPE_CHECKING:
    from harbourmaster.cli.doctor.context import Context
    from harbourmaster.cli.doctor.model import Finding

TRANSPORT: Final = "transport"
VERSIONS: Final = "versions"
LEFTOVERS: Final = "leftovers"
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
OLDEST: Final = ServerVersion(1, 25)
GATES: Final = ServerVersion(1, 27)
_SKEW: Final = 30.0
"""Seconds by which clocks may differ unseen."""
_MIGRATE: Final = "harbourmaster migrate says what it is, and the order in which it goes"
_GRAVE: Final = frozenset(("blocking", "danger"))


async def check_transport(context: Context) -> list[Finding]:
    """Whether anybody in the cluster may ask the webhooks."""
    found = await context.items(NETWORK_POLICIES, metadata_in, namespace=context.namespace)
    names = {one.name for one in found}
    try:
        settings = await context.webhook_settings()
    except UnknownSettingsError:
        settings = None
    if settings is not None and settings.server.client_ca:
        return []
    if WEBHOOK in names or CONTROLLER in names:
        text = "a NetworkPolicy limits who reaches the webhooks; callers need no certificate"
        return [note(TRANSPORT, "webhooks", text)]
    text = "every pod that reaches the webhooks' port is answered: no NetworkPolicy, no client CA"
    remedy = "add deploy/components/network-policy; where you run the control plane, clientCa"
    return [note(TRANSPORT, "webhooks", text, remedy)]


async def check_versions(context: Context) -> list[Finding]:
    """An API server that is too old, and clocks that differ."""
    findings = []
    server = await server_version(context.client)
    if server < OLDEST:
        text = f"is Kubernetes {server}, and {OLDEST} is the oldest that is supported"
        findings.append(fault(VERSIONS, "API server", text, "upgrade the cluster"))
    elif server < GATES:
        text = f"is Kubernetes {server}: without scheduling gates pods wait with a scheduler"
        remedy = "deploy/components/scheduler"
        findings.append(note(VERSIONS, "API server", text, remedy))
    myself = await context.myself()
    skew = abs((datetime.now(UTC) - myself.now).total_seconds())
    if myself.is_told and skew > _SKEW:
        text = f"differs from the API server's by {int(skew)} s; ages here are by the server's"
        findings.append(note(VERSIONS, "your clock", text, "set it: NTP"))
    return findings


async def check_leftovers(context: Context) -> list[Finding]:
    """What kupid and Keptn left, in short; ``migrate`` has it all."""
    observed = await Survey(context.client, context.namespace).observe()
    # Ours is here, be it outside of the cluster; whether it works is the other checks' matter. Pods
    # at gates are its own then, and policies are no leftovers.
    observed = replace(observed, ours=replace(observed.ours, is_ready=True))
    found = [one for one in judge(observed) if one.code not in {"paths", "old-versions"}]
    findings = []
    grave = [one for one in found if one.severity in _GRAVE]
    for one in grave[:3]:
        make = fault if one.severity == "blocking" else warning
        findings.append(make(LEFTOVERS, one.object, one.why, _MIGRATE))
    rest = [one for one in found if one not in grave[:3]]
    if rest:
        names = ", ".join(dict.fromkeys(one.object for one in rest[:3]))
        text = f"{many(len(rest), 'more thing' if grave else 'thing')} of kupid or Keptn: {names}"
        findings.append(warning(LEFTOVERS, "cluster", text, _MIGRATE))
    remedy = "ask for this right, or correct what the text names"
    findings += [unread(LEFTOVERS, "cluster", line, remedy) for line in observed.unread[:1]]
    return findings
