from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from harbourmaster.api.resources import APP_CREATION_REQUESTS, APPS, WORKLOADS
from harbourmaster.controller.lifecycle import watches
from harbourmaster.kube.errors import GoneError
from helpers.gated import CREATED, PROD, names, put
from helpers.lifecycle import await_signal, running

SINGLE = {"keptn.sh/app-type": "single-service"}
MANAGED = {"app.kubernetes.io/managed-by": "keptn"}


def workload(name, version, app="shop"):
    return {
        "metadata": {"name": f"{app}-{name}", "namespace": PROD},
        "spec": {
            "app": app,
            "version": version,
            "resourceReference": {"uid": "rs", "kind": "ReplicaSet", "name": "rs"},
        },
    }


def request(annotations=None, app="shop"):
    metadata = {"name": "shop", "namespace": PROD, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"appName": app}}


def app(labels=None, **spec):
    return {"metadata": {"name": "shop", "namespace": PROD, "labels": labels or {}}, "spec": spec}


def after(seconds):
    moment = datetime.fromisoformat(CREATED).astimezone(UTC)
    return lambda: moment + timedelta(seconds=seconds)


def entries(api):
    workloads = api.get(APPS, "shop", PROD)["spec"].get("workloads", ())
    return [(workload["name"], workload["version"]) for workload in workloads]


async def is_done(world, api):
    await world.until(lambda: not names(api, APP_CREATION_REQUESTS))


def only(client, **options):
    return running(client, watches.CREATION_REQUESTS, **options)


async def test_an_app_of_all_workloads_there_are(api, client):
    for existing in (workload("b", "2"), workload("a", "1"), workload("c", "3", "other")):
        put(api, WORKLOADS, existing)
    put(api, APP_CREATION_REQUESTS, request({"example.com/a": "b"}))
    async with only(client, now=after(31)) as world:
        await is_done(world, api)
    assert api.get(APPS, "shop", PROD)["spec"] == {
        "version": "0d12cea1c0",
        "workloads": [{"name": "a", "version": "1"}, {"name": "b", "version": "2"}],
    }
    metadata = api.get(APPS, "shop", PROD)["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == (MANAGED, {"example.com/a": "b"})
    assert world.signals.reasons == ["created"]


async def test_a_workload_without_a_spec_is_told_and_keeps_no_app_from_being_made(api, client):
    put(api, WORKLOADS, {"metadata": {"name": "broken", "namespace": PROD, "uid": "uid-of-broken"}})
    put(api, WORKLOADS, workload("a", "1"))
    put(api, APP_CREATION_REQUESTS, request())
    async with only(client, now=after(31)) as world:
        await is_done(world, api)
    assert entries(api) == [("a", "1")]
    (told,) = [signal for signal in world.signals.kept if signal.reason != "created"]
    assert (told.about, told.reason) == ("KeptnWorkload broken", "ReadWorkloadFailed")
    assert told.obj.metadata.uid
    assert told.text == (
        "skipped, because it cannot be read: Object missing required field `spec`: "
        "correct or delete it"
    )


async def test_workloads_are_listed_when_the_time_has_come(api, client):
    started = asyncio.get_running_loop().time()
    begun = after(29.7)()

    def now():
        return begun + timedelta(seconds=asyncio.get_running_loop().time() - started)

    put(api, WORKLOADS, workload("a", "1"))
    put(api, APP_CREATION_REQUESTS, request())
    async with only(client, now=now) as world:
        await api.until_seen("get", "/keptnapps/shop$")
        assert names(api, APPS) == []
        # The watch does not tell of this one.
        api.silence()
        put(api, WORKLOADS, workload("b", "2"))
        await api.until_seen("create", "/keptnapps$")
        api.release()
        await is_done(world, api)
    assert now() >= after(30)()
    assert entries(api) == [("a", "1"), ("b", "2")]


async def test_a_single_service_waits_for_nothing(api, client):
    put(api, WORKLOADS, workload("shop", "1"))
    put(api, APP_CREATION_REQUESTS, request(SINGLE))
    async with only(client, now=after(0)) as world:
        await is_done(world, api)
    assert api.get(APPS, "shop", PROD)["metadata"]["annotations"] == SINGLE
    assert api.get(APPS, "shop", PROD)["spec"]["version"] == "1"


async def test_the_configured_time_counts(api, client):
    put(api, APP_CREATION_REQUESTS, request())
    async with only(client, now=after(5), configuration={"creation_request_timeout": 5.0}) as world:
        await is_done(world, api)
    assert api.get(APPS, "shop", PROD)["spec"] == {"version": "e3b0c44298"}


async def test_an_app_of_a_person_is_never_touched(api, client):
    put(api, APPS, app(version="7", workloads=[{"name": "x", "version": "1"}]))
    put(api, WORKLOADS, workload("a", "1"))
    put(api, APP_CREATION_REQUESTS, request())
    before = api.get(APPS, "shop", PROD)
    async with only(client, now=after(0)) as world:
        await is_done(world, api)
    assert api.get(APPS, "shop", PROD) == before


async def test_a_managed_app_follows(api, client):
    listed = [{"name": name, "version": "0"} for name in ("c", "gone", "a")]
    put(api, APPS, app(MANAGED, version="x", revision=4, workloads=listed))
    for name in "abc":
        put(api, WORKLOADS, workload(name, "1"))
    put(api, APP_CREATION_REQUESTS, request())
    async with only(client, now=after(31)) as world:
        await is_done(world, api)
    assert entries(api) == [("c", "1"), ("a", "1"), ("b", "1")]
    assert api.get(APPS, "shop", PROD)["spec"]["revision"] == 4
    generation = api.get(APPS, "shop", PROD)["metadata"]["generation"]
    put(api, APP_CREATION_REQUESTS, request())
    async with only(client, now=after(31)) as world:
        await is_done(world, api)
    assert api.get(APPS, "shop", PROD)["metadata"]["generation"] == generation


class Pages:
    """A client whose second page is too old the first time."""

    def __init__(self, client):
        self._client = client
        self.asked = []

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def list(self, resource, namespace=None, **options):
        if resource is not WORKLOADS or namespace is None:
            return await self._client.list(resource, namespace, **options)
        self.asked.append(options["continue_token"])
        if len(self.asked) == 2:
            raise GoneError("too old", status=410)
        return await self._client.list(resource, namespace, **options, limit=2)


async def test_pages_that_became_too_old_are_read_anew(api, client):
    for number in range(5):
        put(api, WORKLOADS, workload(f"w{number}", "1"))
    put(api, APP_CREATION_REQUESTS, request())
    pages = Pages(client)
    async with only(pages, now=after(31)) as world:
        await is_done(world, api)
    assert len(entries(api)) == 5
    assert [bool(token) for token in pages.asked] == [False, True, False, True, True]


@pytest.mark.parametrize("name", ["no name", "a/b", "a" * 254])
async def test_names_that_can_be_none_are_told(api, client, name):
    put(api, APP_CREATION_REQUESTS, request(app=name))
    async with only(client, now=after(31)) as world:
        await await_signal(world, "CreateAppFailed")
    assert not api.seen("create")
    assert names(api, APP_CREATION_REQUESTS) == ["shop"]


async def test_what_the_api_refuses_is_told(api, client):
    api.fail_next("create", "/keptnapps$", None, status=422)
    put(api, APP_CREATION_REQUESTS, request(SINGLE))
    async with only(client, now=after(0)) as world:
        await await_signal(world, "CreateAppFailed")
    assert len(api.seen("create")) == 1
    assert names(api, APP_CREATION_REQUESTS) == ["shop"]


async def test_missing_rights_are_told_and_tried_again(api, client):
    api.forbid("create", APPS)
    put(api, APP_CREATION_REQUESTS, request(SINGLE))
    async with only(client, now=after(0)) as world:
        await await_signal(world, "CreateAppFailed")
        api.heal()
        await is_done(world, api)
    assert names(api, APPS) == ["shop"]
