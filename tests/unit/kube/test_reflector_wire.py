"""The reflector through the real client: bytes that are late, torn, foreign or missing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from harbourmaster.api.resources import POLICIES
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.reflector import Reflector
from helpers.patience import PATIENCE
from helpers.scripted_api import Thing, decode_thing
from helpers.tasks import background

QUICK = Backoff(first=0.01, limit=0.05)
ANSWERS = {
    "proxy's page": {"status": 502, "kind": "html"},
    "text": {"status": 503, "body": b"no healthy upstream"},
    "busy": {"status": 503},
    "unknown user": {"status": 401},
    "no JSON": {"kind": "garbage"},
    "a list for a watch": {"kind": "garbage", "body": b'{"kind":"PodList"}\n'},
    "reset": {"kind": "reset"},
    "silence": {"kind": "hang"},
    "redirect": {"kind": "redirect"},
    "too old": {"status": 410},
}
CUT = {"cut in half": {"kind": "torn"}}


@pytest.fixture(autouse=True)
def _no_pace(monkeypatch):
    # That is shown in virtual time, where it costs none.
    monkeypatch.setattr("harbourmaster.kube.reflector._MAX_STARTS", 1000)


def put(api, name, value):
    spec = {"metadata": {"name": name, "namespace": "prod"}, "value": value}
    api.put(POLICIES, spec)


def right(api):
    items = api.objects.all(POLICIES).items()
    return {f"{namespace}/{name}": Thing(obj["value"]) for (namespace, name), obj in items}


class Follower:
    def __init__(self, client, **options):
        self._moved = asyncio.Condition()
        self.changes = []
        self.reflector = Reflector(
            client,
            POLICIES,
            decode_thing,
            on_change=self._note,
            backoff=QUICK,
            **{"idle_timeout": 30.0} | options,
        )

    def _note(self, keys):
        self.changes.append(keys)
        self.moved = asyncio.ensure_future(self._announce())

    async def _announce(self):
        async with self._moved:
            self._moved.notify_all()

    @property
    def objects(self):
        store = self.reflector.store
        return dict(zip(store.keys(), store.values(), strict=True))

    async def until_right(self, api):
        async with asyncio.timeout(PATIENCE), self._moved:
            await self._moved.wait_for(lambda: self.objects == right(api))


@asynccontextmanager
async def following(api, *, patience=PATIENCE, **options):
    for number in range(3):
        put(api, f"thing-{number}", number)
    async with api.client(timeout=patience, retries=0) as client:
        follower = Follower(client, **options)
        async with background(follower.reflector.run()) as task:
            yield follower
    assert task.cancelled(), task.exception()


async def test_pages_and_events_of_a_real_client(api):
    async with following(api, page_size=2) as follower:
        await api.until_watched()
        assert [len(keys) for keys in follower.changes] == [2, 1]
        assert frozenset().union(*follower.changes) == right(api).keys()
        put(api, "new", 5)
        api.remove(POLICIES, "thing-1", "prod")
        await follower.until_right(api)


@pytest.mark.parametrize("answer", (ANSWERS | CUT).values(), ids=ANSWERS | CUT)
async def test_a_list_survives_any_answer(api, answer):
    api.fail_next("list", "", 2, **answer)
    async with following(api, patience=0.2, page_size=2) as follower:
        await follower.until_right(api)
        assert len(api.seen("list")) >= 4


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_a_watch_survives_any_answer(api, answer):
    api.fail_next("watch", "", 3, **answer)
    async with following(api, patience=0.2) as follower:
        await api.until_seen("watch", "", 3)
        put(api, "new", 7)
        await follower.until_right(api)
        await api.until_watched()


@pytest.mark.parametrize(
    "disturb",
    [
        lambda api: api.tear_watches(),
        lambda api: api.close_watches(),
        lambda api: (api.send_raw(b'{"type":"ADDED","obj'), api.close_watches()),
        lambda api: api.send_raw(b"HTTP/1.1 502 Bad Gateway\n"),
        lambda api: api.send_raw(b'{"type":"ADDED"}\n'),
        lambda api: api.send_raw(b'{"type":"ERROR","object":{"kind":"Status","code":500}}\n'),
        lambda api: (api.compact(), api.close_watches()),
        lambda api: api.silence(),
    ],
    ids=[
        "reset within a line",
        "end",
        "end within a line",
        "no JSON",
        "no event",
        "error event",
        "compaction",
        "silence",
    ],
)
async def test_an_open_watch_survives_any_disturbance(api, disturb):
    async with following(api, idle_timeout=0.3) as follower:
        await api.until_watched()
        put(api, "before", 5)
        await follower.until_right(api)
        disturb(api)
        put(api, "thing-1", 10)
        api.remove(POLICIES, "thing-2", "prod")
        await api.until_seen("watch", "", 2)
        api.release()
        await follower.until_right(api)
