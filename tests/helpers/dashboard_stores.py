"""The stores that the dashboard shows, without a watch behind them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec

from harbourmaster.api.times import format_rfc3339, utc_now
from harbourmaster.dashboard.caches import PodCounter
from harbourmaster.dashboard.sources import MatchCounts, PageSources
from harbourmaster.kube.store import Store
from harbourmaster.lifecycle.gate_verdict import GateWaitRules
from helpers.generated_by import owners


class StaticSource:
    """A store without a watch behind it: what is in it is all there is."""

    def __init__(self, store=None):
        self.store = Store() if store is None else store
        self.synced = asyncio.Event()
        self.synced.set()
        self.absent = False
        self.error = None
        self.is_forbidden = False


class StaticWaits:
    """What is known of the objects for which pods wait, by namespace."""

    def __init__(self):
        self.items = {}
        self.found = {}
        self.asked = []

    def reports(self, namespace):
        return self.items.get(namespace, {})

    def cycles(self, namespace):
        self.asked.append(namespace)
        return self.found.get(namespace, {})


class Stores:
    """``put`` and ``remove`` tell open pages, as mirrors do."""

    SOURCES = (
        "app_versions",
        "workloads",
        "workload_versions",
        "tasks",
        "task_definitions",
        "evaluations",
        "evaluation_definitions",
        "metrics",
        "gated_pods",
        "policies",
        "cluster_policies",
        "applications",
        "clusters",
        "nodes",
        "namespaces",
    )

    def __init__(self, now=None, max_age=0.0):
        self.now = now or utc_now()
        self.sources = {source: StaticSource() for source in self.SOURCES}
        self.waits = StaticWaits()
        self.pods = Store()
        self.sources["labels"] = StaticSource(self.pods)
        self.raw_pods = {}
        self.rules = GateWaitRules(max_age_seconds=max_age)
        self.dashboard = None
        self.counter = PodCounter(
            lambda: [
                entry.compiled
                for name in ("policies", "cluster_policies")
                for entry in self.sources[name].store.values()
            ],
            self.pods.values,
            self.sources["namespaces"].store.get,
        )

    async def world(self, *, counts=True, pod=""):
        match_counts = await self.counter.counts() if counts else MatchCounts()
        raw = self.raw_pods.get(pod)
        return PageSources(
            **self.sources, waits=self.waits, counts=match_counts, rules=self.rules, pod=raw
        )

    def put(self, source, obj, key=None):
        key = key or obj.metadata.key
        self.sources[source].store.put(key, obj)
        self._tell(source, key)

    def remove(self, source, key):
        self.sources[source].store.remove(key)
        self._tell(source, key)

    def ago(self, seconds):
        return format_rfc3339(self.now - timedelta(seconds=seconds))

    def _tell(self, source, key):
        self.counter.outdate()
        if self.dashboard is not None:
            self.dashboard.notify(source, frozenset((key,)))

    def _made(self, kind, name, namespace, age, **parts):
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "creationTimestamp": self.ago(age),
            **owners(uid=f"uid-{namespace}-{parts.get('spec', {}).get('workloadName')}"),
        }
        return msgspec.convert({"metadata": metadata, **parts}, kind)
