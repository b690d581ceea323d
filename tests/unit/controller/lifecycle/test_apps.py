from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api.resources import APP_CONTEXTS, APP_VERSIONS, APPS
from harbourmaster.controller.lifecycle import watches
from harbourmaster.controller.lifecycle.apps import AppReconciler
from harbourmaster.gates.names import version_part
from harbourmaster.kube.errors import ConflictError
from harbourmaster.lifecycle.conversion import convert
from harbourmaster.lifecycle.model import App, AppVersion
from helpers.gated import PROD, Dying, names, put, until_death
from helpers.lifecycle import await_signal, context_of, running

FIRST, SECOND, THIRD = "6b86b273", "d4735e3a", "4e074085"


def app(version="1.0", uid="a-1", **spec):
    return {
        "metadata": {"name": "shop", "namespace": PROD, "uid": uid},
        "spec": {"version": version, "revision": 1, "workloads": [], **spec},
    }


def context(*tasks):
    metadata = {"name": "shop", "namespace": PROD}
    return {"metadata": metadata, "spec": {"preDeploymentTasks": list(tasks)}}


def change(api, **spec):
    stored = api.get(APPS, "shop", PROD)
    api.put(APPS, {**stored, "spec": {**stored["spec"], **spec}})


def version(api, name):
    return api.get(APP_VERSIONS, f"shop-{name}", PROD)


def status(api, name):
    return version(api, name).get("status", {}).get("status", "")


def set_status(api, name, text):
    api.put(APP_VERSIONS, {**version(api, name), "status": {"status": text}})


async def current(world, api, text):
    await world.until(
        lambda: api.get(APPS, "shop", PROD).get("status", {}).get("currentVersion") == text
    )


async def there(world, api, name):
    await world.until(lambda: f"shop-{name}" in names(api, APP_VERSIONS))
    await world.until(lambda: f"{PROD}/shop-{name}" in world.caches.app_versions.store)


async def test_versions_by_generation(api, client):
    put(api, APP_CONTEXTS, context("warm"))
    put(api, APPS, app())
    async with running(client, watches.APPS) as world:
        await current(world, api, "1.0")
        assert version(api, f"1.0-{FIRST}")["spec"]["preDeploymentTasks"] == ["warm"]
        api.put(APP_CONTEXTS, context("cool"))
        change(api, version="2.0")
        await current(world, api, "2.0")
        await world.until(lambda: status(api, f"1.0-{FIRST}") == "Deprecated")
        await world.until(lambda: world.caches.app_versions.store.get(f"{PROD}/shop-2.0-{SECOND}"))
        set_status(api, f"2.0-{SECOND}", "Succeeded")
        await world.until(
            lambda: (
                world.caches.app_versions.store.get(f"{PROD}/shop-2.0-{SECOND}").status.is_finished
            )
        )
        change(api, revision=2)
        await there(world, api, f"2.0-{THIRD}")
        await world.until(lambda: status(api, f"2.0-{SECOND}") == "Deprecated")
    second = version(api, f"2.0-{SECOND}")
    assert (second["spec"]["previousVersion"], second["spec"]["preDeploymentTasks"]) == (
        "1.0",
        ["cool"],
    )
    assert "previousVersion" not in version(api, f"2.0-{THIRD}")["spec"]
    assert sorted(world.signals.reasons) == ["created"] * 3 + ["deprecated"] * 2


async def test_the_context_is_asked_for_live(api, client):
    """An app and its context are applied together, and watches have no order."""
    put(api, APP_CONTEXTS, context("warm"))
    stored = put(api, APPS, app())
    lagging = context_of(client)
    lagging.caches.apps.store.put(f"{PROD}/shop", msgspec.convert(stored, App))
    await AppReconciler(lagging).reconcile(f"{PROD}/shop")
    assert version(api, f"1.0-{FIRST}")["spec"]["preDeploymentTasks"] == ["warm"]


async def test_a_look_at_an_older_generation_ends_no_later_version(api, client):
    older = msgspec.convert(put(api, APPS, app()), App)
    change(api, version="2.0")
    lagging = context_of(client)
    apps = lagging.caches.apps.store
    apps.put(f"{PROD}/shop", msgspec.convert(api.get(APPS, "shop", PROD), App))
    await AppReconciler(lagging).reconcile(f"{PROD}/shop")
    later = msgspec.convert(version(api, f"2.0-{SECOND}"), AppVersion)
    lagging.caches.app_versions.store.put(later.metadata.key, later)
    apps.put(f"{PROD}/shop", older)
    with pytest.raises(ConflictError):
        await AppReconciler(lagging).reconcile(f"{PROD}/shop")
    assert status(api, f"2.0-{SECOND}") == ""


async def test_a_version_of_a_former_app_goes_first(api, client):
    former = {"apiVersion": "v1", "kind": "KeptnApp", "name": "shop", "uid": "a-0"}
    metadata = {
        "name": f"shop-1.0-{FIRST}",
        "namespace": PROD,
        "uid": "v-0",
        "ownerReferences": [{**former, "controller": True}],
    }
    put(api, APP_VERSIONS, {"metadata": metadata, "spec": {"appName": "shop", "version": "1.0"}})
    put(api, APPS, app())
    async with running(client, watches.APPS) as world:
        await world.until(lambda: len(world.caches.apps.store))
        api.remove(APP_VERSIONS, f"shop-1.0-{FIRST}", PROD)
        await current(world, api, "1.0")
    assert version(api, f"1.0-{FIRST}")["metadata"]["uid"] != "v-0"


IGNORED = "CreateAppVersionChecksIgnored"


def older(**checks):
    """An app as the API server stores one that was written in v1alpha3."""
    stored = app()
    kept = convert(
        {"apiVersion": "lifecycle.keptn.sh/v1alpha3", "kind": "KeptnApp"} | app(**checks),
        "lifecycle.keptn.sh/v1",
    )
    stored["metadata"]["annotations"] = kept["metadata"]["annotations"]
    return stored


async def test_the_checks_of_an_older_app_run_without_a_context(api, client):
    put(api, APPS, older(preDeploymentTasks=["migrate"], postDeploymentTasks=["notify"]))
    async with running(client, watches.APPS) as world:
        await current(world, api, "1.0")
    spec = version(api, f"1.0-{FIRST}")["spec"]
    assert (spec["preDeploymentTasks"], spec["postDeploymentTasks"]) == (["migrate"], ["notify"])
    assert not [signal for signal in world.signals.kept if signal.reason == IGNORED]


async def test_a_context_wins_over_the_checks_of_an_older_app_and_says_so(api, client):
    put(api, APP_CONTEXTS, context("warm-up"))
    put(api, APPS, older(preDeploymentTasks=["migrate"], postDeploymentEvaluations=["load"]))
    async with running(client, watches.APPS) as world:
        await current(world, api, "1.0")
    spec = version(api, f"1.0-{FIRST}")["spec"]
    assert spec["preDeploymentTasks"] == ["warm-up"]
    assert "postDeploymentEvaluations" not in spec
    (signal,) = [signal for signal in world.signals.kept if signal.reason == IGNORED]
    assert signal.text == (
        "KeptnAppContext shop counts, so these are ignored: "
        "spec.preDeploymentTasks: migrate; spec.postDeploymentEvaluations: load"
    )


@pytest.mark.parametrize("text", ["1.0+b", "a b", "/"])
async def test_any_version_gives_an_object(api, client, text):
    put(api, APPS, app(text))
    async with running(client, watches.APPS) as world:
        await current(world, api, text)
    assert version(api, f"{version_part(text)}-{FIRST}")["spec"]["version"] == text


async def test_what_the_api_refuses_is_told_and_not_tried_again(api, client):
    api.fail_next("create", "/keptnappversions$", None, status=422)
    put(api, APPS, app())
    async with running(client, watches.APPS) as world:
        await await_signal(world, "CreateAppVersionFailed")
        api.heal()
        change(api, version="2.0")
        await current(world, api, "2.0")
    assert names(api, APP_VERSIONS) == [f"shop-2.0-{SECOND}"]


@pytest.mark.parametrize(
    ("verb", "reason"),
    [("create", "CreateAppVersionFailed"), ("patch", "DeprecateAppVersionFailed")],
)
async def test_missing_rights_are_told_and_tried_again(api, client, verb, reason):
    put(api, APPS, app())
    async with running(client, watches.APPS) as world:
        await current(world, api, "1.0")
        forbidden = b'{"kind":"Status","code":403,"reason":"Forbidden","message":"may not"}'
        api.fail_next(verb, "/keptnappversions", None, status=403, body=forbidden)
        change(api, version="2.0")
        await await_signal(world, reason)
        api.heal()
        await current(world, api, "2.0")
        await world.until(lambda: status(api, f"1.0-{FIRST}") == "Deprecated")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 8))
async def test_a_process_that_ends_at_any_write_changes_nothing(api, client, at, after):
    put(api, APPS, app())
    dying = Dying(client, api, at=at, after=after)

    async def steps(world):
        if api.get(APPS, "shop", PROD)["spec"]["version"] == "1.0":
            await there(world, api, f"1.0-{FIRST}")
            await current(world, api, "1.0")
            change(api, version="2.0")
        await current(world, api, "2.0")
        await world.until(lambda: status(api, f"1.0-{FIRST}") == "Deprecated")
        if api.get(APPS, "shop", PROD)["spec"]["revision"] == 1:
            change(api, revision=2)
        await there(world, api, f"2.0-{THIRD}")
        await world.until(lambda: status(api, f"2.0-{SECOND}") == "Deprecated")

    async with running(dying, watches.APPS) as world:
        await until_death(dying, steps(world))
    if dying.died.is_set():
        async with running(Dying(client, api), watches.APPS) as world:
            await steps(world)
    assert names(api, APP_VERSIONS) == [
        f"shop-1.0-{FIRST}",
        f"shop-2.0-{THIRD}",
        f"shop-2.0-{SECOND}",
    ]
    assert version(api, f"2.0-{SECOND}")["spec"]["previousVersion"] == "1.0"
    assert status(api, f"2.0-{THIRD}") == ""
