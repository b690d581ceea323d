"""Members that do not answer, and applications that are not ready or may run twice."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import APPLICATIONS, CLUSTERS, DEPLOYMENTS
from harbourmaster.cli.installed import CONTROLLER
from helpers.examined import HOME, ExaminedCluster, examine, findings

PLACE = {"namespace": "shop"}


@pytest.fixture
def cluster():
    return ExaminedCluster()


def switch_on(cluster):
    cluster.container(CONTROLLER)["args"].append("--placement-enabled=true")


def condition(name, status, reason="", message=""):
    return {"type": name, "status": status, "reason": reason, "message": message}


def member(cluster, *conditions):
    spec = {"kubeconfigSecretRef": {"name": "m1-kubeconfig"}}
    status = {"conditions": list(conditions)}
    cluster.put(CLUSTERS, {"metadata": {**PLACE, "name": "m1"}, "spec": spec, "status": status})


def application(cluster, *conditions, **status):
    status = {"conditions": list(conditions), **status}
    cluster.put(APPLICATIONS, {"metadata": {**PLACE, "name": "till"}, "status": status})


async def found(cluster):
    return findings(await examine(cluster), "placement")


async def test_members_and_applications_that_are_well_are_one_line(cluster):
    switch_on(cluster)
    member(cluster, condition("Reachable", "True"), condition("NodesReady", "True"))
    application(cluster, condition("Scheduled", "True"), condition("Ready", "True"))
    assert await found(cluster) == []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("Reachable", "InvalidCredentials"),
        ("MetricsAvailable", "InvalidMetric"),
        ("Reachable", "NoAnswer"),
        ("NodesReady", "NodeNotReady"),
    ],
)
async def test_a_member_that_gets_no_applications_is_told(cluster, assert_golden, kind, reason):
    switch_on(cluster)
    is_true = [condition("Reachable", "True")] if kind != "Reachable" else []
    member(cluster, *is_true, condition(kind, "False", reason, "it refuses the token"))
    assert_golden(await found(cluster))


@pytest.mark.parametrize("reason", ["ServerChanged", "AuthoritiesAdded"])
async def test_a_server_that_is_not_accepted_is_told_with_the_command(
    cluster, assert_golden, reason
):
    switch_on(cluster)
    message = (
        "server is https://b, not https://a; to accept it: kubectl -n shop annotate cluster m1"
    )
    faults = [condition("Reachable", "False", "InvalidCredentials", message)]
    member(cluster, condition("ServerBound", "False", reason, message), *faults)
    assert_golden(await found(cluster))


async def test_an_application_without_a_cluster_or_with_two_is_told(cluster, assert_golden):
    switch_on(cluster)
    application(
        cluster,
        condition("Scheduled", "False", "NoSuitableTarget", "there is no cluster"),
        pendingCleanup=[{"cluster": "m2", "objects": []}],
    )
    assert_golden(await found(cluster))


async def test_applications_without_the_component_are_told(cluster, assert_golden):
    application(cluster)
    assert_golden(await found(cluster))


async def test_an_installation_outside_of_the_cluster_may_place_applications(cluster):
    cluster.remove(DEPLOYMENTS, CONTROLLER, HOME)
    application(cluster)
    assert await found(cluster) == []
