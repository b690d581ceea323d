"""The mirror before a real API server: its reports, and its recovery if it dies or forgets."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.request
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec import Struct

from harbourmaster.api.resources import CONFIG_MAPS, Resource
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.reflector import Reflector
from helpers.patience import Changes
from helpers.schemas import open_definition

BOATS = Resource("example.com", "v1", "boats", "Boat")
LABEL = {"example.com/mirrored": "yes"}
SOON = 1.0


class Entry(Struct, frozen=True):
    """The part of a ConfigMap that the mirror keeps."""

    data: dict[str, str] = {}


class Watched:
    """A running mirror of the labelled ConfigMaps, which can be waited for."""

    def __init__(self, client, resource=CONFIG_MAPS, decode=None, **options):
        self.requests = []
        self.faults = []
        self._changes = Changes()
        self.reflector = Reflector(
            client,
            resource,
            decode or msgspec.json.Decoder(Entry).decode,
            on_change=self._changes.tell,
            on_state=self._changes.tell,
            metrics=self,
            **options,
        )

    def count_list(self, _resource, objects, _seconds):
        self.requests.append(objects)

    def count_events(self, *_):
        pass

    def count_failure(self, _resource, kind):
        self.faults.append(kind)

    def count_undecodable(self, *_):
        pass

    @property
    def entries(self):
        store = self.reflector.store
        return {key.rpartition("/")[2]: store.get(key) for key in store}

    async def until(self, is_so):
        loop = asyncio.get_running_loop()
        started = loop.time()
        await self._changes.until(is_so)
        return loop.time() - started

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.reflector.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])
        assert task.cancelled(), task.exception()


class Kept:
    """Labelled ConfigMaps of one namespace, and what they should be mirrored as."""

    def __init__(self, client, namespace):
        self._client = client
        self._namespace = namespace
        self.right = {}

    async def put(self, name, value):
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": LABEL},
            "data": {"value": str(value)},
        }
        if name in self.right:
            await self._client.replace(CONFIG_MAPS, name, body, self._namespace)
        else:
            await self._client.create(CONFIG_MAPS, body, self._namespace)
        self.right[name] = Entry({"value": str(value)})

    async def remove(self, name):
        await self._client.delete(CONFIG_MAPS, name, self._namespace)
        del self.right[name]


@asynccontextmanager
async def clients(plane):
    """Two: one to watch with, whose requests are counted, and one to change things."""
    sent = []
    loop = asyncio.get_running_loop()
    connection = connect(str(plane.kubeconfig))
    async with (
        Client(connection, observer=lambda *_: sent.append(loop.time())) as watching,
        Client(connection) as changing,
    ):
        yield watching, changing, sent


def most_within_a_second(times):
    # A busy machine sends one later than it was started, and the next one at once.
    return max(sum(start <= time < start + 0.9 for time in times) for start in times)


def compact(plane):
    """Have etcd forget all history, as it is told every five minutes in a real cluster."""
    pki = plane.layout.pki
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "etcd-client.crt", pki / "etcd-client.key")
    url = f"https://127.0.0.1:{plane._components['etcd'].port}/v3/kv"

    def ask(verb, **body):
        request = urllib.request.Request(f"{url}/{verb}", data=json.dumps(body).encode())  # noqa: S310
        with urllib.request.urlopen(request, context=context) as answer:  # noqa: S310
            return json.loads(answer.read())

    revision = ask("range", key="AA==")["header"]["revision"]
    ask("compaction", revision=revision, physical=True)


async def test_pages_and_changes_are_mirrored_within_a_second(control_plane, namespace):
    async with clients(control_plane) as (watching, changing, _):
        kept = Kept(changing, namespace)
        for number in range(25):
            await kept.put(f"entry-{number}", number)
        selection = {"namespace": namespace, "label_selector": "example.com/mirrored=yes"}
        watched = Watched(watching, page_size=10, **selection)
        async with watched.running():
            await watched.reflector.synced.wait()
            assert watched.entries == kept.right
            assert watched.requests == [25]
            for change in (
                kept.put("entry-3", "changed"),
                kept.put("new", "new"),
                kept.remove("entry-4"),
            ):
                await change
                took = await watched.until(lambda: watched.entries == kept.right)
                assert took < SOON
            assert watched.faults == []


async def test_a_definition_comes_and_goes(throwaway_control_plane):
    plane = throwaway_control_plane(optional=())
    async with clients(plane) as (watching, _, _):
        watched = Watched(watching, BOATS, bytes)
        async with watched.running():
            await watched.reflector.synced.wait()
            assert watched.reflector.absent
            for _ in range(2):
                plane.kubectl("create", "-f=-", stdin=json.dumps(open_definition(BOATS)))
                plane.kubectl("wait", "--for=condition=Established", "crd/boats.example.com")
                while watched.reflector.absent:
                    watched.reflector.wake()
                    await asyncio.sleep(0.05)
                boat = {
                    "apiVersion": "example.com/v1",
                    "kind": "Boat",
                    "metadata": {"name": "tug", "namespace": "default"},
                }
                plane.kubectl("create", "-f=-", stdin=json.dumps(boat))
                await watched.until(lambda: "tug" in watched.entries)
                plane.kubectl("delete", "crd", "boats.example.com")
                await watched.until(lambda: watched.reflector.absent)
                assert watched.entries == {}
                assert watched.reflector.error is None


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
async def test_a_killed_component_takes_nothing_from_the_mirror(throwaway_control_plane, component):
    plane = throwaway_control_plane(optional=())
    async with clients(plane) as (watching, changing, sent):
        kept = Kept(changing, "default")
        for number in range(5):
            await kept.put(f"entry-{number}", number)
        watched = Watched(watching, label_selector="example.com/mirrored=yes")
        async with watched.running():
            await watched.reflector.synced.wait()
            await asyncio.to_thread(plane.kill, component)
            if component == "kube-apiserver":
                await watched.until(lambda: watched.reflector.error is not None)
            await asyncio.sleep(3)
            assert watched.entries == kept.right
            await asyncio.to_thread(plane.restart, component)
            await kept.put("entry-0", "changed")
            await kept.remove("entry-1")
            await watched.until(lambda: watched.entries == kept.right)
            await watched.until(lambda: watched.reflector.error is None)
            assert watched.requests[:1] == [5]
        assert most_within_a_second(sent) <= 2


async def test_deletions_while_away_are_found_after_a_real_410(throwaway_control_plane):
    plane = throwaway_control_plane(optional=())
    async with clients(plane) as (watching, changing, _):
        kept = Kept(changing, "default")
        for number in range(5):
            await kept.put(f"entry-{number}", number)
        watched = Watched(watching, label_selector="example.com/mirrored=yes")
        async with watched.running():
            await watched.reflector.synced.wait()
        await kept.remove("entry-0")
        await kept.remove("entry-1")
        await kept.put("entry-2", "changed")
        await asyncio.to_thread(compact, plane)
        # A fresh cache of watches begins where it is; the mirror's version lies before that.
        await asyncio.to_thread(plane.restart, "kube-apiserver")
        async with watched.running():
            await watched.until(lambda: watched.entries == kept.right)
            await kept.put("later", "later")
            await watched.until(lambda: watched.entries == kept.right)
        assert watched.faults == ["GoneError"]
        assert watched.requests == [5, 3]


async def test_a_list_that_expires_between_two_pages_begins_again(throwaway_control_plane):
    plane = throwaway_control_plane(optional=())
    async with clients(plane) as (watching, changing, _):
        kept = Kept(changing, "default")
        for number in range(30):
            await kept.put(f"entry-{number:02}", number)
        tokens = []

        class Expiring:
            """Lets the first list grow too old after its first page."""

            watch = watching.watch

            async def list(self, *args, **options):
                page = await watching.list(*args, **options)
                tokens.append(options["continue_token"])
                if len(tokens) == 1:
                    await kept.remove("entry-00")
                    await kept.remove("entry-29")
                    await asyncio.to_thread(compact, plane)
                    await asyncio.to_thread(plane.restart, "kube-apiserver")
                return page

        watched = Watched(Expiring(), label_selector="example.com/mirrored=yes", page_size=10)
        async with watched.running():
            await watched.reflector.synced.wait()
            assert watched.entries == kept.right
        assert watched.faults == ["GoneError"]
        assert [bool(token) for token in tokens] == [False, False, True, True]
