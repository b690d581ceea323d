"""Events as kubectl shows them, and of many applications at once, from the real API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import defaultdict

import pytest

from harbourmaster.api.resources import APPS, EVENTS, NAMESPACES, WORKLOAD_VERSIONS
from harbourmaster.controller.lifecycle.signals import LANES, OVERALL, PER_OBJECT, QUEUE, SERIES
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.events import EventRecorder, ObjectReference
from helpers.patience import PATIENCE

pytestmark = pytest.mark.gate


@pytest.fixture
def outcomes():
    return asyncio.Queue()


@pytest.fixture
def recording(admin, outcomes):
    """Run a recorder; on leaving it, everything is sent."""

    @contextlib.asynccontextmanager
    async def run(**options):
        recorder = EventRecorder(
            admin,
            controller="registration",
            instance="pod-1",
            namespace="harbourmaster-system",
            on_outcome=outcomes.put_nowait,
            **options,
        )
        task = asyncio.create_task(recorder.run())
        try:
            yield recorder
        finally:
            task.cancel()
            await asyncio.wait([task])

    return run


async def next_outcomes(outcomes, count=1):
    async with asyncio.timeout(PATIENCE):
        return [await outcomes.get() for _ in range(count)]


def secret(namespace, name="webhook-cert"):
    return ObjectReference("v1", "Secret", name, namespace, uid="1")


async def test_kubectl_shows_an_event(recording, outcomes, kubectl, namespace):
    async with recording() as recorder:
        recorder.emit(secret(namespace), "Warning", "Repaired", "failurePolicy was changed by hand")
        assert await next_outcomes(outcomes) == ["created"]
    lines = kubectl("get", "events", f"--namespace={namespace}").stdout.splitlines()
    assert lines[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    seen, *rest = lines[1].split(maxsplit=4)
    assert seen.endswith("s")
    assert rest == [
        "Warning",
        "Repaired",
        "secret/webhook-cert",
        "failurePolicy was changed by hand",
    ]


async def test_repetitions_have_a_count(recording, outcomes, kubectl, namespace):
    async with recording() as recorder:
        recorder.emit(secret(namespace), "Normal", "Issued", "a certificate is issued")
        await next_outcomes(outcomes)
        for _ in range(4):
            recorder.emit(secret(namespace), "Normal", "Issued", "a certificate is issued")
    (event,) = events_in(kubectl, namespace)
    assert event["series"]["count"] == 5
    assert event["series"]["lastObservedTime"] > event["eventTime"]
    assert event["reportingController"] == "harbourmaster.dev/registration"
    assert event["reportingInstance"] == "harbourmaster-system/pod-1"
    described = kubectl("get", "events", f"--namespace={namespace}", "-o=wide").stdout
    assert described.splitlines()[1].split()[-2] == "5"


async def test_an_event_of_a_cluster_scoped_object_stands_in_default(
    recording, outcomes, kubectl, namespace
):
    uid = kubectl("get", f"namespace/{namespace}", "-o=jsonpath={.metadata.uid}").stdout
    regarding = ObjectReference("v1", "Namespace", namespace, uid=uid)
    async with recording() as recorder:
        recorder.emit(regarding, "Normal", "Labelled", "gates are enabled")
        assert await next_outcomes(outcomes) == ["created"]
    result = kubectl("events", f"--for=namespace/{namespace}", "--namespace=default").stdout
    assert "gates are enabled" in result


async def test_the_longest_texts_are_taken(recording, outcomes, kubectl, namespace):
    async with recording() as recorder:
        recorder.emit(secret(namespace), "Normal", "R" * 300, "ü" * 2000, "A" * 300)
        assert await next_outcomes(outcomes) == ["created"]
    (event,) = events_in(kubectl, namespace)
    assert len(event["note"].encode()) in range(1021, 1025)
    assert event["note"].endswith("…")


async def test_an_event_of_a_namespace_that_is_not_there_is_dropped(recording, outcomes):
    async with recording() as recorder:
        recorder.emit(secret("no-such-namespace"), "Normal", "Issued", "issued")
        assert await next_outcomes(outcomes) == ["refused"]


def events_in(kubectl, namespace):
    result = kubectl("get", "events.events.k8s.io", f"--namespace={namespace}", "-o=json").stdout
    return json.loads(result)["items"]


COUNT = 3000
OBJECTS = 300
NAMESPACE = "event-rate"


def about(resource, number):
    return ObjectReference(
        resource.api_version, resource.kind, f"shop-{number}", NAMESPACE, f"uid-{number}"
    )


async def all_events(client):
    items, token = [], ""
    while True:
        page = await client.list(EVENTS, NAMESPACE, continue_token=token)
        items += [json.loads(bytes(item)) for item in page.items]
        token = page.continue_token
        if not token:
            return items


@pytest.mark.full
async def test_3000_events_at_once_are_all_told_in_the_order_of_each_object(control_plane):
    async with Client(connect(str(control_plane.kubeconfig))) as client:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        outcomes = asyncio.Queue()
        recorder = EventRecorder(
            client,
            controller="lifecycle",
            instance="pod-1",
            queue_size=QUEUE,
            per_object=PER_OBJECT,
            overall=OVERALL,
            series=SERIES,
            lanes=LANES,
            on_outcome=outcomes.put_nowait,
        )
        sending = asyncio.create_task(recorder.run())
        for number in range(COUNT):
            recorder.emit(
                about(WORKLOAD_VERSIONS, number % OBJECTS),
                "Normal",
                f"Step{number // OBJECTS}",
                "Workload Deployment: has started / Namespace: event-rate, Name: shop, Version: 1",
                related=about(APPS, 1),
                annotations={"phase": "WorkloadDeploy", "appName": "shop"},
            )
        async with asyncio.timeout(90):
            for _ in range(COUNT):
                assert await outcomes.get() == "created"
        sending.cancel()
        await asyncio.wait([sending])
        stored = await all_events(client)
    steps = defaultdict(list)
    for event in sorted(stored, key=lambda obj: int(obj["metadata"]["resourceVersion"])):
        assert event["related"]["kind"] == "KeptnApp"
        assert event["metadata"]["annotations"]["appName"] == "shop"
        steps[event["regarding"]["name"]].append(event["reason"])
    assert len(steps) == OBJECTS
    assert all(step == [f"Step{n}" for n in range(COUNT // OBJECTS)] for step in steps.values())
