"""A reconciler of analyses, whose clock the test advances and whose queries the test answers."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

from harbourmaster.api.references import ALLOW_FROM
from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_DEFINITIONS,
    ANALYSIS_VALUE_TEMPLATES,
    METRICS_PROVIDERS,
)
from harbourmaster.controller.evaluation.analysis_reconciler import AnalysisReconciler
from harbourmaster.controller.evaluation.caches import MetricCaches, MetricContext
from harbourmaster.controller.evaluation.settings import MetricsSettings
from harbourmaster.evaluation.model import (
    Analysis,
    AnalysisDefinition,
    AnalysisValueTemplate,
    Provider,
)
from harbourmaster.providers.model import Answer, Sample
from helpers.stored import sync

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
END = START.timestamp()
FROZEN = {"from": "2026-03-01T11:55:00Z", "to": "2026-03-01T12:00:00Z"}


def answer(value, time=END - 300):
    return Answer(value, (Sample(time, float(value)),))


class ScriptedQueries:
    """Replaces QueryService: ``answers`` by query, and the questions that were ``asked``.

    An answer is a value, an error, or a future; a list has one of them for each time.
    """

    def __init__(self):
        self.answers = {}
        self.asked = []
        self.providers = []

    async def ask(self, provider, question):
        self.providers.append(provider.metadata.key)
        self.asked.append((provider.metadata.name, question))
        result = self.answers[question.query]
        if isinstance(result, list):
            result = result.pop(0)
        if isinstance(result, asyncio.Future):
            result = await result
        if isinstance(result, Exception):
            raise result
        return result if isinstance(result, Answer) else answer(result)

    @property
    def texts(self):
        return [question.query for _, question in self.asked]


class AnalysisEnvironment:
    """A reconciler and its API server, whose clock only the test advances."""

    def __init__(self, api, client, events):
        self.api = api
        self.client = client
        self.events = events
        self.now = START
        self.references = "ProvidersNeedConsent"
        self.queries = ScriptedQueries()
        self.restart()

    def restart(self):
        """Replace the reconciler and its caches, as a new process does."""
        self.caches = MetricCaches(self.client)
        self.woken = asyncio.Event()
        self.analyses = AnalysisReconciler(
            MetricContext(
                client=self.client,
                caches=self.caches,
                settings=MetricsSettings(),
                queries=self.queries,
                events=self.events,
                now=lambda: self.now,
                references=self.references,
            ),
            lambda _key: self.woken.set(),
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

    @property
    def writes(self):
        return len([request for request in self.api.requests if request.verb == "patch"])


def allowing(namespaces):
    """Return the annotation of an object that consents to references from these namespaces."""
    return {"annotations": {ALLOW_FROM: namespaces}} if namespaces else {}


def objective(name, weight=1, **target):
    return (name, {}, {"target": target, "weight": weight})
