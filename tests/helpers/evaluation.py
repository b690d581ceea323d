"""Reconcilers of analyses and of KeptnMetrics, whose clock and whose queries the test controls."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import msgspec
from prometheus_client import CollectorRegistry

from harbourmaster.api.references import ALLOW_FROM
from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_DEFINITIONS,
    ANALYSIS_VALUE_TEMPLATES,
    KEPTN_METRICS,
    METRICS_PROVIDERS,
)
from harbourmaster.controller.evaluation.analysis_reconciler import AnalysisReconciler
from harbourmaster.controller.evaluation.caches import MetricCaches, MetricContext
from harbourmaster.controller.evaluation.collectors import create_lateness
from harbourmaster.controller.evaluation.metric_reconciler import MetricReconciler
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.evaluation.model import (
    Analysis,
    AnalysisDefinition,
    AnalysisValueTemplate,
    Metric,
    Provider,
)
from harbourmaster.evaluation.schedule import slots, stable_hash
from harbourmaster.providers.model import Answer, Sample


def sync(api, *caches):
    """Bring caches, each with its resource and the class of its objects, to what is stored."""
    for cache, resource, kind in caches:
        cache.store.replace_all(
            {
                f"{namespace}/{name}": msgspec.convert(obj, kind)
                for (namespace, name), obj in api.objects.all(resource).items()
            }
        )


START = datetime(2026, 3, 1, 12, tzinfo=UTC)
END = START.timestamp()
FROZEN = {"from": "2026-03-01T11:55:00Z", "to": "2026-03-01T12:00:00Z"}


def answer_at(value, time=END - 300):
    return Answer(value, (Sample(time, float(value)),))


class ScriptedQueries:
    """Replaces QueryService: ``answers`` by query, and the questions that were ``asked``.

    An answer is a value, an error, or a future; a list has one of them for each time. ``default``
    answers every other query.
    """

    def __init__(self, default=None):
        self.answers = {}
        self.default = default
        self.asked = []
        self.providers = []

    async def ask(self, provider, question):
        self.providers.append(provider.metadata.key)
        self.asked.append((provider.metadata.name, question))
        result = self.answers.get(question.query, self.default)
        assert result is not None, question
        if isinstance(result, list):
            result = result.pop(0)
        if isinstance(result, asyncio.Future):
            result = await result
        if isinstance(result, Exception):
            raise result
        return result if isinstance(result, Answer) else answer_at(result)

    @property
    def texts(self):
        return [question.query for _, question in self.asked]


class Environment:
    """An API server and scripted queries of a reconciler, whose clock only the test advances."""

    def __init__(self, api, client, events, default=None):
        self.api = api
        self.client = client
        self.events = events
        self.now = START
        self.queries = ScriptedQueries(default)
        self.restart()

    def new_context(self, **options):
        """Return the context of a new process, whose caches are empty."""
        self.caches = MetricCaches(self.client)
        return MetricContext(
            client=self.client,
            caches=self.caches,
            settings=MetricsSettings(),
            queries=self.queries,
            events=self.events,
            now=lambda: self.now,
            **options,
        )

    def put_provider(
        self,
        name="prom",
        namespace="prod",
        *,
        kind="prometheus",
        server="http://prom",
        allow=None,
    ):
        spec = {"type": kind, "targetServer": server}
        metadata = {"name": name, "namespace": namespace, **allowing(allow)}
        self.api.put(METRICS_PROVIDERS, {"metadata": metadata, "spec": spec})

    @property
    def writes(self):
        return len([request for request in self.api.requests if request.verb == "patch"])


class AnalysisEnvironment(Environment):
    """A reconciler of analyses and its API server."""

    references = "ProvidersNeedConsent"

    def restart(self):
        """Replace the reconciler and its caches, as a new process does."""
        self.woken = asyncio.Event()
        self.analyses = AnalysisReconciler(
            self.new_context(references=self.references), lambda _key: self.woken.set()
        )
        self.sync()

    def sync(self):
        """Fill the caches with the stored objects."""
        sync(
            self.api,
            (self.caches.analyses, ANALYSES, Analysis),
            (self.caches.definitions, ANALYSIS_DEFINITIONS, AnalysisDefinition),
            (self.caches.templates, ANALYSIS_VALUE_TEMPLATES, AnalysisValueTemplate),
            (self.caches.providers, METRICS_PROVIDERS, Provider),
        )

    def put_analysis(self, *, timeframe=None, status=None, definition=None, **args):
        obj = {
            "metadata": {"name": "release", "namespace": "prod"},
            "spec": {
                "timeframe": timeframe or {"recent": "5m"},
                "analysisDefinition": definition or {"name": "checks"},
                "args": args,
            },
        }
        self.api.put(ANALYSES, obj if status is None else {**obj, "status": status})

    def put_definition(self, *objectives, namespace="prod", passing=90, allow=None):
        """Take objectives as the name of a template, its namespace, and fields."""
        spec = {
            "objectives": [
                {"analysisValueTemplateRef": {"name": name, **place}, **fields}
                for name, place, fields in objectives
            ],
            "totalScore": {"passPercentage": passing, "warningPercentage": 50},
        }
        metadata = {"name": "checks", "namespace": namespace, **allowing(allow)}
        self.api.put(ANALYSIS_DEFINITIONS, {"metadata": metadata, "spec": spec})

    def put_template(self, name, query=None, namespace="prod", provider=None, allow=None):
        spec = {"provider": provider or {"name": "prom"}, "query": query or name}
        metadata = {"name": name, "namespace": namespace, **allowing(allow)}
        self.api.put(ANALYSIS_VALUE_TEMPLATES, {"metadata": metadata, "spec": spec})

    async def reconcile(self, seconds=0.0):
        """Reconcile so many seconds later, with up-to-date caches."""
        self.now += timedelta(seconds=seconds)
        self.sync()
        return await self.analyses.reconcile("prod/release")

    async def settle(self, seconds=0.0):
        """Reconcile until the status stays the same, and return the last requeue time."""
        self.woken.clear()
        await self.reconcile(seconds)
        while True:
            before = self.state()
            if self.is_asking:
                await self.woken.wait()
                self.woken.clear()
            wait = await self.reconcile()
            if not self.is_asking and self.state() == before:
                return wait

    @property
    def is_asking(self):
        run = self.analyses._runs.get("prod/release")
        return run is not None and bool(run.running)

    def state(self):
        return json.dumps(self.status)

    @property
    def status(self):
        return self.api.get(ANALYSES, "release", "prod").get("status")


def allowing(namespaces):
    """Return the annotation of an object that consents to references from these namespaces."""
    return {"annotations": {ALLOW_FROM: namespaces}} if namespaces else {}


def objective(name, weight=1, **target):
    return (name, {}, {"target": target, "weight": weight})


NAME = "prometheus"


def answer(*values, shown=None, raw=None):
    text = str(values[0]) if shown is None else shown
    samples = tuple(Sample(START.timestamp() + time, value) for time, value in enumerate(values))
    return Answer(text, samples, f'"{text}"'.encode() if raw is None else raw)


class MetricEnvironment(Environment):
    """A reconciler of metrics and its API server."""

    def __init__(self, api, client, events):
        self.registry = CollectorRegistry()
        self.lateness = create_lateness(self.registry)
        super().__init__(api, client, events, answer(4))

    def restart(self):
        """Replace the reconciler and its caches, as a new process does."""
        self.woken = []
        context = self.new_context(lateness=self.lateness)
        self.metrics = MetricReconciler(context, self.woken.append)
        self.sync()

    def sync(self):
        """Fill the caches with the stored objects."""
        sync(
            self.api,
            (self.caches.metrics, KEPTN_METRICS, Metric),
            (self.caches.providers, METRICS_PROVIDERS, Provider),
        )

    def put_provider(self, name=NAME, namespace="prod", **options):
        options.setdefault("server", "http://prometheus.example.com")
        super().put_provider(name, namespace, **options)

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
