"""Applications of one namespace while a real controller process places and deploys them."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    APPLICATIONS,
    CLUSTERS,
    EVENTS,
    GLOBAL_METRICS,
    GLOBAL_PROVIDERS,
    NAMESPACES,
)
from harbourmaster.controller.placement.context import DeploymentCaches
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.serving.background import running
from helpers.cluster import fresh_namespace
from helpers.placed import Placed
from helpers.processes import Controller, client_of

FLAGS = (
    "--controllers=metrics,placement",
    "--placement-enabled=true",
    "--metrics-allowed-addresses=127.0.0.0/8",
    "--placement-sample-interval-seconds=0.5",
    "--placement-reschedule-after=4",
    "--placement-members-probe-interval-seconds=0.5",
    "--placement-members-request-timeout-seconds=2",
    "--placement-members-allowed-addresses=127.0.0.0/8,::1",
    "--leader-election-lease-duration-seconds=3",
    "--leader-election-renew-deadline-seconds=2",
    "--leader-election-retry-period-seconds=1",
)


@contextlib.asynccontextmanager
async def flow_in(plane, name):
    """A Flow in a fresh namespace of a name like this; nothing of it is left.

    Nobody may be there to take our finalizers away.
    """
    namespace = fresh_namespace(plane.kubectl, name)
    async with client_of(plane.kubeconfig) as client:
        flow = Flow(client, namespace, plane.kubeconfig)
        yield flow
        await flow.clear()
        unheld = MergePatch({"metadata": {"finalizers": None}})
        for resource in (APPLICATIONS, CLUSTERS):
            for raw in (await client.list(resource, namespace)).items:
                name = msgspec.json.decode(raw)["metadata"]["name"]
                await client.patch(resource, name, unheld, namespace)
        await client.delete(NAMESPACES, namespace)


class Flow(Placed):
    """``placing`` runs the controller; tests wait for what their own caches show."""

    def __init__(self, client, namespace, kubeconfig):
        super().__init__(client, namespace)
        self._kubeconfig = kubeconfig
        self._everywhere = []
        self.process = None

    @contextlib.asynccontextmanager
    async def watching(self):
        """Follow applications and clusters."""
        caches = DeploymentCaches(self.client)
        self.deployment = SimpleNamespace(caches=caches)
        for mirror in caches.reflectors:
            mirror.subscribe(self.changes.tell)
        async with running(*(reflector.run() for reflector in caches.reflectors)):
            yield self
        await asyncio.sleep(0.1)

    @contextlib.asynccontextmanager
    async def placing(self, *flags):
        """Run the controller, which leads: applications from now on need no confirmation."""
        self.process = await asyncio.to_thread(
            Controller, self._kubeconfig, self.namespace, *FLAGS, *flags
        )
        try:
            await asyncio.to_thread(self.process.await_event, "became leader")
            yield self.process
        except BaseException:
            # For who looks into a failure.
            print("".join(self.process.lines))  # noqa: T201
            raise
        finally:
            await asyncio.to_thread(self.process.stop)
        # What uvloop says of closed connections is no fault of ours.
        faults = [line for line in self.process.errors if "Fatal error on SSL" not in line]
        assert faults == []

    async def make(self, resource, name, spec=None, *, labels=None):
        """Create an object of any kind; ``clear`` deletes one without a namespace."""
        metadata = {"name": name, "labels": labels or {}}
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        if resource.namespaced:
            metadata["namespace"] = self.namespace
        else:
            self._everywhere.append((resource, name))
        obj = {**kind, "metadata": metadata, "spec": spec or {}}
        await self.client.create(resource, obj, metadata.get("namespace"))

    async def change(self, resource, name, value):
        """Change an object of the namespace as a user would."""
        await self.client.patch(resource, name, MergePatch(value), self.namespace)

    async def clear(self):
        """Delete what is in no namespace."""
        for resource, name in self._everywhere:
            with contextlib.suppress(NotFoundError):
                await self.client.delete(resource, name)

    async def prometheus(self, scraped, **values):
        """A provider of everywhere, and metrics from 0 to 1 with these values."""
        name = f"{self.namespace}-prometheus"
        await self.make(
            GLOBAL_PROVIDERS, name, {"type": "prometheus", "prometheus": {"url": scraped.url}}
        )
        for metric, value in values.items():
            await asyncio.to_thread(scraped.set, self.query(metric), value)
            source = {"name": name, "metric": self.query(metric)}
            spec = {"min": 0, "max": 1, "provider": source}
            await self.make(GLOBAL_METRICS, self.metric_name(metric), spec)

    async def reasons(self):
        """Those of all events of the namespace."""
        page = await self.client.list(EVENTS, self.namespace)
        return {msgspec.json.decode(item)["reason"] for item in page.items}

    def why(self, name="app"):
        """The arguments by which people ask why it is where it is."""
        where = f"{self.namespace}/{name}"
        return ["placement", "why", where, f"--kubeconfig={self._kubeconfig}"]

    def query(self, metric):
        """The query of Prometheus for a metric."""
        return f"{metric}_{self.namespace.replace('-', '_')}"

    def metric_name(self, metric):
        return f"{metric}-{self.namespace.rpartition('-')[2]}"

    def weights(self, **weights):
        """References to metrics of everywhere."""
        return [
            {"name": self.metric_name(name), "weight": weight, "scope": "Global"}
            for name, weight in weights.items()
        ]
