"""``harbourmaster uninstall`` step by step, against an API server that misbehaves on demand."""

from __future__ import annotations

import argparse
import json

import pytest

from harbourmaster.api.resources import (
    API_SERVICES,
    APPLICATIONS,
    CLUSTER_POLICIES,
    CLUSTERS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SERVICES,
)
from harbourmaster.cli import cluster_commands as commands
from harbourmaster.cli.installed import (
    CLUSTER_ROLES,
    CONTROLLER,
    DEFAULT_NAMESPACE,
    KEPTN_ADDRESSES,
    KEPTN_NAMESPACE,
    METRICS,
)
from harbourmaster.cli.uninstall import run as uninstall
from harbourmaster.cli.uninstall.marks import MIRRORED
from harbourmaster.cli.uninstall.removal import Options
from harbourmaster.kube.errors import UnreachableError
from helpers.patience import PATIENCE
from helpers.small_installation import (
    OURS,
    POLICY_CRD,
    assert_uninstalled,
    calls,
    install,
    names,
    put,
    run,
)

OPTIONS = Options(DEFAULT_NAMESPACE, patience=PATIENCE)


async def test_the_order(api, client):
    install(api)
    code, told = await run(client)
    assert (code, told[-1]) == (0, "Harbourmaster is uninstalled.")
    deleted = [seen.path.rpartition("/")[0].rpartition("/")[2] for seen in api.seen("delete")]
    assert deleted == [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "clusterrolebindings",
        "deployments",
        "deployments",
        "services",
        "secrets",
        "leases",
        "clusterroles",
        "namespaces",
    ]
    assert names(api, CLUSTER_POLICIES) == ["ssd"]
    assert "definitions: kept 1, with 1 policy; --delete-crds deletes them all" in told


async def test_what_leads_to_us_goes_before_what_it_leads_to(api, client):
    install(api)
    api.define(API_SERVICES)
    put(api, SERVICES, METRICS)
    for name, namespace in (
        ("v1beta1.custom.metrics.k8s.io", DEFAULT_NAMESPACE),
        ("v1beta2.custom.metrics.k8s.io", DEFAULT_NAMESPACE),
        ("v1beta1.external.metrics.k8s.io", "keda"),
    ):
        service = {"namespace": namespace, "name": METRICS}
        put(api, API_SERVICES, name, labels={}, spec={"service": service})
    # Built into the API server.
    put(api, API_SERVICES, "v1.apps", labels={}, spec={})
    code, told = await run(client)
    assert (code, told[-1]) == (0, "Harbourmaster is uninstalled.")
    assert sorted(names(api, API_SERVICES)) == ["v1.apps", "v1beta1.external.metrics.k8s.io"]
    deleted = [seen.path for seen in api.seen("delete")]
    first = min(at for at, path in enumerate(deleted) if "/services/" in path)
    assert all(first > at for at, path in enumerate(deleted) if "/apiservices/" in path)


@pytest.mark.parametrize(("labels", "stays"), [(OURS, False), ({"app": "keptn"}, True)])
async def test_keptn_s_addresses_go_where_they_are_ours(api, client, labels, stays):
    install(api)
    for name in KEPTN_ADDRESSES:
        put(api, SERVICES, name, labels=labels, namespace=KEPTN_NAMESPACE)
    put(api, SERVICES, "other", labels={}, namespace=KEPTN_NAMESPACE)
    await assert_uninstalled(client)
    left = {name for namespace, name in api.objects.all(SERVICES) if namespace == KEPTN_NAMESPACE}
    assert left == {"other", *(KEPTN_ADDRESSES if stays else ())}


async def test_nothing_installed_is_nothing_left(client):
    assert (await run(client))[0] == 0


async def test_a_dry_run_only_reads(api, client):
    install(api)
    put(api, LEASES, CONTROLLER, labels={}, spec={"holderIdentity": "pod-1_x"})
    told = await assert_uninstalled(client, dry_run=True, delete_definitions=True)
    assert {seen.method for seen in api.requests} == {"GET"}
    assert f"namespace: would delete {DEFAULT_NAMESPACE}" in told
    assert f"definitions: would delete {POLICY_CRD}" in told
    assert any("would take the Lease from pod-1_x" in line for line in told)


async def test_what_is_forbidden_is_one_line_and_the_rest_goes(api, client):
    install(api)
    api.forbid("delete", SERVICES)
    api.forbid("list", NAMESPACES)
    told = await assert_uninstalled(client, code=1)
    (line,) = [line for line in told if line.startswith("services: 1 failed")]
    assert 'cannot delete resource "services"' in line
    assert any(line.startswith("labels: failed: list /api/v1/namespaces: 403") for line in told)
    assert names(api, DEPLOYMENTS) == []
    assert "left: Service harbourmaster-webhook" in told
    # And once it is allowed, the same command does the rest.
    api.heal()
    await assert_uninstalled(client)


async def test_a_server_that_goes_away_ends_it(api, client):
    install(api)
    api.fail_next("delete", "deployments", kind="reset", count=None)
    api.fail_next("get", "version", kind="reset", count=None)
    told = []
    with pytest.raises(UnreachableError):
        await uninstall.uninstall(client, OPTIONS, told.append)
    assert told[-1].startswith("controller: failed: delete ")


async def test_a_configuration_shared_with_others_is_left_to_them(api, client):
    foreign = calls("shop", "quota", "quota.example.com")
    put(api, MUTATING_WEBHOOKS, "shared", labels={}, webhooks=[calls(), foreign])
    put(api, MUTATING_WEBHOOKS, "by-hand", labels={}, webhooks=[calls()])
    put(api, MUTATING_WEBHOOKS, "theirs", labels={}, webhooks=[foreign])
    told = await assert_uninstalled(client, code=1)
    assert names(api, MUTATING_WEBHOOKS) == ["shared", "theirs"]
    (left,) = [line for line in told if line.startswith("left:")]
    assert "shared is not ours but calls our Service in pods.harbourmaster.dev" in left


async def test_on_a_gardener_seed_our_service_has_another_name(api, client):
    put(api, NAMESPACES, "gardener-extension-kupid")
    put(api, SERVICES, "gardener-extension-kupid", namespace="gardener-extension-kupid")
    entry = calls("gardener-extension-kupid", "gardener-extension-kupid")
    put(api, MUTATING_WEBHOOKS, "by-hand", labels={}, webhooks=[entry])
    await assert_uninstalled(client, namespace="gardener-extension-kupid")
    for resource in (MUTATING_WEBHOOKS, SERVICES, NAMESPACES):
        assert names(api, resource) == []


async def test_only_our_finalizers_and_labels_go(api, client):
    finalizers = ["example.com/a", "placement.harbourmaster.dev/b", "harbourmaster.dev/c"]
    put(api, CLUSTER_POLICIES, "ssd", labels={"team": "a"}, metadata={"finalizers": finalizers})
    put(api, NAMESPACES, "shop", labels={MIRRORED: "true", "team": "a"})
    told = await assert_uninstalled(client)
    assert api.get(CLUSTER_POLICIES, "ssd")["metadata"]["finalizers"] == ["example.com/a"]
    assert api.get(NAMESPACES, "shop")["metadata"]["labels"] == {"team": "a"}
    assert "labels: removed labels from 1 namespace" in told


async def test_placement_lets_its_objects_go_and_tells_what_stays_on_members(api, client):
    held = {"finalizers": ["placement.harbourmaster.dev/deployed", "example.com/a"]}
    objects = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}]
    status = {
        "inventory": [{"cluster": "one", "objects": objects}],
        "pendingCleanup": [{"cluster": "two", "objects": objects}],
    }
    put(api, APPLICATIONS, "web", namespace="shop", metadata=held, status=status)
    put(api, APPLICATIONS, "idle", namespace="shop")
    put(api, CLUSTERS, "one", namespace="shop", metadata=held)
    told = await assert_uninstalled(client)
    for resource, name in ((APPLICATIONS, "web"), (CLUSTERS, "one")):
        assert api.get(resource, name, "shop")["metadata"]["finalizers"] == ["example.com/a"]
    assert "finalizers of applications: freed 1 object" in told
    stays = "objects on member clusters: those of 1 application stay on shop/one, shop/two"
    assert stays in told
    assert api.get(APPLICATIONS, "web", "shop")["status"] == status


async def test_an_application_that_cannot_be_read_is_named_and_hides_no_other(api, client, capsys):
    for name, inventory in (("broken", "broken"), ("web", [{"cluster": "one"}])):
        put(api, APPLICATIONS, name, namespace="shop", status={"inventory": inventory})
    told = await assert_uninstalled(client)
    assert "objects on member clusters: those of 1 application stay on shop/one" in told
    err = capsys.readouterr().err
    assert "Application shop/broken is skipped, because it cannot be read: " in err


async def test_roles_of_others_stay_whatever_their_labels(api, client):
    put(api, CLUSTER_ROLES, "team-role")
    put(api, CLUSTER_ROLES, "harbourmaster-of-the-team", labels={})
    put(api, CLUSTER_ROLES, "harbourmaster-policy-editor")
    await assert_uninstalled(client)
    assert names(api, CLUSTER_ROLES) == ["team-role", "harbourmaster-of-the-team"]


async def test_the_lease_is_taken_and_a_configuration_that_returns_goes_again(
    api, client, monkeypatch
):
    monkeypatch.setattr("harbourmaster.cli.uninstall.run.QUIET_SECONDS", 0.2)
    install(api)
    put(api, LEASES, CONTROLLER, labels={}, spec={"holderIdentity": "elsewhere_x"})
    created = client.patch

    async def restore_on_takeover(resource, name, *args, **options):
        answer = await created(resource, name, *args, **options)
        if resource is LEASES:
            lease = json.loads(answer)["spec"]
            assert lease["holderIdentity"] == "harbourmaster uninstall"
            assert lease["leaseDurationSeconds"] == 600
            put(api, MUTATING_WEBHOOKS, "harbourmaster", labels={}, webhooks=[calls()])
        return answer

    client.patch = restore_on_takeover
    told = await assert_uninstalled(client)
    (again,) = [line for line in told if line.startswith("webhook configurations again")]
    assert again.endswith("MutatingWebhookConfiguration harbourmaster, restored meanwhile")


def parse(*given):
    parser = argparse.ArgumentParser()
    commands.add_uninstall(parser)
    return parser.parse_args(given)


def test_the_arguments_name_the_function_and_bad_ones_are_refused(capsys):
    arguments = parse("--kubeconfig=x", "--yes")
    assert arguments.command == "harbourmaster.cli.uninstall.run:run"
    assert (arguments.installed_in, arguments.delete_crds) == (DEFAULT_NAMESPACE, False)
    assert arguments.scheduler == "keptn-scheduler"
    for bad in ("0", "nan", "soon"):
        with pytest.raises(SystemExit):
            parse(f"--timeout={bad}")
    assert "seconds" in capsys.readouterr().err.lower()
