"""From event to store: versions, chunks, ends and what comes twice (platform-spec 1.5)."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from harbourmaster.api.resources import NAMESPACES, POLICIES
from harbourmaster.kube.errors import GoneError, TooManyRequestsError, UnreachableError
from harbourmaster.kube.reflector import Reflector
from helpers.scripted_api import (
    END,
    LATENCY,
    ScriptedApi,
    Thing,
    decode_thing,
    event,
    follow,
)
from helpers.virtual_time import virtual


@pytest.fixture
def api():
    return ScriptedApi()


@virtual
async def test_what_is_added_changed_and_deleted_is_followed(api):
    async with follow(api) as follower:
        for change in (
            lambda: api.put("a", value=1),
            lambda: api.put("a", value=2),
            lambda: api.put("a", namespace="other", value=3),
            lambda: api.remove("a"),
        ):
            change()
            await asyncio.sleep(0.01)
            assert follower.objects == follower.server_state
        keys = ["prod/a", "prod/a", "other/a", "prod/a"]
        assert follower.changes == [frozenset([key]) for key in keys]


@virtual
async def test_a_cluster_scoped_object_is_known_by_its_name(api):
    async with follow(api, resource=NAMESPACES) as follower:
        api.send(event("ADDED", {"metadata": {"name": "prod", "resourceVersion": "101"}}))
        await asyncio.sleep(0.01)
        assert follower.objects == {"prod": Thing()}


@virtual
async def test_a_chunk_of_ten_thousand_events_is_told_at_once(api):
    async with follow(api) as follower:
        for number in range(10_000):
            api.put(f"thing-{number}", value=number)
        await asyncio.sleep(1)
        assert len(follower.objects) == 10_000
        assert follower.changes == [frozenset(follower.objects)]


@virtual
async def test_a_change_is_told_when_its_chunk_is_applied_not_when_the_next_comes(api):
    async with follow(api) as follower:
        api.put("a")
        api.put("b")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert follower.changes == [frozenset(["prod/a", "prod/b"])]


@virtual
async def test_what_came_before_the_end_of_a_stream_is_told(api):
    async with follow(api) as follower:
        api.put("a", value=1)
        api.send(UnreachableError("cut off"))
        api.faults.append(None)
        await asyncio.sleep(0.01)
        assert follower.objects == follower.server_state
        assert follower.changes == [frozenset(["prod/a"])]


@virtual
async def test_after_an_end_the_watch_goes_on_from_the_last_event(api):
    async with follow(api) as follower:
        await asyncio.sleep(60)
        api.put("a")
        await asyncio.sleep(0.01)
        api.send(END)
        await asyncio.sleep(0)
        api.put("b")
        await asyncio.sleep(0.1)
        assert follower.objects == follower.server_state
        assert api.verbs() == ["list", "watch", "watch"]
        assert api.calls[-1].options["resource_version"] == "101"


@virtual
async def test_a_bookmark_advances_the_version_that_a_reconnect_uses(api):
    async with follow(api) as follower:
        api.version = 555
        api.bookmark()
        await asyncio.sleep(60)
        api.send(END)
        await asyncio.sleep(1)
        assert api.calls[-1].options["resource_version"] == "555"
        assert api.verbs() == ["list", "watch", "watch"]
        assert follower.changes == []


@virtual
async def test_a_watch_ends_after_five_to_ten_minutes_and_begins_anew_at_once(api):
    async with follow(api, idle_timeout=1000):
        await asyncio.sleep(7200)
        spans = [call.options["timeout_seconds"] for call in api.calls[1:]]
        assert 300 <= min(spans) < max(spans) < 600
        assert 12 <= len(spans) <= 24
        gaps = [
            later - (earlier + span)
            for earlier, later, span in zip(
                api.times("watch"), api.times("watch")[1:], spans, strict=False
            )
        ]
        assert max(gaps) < 0.1
        assert api.verbs().count("list") == 1


@pytest.mark.parametrize("in_stream", [True, False], ids=["error event", "answer"])
@virtual
async def test_a_version_too_old_leads_to_a_list_and_a_watch_from_there(api, in_stream):
    async with follow(api) as follower:
        await asyncio.sleep(60)
        if in_stream:
            api.compact()
            api.send(GoneError("too old resource version", status=410, reason="Expired"))
            await asyncio.sleep(0)
            api.put("new", value=4)
        else:
            api.send(END)
            await asyncio.sleep(0)
            api.put("new", value=4)
            api.put("newer", value=5)
            api.compact()
        await asyncio.sleep(5)
        assert follower.objects == follower.server_state
        assert api.verbs()[-2:] == ["list", "watch"]
        assert api.calls[-1].options["resource_version"] == str(api.version)
        watched = [call.options["resource_version"] for call in api.calls if call.verb == "watch"]
        assert len(set(watched)) == len(watched) - (not in_stream)
        # It is what happens to every watch that was away for long, so it is not a warning.
        assert follower.states == [(None, False, True)]


@virtual
async def test_an_event_that_comes_twice_is_told_once(api):
    async with follow(api) as follower:
        for _ in range(2):
            api.send(
                event(
                    "ADDED",
                    {
                        "metadata": {"name": "a", "namespace": "b", "resourceVersion": "7"},
                        "value": 1,
                    },
                )
            )
            await asyncio.sleep(0.1)
        assert follower.objects == {"b/a": Thing(1)}
        assert follower.changes == [frozenset(["b/a"])]


@virtual
async def test_the_streams_order_decides_and_not_the_versions(api):
    async with follow(api) as follower:
        for version, value in (("900", 1), ("5", 2), ("x-1", 3)):
            metadata = {"name": "a", "resourceVersion": version}
            api.send(event("MODIFIED", {"metadata": metadata, "value": value}))
        await asyncio.sleep(0.1)
        assert follower.objects == {"a": Thing(3)}


@virtual
async def test_the_deletion_of_what_is_not_held_is_told_to_nobody(api):
    async with follow(api) as follower:
        api.send(event("DELETED", {"metadata": {"name": "a", "resourceVersion": "7"}}))
        await asyncio.sleep(0.1)
        assert follower.changes == []


@virtual
async def test_an_event_of_an_unknown_type_is_passed_over(api):
    async with follow(api) as follower:
        api.send(event("RENAMED", {"metadata": {"name": "a", "resourceVersion": "150"}}))
        await asyncio.sleep(60)
        api.send(END)
        await asyncio.sleep(1)
        assert follower.objects == {}
        assert api.calls[-1].options["resource_version"] == "150"


@virtual
async def test_an_object_that_becomes_unreadable_is_taken_away_until_it_is_mended(api):
    api.put("a", value=1)
    api.put("b", value=1)
    with capture_logs() as logs:
        async with follow(api) as follower:
            api.put("a", value="bad")
            await asyncio.sleep(0.1)
            api.put("a", value="bad", other=1)
            await asyncio.sleep(0.1)
            assert follower.objects == {"prod/b": Thing(1)}
            assert [line["key"] for line in logs] == ["prod/a"]
            api.put("a", value=2)
            await asyncio.sleep(0.1)
            assert follower.objects == follower.server_state
            assert follower.changes[1:] == [frozenset(["prod/a"])] * 2
            api.put("a", value="bad")
            await asyncio.sleep(0.1)
            api.remove("a")
            api.put("a", value="bad")
            await asyncio.sleep(0.1)
            assert len(logs) == 3
            api.remove("a")
            await asyncio.sleep(0.1)
            assert follower.objects == follower.server_state
            # What could not be read counts all the same: a reconnect does not ask for it again.
            await asyncio.sleep(60)
            api.send(END)
            await asyncio.sleep(1)
            assert api.calls[-1].options["resource_version"] == str(api.version)


@virtual
async def test_an_event_without_metadata_is_passed_over(api):
    async with follow(api) as follower:
        api.send(event("ADDED", {"kind": "Thing"}))
        api.put("a", value=1)
        await asyncio.sleep(0.1)
        assert follower.objects == follower.server_state


@virtual
async def test_the_time_of_the_last_contact_is_known(api):
    loop = asyncio.get_running_loop()
    assert Reflector(api, POLICIES, bytes).last_contact < loop.time() - 10**9
    async with follow(api) as follower:
        assert follower.reflector.last_contact == pytest.approx(0, abs=0.1)
        await asyncio.sleep(60)
        # A watch that stands is contact, a silence that is too long for it is not.
        assert follower.reflector.last_contact == pytest.approx(12, abs=0.1)
        api.bookmark()
        await asyncio.sleep(1)
        assert follower.reflector.last_contact == pytest.approx(60, abs=0.1)
        api.put("a")
        await asyncio.sleep(1)
        assert follower.reflector.last_contact == pytest.approx(61, abs=0.1)


@virtual
async def test_a_silence_longer_than_the_idle_timeout_ends_the_watch_quietly(api):
    async with follow(api, idle_timeout=100) as follower:
        await asyncio.sleep(1000)
        assert len(api.times("watch")) == 10
        assert api.calls[-1].options["idle_timeout"] == 100
        assert api.verbs().count("list") == 1
        assert follower.reflector.error is None


@virtual
async def test_a_stopped_mirror_goes_on_where_it_was(api):
    async with follow(api) as follower:
        api.put("a")
        await asyncio.sleep(1)
    async with asyncio.timeout(1):
        task = asyncio.create_task(follower.reflector.run())
        api.put("b", value=2)
        await asyncio.sleep(0.5)
        assert follower.objects == follower.server_state
        assert api.verbs() == ["list", "watch", "watch"]
        task.cancel()
        await asyncio.wait([task])


@virtual
async def test_cancellation_leaves_nothing_at_any_moment(api):
    """One life through lists, waits, watches and absence, ended again and again, each later."""
    loop = asyncio.get_running_loop()
    for number in range(3):
        api.put(f"thing-{number}")
    script = [
        None,
        UnreachableError("no"),
        TooManyRequestsError("no", status=429, retry_after=1.0),
        *[None] * 3,
        END,
        None,
    ]

    async def live(seconds):
        api.faults.clear()
        api.faults.extend(script)
        api.calls.clear()
        api.absent = False
        before = asyncio.all_tasks()
        reflector = Reflector(api, POLICIES, decode_thing, page_size=1, chance=lambda: 0.5)
        task = asyncio.create_task(reflector.run())
        handle = loop.call_later(6.5, api.send, GoneError("too old", status=410))
        gone = loop.call_later(6.4, setattr, api, "absent", True)
        await asyncio.sleep(seconds)
        api.put("thing-0", value=int(seconds * 10_000))
        task.cancel()
        await asyncio.wait([task])
        handle.cancel()
        gone.cancel()
        assert task.cancelled()
        assert asyncio.all_tasks() == before
        assert not api.streams
        assert all(timer.cancelled() for timer in loop._scheduled)
        return reflector

    moments = [step * LATENCY / 2 for step in range(10)] + [step / 20 for step in range(1, 200)]
    lives = [await live(moment) for moment in moments]
    assert [lives[0].synced.is_set(), lives[-1].synced.is_set()] == [False, True]
    assert lives[-1].absent
    assert api.verbs()[:7] == ["list", "list", "list", "list", "list", "list", "watch"]
