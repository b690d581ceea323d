"""A control plane with Harbourmaster in it, shared by all flows."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
import uuid

import msgspec

from harbourmaster.api.resources import KEPTN_CONFIGS
from helpers.flow.namespace import Flow
from helpers.patience import PATIENCE

HOME = "harbourmaster-system"
CONFIG = "flows"
FLAGS = ("--certificates-publish-seconds=0",)
"""A new authority is otherwise made known for 30 s before anything is signed by it."""
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
    """What flows share; faults and crashes are counted from one look to the next."""

    def __init__(self, plane, installation):
        self.plane = plane
        self.installation = installation
        self._read = {}
        self._flags = ()

    def flow(self, client, stem, **options):
        """A flow in a namespace of its own."""
        stem = re.sub("[^a-z0-9]+", "-", stem.lower())[:40].strip("-")
        return Flow(client, f"{stem}-{uuid.uuid4().hex[:8]}", **options)

    def use(self, flags):
        """Let the controller run with these further flags; it is started anew for others only."""
        if flags != self._flags:
            self.installation.restart("controller", (*FLAGS, *flags))
            self._flags = flags

    @contextlib.asynccontextmanager
    async def configured(self, client, **spec):
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
        events = client.watch(
            KEPTN_CONFIGS,
            HOME,
            resource_version=stored["metadata"]["resourceVersion"],
            timeout_seconds=int(PATIENCE),
            idle_timeout=PATIENCE,
        )
        async with contextlib.aclosing(events):
            async for event in events:
                found = msgspec.json.decode(event.object)
                if str(found.get("status", "")).startswith("in force"):
                    return
        raise AssertionError("the KeptnConfig is not in force")

    def metrics(self, name="controller"):
        """The samples of a process, by name with labels."""
        url = f"{self.installation.workloads[name].health}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310
            lines = answer.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {sample: float(value) for sample, _, value in samples}

    def restarts(self):
        """How often any controller crashed since its process began."""
        name = "harbourmaster_controller_restarts_total"
        return sum(value for key, value in self.metrics().items() if key.startswith(name))

    def new_faults(self):
        """What the processes logged as an error since the last time."""
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
