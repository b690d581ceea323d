"""Which parts of a hardened installation are missing, each with the component that adds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import SLICES
from harbourmaster.cli import installed
from harbourmaster.cli.diagnosis import note
from harbourmaster.cli.installed import CLUSTER_ROLE_BINDINGS, NETWORK_POLICIES, WEBHOOK
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.kube.server_version import ServerVersion, server_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation

GUARDS_SINCE: Final = ServerVersion(1, 30)
"""Has ValidatingAdmissionPolicies."""
_BINDINGS: Final = installed.GUARDS[0]
_HARDENED: Final = "deploy/components/hardened"
_ACCOUNT: Final = ("configmaps", "jobs", "nodes", "pods", "registration", "secrets", "webhooks")
_KUBERNETES: Final = "kubernetes.io/service-name=kubernetes"


class Guard(Struct, frozen=True):
    """A component of admission policies: their names, and what nothing holds without them."""

    component: str
    policies: tuple[str, ...]
    unguarded: str


GUARDS: Final = (
    Guard(
        "guards",
        ("harbourmaster-generated-guard", "harbourmaster-job-pod-guard"),
        "users that can edit in a namespace can change generated checks and open gates (add it "
        "once Keptn's operators have stopped)",
    ),
    Guard(
        "account-guard",
        tuple(f"harbourmaster-account-guard-{each}" for each in _ACCOUNT),
        "a stolen token of the controller is close to cluster-admin",
    ),
    Guard(
        "gate-guard",
        ("harbourmaster-gate-guard",),
        "users that can patch a pod can remove its gate",
    ),
    Guard(
        "namespace-guard",
        ("harbourmaster-namespace-guard",),
        "a stolen token of the controller can change every label of Namespaces",
    ),
)
"""Each row is one component; doctor names those of which a binding is missing."""


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Guards, address ranges, client certificates and access to Secrets."""
    bound = {
        each["spec"]["policyName"]
        for each in await live.items(_BINDINGS, decode_anything)
        if "Deny" in (each["spec"].get("validationActions") or ())
    }
    server = await server_version(live.client)
    for guard in GUARDS:
        missing = [each for each in guard.policies if each not in bound]
        if missing and server < GUARDS_SINCE:
            text = f"needs Kubernetes {GUARDS_SINCE}, this is {server}: {guard.unguarded}"
            yield note(guard.component, text)
        elif missing:
            text = f"no binding denies by {', '.join(missing)}: {guard.unguarded}"
            yield note(guard.component, text, f"add deploy/components/{guard.component}")
    policy = await live.read(NETWORK_POLICIES, WEBHOOK, decode_anything, live.namespace)
    rules = [{}] if policy is None else policy["spec"].get("ingress") or ()
    if not all(rule.get("from") for rule in rules):
        slices = await live.items(SLICES, decode_anything, "default", label_selector=_KUBERNETES)
        ranges = {
            f"{address}/{128 if one.get('addressType') == 'IPv6' else 32}"
            for one in slices
            for endpoint in one.get("endpoints") or ()
            for address in endpoint["addresses"]
        }
        shown = ", ".join(sorted(ranges)) or "of your API server"
        text = "no NetworkPolicy limits the webhooks' port to the API server's address ranges"
        yield note("address ranges", text, f"add {_HARDENED} with the ranges {shown}")
    settings = await live.readable(live.webhook_settings())
    if settings is not None and not settings.server.client_ca:
        text = "the webhook answers clients without a certificate"
        remedy = "where you run the control plane, add deploy/components/client-certificates"
        yield note("client certificates", text, remedy)
    if await live.find(CLUSTER_ROLE_BINDINGS, "harbourmaster-secrets") is not None:
        text = "the controller can read every Secret whose name it knows"
        remedy = f"add {_HARDENED}, and run harbourmaster grant secrets for each namespace"
        yield note("Secrets", text, remedy)
