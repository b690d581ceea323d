"""A control plane with Harbourmaster in it, shared by all flows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import urllib.request
import uuid
from functools import partial

import msgspec

from harbourmaster.api.resources import KEPTN_CONFIGS
from harbourmaster.cli.config_adopt import NAME
from helpers.command import harbourmaster
from helpers.flow.namespace import Flow
from helpers.patience import PATIENCE

HOME = "harbourmaster-system"
CONFIG = "flows"
FLAGS = ("--certificates-publish-seconds=0", "--lifecycle-app-context-delay-seconds=0")
"""A new authority is otherwise made known for 30 s before anything is signed by it, and an app
waits 3 s for its context."""
DEFAULTS = {"keptnAppCreationRequestTimeoutSeconds": 3}
"""An app of several workloads is otherwise waited for 30 s."""


def config(spec):
    """The KeptnConfig that counts."""
    return {
        "apiVersion": KEPTN_CONFIGS.api_version,
        "kind": "KeptnConfig",
        "metadata": {"name": CONFIG, "namespace": HOME},
        "spec": spec,
    }


class Harbour:
    """Installation that flows share; it counts faults and crashes from one look to the next.

    ``stays`` says whether the namespaces of flows outlive them.
    """

    def __init__(self, plane, installation, *, stays=False):
        self.plane = plane
        self.installation = installation
        self._stays = stays
        self._read = {}
        self._flags = ()

    def flow(self, client, stem, **options):
        """A flow in a namespace of its own."""
        stem = re.sub("[^a-z0-9]+", "-", stem.lower())[:40].strip("-")
        return Flow(client, f"{stem}-{uuid.uuid4().hex[:8]}", stays=self._stays, **options)

    def use(self, flags):
        """Let the controller run with these further flags; it restarts only if they differ."""
        if flags != self._flags:
            self.installation.restart("controller", (*FLAGS, *flags))
            self._flags = flags

    @contextlib.asynccontextmanager
    async def use_config(self, client, **spec):
        """Let a KeptnConfig be in force meanwhile."""
        await self.configure(client, {**DEFAULTS, **spec})
        try:
            yield
        finally:
            await self.configure(client, DEFAULTS)

    async def configure(self, client, spec):
        """Replace the KeptnConfig, and wait until the controller says that it is in force."""
        manifest = config(spec)
        await client.delete(KEPTN_CONFIGS, CONFIG, HOME, missing_ok=True)
        stored = msgspec.json.decode(await client.create(KEPTN_CONFIGS, manifest, HOME))
        await self.until_standing(client, stored, "in force")

    @contextlib.asynccontextmanager
    async def adopt_config(self, client, namespace, name):
        """Let an administrator adopt a KeptnConfig meanwhile; ours is not there."""
        await client.delete(KEPTN_CONFIGS, CONFIG, HOME, missing_ok=True)
        command = partial(harbourmaster, kubeconfig=self.plane.kubeconfig)
        try:
            done = await asyncio.to_thread(command, "config", "adopt", f"{namespace}/{name}")
            assert done.returncode == 0, done.stderr
            yield
        finally:
            await client.delete(KEPTN_CONFIGS, NAME, HOME, missing_ok=True)
            await self.configure(client, DEFAULTS)

    async def until_standing(self, client, stored, status):
        """Wait until the status of a KeptnConfig, since it was stored so, begins so; return it."""
        own = stored["metadata"]
        events = client.watch(
            KEPTN_CONFIGS,
            own["namespace"],
            resource_version=own["resourceVersion"],
            timeout_seconds=int(PATIENCE),
            idle_timeout=PATIENCE,
        )
        async with contextlib.aclosing(events):
            async for event in events:
                obj = msgspec.json.decode(event.object)
                told = str(obj.get("status", ""))
                if obj["metadata"]["uid"] == own["uid"] and told.startswith(status):
                    return told
        raise AssertionError(f"the KeptnConfig is not {status}")

    def metrics(self, name="controller"):
        """The samples of a process, by name with labels."""
        url = f"{self.installation.workloads[name].health}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310
            lines = answer.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {sample: float(value) for sample, _, value in samples}

    def restarts(self):
        """The number of crashes of any controller since its process began."""
        name = "harbourmaster_controller_restarts_total"
        return sum(value for key, value in self.metrics().items() if key.startswith(name))

    def new_faults(self):
        """The errors that the processes logged since the last time."""
        return [line for name in self.installation.workloads for line in self._faults(name)]

    def _faults(self, name):
        with self.installation.log(name).open("rb") as file:
            file.seek(self._read.get(name, 0))
            whole, newline, _ = file.read().rpartition(b"\n")
            self._read[name] = self._read.get(name, 0) + len(whole) + len(newline)
        for line in whole.decode().splitlines():
            try:
                level = json.loads(line).get("level", "")
            except ValueError:
                # A trace of Python's own.
                level = "error"
            if level in {"error", "critical"}:
                yield f"{name}: {line}"
