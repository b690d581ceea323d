"""The reconcilers that decide, on objects in memory: a client and a clock that a test moves."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from harbourmaster.api.resources import (
    APPLICATIONS,
    CLUSTERS,
    GLOBAL_METRICS,
    GLOBAL_PROVIDERS,
    MAGNUM_CLUSTERS,
)
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.evaluation.query_service import QueryService
from harbourmaster.controller.placement.controller import PlacementController
from harbourmaster.controller.placement.scheduler import CloudScheduler, ProjectScheduler
from harbourmaster.controller.placement.settings import PlacementSettings
from harbourmaster.controller.placement.snapshots import SampleReconciler
from harbourmaster.controller.runtime import Runtime
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.errors import ConflictError, NotFoundError
from harbourmaster.providers.model import Answer, Sample
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.fake_store import merge_patch
from helpers.namespaces import Events
from helpers.placing import NOW

NAMESPACE = "ns"
HOME = "harbourmaster-system"


class Answering(QueryService):
    """Providers that answer what a test says: numbers, errors, or never."""

    def __init__(self):
        self.values = {}
        self.asked = []
        self.hanging = 0

    async def ask(self, provider, question):
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
        if question.by_label:
            return Answer("", (), by_label=value)
        return Answer(str(value), (Sample(0.0, value),))


class PlacementEnv:
    """A management cluster in memory. While ``is_late``, no watch brings what was written."""

    def __init__(self, **settings):
        self.time = 0.0
        self.objects = {}
        self.writes = []
        self.faults = {}
        self.is_late = False
        self.answers = Answering()
        self.events = Events(lambda: None)
        self.connection = None
        self.settings = PlacementSettings(**settings)
        self.metrics = create_controller_metrics("0", ["placement"])
        runtime = Runtime(
            ControllerSettings(placement=self.settings),
            self,
            HOME,
            events=self.events,
            metrics=self.metrics,
            now=lambda: NOW + timedelta(seconds=self.time),
            clock=lambda: self.time,
        )
        self.controller = PlacementController(runtime, self.answers, self.lifecycle())
        self.caches = self.controller.caches
        self.begin()

    def lifecycle(self):
        """The caches of the controllers of gates, which do not run here."""
        return {}

    def begin(self):
        """A term of leadership, which remembers nothing."""
        controller = self.controller
        self.woken = []
        self.told = []
        self.sampler = SampleReconciler(
            controller._samples,
            self.answers,
            home=HOME,
            interval=self.settings.sample_interval_seconds,
            wake=self.woken.append,
            tell=self._tell,
        )
        self.schedulers = {
            APPLICATIONS: controller._start_scheduler(None),
            CLUSTERS: CloudScheduler(controller._context),
            MAGNUM_CLUSTERS: ProjectScheduler(controller._context),
        }

    def _tell(self, namespaces):
        self.told.append(namespaces)
        self.controller._wake_users(namespaces)

    # What is there

    def put(self, resource, name, spec=None, *, status=None, labels=None, **metadata):
        namespace = {"namespace": NAMESPACE} if resource.namespaced else {}
        self._store(
            resource,
            name,
            {
                "metadata": {
                    "name": name,
                    "uid": f"uid-{name}",
                    "generation": 1,
                    "labels": labels or {},
                    **namespace,
                    **metadata,
                },
                "spec": spec or {},
                "status": status or {},
            },
        )

    def add_cluster(self, name, *, status=None, labels=None, **spec):
        spec = {"kubeconfigSecretRef": {"name": name}, **spec}
        self.put(CLUSTERS, name, spec, status=status or {"state": "Online"}, labels=labels)

    def add_application(
        self, name="app", *, on="", since=3600, backoff=None, migration=True, **cluster
    ):
        """An application, which came there so many seconds ago."""
        constraints = {"migration": migration, "cluster": cluster}
        spec = {"constraints": constraints, **({"backoff": backoff} if backoff else {})}
        status = {}
        if on:
            placed = NOW + timedelta(seconds=self.time - since)
            condition = {"type": "Scheduled", "status": "True", "reason": "Scheduled"}
            message = {"message": f"it is placed on '{on}'", "observedGeneration": 1}
            status = {
                "phase": "Running",
                "scheduledTo": {"name": on, "uid": f"uid-{on}"},
                "scheduledTime": format_rfc3339(placed),
                "scheduledGeneration": 1,
                "conditions": [
                    {**condition, **message, "lastTransitionTime": format_rfc3339(placed)}
                ],
            }
        self.put(APPLICATIONS, name, spec, status=status)

    def static(self, **values):
        """A provider of everywhere whose values stand in it, and metrics from 0 to 1."""
        self.put(GLOBAL_PROVIDERS, "static", {"type": "static", "static": {"metrics": values}})
        for name in values:
            self.metric(name, "static")

    def metric(self, name, provider, query="", by_label=""):
        source = {"name": provider, "metric": query or name, "byLabel": by_label}
        self.put(GLOBAL_METRICS, name, {"min": 0, "max": 1, "provider": source})

    def prometheus(self, name="prom", **more):
        spec = {"type": "prometheus", "prometheus": {"url": f"http://{name}.example.com", **more}}
        self.put(GLOBAL_PROVIDERS, name, spec)

    def change(self, resource, name, **spec):
        """Change the spec as a user would."""
        stored = self.objects[resource, name]
        metadata = {**stored["metadata"], "generation": stored["metadata"]["generation"] + 1}
        self._store(resource, name, {**merge_patch(stored, {"spec": spec}), "metadata": metadata})

    def remove(self, resource, name):
        del self.objects[resource, name]
        self._mirror(resource).store.remove(self._key(resource, name))
        self.controller._snapshots.outdate()

    def fetch(self, name="app", resource=APPLICATIONS):
        return self.objects[resource, name]

    def status(self, name="app", resource=APPLICATIONS):
        return self.fetch(name, resource)["status"]

    def on(self, name="app"):
        return self.status(name).get("scheduledTo", {}).get("name", "")

    def condition(self, kind="Scheduled", name="app", resource=APPLICATIONS):
        conditions = self.status(name, resource).get("conditions", ())
        return next((condition for condition in conditions if condition["type"] == kind), {})

    # What happens

    async def reconcile(self, name="app", resource=APPLICATIONS):
        """Reconcile one object; the seconds until the next look."""
        return await self.schedulers[resource].reconcile(f"{NAMESPACE}/{name}")

    async def sample(self):
        """Have asked what is due, and let answer who answers."""
        keys = [*self.sampler.map_changes(None), *self.sampler._queries]
        waits = [await self.sampler.reconcile(key) for key in dict.fromkeys(keys)]
        for _ in range(3):
            await asyncio.sleep(0)
        for key in dict.fromkeys(self.woken):
            await self.sampler.reconcile(key)
        self.woken.clear()
        return waits

    def catch_up(self):
        """Let the watches bring everything."""
        self.is_late = False
        for resource, name in self.objects:
            self._show(resource, name)

    # What the reconcilers have for a client

    async def patch(self, resource, name, patch, _namespace=None, *, subresource=None):
        value = msgspec.json.decode(patch.encode())
        if fault := self.faults.get(name):
            raise fault
        obj = self.objects.get((resource, name))
        if obj is None:
            raise NotFoundError(f"{name} not found")
        metadata = value.pop("metadata", {})
        if metadata.pop("resourceVersion") != obj["metadata"]["resourceVersion"]:
            raise ConflictError("another version")
        assert metadata.pop("uid") == obj["metadata"]["uid"]
        assert set(value) <= ({"status"} if subresource else {"spec"})
        self.writes.append((name, value, subresource))
        self._store(resource, name, merge_patch(obj, {**value, "metadata": metadata}))
        return msgspec.json.encode(self.objects[resource, name])

    def _store(self, resource, name, obj):
        version = int(obj["metadata"].get("resourceVersion", "0")) + 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
        self.objects[resource, name] = obj
        if not self.is_late:
            self._show(resource, name)

    def _show(self, resource, name):
        raw = msgspec.json.encode(self.objects[resource, name])
        mirror = self._mirror(resource)
        mirror.store.put(self._key(resource, name), mirror._reader._decode(msgspec.Raw(raw)))
        self.controller._snapshots.outdate()

    def _mirror(self, resource):
        return self.caches.by_resource[resource]

    def _key(self, resource, name):
        return f"{NAMESPACE}/{name}" if resource.namespaced else name


def weights(**values):
    """References to metrics of everywhere."""
    return [{"name": name, "weight": weight, "scope": "Global"} for name, weight in values.items()]
