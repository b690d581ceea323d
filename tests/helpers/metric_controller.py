"""A reconciler of KeptnMetrics, whose clock the test advances and whose queries it answers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry

from harbourmaster.api.resources import KEPTN_METRICS, METRICS_PROVIDERS
from harbourmaster.controller.evaluation.caches import MetricCaches, MetricContext
from harbourmaster.controller.evaluation.collectors import create_lateness
from harbourmaster.controller.evaluation.metric_reconciler import MetricReconciler
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.evaluation.model import Metric, Provider
from harbourmaster.evaluation.schedule import slots, stable_hash
from harbourmaster.providers.model import Answer, Sample
from helpers.stored import sync

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAME = "prometheus"


def answer(*values, shown=None, raw=None):
    text = str(values[0]) if shown is None else shown
    samples = tuple(Sample(START.timestamp() + time, value) for time, value in enumerate(values))
    return Answer(text, samples, f'"{text}"'.encode() if raw is None else raw)


class ScriptedQueries:
    """Replaces QueryService: answers by query are given, raised, or waited for."""

    def __init__(self):
        self.answers = {}
        self.asked = []

    async def ask(self, provider, question):
        self.asked.append((provider.metadata.name, question))
        result = self.answers.get(question.query, answer(4))
        if isinstance(result, asyncio.Future):
            result = await result
        if isinstance(result, Exception):
            raise result
        return result


class MetricEnvironment:
    """A reconciler and its API server, whose clock only the test advances."""

    def __init__(self, api, client, events):
        self.api = api
        self.client = client
        self.events = events
        self.now = START
        self.queries = ScriptedQueries()
        self.registry = CollectorRegistry()
        self.lateness = create_lateness(self.registry)
        self.restart()

    def restart(self):
        """Replace the reconciler and its caches, as a new process does."""
        self.caches = MetricCaches(self.client)
        self.woken = []
        context = MetricContext(
            client=self.client,
            caches=self.caches,
            settings=MetricsSettings(),
            queries=self.queries,
            events=self.events,
            now=lambda: self.now,
            lateness=self.lateness,
        )
        self.metrics = MetricReconciler(context, self.woken.append)
        self.sync()

    def sync(self):
        """Fill the caches with the stored objects."""
        sync(
            self.api,
            (self.caches.metrics, KEPTN_METRICS, Metric),
            (self.caches.providers, METRICS_PROVIDERS, Provider),
        )

    def put_provider(self, name=NAME, namespace="prod", server="http://prometheus.example.com"):
        metadata = {"name": name, "namespace": namespace}
        spec = {"type": "prometheus", "targetServer": server}
        self.api.put(METRICS_PROVIDERS, {"metadata": metadata, "spec": spec})

    def put_metric(self, name="cpus", *, status=None, labels=None, namespace="prod", **spec):
        metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
        spec = {"provider": {"name": NAME}, "query": "cpus", "fetchIntervalSeconds": 60, **spec}
        obj = {"metadata": metadata, "spec": spec}
        if status is None and (namespace, name) in self.api.objects.all(KEPTN_METRICS):
            status = self.api.get(KEPTN_METRICS, name, namespace).get("status")
        self.api.put(KEPTN_METRICS, obj if status is None else {**obj, "status": status})

    def edit(self, name="cpus", **spec):
        obj = self.api.get(KEPTN_METRICS, name, "prod")
        metadata = {"name": name, "namespace": "prod"}
        self.api.put(KEPTN_METRICS, {**obj, "metadata": metadata, "spec": {**obj["spec"], **spec}})

    async def reconcile(self, seconds=0.0, name="cpus"):
        """Reconcile so many seconds later, and take answers; return the requeue time."""
        self.now += timedelta(seconds=seconds)
        self.sync()
        list(self.metrics.map_changes(None))
        key = f"prod/{name}"
        wait = await self.metrics.reconcile(key)
        return await self.take_answers(name) if wait is None else wait

    async def take_answers(self, name="cpus"):
        """Let queries end, and write their answers; return the requeue time."""
        await settle()
        wait = None
        while (key := f"prod/{name}") in self.woken:
            self.woken.remove(key)
            wait = await self.metrics.reconcile(key)
            self.sync()
            list(self.metrics.map_changes([key]))
        return wait

    def status(self, name="cpus"):
        return self.api.get(KEPTN_METRICS, name, "prod").get("status", {})

    @property
    def writes(self):
        return len([request for request in self.api.requests if request.verb == "patch"])

    @property
    def query_count(self):
        return len(self.queries.asked)

    def sample(self, name):
        return self.registry.get_sample_value(name)


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


def cpus(interval=60.0, question=("prod/prometheus", "cpus", "", ""), name="cpus", count=1):
    """Return the slots of a metric of the environment."""
    return slots(interval, stable_hash(*question), stable_hash(f"prod/{name}"), count)
