"""Apps are created from the workloads that name them (keptn-spec 3.2)."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harbourmaster.api.resources import APP_CREATION_REQUESTS, APPS, WORKLOADS
from harbourmaster.controller.lifecycle import watches
from harbourmaster.controller.lifecycle.creation_requests import CreationRequestReconciler
from harbourmaster.kube.errors import ConflictError, GoneError
from harbourmaster.lifecycle.model import App, Workload
from helpers.gated import CREATED, PROD, names, put
from helpers.lifecycle import await_signal, context_of, running
from helpers.virtual_time import skip

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
        await api.until_seen("watch", "/keptnworkloads$")
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
    put(api, WORKLOADS, workload("a", "1"))
    put(api, APP_CREATION_REQUESTS, request())
    async with only(client, now=after(5), configuration={"creation_request_timeout": 5.0}) as world:
        await is_done(world, api)
    assert entries(api) == [("a", "1")]


async def test_an_app_without_workloads_is_not_created_and_a_managed_one_is_deleted(api, client):
    put(api, APP_CREATION_REQUESTS, request())
    async with only(client, now=after(31)) as world:
        await is_done(world, api)
        assert not api.seen("create")
        stored = put(
            api, APPS, app(MANAGED, version="x", workloads=[{"name": "a", "version": "1"}])
        )
        put(api, APP_CREATION_REQUESTS, request())
        await is_done(world, api)
    assert names(api, APPS) == []
    (deletion,) = [seen for seen in api.seen("delete") if "keptnapps" in seen.path]
    own = {key: stored["metadata"][key] for key in ("uid", "resourceVersion")}
    assert json.loads(deletion.body)["preconditions"] == own
    (signal,) = world.signals.kept
    assert (signal.reason, signal.about) == ("DeleteAppFinished", "App shop")


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
    put(api, WORKLOADS, workload("a", "1"))
    api.fail_next("create", "/keptnapps$", None, status=422)
    put(api, APP_CREATION_REQUESTS, request(SINGLE))
    async with only(client, now=after(0)) as world:
        await await_signal(world, "CreateAppFailed")
    assert len(api.seen("create")) == 1
    assert names(api, APP_CREATION_REQUESTS) == ["shop"]


async def test_missing_rights_are_told_and_tried_again(api, client):
    put(api, WORKLOADS, workload("a", "1"))
    api.forbid("create", APPS)
    put(api, APP_CREATION_REQUESTS, request(SINGLE))
    async with only(client, now=after(0)) as world:
        await await_signal(world, "CreateAppFailed")
        api.heal()
        await is_done(world, api)
    assert names(api, APPS) == ["shop"]


TIMEOUT = 30.0


def owned_workload(name):
    """A workload in version 1, with an owner that no cache has."""
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs"}
    metadata = {"name": f"shop-{name}", "namespace": PROD, "ownerReferences": [reference]}
    followed = {key: reference[key] for key in ("kind", "name", "uid")}
    spec = {"app": "shop", "version": "1", "resourceReference": followed}
    return {"metadata": metadata, "spec": spec, "status": {"owners": ["rs"]}}


def managed(*listed, **labels):
    entries = [{"name": name, "version": "1"} for name in listed]
    stored = app(version="1", workloads=entries)
    stored["metadata"]["labels"] = labels or MANAGED
    return stored


def listed(api):
    """The workloads that the app lists; None if there is none."""
    if names(api, APPS) == []:
        return None
    return [entry["name"] for entry in api.get(APPS, "shop", PROD)["spec"]["workloads"]]


class Life:
    """A reconciler whose caches change only by ``sync``."""

    def __init__(self, api, client):
        self._api = api
        self._context = context_of(client)
        self.signals = self._context.signals
        self.silent = set()
        self._reconciler = CreationRequestReconciler(self._context)
        self.sync()

    def sync(self):
        caches = self._context.caches
        for resource, cache, kind in (
            (APPS, caches.apps, App),
            (WORKLOADS, caches.workloads, Workload),
        ):
            objects = self._api.objects.all(resource).items() if resource not in self.silent else ()
            cache.store.replace_all(
                {"/".join(key): msgspec.convert(obj, kind) for key, obj in objects}
            )

    async def reconcile(self):
        """Reconcile the app with what the API server has now; return the delay."""
        self.sync()
        return await self._reconciler.reconcile(f"{PROD}/shop")

    async def reconcile_after(self, seconds):
        skip(seconds)
        return await self.reconcile()


async def test_a_managed_app_drops_a_workload_that_stays_away(api, client):
    put(api, APPS, managed("cart", "pay"))
    put(api, WORKLOADS, owned_workload("cart"))
    life = Life(api, client)
    assert await life.reconcile() == pytest.approx(TIMEOUT, abs=1)
    assert await life.reconcile_after(20) == pytest.approx(TIMEOUT - 20, abs=1)
    assert listed(api) == ["cart", "pay"]
    await life.reconcile_after(11)
    assert listed(api) == ["cart"]
    assert await life.reconcile() is None


async def test_a_workload_that_is_recreated_in_time_stays_listed(api, client):
    """Argo CD replaces a Deployment by deleting it."""
    put(api, APPS, managed("cart"))
    before = api.get(APPS, "shop", PROD)["metadata"]
    life = Life(api, client)
    assert await life.reconcile() is not None
    put(api, WORKLOADS, owned_workload("cart"))
    assert await life.reconcile_after(TIMEOUT + 1) is None
    api.remove(WORKLOADS, "shop-cart", PROD)
    # The time begins again.
    assert await life.reconcile() == pytest.approx(TIMEOUT, abs=1)
    after = api.get(APPS, "shop", PROD)["metadata"]
    assert (after["uid"], after["generation"]) == (before["uid"], before["generation"])


async def test_caches_alone_that_lack_a_workload_change_no_app(api, client):
    put(api, APPS, managed("cart"))
    put(api, WORKLOADS, owned_workload("cart"))
    life = Life(api, client)
    life.silent = {WORKLOADS}
    await life.reconcile()
    assert await life.reconcile_after(TIMEOUT + 1) is not None
    assert listed(api) == ["cart"]
    assert not api.seen("delete")


@pytest.mark.parametrize("entries", [("cart",), ()])
async def test_a_managed_app_goes_with_its_last_workload(api, client, entries):
    put(api, APPS, managed(*entries))
    life = Life(api, client)
    await life.reconcile()
    await life.reconcile_after(TIMEOUT + 1)
    assert listed(api) is None
    assert "DeleteAppFinished" in life.signals.reasons
    assert await life.reconcile() is None


@pytest.mark.parametrize("entries", [("cart",), ()])
async def test_an_app_of_a_person_keeps_what_it_lists(api, client, entries):
    put(api, APPS, managed(*entries, **{"app.kubernetes.io/managed-by": "Helm"}))
    life = Life(api, client)
    assert await life.reconcile() is None
    assert await life.reconcile_after(TIMEOUT + 1) is None
    assert listed(api) == list(entries)


async def test_an_app_that_a_person_takes_over_is_not_deleted(api, client, monkeypatch):
    put(api, APPS, managed("cart"))
    life = Life(api, client)
    await life.reconcile()
    life.sync()
    stored = api.get(APPS, "shop", PROD)
    api.put(APPS, {**stored, "metadata": {**stored["metadata"], "labels": {}}})
    monkeypatch.setattr(life, "sync", lambda: None)
    with pytest.raises(ConflictError):
        await life.reconcile_after(TIMEOUT + 1)
    assert listed(api) == ["cart"]


async def test_an_app_that_ends_with_its_namespace_is_left_alone(api, client):
    stored = managed("cart")
    stored["metadata"]["deletionTimestamp"] = CREATED
    put(api, APPS, stored)
    life = Life(api, client)
    before = len(api.requests)
    assert await life.reconcile() is None
    assert await life.reconcile_after(TIMEOUT + 1) is None
    assert len(api.requests) == before
