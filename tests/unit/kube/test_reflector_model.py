"""Whatever happens in whatever order: in the end the store is what the server has."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from helpers.properties import cases
from helpers.scripted_api import END, Hang, ScriptedApi, Thing, follow
from helpers.virtual_time import run_virtually

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
# None stands for a value that can't be read.
VALUES = st.none() | st.integers(0, 3)
ERRORS = st.sampled_from(
    [
        UnreachableError("the connection broke"),
        BadAnswerError("half a line", status=200),
        GoneError("too old", status=410, reason="Expired"),
        ServerError("<html>", status=502),
        ServerError("busy", status=503, retry_after=2.0),
        TooManyRequestsError("busy", status=429, retry_after=1.0),
        UnauthorizedError("who", status=401),
        ForbiddenError("no", status=403),
        NotFoundError("no", status=404),
        ApiError("bad", status=400),
    ]
)
FAULTS = ERRORS | st.just(END) | st.just(Hang(10)) | st.none()
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES, VALUES),
    st.tuples(st.just("put"), NAMES, VALUES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("rest"), st.sampled_from([0.0, 0.0005, 0.01, 0.3, 2.0, 20.0, 700.0])),
    st.tuples(st.just("cut"), ERRORS | st.just(END)),
    st.tuples(st.just("fail"), st.lists(FAULTS, max_size=6)),
    st.tuples(st.just("down"), FAULTS),
    st.tuples(st.just("compact")),
    st.tuples(st.just("bookmark")),
    st.tuples(st.just("absent"), st.booleans()),
    st.tuples(st.just("wake")),
    st.tuples(st.just("repeat")),
)


class Life:
    """A server and its follower; each step's name is a method's."""

    def __init__(self, follower):
        self.api = follower.api
        self.reflector = follower.reflector

    async def put(self, name, value):
        self.api.put(name, value="unreadable" if value is None else value)

    async def remove(self, name):
        if f"prod/{name}" in self.api.objects:
            self.api.remove(name)

    async def rest(self, seconds):
        await asyncio.sleep(seconds)

    async def cut(self, what):
        self.api.send(what)

    async def fail(self, faults):
        self.api.faults.extend(faults)

    async def down(self, fault):
        self.api.down = fault

    async def compact(self):
        self.api.compact()

    async def bookmark(self):
        self.api.bookmark()

    async def absent(self, absent):
        self.api.absent = absent
        if absent:
            # As a real server does: with the definition go the objects and the watches.
            for key in list(self.api.objects):
                self.api.remove(key.partition("/")[2])
            self.api.send(END)

    async def wake(self):
        self.reflector.wake()

    async def repeat(self):
        if self.api._history:
            self.api.send(self.api._history[-1][1])

    async def heal(self):
        self.api.down = None
        self.api.faults.clear()
        self.api.absent = False
        # The longest wait is one of 60 s, and one of 30 s comes before a list at the worst.
        await asyncio.sleep(100)


async def assert_store_follows(steps, page_size):
    api = ScriptedApi()
    known = {}

    def note(keys):
        for key in keys:
            known[key] = follower.reflector.store.get(key)

    async with follow(api, synced=False, page_size=page_size, on_change=note) as follower:
        life = Life(follower)
        for name, *arguments in steps:
            await getattr(life, name)(*arguments)
        await life.heal()
        readable = {
            key: Thing(obj["value"])
            for key, obj in api.objects.items()
            if obj["value"] != "unreadable"
        }
        assert follower.objects == readable
        assert {key: thing for key, thing in known.items() if thing is not None} == readable
        assert follower.reflector.error is None
        assert follower.reflector.synced.is_set()
        assert not follower.reflector.absent
    starts = [call.time for call in api.calls if not call.options.get("continue_token")]
    assert all(later - first >= 0.999 for first, later in zip(starts, starts[2:], strict=False))


@pytest.mark.slow
@settings(max_examples=cases(300))
@given(st.lists(STEPS, max_size=40), st.sampled_from([1, 2, 500]))
def test_the_store_equals_the_server_after_any_faults(steps, page_size):
    run_virtually(assert_store_follows(steps, page_size))
