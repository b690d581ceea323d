"""The dashboard in the controller's process: off, plain for this machine, and with TLS."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import aiohttp
import msgspec
import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    CLUSTER_POLICIES,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    SECRETS,
)
from harbourmaster.controller.registration.controller import names_of
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.controller.validation import validate
from harbourmaster.dashboard.caches import DashboardCaches
from harbourmaster.dashboard.server import DashboardServer
from harbourmaster.dashboard.settings import DashboardSettings
from harbourmaster.lifecycle.gate_verdict import GateWaitRules
from helpers.certificates import strict_client
from helpers.patience import PATIENCE
from helpers.processes import server_of
from helpers.registration import SECRET

HOME = "harbour"
FREE = {"exposePort": 0, "customMetricsPort": 0}


def settings_of(**values):
    values.setdefault("server", {"healthPort": 0})
    values.setdefault("metrics", FREE)
    values.setdefault("leaderElection", {"enabled": False})
    return msgspec.convert(values, ControllerSettings)


@pytest.fixture
def start(start_manager):
    """Return a function that starts a manager without leader election."""

    async def run(**values):
        return (await start_manager(leaderElection={"enabled": False}, **values)).manager

    return run


async def get(url, **more):
    async with aiohttp.ClientSession() as session, session.get(url, **more) as answer:
        return answer.status, await answer.text()


@pytest.mark.slow
def test_it_costs_nothing_where_it_is_off():
    loads = (
        "import sys; from harbourmaster.controller import manager, settings;"
        "wrong = ('jinja2', 'harbourmaster.dashboard.'); has = 'harbourmaster.dashboard.settings';"
        "print([each for each in sys.modules if each.startswith(wrong) and each != has])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", loads], capture_output=True, text=True, check=True, timeout=100
    )
    assert ended.stdout.strip() == "[]"
    assert not ControllerSettings().dashboard.enabled


async def test_a_controller_without_it_watches_nothing_for_it(start, api):
    manager = await start(controllers=["namespaces"])
    assert server_of(manager, DashboardServer) is None
    await api.until_watched(1)
    assert not api.seen("list", "/pods")


async def test_it_is_plain_on_a_loopback_address(start, api):
    manager = await start(controllers=["namespaces"], dashboard={"enabled": True, "port": 0})
    async with asyncio.timeout(PATIENCE):
        await server_of(manager, DashboardServer).listening.wait()
    site = server_of(manager, DashboardServer).site
    assert site.url.startswith("http://127.0.0.1:")
    assert (await get(f"{site.url}/login"))[0] == 200
    assert (await get(f"{site.url}/"))[0] == 401
    # Whoever may connect must not keep an hour's worth of connections.
    assert site._timeouts.keepalive < 120


async def test_elsewhere_it_has_tls_by_our_certificate(start, api):
    manager = await start(
        controllers=["registration"], dashboard={"enabled": True, "port": 0, "host": "::"}
    )
    async with asyncio.timeout(PATIENCE):
        await server_of(manager, DashboardServer).listening.wait()
    secret = api.get(SECRETS, SECRET, HOME)
    authority = msgspec.convert(secret["data"]["ca.crt"], bytes, strict=False)
    url = f"https://127.0.0.1:{server_of(manager, DashboardServer).site.port}/login"
    name = f"harbourmaster-dashboard.{HOME}.svc"
    status, text = await get(url, ssl=strict_client(authority), server_hostname=name)
    assert status == 200
    assert "Log in" in text


def test_the_certificate_has_its_name_where_others_reach_it():
    assert not [name for name in names_of(settings_of(), HOME) if "dashboard" in name]
    local = settings_of(dashboard={"enabled": True})
    assert not [name for name in names_of(local, HOME) if "dashboard" in name]
    public = settings_of(dashboard={"enabled": True, "host": "::"})
    assert f"harbourmaster-dashboard.{HOME}.svc" in names_of(public, HOME)


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - is compared
        ("::", False),
        ("10.1.2.3", False),
        ("localhost.example.com", False),
    ],
)
def test_what_is_local(host, is_local):
    assert DashboardSettings(host=host).is_local is is_local


def test_trusted_proxies_are_networks():
    assert not validate(settings_of(dashboard={"trustedProxies": ["10.0.0.0/8", "::1"]}))
    with pytest.raises(ValueError, match="trustedProxies: 'ingress'"):
        settings_of(dashboard={"trustedProxies": ["ingress"]})


def test_no_port_that_others_reach_is_without_a_certificate(client):
    settings = settings_of(registerWebhooks=False, dashboard={"enabled": True, "host": "::"})
    assert [fault.path for fault in validate(settings)] == ["metrics.customMetricsCertDir"]
    assert not validate(settings_of(registerWebhooks=False, dashboard={"enabled": True}))
    with pytest.raises(ValueError, match="without a certificate"):
        DashboardServer(
            client,
            settings.dashboard,
            DashboardCaches(client),
            certificate=None,
            rules=GateWaitRules(),
            definition_namespaces=(),
            note_crash=print,
        )


async def until_true(holds):
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.01)


async def test_it_mirrors_policies_pods_and_namespaces(api, client, background):
    api.put(NAMESPACES, {"metadata": {"name": "shop", "labels": {"stage": "prod"}}})
    api.put(PODS, {"metadata": {"name": "a", "namespace": "shop", "labels": {"app": "cart"}}})
    api.put(POLICIES, {"metadata": {"name": "p", "namespace": "shop"}, "spec": {"podSelector": {}}})
    api.put(CLUSTER_POLICIES, {"metadata": {"name": "c"}, "spec": {"tolerations": 7}})
    caches = DashboardCaches(client)
    changes = []
    caches.on_change.append(lambda name, keys: changes.append((name, sorted(keys))))
    for reflector in caches.reflectors:
        background(reflector.run())
    await until_true(lambda: all(reflector.synced.is_set() for reflector in caches.reflectors))
    sources = await caches.sources(counts=True)
    assert sources.counts.by_policy["PodSchedulingPolicy shop/p"] == {"shop": 1}
    # What can't be read selects all that it could reach, as at admission.
    assert sources.counts.by_policy["ClusterPodSchedulingPolicy c"] == {"shop": 1}
    (broken,) = sources.cluster_policies.store.values()
    assert "tolerations" in broken.compiled.fault
    assert ("policies", ["shop/p"]) in changes
    assert not (await caches.sources(counts=False)).counts.pods
    assert sources.app_versions is None
    assert (await caches.sources(counts=False)).nodes is None


async def test_mirrors_of_the_controllers_are_shared(start, api):
    manager = await start(
        controllers=["lifecycle", "rescheduling", "placement"],
        rescheduling={"enabled": True},
        placement={"enabled": True},
        dashboard={"enabled": True, "port": 0},
    )
    async with asyncio.timeout(PATIENCE):
        await server_of(manager, DashboardServer).listening.wait()
    caches = server_of(manager, DashboardServer)._caches
    sources = await caches.sources(counts=False)
    assert sources.gated_pods is not None
    assert sources.clusters is not None
    assert sources.nodes is not None
    changes = []
    caches.on_change.append(lambda name, keys: changes.append((name, sorted(keys))))
    api.put(NODES, {"metadata": {"name": "n1"}})
    version = {"appName": "cart", "version": "1"}
    api.put(APP_VERSIONS, {"metadata": {"name": "cart-1", "namespace": "shop"}, "spec": version})
    await until_true(lambda: {"nodes", "app_versions"} <= {name for name, _ in changes})
    assert len(api.seen("list", "/nodes")) == 1
