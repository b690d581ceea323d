"""The environment: access to the webhooks, hardening, versions, clocks, and leftovers of others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.resources import SLICES
from harbourmaster.api.selectors import LabelSelector, compile_selector
from harbourmaster.cli.diagnosis import fault, note, ok, unknown, warning
from harbourmaster.cli.installed import (
    CLUSTER_ROLE_BINDINGS,
    NETWORK_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    WEBHOOK,
)
from harbourmaster.cli.live.cluster import SKIPPED
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.migrate.findings import findings as judge
from harbourmaster.cli.migrate.survey import read_observed
from harbourmaster.kube.server_version import ServerVersion, server_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation

    Json = dict[str, Any]

OLDEST: Final = ServerVersion(1, 25)
GATES: Final = ServerVersion(1, 27)
NOT_JUDGED: Final = "not judged on a local cluster: docs/howto/hardening.md"
_PORT: Final = 9443
_SKEW: Final = 30.0
"""Seconds by which clocks may differ without a note."""
_MIGRATE: Final = "harbourmaster migrate lists them, and the order in which to remove them"
_NO_LEFTOVERS: Final = frozenset(("paths", "old-versions", "over-limits", "reference"))


async def check_transport(live: Installation) -> AsyncIterator[Finding]:
    """Report connections that no NetworkPolicy limits, unless the cluster is on one machine."""
    if await live.is_local():
        yield ok(NOT_JUDGED)
        return
    stored = await live.items(NETWORK_POLICIES, decode_anything, live.namespace)
    policies = [policy["spec"] for policy in stored]
    settings = await live.none_if_unreadable(live.webhook_settings())
    has_client_ca = settings is not None and settings.server.client_ca
    ingress = [policy for policy in policies if _limits(policy, "Ingress", "webhook")]
    rules = [rule for policy in ingress for rule in policy.get("ingress") or ()]
    unlimited = []
    if not ingress:
        unlimited.append("who connects to which port of our pods")
    elif not has_client_ca and any(map(_opens_webhook, rules)):
        unlimited.append("who connects to the webhooks without a certificate")
    if not any(_limits(policy, "Egress", "controller") for policy in policies):
        unlimited.append("where the controller connects to")
    if unlimited:
        text = f"no NetworkPolicy limits {' and '.join(unlimited)}"
        yield note("network", text, "see docs/howto/hardening.md#network")


def _limits(policy: Json, direction: str, component: str) -> bool:
    """Whether a NetworkPolicy selects pods of ours for one direction."""
    labels = {"app.kubernetes.io/name": "harbourmaster", "app.kubernetes.io/component": component}
    matcher = compile_selector(msgspec.convert(policy.get("podSelector") or {}, LabelSelector))
    is_selected = matcher is not None and matcher.matches(labels)
    return is_selected and direction in (policy.get("policyTypes") or ("Ingress",))


def _opens_webhook(rule: Json) -> bool:
    blocks = [peer.get("ipBlock") or {} for peer in rule.get("from") or ()]
    given: list[Json] = rule.get("ports") or [{}]
    ports = [(port.get("port", _PORT), port.get("endPort", 0)) for port in given]
    is_ours = any(first in {"webhook", _PORT} or last >= _PORT >= first for first, last in ports)
    wide = [block for block in blocks if block.get("cidr") in {"0.0.0.0/0", "::/0"}]
    return is_ours and (not blocks or any(not block.get("except") for block in wide))


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
    """Report leftovers of kupid and Keptn; ``migrate`` lists the order in which to remove them."""
    observed = await read_observed(live)
    # Harbourmaster is installed, in the cluster or outside; other checks say whether it works. So
    # gated pods belong to it, and policies are not leftovers.
    observed = replace(observed, ours=replace(observed.ours, is_ready=True))
    for finding in judge(observed):
        if finding.code not in _NO_LEFTOVERS:
            make = fault if finding.severity == "blocking" else warning
            yield make(finding.object, finding.why, _MIGRATE)
    # Other checks report objects that cannot be read.
    for line in [line for line in observed.unread if SKIPPED not in line][:1]:
        yield unknown("cluster", line, "ask for this permission, or correct what the text names")


GUARDS_SINCE: Final = ServerVersion(1, 30)
"""Has ValidatingAdmissionPolicies."""
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
        tuple(f"harbourmaster-{name}-guard" for name in ("generated", "job-pod", "cluster")),
        "users that can edit in a namespace can change generated checks and open gates (add it "
        "once Keptn's operators have stopped)",
    ),
    Guard(
        "account-guard",
        tuple(f"harbourmaster-account-guard-{name}" for name in _ACCOUNT),
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


async def check_hardening(live: Installation) -> AsyncIterator[Finding]:
    """Guards, address ranges, client certificates and access to Secrets."""
    specs = [
        binding["spec"] for binding in await live.items(VALIDATING_POLICY_BINDINGS, decode_anything)
    ]
    bound = {
        spec["policyName"] for spec in specs if "Deny" in (spec.get("validationActions") or ())
    }
    is_local, there = await live.is_local(), {spec["policyName"] for spec in specs}
    server = await server_version(live.client)
    for guard in GUARDS:
        missing = [name for name in guard.policies if name not in bound]
        if is_local and there.isdisjoint(guard.policies):
            continue
        if missing and server < GUARDS_SINCE:
            text = f"needs Kubernetes {GUARDS_SINCE}, this is {server}: {guard.unguarded}"
            yield note(guard.component, text)
        elif missing:
            text = f"no binding denies by {', '.join(missing)}: {guard.unguarded}"
            yield note(guard.component, text, f"add deploy/components/{guard.component}")
    if is_local:
        yield ok(NOT_JUDGED)
        return
    policy = await live.read(NETWORK_POLICIES, WEBHOOK, decode_anything, live.namespace)
    rules = [{}] if policy is None else policy["spec"].get("ingress") or ()
    if not all(rule.get("from") for rule in rules):
        slices = await live.items(SLICES, decode_anything, "default", label_selector=_KUBERNETES)
        ranges = {
            f"{address}/{128 if endpoint_slice.get('addressType') == 'IPv6' else 32}"
            for endpoint_slice in slices
            for endpoint in endpoint_slice.get("endpoints") or ()
            for address in endpoint["addresses"]
        }
        shown = ", ".join(sorted(ranges)) or "of your API server"
        text = "no NetworkPolicy limits the webhooks' port to the API server's address ranges"
        yield note("address ranges", text, f"add {_HARDENED} with the ranges {shown}")
    settings = await live.none_if_unreadable(live.webhook_settings())
    if settings is not None and not settings.server.client_ca:
        text = "the webhook answers clients without a certificate"
        remedy = "where you run the control plane, add deploy/components/client-certificates"
        yield note("client certificates", text, remedy)
    if await live.find(CLUSTER_ROLE_BINDINGS, "harbourmaster-secrets") is not None:
        text = "the controller can read every Secret whose name it knows"
        command = "harbourmaster grant secrets -n NAMESPACE"
        grant = f"add {_HARDENED}, and run for each namespace {command}"
        # To apply the hardened manifests deletes nothing that install.yaml made.
        delete = "kubectl delete clusterrolebinding,clusterrole harbourmaster-secrets"
        yield note("Secrets", text, f"{grant}; then {delete}")
