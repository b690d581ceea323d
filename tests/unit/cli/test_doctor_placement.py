"""Members that do not answer, and applications that are not ready or may run twice."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import APPLICATIONS, CLUSTERS, DEPLOYMENTS
from harbourmaster.cli.installed import CONTROLLER
from helpers.examined import HOME, ExaminedCluster, examined

PLACE = {"namespace": "shop"}
DELETE = "kubectl -n shop delete clusters.placement.harbourmaster.dev m1"


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
    findings = (await examined(cluster)).findings
    return [
        (finding.severity, finding.subject, finding.text, finding.remedy)
        for finding in findings
        if finding.check == "placement"
    ]


async def test_members_and_applications_that_are_well_are_one_line(cluster):
    switch_on(cluster)
    member(cluster, condition("Reachable", "True"), condition("NodesReady", "True"))
    application(cluster, condition("Scheduled", "True"), condition("Ready", "True"))
    assert [line[0] for line in await found(cluster)] == ["ok"]


@pytest.mark.parametrize(
    ("conditions", "remedy"),
    [
        (
            [condition("Reachable", "False", "InvalidCredentials", "it refuses the token")],
            "renew the kubeconfig: kubectl -n shop edit secret m1-kubeconfig",
        ),
        (
            [condition("Reachable", "False", "NoAnswer", "it refuses the token")],
            f"check its API server and the network; if it is gone for good: {DELETE}",
        ),
        (
            [
                condition("Reachable", "True"),
                condition("NodesReady", "False", "NodeNotReady", "it refuses the token"),
            ],
            "check its nodes",
        ),
    ],
)
async def test_a_member_that_gets_no_applications_is_told_with_its_reason(
    cluster, conditions, remedy
):
    switch_on(cluster)
    member(cluster, *conditions)
    text = "gets no applications: it refuses the token"
    assert await found(cluster) == [("warning", "Cluster shop/m1", text, remedy)]


async def test_an_application_without_a_cluster_or_with_two_copies_is_told(cluster):
    switch_on(cluster)
    application(
        cluster,
        condition("Scheduled", "False", "NoSuitableTarget", "there is no cluster"),
        pendingCleanup=[{"cluster": "m2", "objects": []}],
    )
    assert await found(cluster) == [
        (
            "warning",
            "Application shop/till",
            "NoSuitableTarget: there is no cluster",
            "harbourmaster placement why shop/till",
        ),
        (
            "note",
            "Application shop/till",
            "may also run on m2, where it is deleted when the cluster answers",
            "",
        ),
    ]


async def test_applications_without_the_component_are_told(cluster):
    application(cluster)
    text = "placement is off, so 1 Application have no effect"
    remedy = "add the component deploy/components/placement"
    assert await found(cluster) == [("warning", "placement", text, remedy)]


async def test_an_installation_outside_of_the_cluster_may_place_applications(cluster):
    cluster.remove(DEPLOYMENTS, CONTROLLER, HOME)
    application(cluster)
    assert [line[0] for line in await found(cluster)] == ["ok"]
