"""Worlds of placement in few words: objects by what a test says of them, and decisions in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import yaml

from harbourmaster.api.times import format_rfc3339
from harbourmaster.placement.application_decisions import MoveLimits, decide
from harbourmaster.placement.backends import decide_cluster, decide_magnum_cluster
from harbourmaster.placement.model import KINDS
from harbourmaster.placement.passes import Pass
from harbourmaster.placement.rules import Rules
from harbourmaster.placement.snapshot import MetricFault, snapshot_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMESPACE = "ns"
ONLINE = {"state": "Online"}


def ago(seconds):
    return format_rfc3339(NOW - timedelta(seconds=seconds))


def make_object(kind, name, *, namespace=NAMESPACE, status=None, spec=None, **metadata):
    """An object of that kind, decoded as from the API."""
    place = {} if kind.startswith("Global") else {"namespace": namespace}
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1, **place, **metadata},
            "spec": spec or {},
            "status": status or {},
        },
        KINDS[kind],
    )


def refs(weights, **more):
    """Metric references by name; a name with a slash in front is of the namespace."""
    return [
        {
            "name": name.removeprefix("/"),
            "weight": weight,
            "scope": "Namespaced" if name.startswith("/") else "Global",
            **more,
        }
        for name, weight in weights.items()
    ]


def cluster(name, weights=None, *, status=None, labels=None, spec=None, **metadata):
    """A cluster that is online and has these metrics."""
    return make_object(
        "Cluster",
        name,
        spec={
            "kubeconfigSecretRef": {"name": f"{name}-kubeconfig"},
            "metrics": refs(weights or {}),
            **(spec or {}),
        },
        status=ONLINE if status is None else status,
        labels=labels or {},
        **metadata,
    )


def cloud(name, weights=None, *, kind="Cloud", labels=None, **metadata):
    spec = {"metrics": refs(weights or {})}
    return make_object(kind, name, spec=spec, labels=labels or {}, **metadata)


def project(name, weights=None, *, labels=None, template="tpl", **metadata):
    spec = {"metrics": refs(weights or {}), "template": template}
    return make_object("Project", name, spec=spec, labels=labels or {}, **metadata)


def metric(  # noqa: PLR0913 - all that tests vary
    name, *, low=0, high=1, allowed=None, kind=None, provider=None, query="", by_label=""
):
    """A metric; a name with a slash in front is of the namespace."""
    metric_kind = kind or ("Metric" if name.startswith("/") else "GlobalMetric")
    spec = {"min": low, "max": high, "allowedValues": allowed}
    spec["provider"] = {
        "name": provider or "prom",
        "metric": query or name.removeprefix("/"),
        "byLabel": by_label,
    }
    return make_object(metric_kind, name.removeprefix("/"), spec=spec)


def application(  # noqa: PLR0913 - all that tests vary
    name="app",
    *,
    on=None,
    scheduled=3600,
    labels=None,
    metrics=None,
    resources=None,
    migration=True,
    backoff=None,
    manifests=(),
    status=None,
    **metadata,
):
    """An application; with ``on`` one that is placed there since so many seconds."""
    placed = {}
    if on is not None:
        placed = {
            "scheduledTo": {"name": on, "uid": f"uid-{on}"},
            "scheduledTime": ago(scheduled),
            "scheduledGeneration": 1,
        }
    constraints = {"labels": labels, "metrics": metrics, "customResources": resources}
    spec = {"constraints": {"migration": migration, "cluster": constraints}}
    spec["manifests"] = list(manifests)
    if backoff is not None:
        spec["backoff"] = backoff
    return make_object(
        "Application", name, spec=spec, status={**placed, **(status or {})}, **metadata
    )


def world(*objects, **values):
    """These objects, with metrics from 0 to 1 by their values, or those of clusters by their names.

    Texts are faults.
    """
    known = {obj.metadata.name for obj in objects if isinstance(obj, KINDS["Metric"])}
    more = [metric(name) for name in values if name not in known]
    readings = {}
    for name, value in values.items():
        for namespace in ("", NAMESPACE):
            if isinstance(value, dict):
                for cluster_name, own in value.items():
                    readings[namespace, name, NAMESPACE, cluster_name] = read(own)
            else:
                readings[namespace, name] = read(value)
    return snapshot_of([*objects, *more], readings)


def read(value):
    return MetricFault("UnreachableMetricsProvider", value) if isinstance(value, str) else value


def start_pass(*objects, now=NOW, rules=None, **values):
    return Pass(world(*objects, **values), now, Rules(**(rules or {})))


def decide_on(app, *objects, now=NOW, rules=None, **values):
    return decide(app, start_pass(*objects, now=now, rules=rules, **values))


def decide_all(applications, seen):
    """Decide about many in one pass, in this order; each counts for the limits of the next."""
    move_limits = MoveLimits(seen.rules)
    return [decide(application, seen, move_limits) for application in applications]


def decided_all(apps, *objects, now=NOW, rules=None, **values):
    return decide_all(apps, start_pass(*objects, now=now, rules=rules, **values))


def cloud_for(wanted, *objects, now=NOW, **values):
    return decide_cluster(wanted, start_pass(*objects, now=now, **values))


def project_for(wanted, *objects, now=NOW, mode="ProvidersNeedConsent", **values):
    return decide_magnum_cluster(wanted, start_pass(*objects, now=now, **values), mode)


def reason(decision, name):
    """Why a target is out; empty where it is not."""
    return next(verdict.reason for verdict in decision.verdicts if verdict.target.label == name)


def matching_targets(decision):
    return [verdict.target.label for verdict in decision.verdicts if not verdict.reason]


AB = (cluster("a", {"m": 1}), cluster("b", {"n": 1}))


def is_refused(app, *clusters, **values):
    """Whether nothing suits; the decision must say so."""
    decision = decide_on(app, *clusters, **values)
    return decision.outcome == "NoSuitableTarget" and decision.error.startswith(
        "NoSuitableTarget: "
    )


def conditions(reachable="True", nodes="True"):
    conditions = [("Reachable", reachable), ("NodesReady", nodes)]
    return [{"type": name, "status": status, "reason": "Why"} for name, status in conditions]


_FILE = Path(__file__).parents[1] / "fixtures/placement/constraints.yaml"
CONSTRAINTS = yaml.safe_load(_FILE.read_text())
"""For each language the canonical spelling of valid texts, and the position of others' errors."""
VALID_LABELS, INVALID_LABELS = map(list, CONSTRAINTS["label"].values())
VALID_METRICS, INVALID_METRICS = map(list, CONSTRAINTS["metric"].values())
