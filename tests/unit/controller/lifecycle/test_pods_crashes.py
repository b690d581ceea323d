"""A process that ends before or after any write on the way from pods to their release."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import APP_CREATION_REQUESTS, APPS, REPLICA_SETS, WORKLOADS
from harbourmaster.controller.lifecycle import watches
from helpers.gated import (
    CHECKED,
    MINE,
    PROD,
    PROVISIONAL,
    Dying,
    Phases,
    keptn,
    make,
    names,
    outline,
    owner_ref,
    pod,
    put,
    replica_set,
    until_death,
    waiting,
    workload_of,
)
from helpers.lifecycle import RECONCILERS, running

pytestmark = pytest.mark.usefixtures("pod_owners")


FLOW = {
    **{name: RECONCILERS[name] for name in MINE},
    watches.WORKLOAD_VERSIONS: Phases,
}
FLOW_PODS = [
    ("a-1", keptn("a", "1"), "rs-1"),
    ("a-2", keptn("a", "1"), "rs-2"),
    ("b-1", keptn("b", "2"), "rs-1"),
    ("c-1", keptn("c", "3", None), "rs-1"),
]


async def flow(api, client, at=0, *, after=False):
    """Run the flow to its end; with ``at``, a process ends at that write, and another continues."""
    put(api, REPLICA_SETS, replica_set("other-rs", "rs-2", above=None))
    for name, given, uid in FLOW_PODS:
        owner = owner_ref("ReplicaSet", {"rs-1": "waiter-rs", "rs-2": "other-rs"}[uid], uid)
        make(api, pod(name, given, owners=[owner]))
    make(api, pod("d-1", dict(PROVISIONAL)))
    options = {
        "reconcilers": FLOW,
        "workers": 1,
        "configuration": {"creation_request_timeout": 0.0},
    }
    dying = Dying(client, api, at=at, after=after)

    def is_done():
        apps = {name: api.get(APPS, name, PROD) for name in names(api, APPS)}
        return (
            not waiting(api)
            and set(apps) == {"shop", "c"}
            and len(apps["shop"]["spec"]["workloads"]) == 2
            and all(
                "status" in app and app["status"].get("currentVersion") == app["spec"]["version"]
                for app in apps.values()
            )
            and all(
                workload_of(api, name).get("status", {}).get("currentVersion")
                for name in names(api, WORKLOADS)
            )
            and not names(api, APP_CREATION_REQUESTS)
        )

    async with running(dying, **options) as world:
        await until_death(dying, world.until(is_done))
    if dying.died.is_set():
        async with running(Dying(client, api), **options) as world:
            await world.until(is_done)
    return dying.writes


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 26))
async def test_a_process_that_ends_at_any_write_changes_nothing(api, client, at, after):
    writes = await flow(api, client, at, after=after)
    outlined = outline(api)
    if len(writes) < at:
        assert at > 18, writes
    versions = outlined.pop("app versions")
    assert {name.partition("-")[0] for name in versions} == {"shop", "c"}
    shop = outlined["apps"].pop("shop")
    assert {(workload["name"], workload["version"]) for workload in shop["spec"]["workloads"]} == {
        ("a", "1"),
        ("b", "2"),
    }
    assert shop["spec"]["version"] == "0d12cea1c0"
    assert outlined["apps"]["c"]["spec"]["version"] == "3"
    assert set(outlined["versions"]) == {"shop-a-1", "shop-b-2", "c-c-3"}
    assert outlined["owners"]["shop-a-1"] == ["rs-1", "rs-2"]
    assert all(version["status"] == CHECKED for version in outlined["versions"].values())
    assert set(outlined["workloads"]) == {"shop-a", "shop-b", "c-c"}
    assert outlined["gates"] == {name: [] for name in ("a-1", "a-2", "b-1", "c-1", "d-1")}
