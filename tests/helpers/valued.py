"""KeptnMetrics with values, and where they are shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.exposure.values import ExposedValues
from harbourmaster.evaluation.model import Metric
from harbourmaster.kube.store import Store

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
INTERVALS = 2.0


def metric(name, value="", *, namespace="prod", age=0, labels=None, results=()):
    """A metric that is fetched every ten seconds; its value is ``age`` seconds old.

    ``results`` are stored ones, each a value and its age.
    """
    status = {}
    if value:
        status = {"value": value, "rawValue": "eA==", "lastUpdated": since(age)}
    if results:
        status["intervalResults"] = [
            {"value": result, "range": {}, "lastUpdated": since(result_age)}
            for result, result_age in results
        ]
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"fetchIntervalSeconds": 10},
        "status": status,
    }


def since(seconds):
    return format_rfc3339(NOW - timedelta(seconds=seconds))


def mirror(*metrics):
    """A mirror that holds these metrics."""
    store = Store()
    for metric in metrics:
        decoded = msgspec.convert(metric, Metric)
        store.put(decoded.metadata.key, decoded)
    return store


def values(*metrics):
    """The values that these metrics show at ``NOW``."""
    return ExposedValues(mirror(*metrics), INTERVALS, lambda: NOW)
