"""Processes of ours, seen from outside: their logs, their metrics, their end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager

import aiohttp
import msgspec

from harbourmaster.api.resources import SECRETS, Resource
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.reflector import Reflector
from helpers.patience import PATIENCE, Changes
from helpers.registration import CONFIGURATIONS, NAME, SECRET, Observer


class Logged:
    """One process that logs JSON; it has logged the event ``ready`` when the construction returns.

    ``lines`` has all that it logged until now, ``first`` the line of that event.
    """

    def __init__(self, command, ready):
        self.lines = []
        self._queue = queue.SimpleQueue()
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        try:
            self.first = self.await_event(ready)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self):
        return self._process.pid

    @property
    def lives(self):
        return self._process.poll() is None

    @property
    def errors(self):
        """The lines that tell of a fault of ours."""
        marks = ('"level":"error"', '"level":"critical"', "Traceback")
        return [line for line in self.lines if any(mark in line for mark in marks)]

    def _read(self):
        for line in self._process.stderr:
            # Recorded first, so that whoever awaits a line finds it here.
            self.lines.append(line)
            self._queue.put(line)
        self._queue.put(None)

    def await_event(self, event, *, patience=PATIENCE, **fields):
        """Return the next log line of the event that has the fields."""
        deadline = time.monotonic() + patience
        while True:
            try:
                line = self._queue.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"no line {event} {fields} in: {''.join(self.lines)}")
            # A process that cannot start says why in plain text.
            obj = json.loads(line) if line.startswith("{") else {"event": ""}
            if obj["event"] == event and fields.items() <= obj.items():
                return obj

    def log_lines(self, event):
        """The lines of the event until now."""
        obj = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [line for line in obj if line["event"] == event]

    def terminate(self):
        """Ask it to stop; the lines until it did are still read."""
        self._process.terminate()

    def stop(self):
        """End it as a cluster does; return the exit code."""
        self.terminate()
        return self.wait()

    def kill(self):
        """End it as a crash does."""
        self._process.kill()
        return self.wait()

    def wait(self):
        """Wait for its end; return the exit code."""
        code = self._process.wait(PATIENCE)
        self._reader.join()
        self._process.stderr.close()
        return code


VALUE_PORTS = ("--metrics-expose-port=0", "--metrics-custom-metrics-port=0")
"""A controller's, of metric values; free ones."""
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{{name: x, context: {{cluster: x, user: x}}}}]
clusters: [{{name: x, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: x, user: {{}}}}]
"""


class Observed:
    """A process that runs."""

    def __init__(self, process):
        self._process = process
        self.lines = []

    async def event(self, name):
        """Wait for a line of its log."""
        while True:
            line = await self._process.stderr.readline()
            assert line, f"no line {name} in {self.lines}"
            self._note(line)
            if self.lines[-1]["event"] == name:
                return self.lines[-1]

    def _note(self, line):
        # A process that cannot start, or ends badly, says why in plain text.
        assert line.startswith(b"{"), f"{line.decode()} after {self.lines}"
        self.lines.append(json.loads(line))

    async def metric(self, health, sample):
        """Wait for a sample of its metrics; return its value."""
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"{health}/metrics") as answer:
                    for line in (await answer.text()).splitlines():
                        if line.startswith(f"{sample} "):
                            return float(line.split()[-1])
                # Nobody tells of a sample that comes.
                await asyncio.sleep(0.02)

    async def end(self):
        """Ask it to stop; return its exit code."""
        self._process.terminate()
        async for line in self._process.stderr:
            self._note(line)
        return await self._process.wait()


@asynccontextmanager
async def observe(module, directory, port, *flags):
    """Run ``python -m harbourmaster.module`` against the API server at a port of this machine."""
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(port=port))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"harbourmaster.{module}",
        f"--kubeconfig={kubeconfig}",
        "--namespace=harbour",
        "--health-port=0",
        *(VALUE_PORTS if module == "controller" else ()),
        "--log-format=json",
        *flags,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "POD_NAME": f"{module}-1"},
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield Observed(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


CORE_EVENTS = Resource("", "v1", "events", "Event")


@contextlib.asynccontextmanager
async def client_of(kubeconfig):
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
