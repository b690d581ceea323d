from __future__ import annotations

import json

import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPS,
    CONTROLLER_REVISIONS,
    EVALUATIONS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.controller.lifecycle import history, watches
from harbourmaster.gates.names import app_version_name
from helpers.gated import PROD, keptn, names, owner_ref, pod, put, replica_set
from helpers.lifecycle import running
from helpers.lifecycle_objects import owners

ENDED = {"status": "Succeeded", "endTime": "2026-03-01T12:00:00Z"}
STARTED = "2026-03-01T10:00:0{}Z"


def app(*workloads, number=9):
    entries = [{"name": "waiter", "version": version} for version in workloads]
    return {
        "metadata": {"name": "shop", "namespace": PROD, "uid": "a-1", "generation": number},
        "spec": {"version": str(number), "workloads": entries},
    }


def app_version(number, status=ENDED, *, listed=(), **metadata):
    entries = [{"name": "waiter", "version": version} for version in listed]
    return {
        "metadata": {
            "name": app_version_name("shop", str(number), number),
            "namespace": PROD,
            "uid": f"av-{number}",
            "creationTimestamp": STARTED.format(number),
            **owners("KeptnApp", "a-1", "shop"),
            **metadata,
        },
        "spec": {"appName": "shop", "version": str(number), "workloads": entries},
        "status": status,
    }


def workload(version="9", kind="ReplicaSet"):
    spec = {"app": "shop", "version": version, "resourceReference": reference("rs-9", kind)}
    metadata = {"name": "shop-waiter", "namespace": PROD, "uid": "w-1"}
    owned = {"ownerReferences": [owner_ref(kind, "waiter", "rs-9")]}
    return {"metadata": {**metadata, **owned}, "spec": spec}


def reference(uid, kind="ReplicaSet"):
    return {"uid": uid, "kind": kind, "name": "waiter"}


def workload_version(number, status=ENDED, *, kind="ReplicaSet", **metadata):
    return {
        "metadata": {
            "name": f"shop-waiter-{number}",
            "namespace": PROD,
            "uid": f"wv-{number}",
            "creationTimestamp": STARTED.format(number),
            **owners("KeptnWorkload", "w-1", "shop-waiter"),
            **metadata,
        },
        "spec": {
            "app": "shop",
            "workloadName": "shop-waiter",
            "version": str(number),
            "resourceReference": reference(f"rs-{number}", kind),
        },
        "status": {"currentPhase": "Completed", **status},
    }


def check(parent, state="Progressing"):
    return {
        "metadata": {"name": "check", "namespace": PROD, **owners(uid=parent)},
        "spec": {"taskDefinition": "a", "evaluationDefinition": "a", "workloadVersion": ""},
        "status": {
            "status": state,
            "overallStatus": state,
            "evaluationStatus": {},
            "retryCount": 0,
        },
    }


def revision(annotations, labels, above):
    template = {"metadata": {"annotations": annotations, "labels": labels}}
    image = {"name": "main", "image": "registry.example.com/main:2"}
    # As the StatefulSet controller writes it.
    template |= {"$patch": "replace", "spec": {"containers": [image]}}
    return {
        "metadata": {
            "name": "waiter-5d4f",
            "namespace": PROD,
            "annotations": above,
        },
        "data": {"spec": {"template": template}},
        "revision": 2,
    }


def place(api, *, kind="ReplicaSet"):
    """Store an app at its ninth version, with four ended versions of it and of its workload."""
    put(api, APPS, app())
    put(api, WORKLOADS, workload(kind=kind))
    for number in (1, 2, 3, 9):
        put(api, APP_VERSIONS, app_version(number))
        put(api, WORKLOAD_VERSIONS, workload_version(number, kind=kind))


def left(api, resource):
    return [name.split("-")[1 if resource == APP_VERSIONS else 2] for name in names(api, resource)]


async def until_trimmed(world, api, resource=WORKLOAD_VERSIONS):
    """Wait until version 3 is gone, which is deleted after 1 and 2."""
    await world.until(lambda: "3" not in left(api, resource))


def limited(client, limit=1, **settings):
    return running(client, watches.HISTORY, settings={"history_limit": limit, **settings})


async def test_the_newest_versions_stay(api, client):
    place(api)
    async with limited(client, 2) as world:
        await world.until(lambda: left(api, WORKLOAD_VERSIONS) == ["3", "9"])
    assert left(api, APP_VERSIONS) == ["3", "9"]
    deleted = [seen.path.rpartition("/")[2].split("-")[-1] for seen in api.seen("delete")]
    assert len(deleted) == 4
    assert not api.seen("list", "/controllerrevisions")


USES = {
    "current": lambda api: api.put(WORKLOADS, workload("2")),
    "listed by its app": lambda api: api.put(APPS, app("2")),
    "listed by a running version of its app": lambda api: put(
        api, APP_VERSIONS, app_version(4, {"status": "Progressing"}, listed=["2"])
    ),
    "named by a waiting pod": lambda api: put(api, PODS, pod(annotations=keptn(version="2"))),
    "of a ReplicaSet": lambda api: put(api, REPLICA_SETS, replica_set("waiter-2", "rs-2")),
    "with a running task": lambda api: put(api, TASKS, check("wv-2")),
    "with a running evaluation": lambda api: put(api, EVALUATIONS, check("wv-2")),
    "unfinished": lambda api: api.put(
        WORKLOAD_VERSIONS, workload_version(2, {"status": "Progressing"})
    ),
    "created by a person": lambda api: api.put(
        WORKLOAD_VERSIONS, workload_version(2, ownerReferences=[])
    ),
    "with a former owner": lambda api: (
        put(api, REPLICA_SETS, replica_set("waiter-0", "rs-0")),
        api.put(
            WORKLOAD_VERSIONS,
            workload_version(2, annotations={"gates.harbourmaster.dev/owners": "rs-0,rs-2"}),
        ),
    ),
}


@pytest.mark.parametrize("use", USES)
async def test_a_used_version_of_a_workload_stays(api, client, use):
    place(api)
    USES[use](api)
    async with limited(client) as world:
        await until_trimmed(world, api)
    assert "2" in left(api, WORKLOAD_VERSIONS)
    assert "1" not in left(api, WORKLOAD_VERSIONS)


APP_USES = {
    "current": lambda api: (api.remove(APPS, "shop", PROD), put(api, APPS, app(number=2))),
    "running": lambda api: api.put(APP_VERSIONS, app_version(2, {"status": "Progressing"})),
    "with a running task": lambda api: put(api, TASKS, check("av-2")),
    "created by a person": lambda api: api.put(APP_VERSIONS, app_version(2, ownerReferences=[])),
}


@pytest.mark.parametrize("use", APP_USES)
async def test_a_used_version_of_an_app_stays(api, client, use):
    place(api)
    APP_USES[use](api)
    async with limited(client) as world:
        await until_trimmed(world, api)
    assert "2" in left(api, APP_VERSIONS)
    assert "1" not in left(api, APP_VERSIONS)


@pytest.mark.parametrize(
    ("annotations", "labels", "above"),
    [
        (keptn(version="2"), {}, {}),
        ({}, {"app.kubernetes.io/name": "waiter", "app.kubernetes.io/part-of": "shop"}, {}),
        ({}, {}, keptn(version="2")),
    ],
    ids=["by its template", "by an image", "by its owner"],
)
async def test_a_version_of_a_controller_revision_stays(api, client, annotations, labels, above):
    """A rollback of a StatefulSet leads to it."""
    place(api, kind="StatefulSet")
    put(api, STATEFUL_SETS, {"metadata": {"name": "waiter", "namespace": PROD, "uid": "rs-2"}})
    put(api, CONTROLLER_REVISIONS, revision(annotations, labels, above))
    put(api, CONTROLLER_REVISIONS, {"metadata": {"name": "odd"}, "data": [1]})
    put(api, CONTROLLER_REVISIONS, {"metadata": {"name": "other"}, "data": {"spec": {}}})
    async with limited(client, version_from_tag=True) as world:
        await until_trimmed(world, api)
    assert left(api, WORKLOAD_VERSIONS) == ["2", "9"]
    assert len(api.seen("list", "/controllerrevisions")) == 1


async def test_the_end_of_a_version_deletes_older_ones(api, client):
    place(api)
    async with limited(client, 4) as world:
        put(api, WORKLOAD_VERSIONS, workload_version(4, {"status": "Progressing"}))
        await world.until(lambda: f"{PROD}/shop-waiter-4" in world.caches.workload_versions.store)
        api.put(WORKLOAD_VERSIONS, workload_version(4))
        await world.until(lambda: left(api, WORKLOAD_VERSIONS) == ["2", "3", "4", "9"])
        assert left(api, APP_VERSIONS) == ["1", "2", "3", "9"]
        put(api, APP_VERSIONS, app_version(4))
        await world.until(lambda: left(api, APP_VERSIONS) == ["2", "3", "4", "9"])


async def test_a_pass_deletes_few_versions_and_is_followed_by_another(api, client, monkeypatch):
    monkeypatch.setattr(history, "_MOST", 4)
    place(api)
    async with running(client, settings={"history_limit": 1}) as world:
        reconciler = history.HistoryReconciler(world.context)
        assert await reconciler.reconcile(f"{PROD}/shop")
        assert left(api, APP_VERSIONS) == ["9"]
        assert left(api, WORKLOAD_VERSIONS) == ["2", "3", "9"]
        await world.until(lambda: len(world.caches.workload_versions.store) == 3)
        assert await reconciler.reconcile(f"{PROD}/shop") is None
    assert left(api, WORKLOAD_VERSIONS) == ["9"]
    preconditions = [json.loads(seen.body)["preconditions"] for seen in api.seen("delete")]
    assert preconditions == [{"uid": f"{kind}-{n}"} for kind in ("av", "wv") for n in (1, 2, 3)]


async def test_without_a_limit_all_stay(api, client):
    place(api)
    async with running(client, settings={"history_limit": 0}) as world:
        assert await history.HistoryReconciler(world.context).reconcile(f"{PROD}/shop") is None
    assert not api.seen("delete")
