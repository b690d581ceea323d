"""Nodes on which a workload version failed are recorded, against a fake API server."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import PODS, TASKS, WORKLOAD_VERSIONS
from harbourmaster.controller.lifecycle import watches
from helpers.gated import CREATED, PROD, SetClock, keptn, owner_ref, pod, put, tick
from helpers.lifecycle import running

VERSION = "shop-waiter-1.0"
CLEAR = "gates.harbourmaster.dev/clear-failed-nodes"
CONTROLLER = {
    "apiVersion": "lifecycle.keptn.sh/v1",
    "kind": "KeptnWorkloadVersion",
    "name": VERSION,
    "uid": "v-1",
    "controller": True,
}


pytestmark = pytest.mark.usefixtures("pod_owners")


def make_version(api, *nodes, annotations=None):
    spec = {
        "app": "shop",
        "version": "1.0",
        "workloadName": "shop-waiter",
        "resourceReference": {"uid": "rs-1", "kind": "ReplicaSet", "name": "waiter-rs"},
    }
    metadata = {"name": VERSION, "namespace": PROD, "uid": "v-1", "annotations": annotations or {}}
    status = {"status": "Progressing", "startTime": CREATED, "failedNodes": list(nodes)}
    put(api, WORKLOAD_VERSIONS, {"metadata": metadata, "spec": spec, "status": status})


def make_task(api, name="pre-migrate-1", *, check="pre", status="Failed", ended=CREATED, **more):
    metadata = {"name": name, "namespace": PROD, "uid": name, "ownerReferences": [CONTROLLER]}
    spec = {"taskDefinition": "migrate", "checkType": check}
    fields = {"jobName": f"job-{name}", "status": status, "endTime": ended, **more}
    put(api, TASKS, {"metadata": metadata, "spec": spec, "status": fields})


def make_pod(api, name, job, *, node="n1", phase="Failed", created=CREATED):
    failed_pod = pod(
        name, {"a": "b"}, gates=(), owners=[owner_ref("Job", job, job)], created=created, uid=name
    )
    failed_pod["metadata"]["labels"] = {"job-name": job}
    failed_pod["spec"]["nodeName"] = node
    put(api, PODS, {**failed_pod, "status": {"phase": phase}})


def failing(api, name="waiter-1", node="n1", **status):
    failing_pod = pod(name, keptn(), gates=(), uid=name)
    failing_pod["spec"] |= {"nodeName": node, "schedulerName": "keptn-scheduler"}
    put(api, PODS, {**failing_pod, "status": {"phase": "Failed", "startTime": CREATED, **status}})


def nodes(api):
    return api.get(WORKLOAD_VERSIONS, VERSION, PROD)["status"].get("failedNodes", [])


def is_cleared(api):
    return api.get(WORKLOAD_VERSIONS, VERSION, PROD)["metadata"]["annotations"][CLEAR]


def lists(api):
    return list(api.seen("list", "/prod/pods"))


def recording(client, *, now=None, **scheduler):
    return running(client, watches.FAILED_NODES, now=now or SetClock(), scheduler=scheduler)


async def until_nodes(api, world, *names):
    await world.until(lambda: [node["name"] for node in nodes(api)] == list(names) or tick(world))


async def test_the_last_pod_of_a_failed_check_gives_its_node_once(api, client):
    make_pod(api, "first", "job-pre-migrate-1", node="n1")
    make_pod(api, "last", "job-pre-migrate-1", node="n2", created="2026-03-01T10:00:05Z")
    make_pod(api, "ended", "job-pre-migrate-1", node="n3", phase="Succeeded")
    make_pod(api, "others", "job-other", node="n4")
    make_version(api)
    async with recording(client) as world:
        make_task(api)
        await until_nodes(api, world, "n2")
        assert nodes(api) == [
            {"name": "n2", "reason": "task migrate failed", "expires": "2026-03-01T10:30:00Z"}
        ]
        asked = len(lists(api))
        make_task(api, message="something else")
        failing(api, node="n5")
        await until_nodes(api, world, "n2", "n5")
    assert asked == len(lists(api)) == 1


async def test_a_pod_that_cannot_be_read_hides_no_other(api, client):
    make_pod(api, "first", "job-pre-migrate-1", node="n1")
    make_pod(api, "broken", "job-pre-migrate-1", node="n2", phase=["Failed"])
    make_version(api)
    make_task(api)
    async with recording(client) as world:
        await until_nodes(api, world, "n1")


@pytest.mark.parametrize(
    "task",
    [
        {"check": "post"},
        {"status": "Succeeded"},
        {"status": "Progressing", "ended": ""},
        {"jobName": ""},
        # Long ago.
        {"ended": "2026-03-01T09:29:00Z"},
    ],
)
async def test_no_other_task_is_asked_about(api, client, task):
    make_pod(api, "last", "job-pre-migrate-1")
    make_version(api)
    make_task(api, **task)
    async with recording(client) as world:
        failing(api, node="n5")
        await until_nodes(api, world, "n5")
    assert not lists(api)


async def test_a_check_whose_pods_are_gone_gives_no_node(api, client):
    make_version(api)
    make_task(api)
    async with recording(client) as world:
        failing(api, node="n5")
        await until_nodes(api, world, "n5")
    assert len(lists(api)) == 1


async def test_the_same_failures_are_written_once_by_all_leaders(api, client):
    make_version(api)
    failing(api)
    for _ in range(2):
        async with recording(client) as world:
            await until_nodes(api, world, "n1")
            failing(api, message="once more")
    assert len(api.seen("patch", "/keptnworkloadversions/")) == 1


async def test_nothing_is_recorded_where_it_counts_for_no_time(api, client):
    make_version(api)
    make_task(api)
    failing(api)
    async with recording(client, failed_node_seconds=0.0) as world:
        assert world.caches.started_pods is None
        make_version(api, annotations={CLEAR: "wanted"})
        await world.until(lambda: is_cleared(api) != "wanted" or tick(world))
    assert nodes(api) == []
    assert not lists(api)


async def test_a_version_that_changed_meanwhile_is_written_anew(api, client):
    make_version(api)
    api.fail_next("patch", "/keptnworkloadversions/", 2, status=409)
    failing(api)
    async with recording(client) as world:
        await until_nodes(api, world, "n1")
