"""Signals reach an API server, a receiver of CloudEvents and a collector."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from harbourmaster.api.resources import EVENTS
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.metrics import LifecycleMetrics
from harbourmaster.controller.lifecycle.signals import Channels, Signals
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import Connection
from harbourmaster.lifecycle.events import WORKLOAD_PHASES
from harbourmaster.lifecycle.keptn_config import LifecycleConfiguration
from harbourmaster.lifecycle.model import Parameters, SecureParameters, TaskContext
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from harbourmaster.telemetry.spans import SpanBatches
from helpers.fake_api import FakeApi
from helpers.lifecycle_objects import (
    app,
    app_version,
    evaluation,
    metadata,
    owner_by,
    task,
    workload_version,
)
from helpers.logs import captured_log
from helpers.patience import PATIENCE
from helpers.tracing import Collector, Listener
from helpers.virtual_time import virtual

CANARY = "canary-3f9c"


class Configured:
    def __init__(self):
        self.current = LifecycleConfiguration()


class Outlet:
    """Signals, and the running channels that deliver them."""

    def __init__(self, client, vocabulary="keptn"):
        self.metrics = create_controller_metrics("1", [])
        self.configuration = Configured()
        self.channels = Channels(
            client,
            self.configuration,
            self.metrics,
            LifecycleMetrics(self.metrics.registry),
            identity="pod-1",
            namespace="harbourmaster-system",
        )
        self.caches = LifecycleCaches(None)
        self.signals = Signals(self.caches, self.channels, vocabulary)

    def count(self, outcome):
        return self.metrics.events.labels(outcome)._value.get()

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.channels.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()


@pytest.fixture(autouse=True)
def prompt(monkeypatch):
    monkeypatch.setitem(SpanBatches.__init__.__kwdefaults__, "delay", 0.05)


@pytest.fixture(autouse=True)
def log():
    with captured_log("debug") as stream:
        yield stream


@pytest.fixture
async def api():
    async with FakeApi() as fake_api:
        yield fake_api


async def token():
    return f"token-{CANARY}"


async def test_no_secret_leaves_by_any_of_them(api, log):
    async with (
        Listener() as listener,
        Collector() as collector,
        Client(Connection(server=api.url, token=token, source="a test")) as client,
    ):
        outlet = Outlet(client, "both")
        outlet.configuration.current = LifecycleConfiguration(
            cloud_events_endpoint=listener.url.replace("//", f"//user:{CANARY}@"),
            collector_url=collector.url,
        )
        tell_everything(outlet)
        async with outlet.running(), asyncio.timeout(PATIENCE):
            events = await listener.until(10)
            await collector.until(lambda span: span.name == "shop-1-6b86b273")
            listener.answer = 500
            outlet.signals.report_created(app())
            await listener.until(len(events) + 1)
    stored = api.objects.all(EVENTS)
    assert len(stored) >= 10
    said = [
        str(stored),
        *(str(without_metadata(span)) for span, _ in collector.spans()),
        *(str(headers) for headers in collector.headers),
        log.getvalue().decode(),
    ]
    for request, body in listener.requests:
        headers = {name.lower(): value for name, value in request.headers.items()}
        # The endpoint's own credentials go to it, and nothing else.
        headers.pop("authorization")
        assert headers.keys() == {
            *("host", "user-agent", "accept", "accept-encoding", "content-length", "content-type"),
            *("ce-id", "ce-source", "ce-specversion", "ce-time", "ce-type"),
        }
        said += [str(headers), body.decode()]
    assert not [line for line in said if CANARY in line]


def without_metadata(span):
    """A span without the attribute ``password``: context metadata is shown there on purpose."""
    bare_span = type(span)()
    bare_span.CopyFrom(span)
    del bare_span.attributes[:]
    bare_span.attributes.extend(
        attribute for attribute in span.attributes if attribute.key != "password"
    )
    return bare_span


def tell_everything(outlet):
    """Signals of objects with something secret wherever users may put it."""
    secret = {"password": CANARY}
    hidden = {"labels": secret, "annotations": secret}
    shop = app_version(metadata=secret)
    shop = replace(shop, metadata=metadata(shop.metadata.name, **hidden))
    front = workload_version(metadata=secret)
    front = replace(
        front, status=replace(front.status, app_context_metadata=secret, status="Failed")
    )
    outlet.caches.app_versions.store.put(shop.metadata.key, shop)
    run = task(
        owner_by("KeptnAppVersion", shop),
        context=TaskContext(app_name="shop", object_type="App", metadata=secret),
    )
    parameters = {"parameters": Parameters(map=secret)}
    secrets = {"secure_parameters": SecureParameters(secret="a-secret")}  # noqa: S106 - a name
    run = replace(run, spec=replace(run.spec, **parameters, **secrets))
    signals = outlet.signals
    for version, phase in ((shop, "AppDeploy"), (front, "WorkloadDeploy")):
        for state in ("Started", "Finished", "Failed"):
            signals.emit(version, phase, state)
    for obj in (run, evaluation(), front, shop):
        signals.report_created(obj)
        signals.report_completed(obj)
    signals.report_deprecated(app_version("0"))


async def test_all_ways_end_with_the_process_and_what_waits_is_sent(api):
    async with Listener() as listener, Collector() as collector, api.client() as client:
        outlet = Outlet(client)
        outlet.configuration.current = LifecycleConfiguration(
            cloud_events_endpoint=listener.url, collector_url=collector.url
        )
        async with outlet.running():
            await asyncio.sleep(0)
            outlet.signals.emit(app_version(), "AppDeploy", "Started")
            outlet.signals.emit(app_version(), "AppDeploy", "Finished")
        assert len(api.objects.all(EVENTS)) == 2
        assert [event.get_type() for event in listener.events] == [
            "App Deployment.Started",
            "App Deployment.Finished",
        ]
        assert [span.name for span, _ in collector.spans()] == ["AppDeploy"]


@virtual
async def test_nothing_of_many_applications_is_lost():
    """No signal is lost in a minute at the rate of 500 applications of 5 workloads in 5 minutes."""
    sent = []

    async def request(_method, _path, **options):
        sent.append(options["body"])
        await asyncio.sleep(0.02)

    outlet = Outlet(SimpleNamespace(request=request))
    versions = [
        replace(current, metadata=metadata(f"shop-front-{number}"))
        for current in [workload_version()]
        for number in range(600)
    ]
    signals = [
        (version, phase, state)
        for version in versions
        for phase in WORKLOAD_PHASES
        for state in ("Started", "Finished")
    ]
    async with outlet.running():
        # All phases of 50 workloads at once, each time.
        for begin in range(0, len(signals), 500):
            for version, phase, state in signals[begin : begin + 500]:
                outlet.signals.emit(version, phase, state)
            await asyncio.sleep(3.5)
        await asyncio.sleep(10)
        assert outlet.count("created") == len(signals) == 6000
    assert len(sent) == 6000
