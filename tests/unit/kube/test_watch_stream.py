"""Watches, on a wire that can be cut anywhere."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager

import pytest
from msgspec.json import decode

from harbourmaster.api.resources import CLUSTER_POLICIES, NAMESPACES, SECRETS
from harbourmaster.kube import streams
from harbourmaster.kube.errors import (
    BadAnswerError,
    GoneError,
    InvalidError,
    NotFoundError,
    ServerError,
    UnreachableError,
)
from helpers.fake_store import encode, status
from helpers.patience import PATIENCE


def put(api, name, **labels):
    stored = api.put(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    return stored["metadata"]["resourceVersion"]


def watching(client, *, since="100", resource=NAMESPACES, idle_timeout=PATIENCE, **options):
    options.setdefault("timeout_seconds", 60)
    return client.watch(resource, resource_version=since, idle_timeout=idle_timeout, **options)


@asynccontextmanager
async def open_watch(api, client, **options):
    """A watch that is open, by a task that waits for its first event."""
    async with aclosing(watching(client, **options)) as stream:
        task = asyncio.create_task(anext(stream))
        await api.until_watched()
        yield task


def summary(event):
    obj = decode(event.object)
    return event.type, obj["metadata"].get("name"), obj["metadata"]["resourceVersion"]


async def collect(stream, count):
    async with asyncio.timeout(PATIENCE):
        return [summary(await anext(stream)) for _ in range(count)]


async def test_events_come_from_the_version_on(api, client):
    versions = [put(api, name) for name in ("a", "b")]
    async with aclosing(watching(client, since=versions[0])) as stream:
        assert await collect(stream, 1) == [("ADDED", "b", versions[1])]
        versions.append(put(api, "a", tier="gold"))
        assert await collect(stream, 1) == [("MODIFIED", "a", versions[2])]
        api.remove(NAMESPACES, "b")
        assert await collect(stream, 1) == [("DELETED", "b", str(int(versions[2]) + 1))]


async def test_the_question_is_complete(api, client):
    options = {"label_selector": "a=1", "field_selector": "metadata.name=x", "timeout_seconds": 301}
    async with open_watch(api, client, since="100", **options) as task:
        put(api, "x", a="1")
        await task
    assert api.requests[-1].query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "100",
        "timeoutSeconds": "301",
        "labelSelector": "a=1",
        "fieldSelector": "metadata.name=x",
    }


async def test_a_bookmark_carries_the_version_only(api, client):
    async with aclosing(watching(client)) as stream:
        task = asyncio.create_task(collect(stream, 1))
        await api.until_watched()
        api.bookmark()
        assert await task == [("BOOKMARK", None, "100")]


async def test_the_initial_objects_can_come_as_events(api, client):
    put(api, "a")
    put(api, "b")
    async with aclosing(watching(client, since="", send_initial_events=True)) as stream:
        events = [await anext(stream) for _ in range(3)]
    assert [event.type for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
    assert decode(events[2].object)["metadata"]["annotations"] == {
        "k8s.io/initial-events-end": "true"
    }
    assert api.requests[-1].query["resourceVersionMatch"] == "NotOlderThan"
    api.streaming_lists = False
    with pytest.raises(InvalidError):
        await anext(watching(client, since="", send_initial_events=True))


async def test_metadata_alone_can_be_watched(api, client):
    async with aclosing(watching(client, resource=SECRETS, metadata_only=True)) as stream:
        api.put(SECRETS, {"metadata": {"name": "a", "namespace": "x"}, "data": {"key": "eA=="}})
        event = await anext(stream)
    decoded = decode(event.object)
    assert (decoded["kind"], "data" in decoded) == ("PartialObjectMetadata", False)
    assert api.requests[-1].headers["Accept"] == (
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    )


async def test_a_compacted_version_is_gone(api, client):
    put(api, "a")
    api.compact()
    with pytest.raises(GoneError) as caught:
        await anext(watching(client, since="100"))
    assert str(caught.value) == (
        "watch /api/v1/namespaces: 410 Expired: too old resource version: 100 (101)"
    )


async def test_an_error_event_is_raised_by_class(api, client):
    async with open_watch(api, client) as task:
        body = status(500, "etcd is away", details={"retryAfterSeconds": 2})
        api.send_raw(encode({"type": "ERROR", "object": body}) + b"\n")
        with pytest.raises(ServerError, match="500 InternalError: etcd is away") as caught:
            await task
    assert caught.value.retry_after == 2.0


async def test_the_end_is_no_error(api, client):
    stream = watching(client)
    task = asyncio.create_task(anext(stream, "ended"))
    await api.until_watched()
    api.close_watches()
    assert await task == "ended"


async def test_the_server_ends_it_after_its_time(api, client):
    put(api, "a")
    async with asyncio.timeout(PATIENCE):
        assert [event.type async for event in watching(client, timeout_seconds=1)] == ["ADDED"]


async def test_a_server_that_never_ends_it_is_left(api, client, monkeypatch):
    async def run_on(watch, _request, response):
        while True:
            await response.write(b"\n")
            await asyncio.sleep(0.01)

    monkeypatch.setattr(api, "_stream", run_on)
    with pytest.raises(UnreachableError, match="did not answer in time"):
        await anext(watching(client, timeout_seconds=0, idle_timeout=0.2))


async def test_a_torn_line_is_no_event(api, client):
    put(api, "a")
    async with aclosing(watching(client)) as stream:
        await collect(stream, 1)
        api.tear_watches()
        with pytest.raises(UnreachableError, match="sent an incomplete answer"):
            await anext(stream)


async def test_an_end_within_a_line_is_no_end(api, client):
    async with open_watch(api, client) as task:
        api.send_raw(b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}')
        api.close_watches()
        with pytest.raises(UnreachableError, match="ended within a line"):
            await task


async def test_events_survive_any_cut_of_the_wire(api, client):
    lines = b"".join(
        encode({"type": "ADDED", "object": {"metadata": {"name": name, "resourceVersion": "1"}}})
        + b"\n"
        for name in ("é", "b" * 5000, "c")
    )
    async with aclosing(watching(client)) as stream:
        task = asyncio.create_task(collect(stream, 3))
        await api.until_watched()
        for start in range(0, len(lines), 613):
            api.send_raw(lines[start : start + 613])
        assert [event[1] for event in await task] == ["é", "b" * 5000, "c"]


@pytest.mark.parametrize(
    "line", [b"<html>", b'{"type":"ADDED"}', b'{"object":{}}', b'{"type":1,"object":{}}', b"\xff"]
)
async def test_a_line_that_is_no_event_is_an_error(api, client, line):
    async with open_watch(api, client) as task:
        api.send_raw(line + b"\n")
        with pytest.raises(BadAnswerError) as caught:
            await task
    assert str(caught.value).isprintable()


async def test_a_line_beyond_the_limit_is_an_error(api, client, monkeypatch):
    monkeypatch.setattr(streams.LineSplitter.__init__, "__defaults__", (1000,))
    async with open_watch(api, client) as task:
        api.send_raw(b'{"type":"ADDED","object":"' + b"x" * 1000)
        with pytest.raises(BadAnswerError, match="a line is longer than 1000 bytes"):
            await task


async def test_silence_ends_it(api, client):
    async with open_watch(api, client, idle_timeout=0.2) as task:
        api.silence()
        put(api, "a")
        with pytest.raises(UnreachableError, match="sent nothing for too long"):
            await task


async def test_a_head_that_does_not_come_is_not_waited_for_as_long(api):
    api.fail_next("watch", kind="hang")
    async with api.client(timeout=0.1) as client:
        with pytest.raises(UnreachableError, match="did not answer in time"):
            await asyncio.wait_for(anext(watching(client, idle_timeout=300)), PATIENCE)


async def test_an_absent_kind_is_not_found(api, client):
    api.undefine(CLUSTER_POLICIES)
    with pytest.raises(NotFoundError, match=r"404: 404 page not found$"):
        await anext(watching(client, resource=CLUSTER_POLICIES))


async def test_nothing_is_repeated(api, client):
    for kind in ("status", "reset"):
        api.fail_next("watch", kind=kind, headers={"Retry-After": "1"})
    with pytest.raises(ServerError):
        await anext(watching(client))
    with pytest.raises(UnreachableError):
        await anext(watching(client))
    assert len(api.requests) == 2


async def test_who_leaves_early_closes_the_connection(api, client):
    put(api, "a")
    async with aclosing(watching(client)) as stream:
        await collect(stream, 1)
    async with asyncio.timeout(PATIENCE):
        await api.until_watched(0)


async def test_cancellation_closes_the_connection(api, client):
    stream = watching(client)
    task = asyncio.create_task(anext(stream))
    await api.until_watched()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(PATIENCE):
        await api.until_watched(0)
