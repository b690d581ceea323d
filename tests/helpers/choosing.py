"""Applications and clusters of one namespace, and the part of placement that decides about them.

Nobody reaches a cluster: how it stands is for the test to say.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    APPLICATIONS,
    CLOUDS,
    CLUSTERS,
    GLOBAL_CLOUDS,
    GLOBAL_METRICS,
    GLOBAL_PROVIDERS,
    MAGNUM_CLUSTERS,
    PLACEMENT_METRICS,
    PLACEMENT_PROVIDERS,
    PROJECTS,
)
from harbourmaster.controller.evaluation.questions import Questions
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.controller.parts import Process
from harbourmaster.controller.placement.controller import PlacementController
from harbourmaster.controller.placement.settings import PlacementSettings
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.serving.background import running
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.metrics_namespace import LOOPBACK
from helpers.placed import Placed

QUICK = {"sample_interval_seconds": 0.3, "sample_max_age_seconds": 5.0, "reschedule_after": 2.0}
GLOBAL = (GLOBAL_PROVIDERS, GLOBAL_METRICS, GLOBAL_CLOUDS)
HOME = "harbourmaster-system"
ONLINE = {"state": "Online"}
MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held"}}


class Choosing(Placed):
    """A namespace; ``deciding`` runs what decides, which may be done again."""

    def __init__(self, client, namespace):
        super().__init__(client, namespace)
        self.controller = None
        self._everywhere = []

    @contextlib.asynccontextmanager
    async def deciding(self, *, asking=None, now=None, clock=None, **settings):
        """Run what decides, as the leader."""
        clocks = {name: one for name, one in (("now", now), ("clock", clock)) if one is not None}
        process = Process(
            ControllerSettings(
                metrics=MetricsSettings(allowed_addresses=LOOPBACK),
                placement=PlacementSettings(**{**QUICK, **settings}),
            ),
            self.client,
            HOME,
            events=self.events,
            metrics=create_controller_metrics("0", ["placement"]),
            **clocks,
        )
        if asking is not None:
            process.questions = asking
        self.controller = PlacementController(process)
        caches = self.controller.caches
        self.deployment = SimpleNamespace(caches=caches)
        for mirror in caches.by_resource.values():
            mirror.subscribe(lambda _keys: self._moved.set())
        mirrors = [each.run() for each in caches.reflectors]
        leading = [job.lead() for job in self.controller.deciding]
        shared = [run() for run in process.background]
        async with running(*shared, *mirrors, *leading):
            yield self.controller
        # TLS connections whose requests were cancelled end a moment after their clients.
        await asyncio.sleep(0.1)

    async def make(self, resource, name, spec=None, *, labels=None, status=None):
        """Any object; one without a namespace goes with ``clear``."""
        metadata = {"name": name, "labels": labels or {}}
        namespace = None
        if resource in GLOBAL:
            self._everywhere.append((resource, name))
        else:
            namespace = metadata["namespace"] = self.namespace
        obj = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "spec": spec or {},
        }
        await self.client.create(resource, obj, namespace)
        if status is not None:
            await self.tell(name, resource=resource, **status)

    async def berth(self, name, *, labels=None, status=ONLINE, **spec):
        """A cluster that stands so."""
        spec = {"kubeconfigSecretRef": {"name": name}, **spec}
        await self.make(CLUSTERS, name, spec, labels=labels, status=status)

    async def tell(self, name, resource=CLUSTERS, **status):
        """Say how something stands."""
        patch = MergePatch({"status": status})
        await self.client.patch(resource, name, patch, self.namespace, subresource="status")

    async def ship(self, name="app", *, migration=True, backoff=None, **cluster):
        """An application with constraints."""
        constraints = {"migration": migration, "cluster": cluster}
        spec = {"manifests": [MANIFEST], "constraints": constraints}
        if backoff is not None:
            spec["backoff"] = backoff
        await self.make(APPLICATIONS, name, spec)

    async def static(self, name="static", **values):
        """A provider whose values stand in it, and a metric from 0 to 1 for each."""
        await self.make(
            PLACEMENT_PROVIDERS, name, {"type": "static", "static": {"metrics": values}}
        )
        for metric in values:
            await self.metric(metric, name)

    async def metric(self, name, provider, query=None, low=0, high=1):
        source = {"name": provider, "metric": query or name}
        spec = {"min": low, "max": high, "provider": source}
        await self.make(PLACEMENT_METRICS, name, spec)

    async def change(self, resource, name, value):
        """As a user would."""
        namespace = None if resource in GLOBAL else self.namespace
        await self.client.patch(resource, name, MergePatch(value), namespace)

    async def value(self, metric, value, provider="static"):
        """Another value of a static provider."""
        spec = {"static": {"metrics": {metric: value}}}
        await self.change(PLACEMENT_PROVIDERS, provider, {"spec": spec})

    async def until_placed(self, cluster, name="app"):
        """Wait until it is to be there, in the generation of now."""
        generation = (await self.stored(name))["metadata"]["generation"]
        return await self.until(
            lambda status: (
                status.scheduled_to is not None
                and status.scheduled_to.name == cluster
                and status.scheduled_generation == generation
            ),
            name,
        )

    async def until_told(self, *reasons, name="app"):
        """Wait until exactly that was told of it, in that order."""
        await self.until_found(lambda: len(self.told(name)) >= len(reasons))
        assert self.told(name) == list(reasons)

    async def clear(self):
        """Take away what is in no namespace."""
        for resource, name in self._everywhere:
            with contextlib.suppress(NotFoundError):
                await self.client.delete(resource, name)


def refs(**weights):
    """References to metrics of the namespace."""
    return [
        {"name": name, "weight": weight, "scope": "Namespaced"} for name, weight in weights.items()
    ]


ALL = (CLUSTERS, CLOUDS, PROJECTS, MAGNUM_CLUSTERS)


class Answering(Questions):
    """Providers that answer what a test says: numbers, errors, or never."""

    def __init__(self):
        self.values = {}
        self.asked = []
        self.hanging = 0

    async def ask(self, provider, question, shared=None):
        from harbourmaster.providers.model import Answer, Sample  # noqa: PLC0415

        self.asked.append((provider.metadata.name, question.query))
        value = self.values.get((provider.metadata.name, question.query))
        if value is None:
            self.hanging += 1
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.hanging -= 1
        if isinstance(value, Exception):
            raise value
        return Answer(str(value), (Sample(0.0, value),))
