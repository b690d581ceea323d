"""Rescheduling that is switched off removes its leftovers from nodes, and does nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from harbourmaster.api.resources import SELF_ACCESS_REVIEWS
from harbourmaster.controller.rescheduling.node_writer import start
from harbourmaster.controller.runtime import Runtime
from harbourmaster.controller.settings import ControllerSettings
from helpers.evicting import ANNOTATION, HOME, KEY, until

OURS = {"key": KEY, "value": "resched.01234567", "effect": "NoSchedule"}
FOREIGN = {"key": KEY, "value": "true", "effect": "NoSchedule"}


@contextlib.asynccontextmanager
async def switched_off(api, metrics, *, allowed):
    body = json.dumps({"status": {"allowed": allowed}}).encode()
    path = SELF_ACCESS_REVIEWS.path()
    api.fail_next("POST", path, count=None, status=201, body=body)
    async with api.client() as client:
        runtime = Runtime(ControllerSettings(), client, HOME, events=None, metrics=metrics)
        (controller,) = start(runtime).controllers
        task = asyncio.create_task(controller.lead())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_nodes_are_given_back(api, metrics):
    text = json.dumps([{"pod": "kube-system/c", "uid": "u", "deadline": "2999-01-01T00:00:00Z"}])
    api.add_node("n1", taints=[OURS], annotations={ANNOTATION: text})
    api.add_node("n2", taints=[FOREIGN])
    api.add_node("n3", taints=[FOREIGN], annotations={ANNOTATION: text})
    api.add_critical()
    async with switched_off(api, metrics, allowed=True):
        await until(lambda: api.is_clean("n1") and api.is_clean("n3"))
    assert api.taints("n2") == api.taints("n3") == [FOREIGN]
    assert {request.verb for request in api.requests} == {"create", "list", "get", "patch"}
    assert len([request for request in api.requests if request.verb == "list"]) == 1


async def test_a_node_that_cannot_be_read_keeps_no_other(api, metrics):
    api.add_node("n1", taints="broken")
    api.add_node("n2", taints=[OURS])
    async with switched_off(api, metrics, allowed=True):
        await until(lambda: api.is_clean("n2"))


async def test_without_the_rights_nothing_is_tried(api, metrics):
    api.add_node("n1", taints=[OURS])
    async with switched_off(api, metrics, allowed=False):
        await until(lambda: api.requests)
        await asyncio.sleep(0.1)
    assert {request.path for request in api.requests} == {SELF_ACCESS_REVIEWS.path()}


@pytest.mark.parametrize("fault", [{"kind": "reset"}, {"status": 503}, {"status": 200}])
async def test_nodes_are_released_although_the_first_question_for_rights_has_no_answer(
    api, metrics, fault
):
    api.add_node("n1", taints=[OURS])
    api.fail_next("POST", SELF_ACCESS_REVIEWS.path(), count=6, **fault)
    async with switched_off(api, metrics, allowed=True):
        await until(lambda: api.is_clean("n1"))
