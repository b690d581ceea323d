"""Tests of policies that are left out, while compiled objects change or the API server is away."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from harbourmaster.api.resources import MUTATING_POLICIES, MUTATING_POLICY_BINDINGS, NAMESPACES
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.quiet_watch import QuietWatch
from harbourmaster.policies.enforcement import (
    COMPILED_SELECTORS,
    UNKNOWN,
    UNSUPPORTED,
    decode_compiled,
    known_of,
)
from helpers.delegation import FIRST, SECOND, binding, mutation
from helpers.patience import PATIENCE
from helpers.tasks import background

ASKED = ("ClusterPodSchedulingPolicy web", "0123456789abcdef")
HASHES = dict([ASKED])
AT_ONCE, NEVER = 0.0, 3600.0
"""The seconds without a change after which compiled objects count as settled."""


class Watch(QuietWatch):
    """A watch that remembers every state that it knew."""

    def __init__(self, client, quiet):
        self.seen = []
        self._changed_once = asyncio.Event()
        backoff = Backoff(first=0.01, limit=0.02)
        super().__init__(
            client,
            COMPILED_SELECTORS,
            decode_compiled,
            known_of,
            self._note,
            quiet_seconds=quiet,
            backoff=backoff,
        )

    def _note(self):
        self.seen.append(self.summary)
        self._changed_once.set()

    async def until(self, holds):
        async with asyncio.timeout(PATIENCE):
            while not holds(self.summary):
                self._changed_once.clear()
                await self._changed_once.wait()


@asynccontextmanager
async def watching(api, quiet):
    async with api.client() as client:
        watch = Watch(client, quiet)
        async with background(watch.run()):
            yield watch


def put_all(api, set_name=FIRST):
    api.put(MUTATING_POLICIES, mutation(HASHES, set_name))
    api.put(MUTATING_POLICY_BINDINGS, binding(set_name))


def is_left_out(known):
    return ASKED in known.left_out


async def test_what_is_enforced_is_left_out_when_nothing_has_changed_for_a_while(api):
    put_all(api)
    async with watching(api, AT_ONCE) as watch:
        await watch.until(is_left_out)
    first = next(known for known in watch.seen if ASKED in known.enforced)
    assert not is_left_out(first)


async def test_it_is_not_left_out_before_that(api):
    put_all(api)
    async with watching(api, NEVER) as watch:
        await watch.until(lambda known: ASKED in known.enforced)
        assert not is_left_out(watch.summary)


@pytest.mark.parametrize(
    "change",
    [
        lambda api: api.put(MUTATING_POLICIES, mutation(HASHES, SECOND)),
        lambda api: api.put(MUTATING_POLICY_BINDINGS, binding(SECOND)),
        lambda api: api.remove(MUTATING_POLICY_BINDINGS, binding()["metadata"]["name"]),
        lambda api: api.remove(MUTATING_POLICIES, mutation({})["metadata"]["name"]),
    ],
    ids=["another set", "another binding", "binding deleted", "mutation deleted"],
)
async def test_any_change_puts_it_back_at_once(api, change):
    put_all(api)
    async with watching(api, AT_ONCE) as watch:
        await watch.until(is_left_out)
        watch.seen.clear()
        change(api)
        await watch.until(lambda _: bool(watch.seen))
    assert not is_left_out(watch.seen[0])


async def test_nothing_is_left_out_while_the_api_server_is_away(api):
    put_all(api)
    async with watching(api, AT_ONCE) as watch:
        await watch.until(is_left_out)
        await api.stop()
        await watch.until(lambda known: known.problem == UNKNOWN)
        assert not is_left_out(watch.summary)
        away = len(watch.seen)
        await api.start()
        await api.until_watched(2)
        # A watch to which nothing comes is sound after a while only.
        api.put(NAMESPACES, {"metadata": {"name": "other"}})
        api.bookmark()
        await watch.until(is_left_out)
    assert not is_left_out(watch.seen[away])


async def test_nothing_is_left_out_without_the_right_to_read_bindings(api):
    put_all(api)
    api.forbid("list", MUTATING_POLICY_BINDINGS)
    async with watching(api, AT_ONCE) as watch:
        await watch.until(lambda _: any(reflector.error for reflector in watch.reflectors))
        assert watch.summary.problem == UNKNOWN
        assert not is_left_out(watch.summary)


async def test_an_api_server_without_the_kind_enforces_nothing(api):
    api.undefine(MUTATING_POLICIES)
    api.undefine(MUTATING_POLICY_BINDINGS)
    async with watching(api, AT_ONCE) as watch:
        await watch.until(lambda known: known.problem == UNSUPPORTED)
        assert not is_left_out(watch.summary)
