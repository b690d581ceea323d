"""A client whose API server is a few dictionaries here, and fails as a test says.

It has ``list`` and ``watch`` of the ``Client``, without a wire between: what a test wants to see
happens at an exact moment. ``helpers.fake_api`` has the wire.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import POLICIES
from harbourmaster.kube.client import ListPage
from harbourmaster.kube.errors import GoneError, NotFoundError, ServerError, UnreachableError
from harbourmaster.kube.reflector import Reflector
from harbourmaster.kube.streams import WatchEvent

END = object()
LATENCY = 0.001


class Call(NamedTuple):
    """A request; ``time`` is the loop's."""

    time: float
    verb: str
    options: dict[str, Any]


class Hang(NamedTuple):
    """No answer for so many seconds, after which the client gives up."""

    seconds: float


class ScriptedApi:
    """``faults`` are for the next requests, one each: an error, END (no answer but an end), a Hang,
    or None for the right answer. ``down`` is one for all requests.
    """

    def __init__(self):
        self.listing = asyncio.Lock()
        self.calls: list[Call] = []
        self.faults: deque[Any] = deque()
        self.down: Any = None
        self.absent = False
        self.version = 100
        self.objects: dict[str, dict] = {}
        self.streams: dict[asyncio.Queue, int] = {}
        self._compacted = 100
        self._history: list[tuple[int, WatchEvent]] = []
        self._snapshots: dict[str, tuple[str, list[dict]]] = {}

    def put(self, name, namespace="prod", **fields):
        self.version += 1
        key = f"{namespace}/{name}"
        kind = "MODIFIED" if key in self.objects else "ADDED"
        metadata = {"name": name, "namespace": namespace, "resourceVersion": str(self.version)}
        self.objects[key] = {"metadata": metadata, **fields}
        self._change(kind, self.objects[key])

    def remove(self, name, namespace="prod"):
        self.version += 1
        gone = self.objects.pop(f"{namespace}/{name}")
        metadata = {**gone["metadata"], "resourceVersion": str(self.version)}
        self._change("DELETED", {**gone, "metadata": metadata})

    def compact(self):
        """Forget history: older watches and lists under way are gone."""
        self._compacted = self.version
        self._snapshots.clear()

    def bookmark(self):
        self.send(event("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}))

    def send(self, what):
        """Give all open watches an event, an error or END."""
        for stream in self.streams:
            stream.put_nowait(what)

    def times(self, verb=None):
        """The times of the requests."""
        return [call.time for call in self.calls if verb in {None, call.verb}]

    def verbs(self):
        return [call.verb for call in self.calls]

    async def list(self, _resource, _namespace=None, **options):
        await self._answer("list", options)
        limit, token = options["limit"], options["continue_token"]
        if not token:
            version, items = str(self.version), list(self.objects.values())
        elif token in self._snapshots:
            version, items = self._snapshots.pop(token)
        else:
            raise GoneError("the continue token is too old", status=410, reason="Expired")
        token = ""
        if len(items) > limit:
            token = f"token-{len(self.calls)}"
            self._snapshots[token] = version, items[limit:]
        raws = tuple(msgspec.Raw(msgspec.json.encode(obj)) for obj in items[:limit])
        return ListPage(items=raws, resource_version=version, continue_token=token)

    async def watch(self, _resource, _namespace=None, **options):
        if await self._answer("watch", options) is END:
            return
        since = int(options["resource_version"])
        if since < self._compacted:
            raise GoneError("too old resource version", status=410, reason="Expired")
        if since > self.version:
            raise ServerError("Too large resource version", status=504, reason="Timeout")
        stream: asyncio.Queue = asyncio.Queue()
        for version, event in self._history:
            if version > since:
                stream.put_nowait(event)
        self.streams[stream] = since
        loop = asyncio.get_running_loop()
        end = loop.time() + options["timeout_seconds"]
        try:
            while True:
                what = await self._next(stream, end, options["idle_timeout"])
                if what is END:
                    return
                if isinstance(what, Exception):
                    raise what
                yield what
        finally:
            del self.streams[stream]

    async def _next(self, stream, end, idle):
        """Return the next event; END at the time-out, an error after silence."""
        if not stream.empty():
            return stream.get_nowait()
        left = end - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(min(left, idle)):
                return await stream.get()
        except TimeoutError:
            return END if left <= idle else UnreachableError("no sign of life in time")

    async def _answer(self, verb, options):
        self.calls.append(Call(asyncio.get_running_loop().time(), verb, options))
        await asyncio.sleep(LATENCY)
        fault = self.down
        if fault is None and self.faults:
            fault = self.faults.popleft()
        if isinstance(fault, Hang):
            await asyncio.sleep(fault.seconds)
            raise UnreachableError("api did not answer in time")
        if isinstance(fault, Exception):
            raise fault
        if fault is END:
            if verb == "list":
                raise UnreachableError("api closed the connection without an answer")
            return END
        if self.absent:
            raise NotFoundError("404 page not found", status=404, call=verb)
        return None

    def _change(self, kind, obj):
        self._history.append((self.version, event(kind, obj)))
        self.send(self._history[-1][1])


def event(kind, obj):
    return WatchEvent(type=kind, object=msgspec.Raw(msgspec.json.encode(obj)))


class Thing(Struct, frozen=True, gc=False):
    """The part of an object that the reflectors of tests keep."""

    value: int = 0


decode_thing = msgspec.json.Decoder(Thing).decode


class Follower:
    """A reflector of a ScriptedApi (or of any client), running, with what it told."""

    def __init__(self, api, **options):
        self.api = api
        self.changes: list[frozenset[str]] = []
        self.states: list[tuple[str | None, bool, bool]] = []
        options = {"on_change": self.changes.append, "decode": decode_thing} | options
        resource = options.pop("resource", POLICIES)
        self.reflector = Reflector(
            api, resource, options.pop("decode"), on_state=self._note_state, **options
        )
        self.task: asyncio.Task | None = None

    @property
    def objects(self):
        store = self.reflector.store
        return {key: store.get(key) for key in store.keys()}  # noqa: SIM118 - a store is no dict

    @property
    def server_state(self):
        """The server's objects, as the follower should hold them."""
        return {key: Thing(obj.get("value", 0)) for key, obj in self.api.objects.items()}

    def _note_state(self):
        follower = self.reflector
        self.states.append((follower.error, follower.absent, follower.synced.is_set()))


@asynccontextmanager
async def follow(api, *, synced=True, **options):
    """Run a Follower; by default from its first sync on. Nothing may be left of it afterwards."""
    before = asyncio.all_tasks()
    follower = Follower(api, **options)
    follower.task = asyncio.create_task(follower.reflector.run())
    try:
        if synced:
            syncing = asyncio.create_task(follower.reflector.synced.wait())
            await asyncio.wait([syncing, follower.task], return_when=asyncio.FIRST_COMPLETED)
            syncing.cancel()
            await asyncio.sleep(10 * LATENCY)
        yield follower
    finally:
        follower.task.cancel()
        await asyncio.wait([follower.task])
    assert follower.task.cancelled(), follower.task.exception()
    assert asyncio.all_tasks() == before
    if isinstance(api, ScriptedApi):
        assert not api.streams
