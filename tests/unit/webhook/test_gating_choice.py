"""``gating: auto`` against API servers of many versions, and without one."""

from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.api.resources import NAMESPACES
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.server_version import ServerVersion
from harbourmaster.serving.background import running
from harbourmaster.webhook.cluster_state import ClusterState
from harbourmaster.webhook.engine import EngineHolder
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.process import GatingChoice
from harbourmaster.webhook.settings import WatchSettings, gating_of
from helpers.admission import GATE, OPT_IN, Answer, engine_of, keys, pod
from helpers.objects import review
from helpers.patience import PATIENCE

QUICK = Backoff(first=0.001, limit=0.001)
VERSION = "^/version$"
TRACKED = keys(workload="waiter", version="0.4", app="shop")


def info(major, minor):
    return json.dumps({"major": major, "minor": minor, "gitVersion": ""}).encode()


class Chooser:
    """A choice at work on an engine, and the reasons for which it waits."""

    def __init__(self, client, backoff=QUICK, **settings):
        self.holder = EngineHolder(engine_of(**settings))
        self.reasons = asyncio.Queue()
        self.choice = GatingChoice(
            client, self.holder, on_wait=self.reasons.put_nowait, backoff=backoff
        )

    def place(self):
        """Return the gates or the scheduler that make a pod wait now."""
        question = review(pod(TRACKED))
        result, decision = answer(json.dumps(question).encode(), self.holder.current)
        document = question["request"]["object"]
        placed = Answer(json.loads(result)["response"], decision.verdict, document)
        return placed.gates or placed.after["spec"].get("schedulerName")


@pytest.mark.parametrize(
    ("version", "gating"),
    [
        ((1, 19), "schedulerName"),
        ((1, 24), "schedulerName"),
        ((1, 26), "schedulerName"),
        ((1, 27), "schedulingGates"),
        ((1, 36), "schedulingGates"),
        ((2, 0), "schedulingGates"),
    ],
)
def test_gates_count_from_1_27_on(version, gating):
    assert gating_of(ServerVersion(*version)) == gating


@pytest.mark.parametrize(
    ("minor", "place"),
    [("24", "keptn-scheduler"), ("26+", "keptn-scheduler"), ("27", [GATE]), ("36+", [GATE])],
)
async def test_the_server_is_asked_once_and_pods_wait_as_it_can(api, minor, place):
    api.fail_next("GET", VERSION, None, status=200, body=info("1", minor))
    async with asyncio.timeout(PATIENCE), api.client() as client:
        chooser = Chooser(client)
        before = chooser.holder.current
        async with running(chooser.choice.run()):
            await chooser.choice.wait_until_chosen()
            assert chooser.place() == place
            assert await chooser.reasons.get() is None
        # What an engine remembers is not thrown away for nothing.
        assert (chooser.holder.current is before) is (place == [GATE])
    assert len(api.seen("GET", VERSION)) == 1


async def test_the_scheduler_of_the_settings_is_taken(api):
    api.fail_next("GET", VERSION, None, status=200, body=info("1", "24"))
    async with asyncio.timeout(PATIENCE), api.client() as client:
        chooser = Chooser(client, gateSchedulerName="gatekeeper")
        async with running(chooser.choice.run()):
            await chooser.choice.wait_until_chosen()
            assert chooser.place() == "gatekeeper"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"status": 200, "body": info("", "")}, "no version"),
        ({"status": 200, "body": b"{}"}, "no version"),
        ({"kind": "html"}, "502 Bad Gateway"),
        ({"kind": "garbage"}, "malformed"),
        ({"status": 403}, "403"),
        ({"kind": "reset"}, "connection"),
    ],
)
async def test_nothing_is_chosen_before_the_version_is_known(api, fault, says, log):
    api.fail_next("GET", VERSION, 3, **fault)
    async with asyncio.timeout(PATIENCE), api.client() as client:
        chooser = Chooser(client)
        async with running(chooser.choice.run()):
            for _ in range(2):
                reason = await chooser.reasons.get()
                assert reason.startswith("gating: auto needs the API server's version, or set")
            await chooser.choice.wait_until_chosen()
            while reason is not None:
                last, reason = reason, await chooser.reasons.get()
    assert says.lower() in last.lower()
    assert "\n" not in last
    warnings = [line for line in log.getvalue().splitlines() if b"is not known" in line]
    assert len(warnings) == 1


async def test_an_unreachable_server_is_asked_until_it_is_there(api):
    await api.stop()
    async with asyncio.timeout(PATIENCE), api.client() as client:
        chooser = Chooser(client)
        async with running(chooser.choice.run()):
            assert "cannot connect to" in await chooser.reasons.get()
            await api.start()
            await chooser.choice.wait_until_chosen()


async def test_whoever_asks_to_look_again_cuts_the_wait_short(api):
    api.fail_next("GET", VERSION, 1)
    async with asyncio.timeout(PATIENCE), api.client() as client:
        chooser = Chooser(client, Backoff(first=3600, limit=3600))
        async with running(chooser.choice.run()):
            assert await chooser.reasons.get() is not None
            chooser.choice.look_again()
            await chooser.choice.wait_until_chosen()


async def test_a_server_that_comes_back_as_another_one_is_asked_again(api):
    api.put(NAMESPACES, {"metadata": {"name": "ns1", "annotations": OPT_IN}})
    api.fail_next("GET", VERSION, 1, status=200, body=info("1", "26"))
    async with asyncio.timeout(PATIENCE), api.client() as client:
        chooser = Chooser(client)
        cluster = ClusterState(
            client,
            chooser.holder,
            WatchSettings(),
            features=["gates"],
            on_policies=lambda _: None,
            on_return=chooser.choice.look_again,
        )
        async with running(cluster.run(), chooser.choice.run()):
            await cluster.wait_until_synced()
            await chooser.choice.wait_until_chosen()
            assert chooser.place() == "keptn-scheduler"
            assert await chooser.reasons.get() is None
            await api.until_watched(len(cluster.watches) + 1)
            # A watch that only breaks once is nothing to speak of.
            api.fail_next("watch", "/namespaces$", 1, status=403)
            api.close_watches()
            await api.until_seen("watch", "/namespaces$", 3)
            api.put(NAMESPACES, {"metadata": {"name": "ns2"}})
            assert await chooser.reasons.get() is None
            assert chooser.place() == [GATE]
    assert len(api.seen("GET", VERSION)) == 2


async def test_what_was_chosen_stays_while_the_version_can_not_be_had(api, log):
    api.fail_next("GET", VERSION, 1, status=200, body=info("1", "26"))
    async with asyncio.timeout(PATIENCE), api.client() as client:
        chooser = Chooser(client)
        async with running(chooser.choice.run()):
            await chooser.choice.wait_until_chosen()
            before = chooser.holder.current
            api.fail_next("GET", VERSION, 2, status=403)
            api.fail_next("GET", VERSION, 1, status=200, body=info("1", "26"))
            chooser.choice.look_again()
            await api.until_seen("GET", VERSION, 4)
            assert chooser.holder.current is before
            assert chooser.place() == "keptn-scheduler"
            assert [await chooser.reasons.get() for _ in range(2)] == [None, None]
