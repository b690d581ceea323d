"""Faults between us and the API server: the number of requests, and the log.

These tests prove platform-spec 1.2, 1.5.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest
from structlog.testing import capture_logs

from harbourmaster.kube.errors import (
    ApiError,
    BadAnswerError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.kube.faults import RELIST_AFTER, NoWatchMetrics, after_fault
from helpers.scripted_api import END, Hang, ScriptedApi, Thing, event, follow
from helpers.virtual_time import virtual

HOUR = 3600
FORBIDDEN = (
    'policies is forbidden: User "system:serviceaccount:a:b" cannot list resource "policies" in '
    'API group "kupid.gardener.cloud" at the cluster scope'
)
FAULTS = {
    "end": END,
    "reset": UnreachableError("the connection broke"),
    # As long as the client waits.
    "hang": Hang(10),
    "torn": BadAnswerError("no JSON", status=200),
    "html": ServerError("no answer of an API server: <html>", status=502),
    "text": ServerError("no answer of an API server: busy", status=503),
    "busy": TooManyRequestsError("busy", status=429),
    "unknown user": UnauthorizedError("Unauthorized", status=401),
    "forbidden": ForbiddenError(FORBIDDEN, status=403, reason="Forbidden"),
    "gone": GoneError("too old", status=410, reason="Expired"),
    "bad request": ApiError("bad resourceVersion", status=400),
    "teapot": ApiError("teapot", status=418),
}


@pytest.fixture
def api():
    return ScriptedApi()


def most_within_a_second(times):
    """The most requests that began within any second."""
    return max(
        sum(start <= time < start + 0.999 for time in times[index:])
        for index, start in enumerate(times)
    )


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@virtual
async def test_an_outage_of_an_hour_costs_few_requests_and_then_all_is_right(api, fault):
    api.put("a", value=1)
    async with follow(api) as follower:
        api.down = fault
        api.send(END if fault is END or isinstance(fault, Hang) else fault)
        await asyncio.sleep(HOUR)
        assert len(api.calls) < HOUR / 10
        assert most_within_a_second(api.times()) <= 2
        # What was held stays in force.
        assert follower.objects == {"prod/a": Thing(1)}
        assert follower.reflector.error is not None
        api.put("a", value=2)
        api.put("b", value=3)
        api.down = None
        # One that hangs does so to its end, and then comes the longest wait.
        await asyncio.sleep(31 + (fault.seconds if isinstance(fault, Hang) else 0))
        assert follower.objects == follower.server_state
        await asyncio.sleep(31)
        assert follower.reflector.error is None


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@virtual
async def test_an_outage_at_the_start_costs_few_requests_and_then_all_is_right(api, fault):
    api.put("a", value=1)
    api.down = fault
    async with follow(api, synced=False) as follower:
        await asyncio.sleep(HOUR)
        assert len(api.calls) < HOUR / 10
        assert most_within_a_second(api.times()) <= 2
        assert follower.reflector.error is not None
        assert not follower.reflector.synced.is_set()
        api.down = None
        await asyncio.sleep(61)
        assert follower.objects == follower.server_state
        assert follower.reflector.error is None


@virtual
async def test_streams_that_end_at_once_are_not_reopened_in_a_loop(api):
    class Ending(ScriptedApi):
        async def _next(self, *_args):
            return END

    ending = Ending()
    async with follow(ending) as follower:
        await asyncio.sleep(HOUR)
        assert most_within_a_second(ending.times()) <= 2
        assert len(ending.calls) < HOUR / 10
        assert "the watch ended at once" in follower.reflector.error


@virtual
async def test_a_stream_that_only_repeats_itself_and_ends_is_not_reopened_in_a_loop(api):
    class Repeating(ScriptedApi):
        async def watch(self, *args, **options):
            async for watch_event in super().watch(*args, **options):
                yield watch_event

        async def _next(self, stream, *_args):
            if stream.empty():
                stream.put_nowait(END)
                return event("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})
            return stream.get_nowait()

    repeating = Repeating()
    async with follow(repeating):
        await asyncio.sleep(HOUR)
        assert most_within_a_second(repeating.times()) <= 2
        assert len(repeating.calls) < HOUR / 10


@virtual
async def test_a_stream_that_brings_news_and_breaks_is_reopened_soon_but_not_in_a_loop(api):
    class Breaking(ScriptedApi):
        async def watch(self, *args, **options):
            self.put("a", value=self.version)
            async for watch_event in super().watch(*args, **options):
                yield watch_event
                raise BadAnswerError("half a line", status=200)

    breaking = Breaking()
    with capture_logs() as logs:
        async with follow(breaking) as follower:
            await asyncio.sleep(60)
            assert most_within_a_second(breaking.times()) <= 2
            assert len(breaking.calls) > 60
            assert follower.objects == follower.server_state
            assert breaking.verbs().count("list") == 1
    assert logs == []


@virtual
async def test_a_stream_that_brings_news_and_ends_is_no_fault(api):
    failures = []

    class Counts(NoWatchMetrics):
        def count_failure(self, _resource, kind):
            failures.append(kind)

    async with follow(api, metrics=Counts()) as follower:
        for number in range(10):
            api.put("a", value=number)
            await asyncio.sleep(0.01)
            api.send(END)
            await asyncio.sleep(1.1)
            assert follower.objects == follower.server_state
        assert failures == []
        assert api.verbs().count("watch") == 11


@virtual
async def test_a_watch_that_fails_once_is_resumed_without_a_word(api):
    with capture_logs() as logs:
        async with follow(api) as follower:
            await asyncio.sleep(60)
            api.send(UnreachableError("the connection broke"))
            await asyncio.sleep(1)
            assert api.verbs() == ["list", "watch", "watch"]
            assert follower.states == [(None, False, True)]
    assert logs == []


@virtual
async def test_a_poisoned_version_is_left_behind_by_a_list(api):
    class Poisoned(ScriptedApi):
        """The event after 100 can't be sent, whoever asks for it."""

        async def watch(self, *args, **options):
            stream = super().watch(*args, **options)
            async for watch_event in stream:
                if options["resource_version"] == "100":
                    await stream.aclose()
                    raise BadAnswerError("half a line", status=200)
                yield watch_event

    poisoned = Poisoned()
    async with follow(poisoned) as follower:
        poisoned.put("a", value=1)
        await asyncio.sleep(120)
        assert poisoned.verbs().count("list") == 2
        assert poisoned.verbs().count("watch") == RELIST_AFTER + 1
        assert follower.objects == follower.server_state
        await asyncio.sleep(20)
        assert follower.reflector.error is None


@virtual
async def test_what_was_missed_in_an_outage_is_listed_at_once_when_it_is_over(api):
    async with follow(api, chance=lambda: 0.0) as follower:
        api.down = UnreachableError("no")
        api.send(api.down)
        await asyncio.sleep(10)
        api.put("a", value=1)
        api.compact()
        api.down = None
        before = len(api.calls)
        await asyncio.sleep(15)
        assert api.verbs()[before:] == ["watch", "list", "watch"]
        refused, listed, _ = api.times()[before:]
        assert listed - refused < 0.1
        assert follower.objects == follower.server_state


@virtual
async def test_a_server_set_back_in_time_is_listed_anew(api):
    """After a restore of etcd our version lies in its future."""
    for number in range(10):
        api.put(f"thing-{number}")
    async with follow(api) as follower:
        api.version = 50
        api._compacted = 0
        api._history.clear()
        api.objects = {"prod/thing-1": api.objects["prod/thing-1"]}
        api.send(END)
        await asyncio.sleep(120)
        assert follower.objects == follower.server_state
        api.put("new", value=5)
        await asyncio.sleep(1)
        assert follower.objects == follower.server_state


@pytest.mark.parametrize("verb", ["list", "watch"])
@virtual
async def test_what_is_forbidden_is_told_whole_and_logged_once(api, verb):
    """One of the two verbs may be forbidden alone: the other one works and logs nothing."""

    class Restricted(ScriptedApi):
        async def _answer(self, asked, options):
            await super()._answer(asked, options)
            if asked == verb:
                raise ForbiddenError(
                    FORBIDDEN, status=403, reason="Forbidden", call=f"{verb} /apis/policies"
                )

    restricted = Restricted()
    with capture_logs() as logs:
        async with follow(restricted, synced=verb == "watch") as follower:
            await asyncio.sleep(HOUR)
            wanted = f"{verb} /apis/policies: 403 Forbidden: {FORBIDDEN}"
            assert follower.reflector.error == wanted
            assert follower.reflector.is_forbidden
            assert follower.reflector.synced.is_set() == (verb == "watch")
            assert most_within_a_second(restricted.times()) <= 2
            assert len(restricted.calls) < HOUR / 10
    assert [line["error"] for line in logs] == [wanted]


@virtual
async def test_each_kind_of_fault_is_logged_once_until_there_is_contact(api):
    with capture_logs() as logs:
        async with follow(api):
            for _ in range(2):
                api.down = ServerError("no", status=500)
                api.send(END)
                await asyncio.sleep(600)
                api.down = UnreachableError("the connection broke")
                await asyncio.sleep(600)
                api.down = ServerError("no", status=503)
                await asyncio.sleep(600)
                api.down = None
                await asyncio.sleep(60)
    lines = [line.get("error", line["event"]) for line in logs]
    assert lines == ["500: no", "the connection broke", "watch reconnected"] * 2


@pytest.mark.parametrize("listing", [True, False], ids=["list", "watch"])
@virtual
async def test_the_wait_that_a_server_asks_for_is_kept_even_when_woken(api, listing):
    busy = TooManyRequestsError("busy", status=429, retry_after=17.0)
    api.faults.extend([busy] if listing else [None, busy])
    async with follow(api, synced=False) as follower:
        await asyncio.sleep(1)
        follower.reflector.wake()
        await asyncio.sleep(30)
        before, after = api.times()[not listing :][:2]
        assert 17 <= after - before < 17.5
        assert follower.reflector.synced.is_set()


@virtual
async def test_a_wake_ends_one_wait_after_a_fault(api):
    api.down = UnreachableError("no")
    async with follow(api, synced=False, chance=lambda: 0.0) as follower:
        await asyncio.sleep(600)
        before = len(api.calls)
        # Right after an attempt, so that half a minute would be to wait.
        await asyncio.sleep(api.times()[-1] + 31 - asyncio.get_running_loop().time())
        assert len(api.calls) == before + 1
        follower.reflector.wake()
        await asyncio.sleep(29)
        assert len(api.calls) == before + 2
        await asyncio.sleep(2)
        api.down = None
        follower.reflector.wake()
        await asyncio.sleep(0.1)
        assert follower.reflector.synced.is_set()


@virtual
async def test_wakes_without_end_do_not_make_a_storm(api):
    api.down = UnreachableError("no")
    async with follow(api, synced=False) as follower:
        for _ in range(10_000):
            await asyncio.sleep(0.01)
            follower.reflector.wake()
        assert most_within_a_second(api.times()) <= 2
        assert 190 <= len(api.calls) <= 202


@virtual
async def test_waits_grow_and_begin_anew_after_a_sound_watch(api):
    api.faults.extend([UnreachableError("no")] * 6)
    async with follow(api, chance=lambda: 0.0):
        waits = [later - earlier for earlier, later in itertools.pairwise(api.times())]
        assert waits[2:6] == pytest.approx([0.8, 1.6, 3.2, 6.4], abs=0.01)
        # The first two are bounded by the pace: two within a second.
        assert waits[0] + waits[1] >= 1
        await asyncio.sleep(13)
        api.faults.extend([UnreachableError("no")] * 3)
        api.send(END)
        await asyncio.sleep(10)
        waits = [later - earlier for earlier, later in itertools.pairwise(api.times())]
        assert waits[-1] == pytest.approx(0.8, abs=0.01)


@virtual
async def test_contact_is_told_when_a_watch_stands_though_nothing_happens(api):
    async with follow(api) as follower:
        await asyncio.sleep(60)
        api.faults.extend([UnreachableError("no")] * 3)
        api.send(END)
        await asyncio.sleep(5)
        assert follower.reflector.error == "no"
        await asyncio.sleep(15)
        assert follower.reflector.error is None
        assert follower.states == [
            (None, False, True),
            ("no", False, True),
            (None, False, True),
        ]


@virtual
async def test_a_watch_whose_head_does_not_come_is_no_contact(api):
    async with follow(api) as follower:
        await asyncio.sleep(60)
        api.down = Hang(10)
        api.send(END)
        await asyncio.sleep(60)
        states = [state for state in follower.states if state[0] is None]
        assert states == [(None, False, True)]
        assert follower.reflector.error is not None


@virtual
async def test_a_listener_of_states_that_raises_does_not_end_the_mirror(api):
    def raise_error():
        raise ValueError("a bug of the listener")

    with capture_logs() as logs:
        async with follow(api, synced=False) as follower:
            follower.reflector._on_state = raise_error
            api.put("a", value=1)
            await asyncio.sleep(1)
            assert follower.objects == follower.server_state
    assert "state handler failed" in [line["event"] for line in logs]


def test_a_fault_decides_how_to_go_on():
    def plan(error, failures=0, **options):
        recovery = after_fault(error, failures=failures, **{"listing": False, **options})
        return recovery.relist, recovery.at_once, recovery.quiet

    unreachable = UnreachableError("no")
    assert plan(unreachable) == (False, False, True)
    assert plan(unreachable, 1) == (False, False, False)
    assert plan(unreachable, RELIST_AFTER - 1) == (True, False, False)
    assert plan(unreachable, listing=True) == (True, False, False)
    for error in (GoneError("x", status=410), NotFoundError("x", status=404)):
        assert plan(error) == (True, True, True)
        assert plan(error, 5) == (True, True, False)
        assert plan(error, 1, relisted=True) == (True, False, False)
    assert plan(GoneError("x", status=410), listing=True) == (True, True, True)
    assert plan(ApiError("x", status=400)) == (True, False, True)
    for error in (UnauthorizedError("x", status=401), ForbiddenError("x", status=403)):
        assert plan(error) == (False, False, False)
    assert plan(TooManyRequestsError("x", status=429)) == (False, False, True)
    assert plan(ServerError("x", status=500), 1) == (False, False, False)
