"""Answers that are not from an API server, and objects that were made to do harm."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api import resources
from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
)
from harbourmaster.kube import reflector as reflector_module
from harbourmaster.kube.errors import BadAnswerError, TooLargeError
from harbourmaster.kube.reflector import Reflector
from helpers.patience import PATIENCE
from helpers.scripted_api import ScriptedApi, Thing, decode_thing, follow
from helpers.tasks import background
from helpers.virtual_time import virtual

DEEP = b"[" * 5000 + b"]" * 5000


@pytest.mark.parametrize("resource", [NAMESPACES, SECRETS, LEASES, MUTATING_WEBHOOKS])
def test_what_every_api_server_has(resource):
    assert resource.is_built_in


def test_what_a_definition_brings():
    assert not CLUSTER_POLICIES.is_built_in
    assert not resources.POLICIES.is_built_in


@virtual
async def test_a_built_in_kind_is_never_absent():
    api = ScriptedApi()
    api.put("a", value=1)
    async with follow(api, resource=NAMESPACES) as follower:
        api.absent = True
        api.send(BadAnswerError("torn"))
        await asyncio.sleep(600)
        assert follower.objects == {"prod/a": Thing(1)}
        assert not follower.reflector.absent
        assert "404 page not found" in (follower.reflector.error or "")


@virtual
async def test_a_built_in_kind_that_was_never_there_is_not_synced():
    api = ScriptedApi()
    api.absent = True
    async with follow(api, synced=False, resource=NAMESPACES) as follower:
        await asyncio.sleep(600)
        assert not follower.reflector.synced.is_set()
        api.absent = False
        await asyncio.sleep(60)
        assert follower.reflector.synced.is_set()


async def test_a_proxys_page_does_not_say_that_something_is_absent(api, client):
    api.fail_next(kind="html", status=404)
    with pytest.raises(BadAnswerError, match="404: no answer of an API server"):
        await client.list(CLUSTER_POLICIES)
    api.fail_next(kind="html", status=404)
    with pytest.raises(BadAnswerError):
        await client.delete(NAMESPACES, "a", missing_ok=True)


@virtual
async def test_pages_shrink_until_they_fit():
    api = ScriptedApi()
    for number in range(70):
        api.put(f"n-{number}", value=number)
    api.faults += [TooLargeError("an answer of more than 1 bytes", status=200)] * 2
    async with follow(api, page_size=500) as follower:
        assert follower.objects == follower.server_state
        assert [call.options["limit"] for call in api.calls[:4]] == [500, 62, 7, 7]


@pytest.mark.claim("O11")
async def test_a_page_is_limited_in_bytes_and_a_single_object_is_not(api, client, monkeypatch):
    monkeypatch.setattr(reflector_module, "MAX_PAGE", 20_000)
    for number in range(8):
        annotations = {"a": "x" * 25_000}
        api.put(NAMESPACES, {"metadata": {"name": f"n-{number}", "annotations": annotations}})
    reflector = Reflector(client, NAMESPACES, decode_thing, page_size=20)
    async with background(reflector.run()), asyncio.timeout(PATIENCE):
        await reflector.synced.wait()
    assert len(reflector.store) == 8


@virtual
async def test_pages_shrink_within_a_list_and_what_came_is_kept():
    api = ScriptedApi()
    for number in range(70):
        api.put(f"n-{number}", value=number)
    api.faults += [None, TooLargeError("an answer of more than 1 bytes", status=200)]
    async with follow(api, page_size=16) as follower:
        assert follower.objects == follower.server_state
        listed = [call.options for call in api.calls if call.verb == "list"]
        assert [query["limit"] for query in listed[:4]] == [16, 16, 2, 2]
        assert [bool(query["continue_token"]) for query in listed[:3]] == [False, True, True]


@virtual
@pytest.mark.claim("O11")
async def test_one_page_of_all_caches_is_read_at_a_time():
    class Slow(ScriptedApi):
        now = most = 0

        async def list(self, *arguments, **options):
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(1)
            self.now -= 1
            return await super().list(*arguments, **options)

    api = Slow()
    for number in range(10):
        api.put(f"n-{number}", value=number)
    caches = [Reflector(api, NAMESPACES, decode_thing, page_size=4) for _ in range(3)]
    first, second, third = (cache.run() for cache in caches)
    async with background(first), background(second), background(third):
        await asyncio.gather(*(cache.synced.wait() for cache in caches))
        assert [len(cache.store) for cache in caches] == [10, 10, 10]
    assert api.most == 1


@pytest.mark.parametrize("body", [DEEP, b'{"metadata":{"name":"a"},"spec":' + DEEP + b"}"])
async def test_an_answer_nested_too_deeply_is_a_bad_one(api, client, body):
    api.fail_next(status=200, body=body)
    with pytest.raises(BadAnswerError, match="recursion"):
        await client.get(NAMESPACES, "a")
    # Within a list it harms only itself.
    api.fail_next(status=200, body=b'{"metadata":{"resourceVersion":"1"},"items":[' + body + b"]}")
    assert len((await client.list(NAMESPACES)).items) == 1


async def test_an_event_nested_too_deeply_is_left_out(api, client):
    api.put(NAMESPACES, {"metadata": {"name": "a"}})
    came = asyncio.Event()
    reflector = Reflector(
        client, NAMESPACES, decode_thing, on_change=lambda keys: "b" in keys and came.set()
    )
    async with background(reflector.run()), asyncio.timeout(PATIENCE):
        await api.until_watched()
        api.send_raw(b'{"type":"ADDED","object":' + DEEP + b"}\n")
        # The stream goes on: the next one would bring the same event.
        api.put(NAMESPACES, {"metadata": {"name": "b"}})
        await came.wait()
        assert len(api.seen("watch")) == 1
    assert list(reflector.store) == ["a", "b"]
