"""Events of many applications at once, on the real API server."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict

import pytest

from harbourmaster.api.resources import APPS, EVENTS, NAMESPACES, WORKLOAD_VERSIONS
from harbourmaster.controller.lifecycle.signals import LANES, OVERALL, PER_OBJECT, QUEUE, SERIES
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.event_series import ObjectReference
from harbourmaster.kube.events import EventRecorder

pytestmark = [pytest.mark.full, pytest.mark.cluster]

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
