"""Events through the real client."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import EVENTS
from harbourmaster.kube.events import EventRecorder, ObjectReference
from helpers.logs import captured_log
from helpers.patience import PATIENCE

POD = ObjectReference("v1", "Pod", "a", "prod", uid="1")


@pytest.fixture
def outcomes():
    return asyncio.Queue()


@pytest.fixture
async def recorder(client, outcomes):
    with captured_log():
        event_recorder = EventRecorder(
            client,
            controller="registration",
            instance="pod-1",
            on_outcome=outcomes.put_nowait,
        )
        task = asyncio.create_task(event_recorder.run())
        yield event_recorder
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("kind", [None, "reset", "html", "torn"])
async def test_an_event_arrives_in_spite_of_a_fault(api, recorder, outcomes, kind):
    if kind:
        api.fail_next("create", "events", kind=kind)
    recorder.emit(POD, "Normal", "Done", "all is well")
    async with asyncio.timeout(PATIENCE):
        assert await outcomes.get() == "created"
    ((_, stored),) = api.objects.all(EVENTS).items()
    assert stored["note"] == "all is well"


async def test_an_event_of_a_namespace_that_is_gone_is_dropped(api, recorder, outcomes):
    api.fail_next("create", "events", status=404)
    recorder.emit(POD, "Normal", "Done", "all is well")
    async with asyncio.timeout(PATIENCE):
        assert await outcomes.get() == "refused"
    assert len(api.requests) == 1
