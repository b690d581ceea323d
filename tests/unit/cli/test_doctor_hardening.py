"""``harbourmaster doctor``: which parts of a hardened installation are missing."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import NODES, SLICES, cluster_wide
from harbourmaster.cli.doctor.checks.environment import GUARDS
from harbourmaster.cli.installed import CLUSTER_ROLE_BINDINGS, NETWORK_POLICIES
from helpers.broken_installations import flags
from helpers.examined import HOME, WEBHOOK, ExaminedCluster, examine, findings
from helpers.manifests import (
    deploy_without_schemas,
    hardened_overlay,
    objects,
    objects_of,
    of_kind,
)

BINDINGS = cluster_wide("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding")


@pytest.fixture
def cluster():
    examined_cluster = ExaminedCluster()
    for guard in GUARDS:
        for name in guard.policies:
            bind(examined_cluster, name)
    limit(examined_cluster, [{"ipBlock": {"cidr": "192.0.2.10/32"}}])
    flags(examined_cluster, "--client-ca=/etc/ca.crt", name=WEBHOOK)
    return examined_cluster


def bind(cluster, name, *actions):
    spec = {"policyName": name, "validationActions": list(actions or ("Deny",))}
    cluster.put(BINDINGS, {"metadata": {"name": name}, "spec": spec})


def limit(cluster, peers):
    spec = {"ingress": [{"from": peers, "ports": [{"port": "webhook"}]}]}
    metadata = {"name": WEBHOOK, "namespace": HOME}
    cluster.put(NETWORK_POLICIES, {"metadata": metadata, "spec": spec})


async def told(cluster):
    return findings(await examine(cluster), "hardening")


async def test_nothing_is_missing(cluster):
    assert await told(cluster) == []


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.component)
async def test_each_guard_is_named_with_the_component_that_adds_it(cluster, assert_golden, guard):
    cluster.remove(BINDINGS, guard.policies[0])
    assert_golden(await told(cluster))


async def test_a_binding_that_only_warns_guards_nothing(cluster, assert_golden):
    bind(cluster, "harbourmaster-gate-guard", "Warn", "Audit")
    assert_golden(await told(cluster))


async def test_before_1_30_it_says_what_is_unguarded(cluster, assert_golden):
    cluster.version = {"major": "1", "minor": "29"}
    for guard in GUARDS:
        for name in guard.policies:
            cluster.remove(BINDINGS, name)
    assert_golden(await told(cluster))


async def test_ranges_are_proposed_from_the_addresses_of_the_api_server(cluster, assert_golden):
    limit(cluster, [])
    labels = {"kubernetes.io/service-name": "kubernetes"}
    for kind, address in (("IPv4", "192.0.2.10"), ("IPv6", "2001:db8::10")):
        metadata = {"name": kind, "namespace": "default", "labels": labels}
        endpoints = [{"addresses": [address]}]
        cluster.put(SLICES, {"metadata": metadata, "addressType": kind, "endpoints": endpoints})
    assert_golden(await told(cluster))


async def test_client_certificates_and_access_to_all_secrets_are_said(cluster, assert_golden):
    cluster.container(WEBHOOK)["args"].pop()
    cluster.put(CLUSTER_ROLE_BINDINGS, {"metadata": {"name": "harbourmaster-secrets"}})
    assert_golden(await told(cluster))


PORTS = "who connects to which port of our pods"
WEBHOOKS = "who connects to the webhooks without a certificate"
EGRESS = "where the controller connects to"


@pytest.mark.parametrize("has_client_ca", [False, True], ids=["no-ca", "ca"])
@pytest.mark.parametrize(
    ("rendering", "limited"),
    [
        (("base",), set()),
        (("default",), {PORTS}),
        (("default", "network-policy"), {PORTS, EGRESS}),
        (None, {PORTS, EGRESS, WEBHOOKS}),
    ],
    ids=["nothing", "default", "network-policy", "hardened"],
)
async def test_doctor_says_what_no_network_policy_limits(
    tmp_path, rendering, limited, has_client_ca
):
    cluster = ExaminedCluster()
    if has_client_ca:
        flags(cluster, "--client-ca=/etc/ca.crt", name=WEBHOOK)
    manifests = (
        objects(*rendering)
        if rendering
        else objects_of(hardened_overlay(tmp_path, "192.0.2.1/32", deploy=deploy_without_schemas()))
    )
    for policy in of_kind(manifests, "NetworkPolicy"):
        if policy["metadata"].get("namespace") == HOME:
            cluster.put(NETWORK_POLICIES, policy)
    report = await examine(cluster)
    text = " ".join(findings(report, "transport"))
    # Without limits, the webhooks are among all ports.
    hidden = {WEBHOOKS} if has_client_ca or PORTS not in limited else set()
    expected = {PORTS, WEBHOOKS, EGRESS} - limited - hidden
    assert {part for part in (PORTS, WEBHOOKS, EGRESS) if part in text} == expected
    lines = [line for line in report.findings if line.check == "transport"]
    assert {line.severity for line in lines} == ({"note"} if expected else {"ok"})


async def test_on_a_local_cluster_only_guards_that_are_there_are_judged(cluster):
    cluster.put(NODES, {"metadata": {"name": "k3d-one-server-0"}})
    cluster.remove(NETWORK_POLICIES, WEBHOOK, HOME)
    cluster.remove(BINDINGS, "harbourmaster-namespace-guard")
    bind(cluster, "harbourmaster-gate-guard", "Warn")
    assert ["gate-guard" in str(finding) for finding in await told(cluster)] == [True]
