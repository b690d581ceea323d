"""A real controller process, and the changes that it makes, in the order of the API server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time

import aiohttp
import msgspec

from harbourmaster.api.resources import SECRETS, Resource
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.reflector import Reflector
from helpers.changes import Changes
from helpers.logged import Logged
from helpers.observed import VALUE_PORTS
from helpers.patience import PATIENCE
from helpers.registered import CONFIGURATIONS, NAME, SECRET, Observer

CORE_EVENTS = Resource("", "v1", "events", "Event")


@contextlib.asynccontextmanager
async def connected(kubeconfig):
    """A client of a real API server."""
    async with Client(connect(str(kubeconfig))) as client:
        yield client
    # A TLS connection whose request was cancelled ends a moment after its client.
    await asyncio.sleep(0.1)


def server_of(manager, kind):
    """The server of a port of a manager, by its class; None if no server uses the port."""
    servers = [run.__self__ for run in manager.background if hasattr(run, "__self__")]
    return next((server for server in servers if isinstance(server, kind)), None)


class Controller(Logged):
    """One controller process; it runs when the construction returns."""

    def __init__(self, kubeconfig, namespace, *flags):
        command = [sys.executable, "-m", "harbourmaster.controller"]
        command += [f"--kubeconfig={kubeconfig}", f"--namespace={namespace}", "--health-port=0"]
        super().__init__([*command, *VALUE_PORTS, "--log-format=json", *flags], "started")
        self.health = self.first["health"]

    async def metrics(self):
        """The text of /metrics."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.health}/metrics") as answer,
        ):
            return await answer.text()


class Watched:
    """Mirrors what a registration consists of, and keeps every version of it.

    All versions of one API server count together, so ``changes`` gives the true order.
    """

    def __init__(self, client, namespace):
        self.theirs = set()
        self._key = f"{namespace}/{SECRET}"
        self._namespace = namespace
        self._client = client
        self._versions = {}
        self._deleted = {}
        self._changes = Changes()
        self._reflectors = {
            resource: Reflector(
                client,
                resource,
                lambda raw, resource=resource: self._note(resource, raw),
                namespace=namespace if resource == SECRETS else None,
                field_selector=f"metadata.name={SECRET if resource == SECRETS else NAME}",
                on_change=self._changes.tell,
            )
            for resource in (SECRETS, *CONFIGURATIONS)
        }
        self._tasks = []

    async def __aenter__(self):
        self._tasks = [
            asyncio.create_task(reflector.run()) for reflector in self._reflectors.values()
        ]
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _note(self, resource, raw):
        obj = msgspec.json.decode(raw)
        self._versions[int(obj["metadata"]["resourceVersion"])] = (resource, obj)
        return obj

    def secret(self):
        return self._reflectors[SECRETS].store.get(self._key)

    def configuration(self, resource):
        return self._reflectors[resource].store.get(NAME)

    async def until(self, condition, patience=PATIENCE):
        """Wait until the condition holds; return what it gave and the seconds that it took."""
        begun = time.monotonic()
        value = await self._changes.until(condition, patience)
        return value, time.monotonic() - begun

    async def write(self, resource, change):
        """Change a stored object as another client would; ``change`` maps old to new."""
        is_secret = resource == SECRETS
        name = SECRET if is_secret else NAME
        namespace = self._namespace if is_secret else None
        obj = change(msgspec.json.decode(await self._client.get(resource, name, namespace)))
        answer = await self._client.replace(resource, name, obj, namespace)
        version = int(msgspec.json.decode(answer)["metadata"]["resourceVersion"])
        self.theirs.add(version)
        return version

    async def delete(self, resource):
        """Delete what is stored, and remember whose place has to be taken."""
        is_secret = resource == SECRETS
        namespace = self._namespace if is_secret else None
        name = SECRET if is_secret else NAME
        stored = msgspec.json.decode(await self._client.get(resource, name, namespace))
        self._deleted[resource] = stored["metadata"]["uid"]
        await self._client.delete(resource, name, namespace, uid=self._deleted[resource])

    async def until_replaced(self, resource, patience=PATIENCE):
        """Wait for another object in the place of the deleted one.

        A watch that was away, or brings both changes at once, never shows the place empty.
        """

        def is_another():
            stored = self.secret() if resource == SECRETS else self.configuration(resource)
            return stored is not None and stored["metadata"]["uid"] != self._deleted[resource]

        return await self.until(is_another, patience)

    def observer(self):
        """Judge every version so far."""
        observer = Observer()
        for version, (resource, obj) in sorted(self._versions.items()):
            observer.see(resource, obj, ours=version not in self.theirs)
        return observer

    async def events(self, reason, name=NAME):
        """The events about an object with a reason."""
        selector = f"involvedObject.name={name},reason={reason}"
        page = await self._client.list(CORE_EVENTS, field_selector=selector)
        return [msgspec.json.decode(item) for item in page.items]

    async def until_note(self, reason, text, name=NAME):
        """Wait for an event with this text in it; return the whole text."""
        return (await self._until_event(reason, name, lambda event: text in event["message"]))[
            "message"
        ]

    async def until_counted(self, reason, text, count, name=NAME):
        """Wait for such an event that stands for ``count``."""

        def counts(event):
            return text in event["message"] and (event.get("series") or {}).get("count") == count

        await self._until_event(reason, name, counts)

    async def _until_event(self, reason, name, is_right):
        async with asyncio.timeout(PATIENCE):
            while True:
                for event in await self.events(reason, name):
                    if is_right(event):
                        return event
                await asyncio.sleep(0.05)
