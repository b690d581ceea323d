"""One namespace in which a part of the controller works, on any API server."""

from __future__ import annotations

import base64
import contextlib
from datetime import datetime

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import KEPTN_METRICS, METRICS_PROVIDERS, SECRETS
from harbourmaster.controller.evaluation.controller import MetricsController
from harbourmaster.controller.evaluation.query_service import create_query_service
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.controller.runtime import Runtime
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.serving.background import running
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.patience import Changes


class Events:
    """Replaces the recorder: keeps what would be sent."""

    def __init__(self, on_event):
        self.sent = []
        self._on_event = on_event

    def emit(self, regarding, kind, reason, note, action="", **_options):
        self.sent.append((regarding.namespace, regarding.name, kind, reason, note))
        self._on_event()


class Namespaced:
    """The namespace on any API server; ``changes`` is for the caches of what works there."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self.changes = Changes()
        self.events = Events(self.changes.tell)
        self.until_found = self.changes.until

    async def get(self, resource, name):
        """An object as the API server has it."""
        return msgspec.json.decode(await self.client.get(resource, name, self.namespace))

    async def until_status(self, cache, name, condition):
        """Wait until the status of an object in a cache is so; return the status."""

        def status():
            cached = cache.store.get(f"{self.namespace}/{name}")
            return cached is not None and condition(cached.status) and cached.status

        return await self.until_found(status)

    def reasons_of(self, name):
        """The reasons of the events of an object."""
        sent = self.events.sent
        return [reason for *where, _, reason, _ in sent if where == [self.namespace, name]]

    async def _create(self, resource, name, spec):
        obj = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        await self.client.create(resource, obj, self.namespace)


LOOPBACK = ("127.0.0.0/8", "::1/128")


class MetricsNamespace(Namespaced):
    """A namespace of metrics; ``control`` runs a controller, which may be done again."""

    def __init__(self, client, namespace):
        super().__init__(client, namespace)
        self.controller = None
        self.metrics = None

    @contextlib.asynccontextmanager
    async def control(self, **settings):
        """Run the controller, as the leader."""
        settings = {"allowed_addresses": LOOPBACK, **settings}
        self.metrics = create_controller_metrics("0", ["metrics", "analyses"])
        runtime = Runtime(
            ControllerSettings(metrics=MetricsSettings(**settings)),
            self.client,
            self.namespace,
            events=self.events,
            metrics=self.metrics,
        )
        queries, keep_open = create_query_service(
            self.client, runtime.settings.metrics, self.metrics.registry
        )
        self.controller = MetricsController(runtime, queries)
        caches = self.controller.caches
        for mirror in (caches.metrics, caches.providers, caches.analyses):
            mirror.subscribe(self.changes.tell)
        mirrors = [reflector.run() for reflector in caches.reflectors]
        leading = [job.lead() for job in self.controller.controllers]
        async with running(keep_open(), *mirrors, *leading):
            yield self.controller

    async def provider(self, server="", *, name="prometheus", kind="prometheus", **spec):
        """Create a provider."""
        target = {"targetServer": server} if server else {}
        await self._create(METRICS_PROVIDERS, name, {"type": kind, **target, **spec})
        if self.controller is not None:
            # Two watches keep no order: a metric must not come before its provider.
            store = self.controller.caches.providers.store
            await self.until_found(lambda: f"{self.namespace}/{name}" in store)

    async def metric(self, query="cpus", *, name="cpus", provider="prometheus", **spec):
        """Create a metric that is fetched every hour, if nothing else is said."""
        defaults = {"provider": {"name": provider}, "query": query, "fetchIntervalSeconds": 3600}
        await self._create(KEPTN_METRICS, name, {**defaults, **spec})

    async def secret(self, name="login", **values):
        """Create or replace a Secret."""
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        await self.client.delete(SECRETS, name, self.namespace, missing_ok=True)
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        await self.client.create(SECRETS, obj, self.namespace)

    async def edit(self, resource=KEPTN_METRICS, name="cpus", **value):
        """Change an object as another client does."""
        await self.client.patch(resource, name, MergePatch(value), self.namespace)

    async def stored_metric(self, name="cpus"):
        """Return the metric that the API server has."""
        return await self.get(KEPTN_METRICS, name)

    async def until(self, condition, name="cpus"):
        """Wait until the status of a metric is so, in the controller's cache; return it."""
        return await self.until_status(self.controller.caches.metrics, name, condition)

    async def until_told(self, *reasons, name="cpus"):
        """Wait until the events of a metric are these, and nothing else."""
        await self.until_found(lambda: self.reasons_of(name) == [*reasons])

    async def until_value(self, value, name="cpus"):
        """Wait for a value."""
        return await self.until(lambda status: status.value == value, name)

    async def until_fault(self, text="", name="cpus"):
        """Wait for a fault that says so; return all of it."""
        value = await self.until(lambda status: status.err_msg and text in status.err_msg, name)
        return value.err_msg


def moment(stamp):
    """The time of a stamp, in seconds since 1970."""
    return datetime.fromisoformat(stamp).timestamp()
