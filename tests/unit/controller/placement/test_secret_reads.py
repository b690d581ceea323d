"""Kubeconfigs are read one by one, only where they changed, and soon where they are in doubt."""

from __future__ import annotations

import asyncio
import base64
import contextlib

import pytest

from harbourmaster.api.resources import SECRETS
from harbourmaster.controller.placement.secret_reads import READS, Kubeconfig
from harbourmaster.kube.errors import ForbiddenError, NotFoundError, UnreachableError
from harbourmaster.placement.model import KubeconfigKey
from harbourmaster.providers.query_client import PerTargetLimit
from harbourmaster.serving.background import running
from helpers.fake_store import encode, status
from helpers.virtual_time import virtual

REFERENCE = KubeconfigKey(name="one")
SOURCE = "Secret team/one, key kubeconfig"


class Secrets:
    """Replaces an API server that has one Secret, and records the reads and their times."""

    def __init__(self, text=b"first"):
        self.asked = []
        self.error = None
        self.body = None
        self._version = 0
        self.put(text)

    def put(self, text):
        self._version += 1
        data = {} if text is None else {"kubeconfig": base64.b64encode(text).decode()}
        metadata = {"resourceVersion": str(self._version)}
        self.body = encode({"metadata": metadata, "data": data})

    async def get(self, resource, name, namespace, *, metadata_only=False):
        assert (resource, name, namespace[:4]) == (SECRETS, "one", "team")
        now = asyncio.get_running_loop().time()
        self.asked.append((round(now), "version" if metadata_only else "whole"))
        if self.error is not None:
            raise self.error
        return self.body


class Read:
    def __init__(self, secrets):
        self.secrets = secrets
        self.changes = []
        self.kubeconfig = Kubeconfig(
            secrets,
            "team",
            REFERENCE,
            seconds=60.0,
            turns=PerTargetLimit(READS),
            on_change=self._record_change,
            chance=lambda: 1.0,
        )

    async def _record_change(self):
        kubeconfig = self.kubeconfig
        self.changes.append(kubeconfig.fault or kubeconfig.text)

    @contextlib.asynccontextmanager
    async def running(self):
        async with running(self.kubeconfig.run()):
            yield self


@virtual
async def test_what_is_as_before_is_asked_for_its_version_only():
    async with Read(Secrets()).running() as read:
        await asyncio.sleep(121)
        assert read.secrets.asked == [(0, "whole"), (60, "version"), (120, "version")]
        assert read.changes == [b"first"]


@virtual
async def test_a_change_is_taken_up_within_the_interval():
    async with Read(Secrets()).running() as read:
        await asyncio.sleep(1)
        read.secrets.put(b"second")
        await asyncio.sleep(60)
        assert read.changes == [b"first", b"second"]
        assert read.secrets.asked[1:] == [(60, "version"), (60, "whole")]


@virtual
async def test_who_is_in_doubt_waits_a_second_at_most_and_asks_no_more_often():
    async with Read(Secrets()).running() as read:
        await asyncio.sleep(10)
        read.secrets.put(b"second")
        for _ in range(30):
            read.kubeconfig.look()
            await asyncio.sleep(0.1)
        assert read.changes == [b"first", b"second"]
        assert len(read.secrets.asked) <= 6


@virtual
async def test_what_is_of_no_use_is_looked_at_sooner_and_ever_more_seldom():
    async with Read(Secrets()).running() as read:
        read.kubeconfig.is_of_use = False
        await asyncio.sleep(170)
        assert [at for at, _ in read.secrets.asked] == [0, 1, 3, 8, 18, 48, 108, 168]


@virtual
async def test_a_name_that_no_secret_can_have_is_a_fault():
    secrets = Secrets()
    secrets.error = ValueError('".." cannot be part of a path')
    async with Read(secrets).running() as read:
        await asyncio.sleep(1)
        assert read.changes == [f'{SOURCE}: cannot be read: ".." cannot be part of a path']


@pytest.mark.parametrize("text", [None, b""])
@virtual
async def test_a_secret_without_the_key_is_told_until_it_has_it(text):
    async with Read(Secrets(text)).running() as read:
        await asyncio.sleep(0.5)
        read.secrets.put(b"there")
        await asyncio.sleep(2)
        assert read.changes == [f"{SOURCE}: the Secret does not have this key", b"there"]


@virtual
async def test_a_usual_key_in_place_of_the_named_one_is_told():
    secrets = Secrets(None)
    data = {"value": base64.b64encode(b"there").decode(), "token": ""}
    secrets.body = encode({"metadata": {"resourceVersion": "7"}, "data": data})
    async with Read(secrets).running() as read:
        await asyncio.sleep(0.5)
        fault = "the Secret does not have this key, but value: set key: value"
        assert read.changes == [f"{SOURCE}: {fault}"]


@virtual
async def test_a_secret_that_goes_takes_the_kubeconfig_along_and_brings_it_back():
    async with Read(Secrets()).running() as read:
        await asyncio.sleep(1)
        read.secrets.error = NotFoundError("gone", status=404)
        await asyncio.sleep(61)
        read.secrets.error = None
        await asyncio.sleep(3)
        assert read.changes == [b"first", f"{SOURCE}: the Secret does not exist", b"first"]


@virtual
async def test_it_is_kept_while_its_cluster_is_going():
    async with Read(Secrets()).running() as read:
        await asyncio.sleep(1)
        read.kubeconfig.is_kept = True
        read.secrets.error = NotFoundError("gone", status=404)
        await asyncio.sleep(200)
        assert read.changes == [b"first"]


@pytest.mark.parametrize(
    "error", [UnreachableError("no route", call="get /api"), ForbiddenError("may not", status=403)]
)
@virtual
async def test_what_was_read_counts_while_nobody_can_be_asked(error):
    async with Read(Secrets()).running() as read:
        await asyncio.sleep(1)
        read.secrets.error = error
        await asyncio.sleep(200)
        assert read.changes == [b"first"]


@virtual
async def test_what_could_never_be_read_is_told():
    secrets = Secrets()
    secrets.error = ForbiddenError("may not get it", status=403)
    async with Read(secrets).running() as read:
        await asyncio.sleep(0.5)
        assert read.changes == [
            f"{SOURCE}: missing permission to read it: run harbourmaster grant secrets -n team"
        ]
        secrets.error = None
        await asyncio.sleep(3)
        assert read.changes[1:] == [b"first"]


@virtual
async def test_what_is_no_secret_stops_nothing():
    secrets = Secrets()
    secrets.body = encode(status(200, "what"))
    async with Read(secrets).running() as read:
        await asyncio.sleep(0.5)
        assert read.changes[0].startswith(f"{SOURCE}: ")
        secrets.put(b"second")
        await asyncio.sleep(3)
        assert read.changes[1:] == [b"second"]


@virtual
async def test_only_so_many_are_read_at_once():
    class Slow(Secrets):
        at_once = most = 0

        async def get(self, *where, **how):
            Slow.at_once += 1
            Slow.most = max(Slow.most, Slow.at_once)
            await asyncio.sleep(5)
            Slow.at_once -= 1
            return await super().get(*where, **how)

    async def nothing():
        pass

    turns = PerTargetLimit(READS)
    read = [
        Kubeconfig(Slow(), f"team-{n}", REFERENCE, seconds=60, turns=turns, on_change=nothing)
        for n in range(30)
    ]
    async with running(*(kubeconfig.run() for kubeconfig in read)):
        await asyncio.sleep(21)
    assert Slow.most == READS
    assert all(kubeconfig.text == b"first" for kubeconfig in read)


@virtual
@pytest.mark.claim("O25")
async def test_reads_of_one_namespace_do_not_delay_those_of_another():
    class Stuck(Secrets):
        async def get(self, *where, **how):
            if where[2] == "team-loud":
                await asyncio.sleep(10)
            return await super().get(*where, **how)

    async def nothing():
        pass

    turns = PerTargetLimit(READS)

    def reading(namespace):
        options = {"seconds": 60, "turns": turns, "on_change": nothing}
        return Kubeconfig(Stuck(), namespace, REFERENCE, **options)

    quiet = reading("team-quiet")
    loud = [reading("team-loud") for _ in range(10_000)]
    async with running(*(kubeconfig.run() for kubeconfig in [*loud, quiet])):
        await asyncio.sleep(0.1)
        assert quiet.text == b"first"
