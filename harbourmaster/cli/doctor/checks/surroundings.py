"""The environment: who may reach the webhooks, versions, clocks, and leftovers of others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.cli.diagnosis import fault, note, unknown, warning
from harbourmaster.cli.installed import CONTROLLER, NETWORK_POLICIES, WEBHOOK
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.migrate.findings import findings as judge
from harbourmaster.cli.migrate.survey import observe
from harbourmaster.kube.server_version import ServerVersion, server_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation

OLDEST: Final = ServerVersion(1, 25)
GATES: Final = ServerVersion(1, 27)
_SKEW: Final = 30.0
"""Seconds by which clocks may differ without a note."""
_MIGRATE: Final = "harbourmaster migrate lists them, and the order in which to remove them"
_NO_LEFTOVERS: Final = frozenset(("paths", "old-versions", "over-limits", "reference"))


async def check_transport(live: Installation) -> AsyncIterator[Finding]:
    """Whether any pod in the cluster may call the webhooks."""
    found = await live.items(NETWORK_POLICIES, metadata_in, live.namespace)
    settings = await live.readable(live.webhook_settings())
    if settings is not None and settings.server.client_ca:
        return
    if {WEBHOOK, CONTROLLER}.intersection(one.name for one in found):
        text = "a NetworkPolicy limits who reaches the webhooks; callers need no certificate"
        yield note("webhooks", text)
        return
    text = "every pod that reaches the webhooks' port is answered: no NetworkPolicy, no client CA"
    remedy = "add deploy/components/network-policy; where you run the control plane, clientCa"
    yield note("webhooks", text, remedy)


async def check_versions(live: Installation) -> AsyncIterator[Finding]:
    """An API server that is too old, and clocks that differ."""
    server = await server_version(live.client)
    if server < OLDEST:
        text = f"is Kubernetes {server}, and {OLDEST} is the oldest that is supported"
        yield fault("API server", text, "upgrade the cluster")
    elif server < GATES:
        text = f"is Kubernetes {server}: without scheduling gates pods wait in a scheduler"
        yield note("API server", text, "deploy/components/scheduler")
    myself = await live.caller()
    skew = abs((datetime.now(UTC) - myself.now).total_seconds())
    if myself.is_known and skew > _SKEW:
        text = f"differs from the API server's by {int(skew)} s; ages here are by the server's"
        yield note("your clock", text, "set it: NTP")


async def check_leftovers(live: Installation) -> AsyncIterator[Finding]:
    """What kupid and Keptn left; ``migrate`` lists in which order to remove it."""
    observed = await observe(live)
    # Harbourmaster is installed, in the cluster or outside; other checks say whether it works. So
    # gated pods belong to it, and policies are not leftovers.
    observed = replace(observed, ours=replace(observed.ours, is_ready=True))
    for one in judge(observed):
        if one.code not in _NO_LEFTOVERS:
            make = fault if one.severity == "blocking" else warning
            yield make(one.object, one.why, _MIGRATE)
    for line in observed.unread[:1]:
        yield unknown("cluster", line, "ask for this permission, or correct what the text names")
