from __future__ import annotations

import asyncio
from base64 import b64decode

import aiohttp.web
import msgspec
import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPS,
    CLUSTERS,
    GLOBAL_METRICS,
    GLOBAL_PROVIDERS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    POLICIES,
    SECRETS,
)
from harbourmaster.api.times import moment
from harbourmaster.controller.extender.extender import PATH, Extender
from harbourmaster.controller.manager import PLACEMENT_SINCE, Manager
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.definitions import DefinitionWatch
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from harbourmaster.telemetry.spans import Tracer
from helpers.certificates import strict_client
from helpers.patience import PATIENCE
from helpers.processes import server_of
from helpers.registration import CONFIGURATIONS, NAME, SECRET
from helpers.scheduler import NODES, TRACKED, filter_body
from helpers.tracing import Memory, Outcomes

HOME = "harbour"
LEASE = "harbourmaster-controller"


async def until_registered(api):
    while not all(
        key in api.objects.all(resource)
        for resource, key in (
            (SECRETS, (HOME, SECRET)),
            *((configuration, ("", NAME)) for configuration in CONFIGURATIONS),
        )
    ):
        await api.until_seen(count=len(api.requests) + 1)


def lease(api):
    return api.get(LEASES, LEASE, HOME)["spec"]


async def test_it_leads_and_registers(start_manager, api):
    process = await start_manager()
    await until_registered(api)
    status, metrics = await process.get("/metrics")
    assert status == 200
    assert "harbourmaster_leader 1.0" in metrics
    assert 'harbourmaster_certificate_expiry_seconds{role="leaf"} 604' in metrics
    assert 'harbourmaster_certificate_expiry_seconds{role="authority"} 3.15' in metrics
    assert 'harbourmaster_cached_objects{resource="secrets"} 1.0' in metrics


async def test_it_gives_the_lease_back_at_the_end(start_manager, api):
    process = await start_manager()
    await until_registered(api)
    assert lease(api)["holderIdentity"]
    await process.end()
    assert lease(api)["holderIdentity"] == ""
    await api.until_watched(0)


async def test_only_the_leader_writes_and_the_next_one_takes_over(start_manager, api):
    first = await start_manager()
    await until_registered(api)
    second = await start_manager()
    await second.until_ready()
    assert "harbourmaster_leader 0.0" in (await second.get("/metrics"))[1]
    await first.end()
    api.remove(MUTATING_WEBHOOKS, NAME)
    await until_registered(api)
    assert len(api.seen("create", "/secrets")) == 1


async def test_ready_is_about_caches_and_not_about_leading(start_manager, api):
    api.fail_next("*", "/leases", None, status=500)
    process = await start_manager()
    await process.until_ready()
    assert api.seen("create", "/secrets") == []


async def test_a_cache_that_cannot_be_filled_is_named_and_not_ready(start_manager, api):
    api.forbid("list", SECRETS)
    process = await start_manager()
    await api.until_seen("list", "/secrets")
    status, text = await process.get("/readyz")
    assert status == 503
    assert text.startswith("caches: waiting for secrets (")
    assert (await process.get("/healthz"))[0] == 200


async def test_one_controller_s_missing_rights_do_not_stop_the_other(
    start_manager, api, monkeypatch
):
    monkeypatch.setattr("harbourmaster.controller.manager.SYNC_WAIT", 0.2)
    api.forbid("list", NAMESPACES)
    await start_manager()
    await until_registered(api)


async def test_a_crash_of_one_controller_does_not_stop_the_other(start_manager, api, monkeypatch):
    monkeypatch.setattr(
        "harbourmaster.controller.namespaces.NamespaceReconciler.map_changes", lambda *_: 1 / 0
    )
    process = await start_manager()
    await until_registered(api)
    zero = 'harbourmaster_controller_restarts_total{controller="namespaces"} 0.0'
    await process.until("/metrics", lambda answer: zero not in answer[1])
    assert not process.task.done()


async def test_without_an_election_it_works_at_once(start_manager, api):
    await start_manager(leaderElection={"enabled": False})
    await until_registered(api)
    assert api.seen("*", "/leases") == []


async def test_the_lease_says_since_when_placement_is_on(start_manager, api):
    async def lead(**values):
        process = await start_manager(**values)
        await process.until("/metrics", lambda answer: "harbourmaster_leader 1.0" in answer[1])
        marks = api.get(LEASES, LEASE, HOME)["metadata"].get("annotations") or {}
        since = process.manager._runtime.placement_since
        await process.end()
        return marks.get(PLACEMENT_SINCE, ""), since

    on = {"controllers": ["placement"], "placement": {"enabled": True}}
    mark, since = await lead(**on)
    assert since == mark != ""
    stored = api.get(LEASES, LEASE, HOME)
    early = {PLACEMENT_SINCE: "2026-03-01T12:00:00Z"}
    api.put(LEASES, {**stored, "metadata": {**stored["metadata"], "annotations": early}})
    assert await lead(**on) == ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z")
    assert await lead(controllers=["namespaces"]) == ("", "")


async def test_without_an_election_placement_counts_from_the_start_of_the_process(start_manager):
    on = {"controllers": ["placement"], "placement": {"enabled": True}}
    process = await start_manager(leaderElection={"enabled": False}, **on)
    await process.until("/metrics", lambda answer: "harbourmaster_leader 1.0" in answer[1])
    assert moment(process.manager._runtime.placement_since) is not None


async def test_placement_without_the_metrics_controller_can_ask_providers(
    start_manager, api, aiohttp_server
):
    asked = asyncio.Event()

    async def answer(_request):
        asked.set()
        return aiohttp.web.json_response({})

    app = aiohttp.web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = await aiohttp_server(app)
    prometheus = {"type": "prometheus", "prometheus": {"url": str(server.make_url("/"))}}
    api.put(GLOBAL_PROVIDERS, {"metadata": {"name": "prometheus"}, "spec": prometheus})
    load = {"min": 0, "max": 1, "provider": {"name": "prometheus", "metric": "load"}}
    api.put(GLOBAL_METRICS, {"metadata": {"name": "load"}, "spec": load})
    metrics = [{"name": "load", "weight": 1, "scope": "Global"}]
    api.put(
        CLUSTERS, {"metadata": {"name": "one", "namespace": "prod"}, "spec": {"metrics": metrics}}
    )
    await start_manager(
        controllers=["placement"],
        placement={"enabled": True},
        metrics={"allowedAddresses": ["127.0.0.0/8"]},
    )
    async with asyncio.timeout(PATIENCE):
        assert await asked.wait()


async def test_without_registration_nothing_of_it_is_read_or_written(start_manager, api):
    process = await start_manager(registerWebhooks=False)
    await process.until_ready()
    await api.until_seen("create", "/leases")
    annotated = {"name": "prod", "annotations": {"keptn.sh/lifecycle-toolkit": "enabled"}}
    api.put(NAMESPACES, {"metadata": annotated})
    await api.until_seen("patch", "/namespaces/prod")
    assert not [
        seen
        for seen in api.requests
        if "/secrets" in seen.path or "webhookconfigurations" in seen.path
    ]


async def test_controllers_can_be_chosen(start_manager, api):
    await start_manager(controllers=["registration"])
    await until_registered(api)
    assert api.seen("list", "/namespaces$") == []


SELECTORS = {"fieldSelector", "labelSelector"}


async def test_the_lifecycle_runs_alone_and_each_cache_is_filled_once(start_manager, api):
    process = await start_manager(controllers=["lifecycle"], leaderElection={"enabled": False})
    await process.until_ready()
    for resource in ("keptnapps", "keptnworkloadversions", "keptntasks", "jobs"):
        # Ten reconcilers share it.
        assert len(api.seen("list", f"/{resource}$")) == 1
    # Those with gates, and those of tasks.
    selected = [sorted({*seen.query} & SELECTORS) for seen in api.seen("list", "/pods$")]
    assert sorted(selected) == [["fieldSelector"], ["labelSelector"], ["labelSelector"]]
    assert api.seen("*", "webhookconfigurations") == []
    assert api.seen("*", "/secrets") == []


async def test_without_the_lifecycle_nothing_of_it_is_asked_for(start_manager, api):
    process = await start_manager(controllers=["namespaces"])
    await process.until_ready()
    assert api.seen("*", "keptn") == []
    assert api.seen("*", "/jobs") == []
    assert "keptn_" not in (await process.get("/metrics"))[1]


SCHEDULING = {"enabled": True, "extenderPort": 0}


async def ask_extender(manager, authority, annotations):
    """Ask the extender about a pod, by the name that its scheduler uses."""
    site = server_of(manager, Extender).site
    connector = aiohttp.TCPConnector(ssl=strict_client(authority))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(
            f"{site.url}{PATH}/filter",
            data=filter_body(annotations=annotations),
            headers={"Content-Type": "application/json"},
            server_hostname="harbourmaster-scheduling",
        ) as answer,
    ):
        return await answer.json()


async def test_every_replica_answers_a_scheduler_with_the_certificate_of_the_webhook(
    start_manager, api
):
    first = await start_manager(scheduler=SCHEDULING)
    second = await start_manager(scheduler=SCHEDULING)
    async with asyncio.timeout(PATIENCE):
        for process in (first, second):
            await server_of(process.manager, Extender).listening.wait()
    authority = b64decode(api.get(SECRETS, SECRET, HOME)["data"]["ca.crt"])
    for process in (first, second):
        assert await ask_extender(process.manager, authority, {}) == {"NodeNames": list(NODES)}
        assert "harbourmaster_extender_answers_total" in (await process.get("/metrics"))[1]


async def test_pods_of_a_scheduler_of_another_name_are_told_so(start_manager, api):
    process = await start_manager(scheduler={**SCHEDULING, "schedulerName": "gatekeeper"})
    await process.until_ready()
    async with asyncio.timeout(PATIENCE):
        await server_of(process.manager, Extender).listening.wait()
    authority = b64decode(api.get(SECRETS, SECRET, HOME)["data"]["ca.crt"])
    answer = await ask_extender(process.manager, authority, TRACKED)
    (text,) = set(answer["FailedAndUnresolvableNodes"].values())
    assert text.startswith(
        "waits in keptn-scheduler, but the controller handles pods of gatekeeper"
    )


@pytest.mark.parametrize(
    "values", [{}, {"scheduler": SCHEDULING, "controllers": ["registration", "namespaces"]}]
)
async def test_no_scheduler_is_answered_where_nobody_asks_for_it(start_manager, values):
    process = await start_manager(**values)
    assert server_of(process.manager, Extender) is None


async def test_what_runs_is_shown_where_one_leads_and_nowhere_else(start_manager, api):
    entry = {"name": "cart", "version": "1"}
    version = {
        "metadata": {"name": "shop-1-6b86b273", "namespace": "prod"},
        "spec": {"appName": "shop", "version": "1", "workloads": [entry]},
    }
    api.put(APP_VERSIONS, version)
    first = await start_manager(controllers=["lifecycle"])
    active = "keptn_app_active{"
    await first.until("/metrics", lambda answer: active in answer[1])
    second = await start_manager(controllers=["lifecycle"])
    await second.until_ready()
    assert active not in (await second.get("/metrics"))[1]
    await first.end()
    await second.until("/metrics", lambda answer: active in answer[1])


async def test_every_cache_of_a_custom_resource_is_woken_by_its_definition(start_manager):
    process = await start_manager(
        controllers=["policies", "placement"],
        placement={"enabled": True},
        dashboard={"enabled": True, "port": 0},
    )
    reflectors = server_of(process.manager, DefinitionWatch)._reflectors
    # Those that decide and those that deploy; those of the controller and of the dashboard.
    assert len(reflectors[CLUSTERS.name]) == len(reflectors[POLICIES.name]) == 2


@pytest.mark.parametrize("controllers", [["policies"], ["registration", "namespaces"]])
async def test_definitions_are_not_read_without_the_right_to_it(start_manager, controllers):
    process = await start_manager(controllers=controllers)
    assert server_of(process.manager, DefinitionWatch) is None


async def test_kinds_that_are_absent_hold_nothing_up(start_manager, api):
    api.undefine(APPS)
    process = await start_manager(controllers=["lifecycle", "namespaces"])
    await process.until_ready()
    text = (await process.get("/metrics"))[1]
    assert 'harbourmaster_resource_absent{resource="keptnapps"} 1.0' in text
    assert 'harbourmaster_resource_absent{resource="keptntasks"} 0.0' in text


async def test_it_tells_how_late_its_event_loop_is(start_manager, monkeypatch):
    monkeypatch.setattr("harbourmaster.controller.manager.HEARTBEAT", 0.01)
    process = await start_manager()
    never = "harbourmaster_event_loop_lag_seconds 0.0\n"
    await process.until("/metrics", lambda answer: never not in answer[1])


async def test_what_is_traced_is_sent_before_the_end(client):
    values = {
        "server": {"healthPort": 0},
        "metrics": {"exposePort": 0, "customMetricsPort": 0},
    }
    settings = msgspec.convert(values, ControllerSettings)
    memory = Memory()
    metrics = create_controller_metrics("0", settings.running)
    manager = Manager(settings, client, HOME, metrics, Tracer(memory, {}, 1.0, Outcomes()))

    async def at_once():
        return "SIGTERM"

    await manager.run(at_once)
    assert memory.is_closed


async def test_an_api_server_that_is_away_at_the_start_is_waited_for(start_manager, api):
    api.fail_next("*", "", 6, kind="reset")
    process = await start_manager()
    await until_registered(api)
    await process.until_ready()
