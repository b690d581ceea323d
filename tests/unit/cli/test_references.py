"""References across namespaces without consent, as ``doctor`` and ``migrate`` report them."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import (
    ANALYSIS_DEFINITIONS,
    ANALYSIS_VALUE_TEMPLATES,
    DEPLOYMENTS,
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
    METRICS_PROVIDERS,
)
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.migrate.findings import findings as judge
from harbourmaster.cli.migrate.survey import read_observed
from harbourmaster.cli.references import check
from helpers.broken_installations import flags
from helpers.examined import HOME, ExaminedCluster

PLATFORM = "platform"
CONSENT = "harbourmaster.dev/allow-from=tenant"


def put(cluster, resource, name, namespace, annotations=None, **spec):
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    cluster.put(resource, {"metadata": metadata, "spec": spec})


def to(name, namespace=PLATFORM):
    return {"name": name, "namespace": namespace}


@pytest.fixture
def cluster():
    """A tenant that reads a metric, a template and a provider of another namespace."""
    cluster = ExaminedCluster()
    put(cluster, METRICS_PROVIDERS, "prom", PLATFORM, targetServer="http://prometheus")
    put(cluster, KEPTN_METRICS, "revenue", PLATFORM, provider={"name": "prom"}, query="q")
    # It runs with the credentials of its own namespace, and the arguments of its users.
    put(cluster, ANALYSIS_VALUE_TEMPLATES, "sum", PLATFORM, provider=to("prom"), query="q")
    put(cluster, ANALYSIS_VALUE_TEMPLATES, "own", "tenant", provider=to("prom"), query="q")
    score = {"passPercentage": 90, "warningPercentage": 50}
    objective = {"analysisValueTemplateRef": to("sum")}
    put(cluster, ANALYSIS_DEFINITIONS, "use", "tenant", objectives=[objective], totalScore=score)
    objectives = [
        {"keptnMetricRef": ref, "evaluationTarget": ">1"}
        # Without a namespace, this one is lines in keptn-system too.
        for ref in (to("revenue"), to("shared", "keptn-system"))
    ]
    put(cluster, KEPTN_METRICS, "shared", "keptn-system", provider={"name": "prom"}, query="q")
    put(cluster, EVALUATION_DEFINITIONS, "spy", "tenant", objectives=objectives)
    return cluster


OBJECTS = {
    "AnalysisValueTemplate platform/sum",
    "KeptnMetric platform/revenue",
    "KeptnMetricsProvider platform/prom",
}


async def report(cluster, mode):
    flags(cluster, f"--cross-namespace-references={mode}", name=CONTROLLER)
    live = Installation(cluster, HOME)
    try:
        return {finding.subject: finding async for finding in check(live)}
    finally:
        await live.close()


@pytest.mark.parametrize(
    ("mode", "refused"),
    [
        ("Open", set()),
        ("ProvidersNeedConsent", {"KeptnMetricsProvider platform/prom"}),
        ("AllNeedConsent", OBJECTS),
    ],
)
@pytest.mark.claim("O16")
async def test_doctor_counts_what_would_be_refused(cluster, mode, refused):
    lines = await report(cluster, mode)
    summary = lines.pop("crossNamespaceReferences", None)
    assert lines.keys() == OBJECTS
    assert {name for name, line in lines.items() if line.severity == "warning"} == refused
    if mode == "AllNeedConsent":
        assert summary is None
        return
    assert summary.severity == "note"
    count = len(OBJECTS - refused)
    assert f"would refuse references from tenant to {count} objects" in summary.text
    assert summary.remedy.startswith("consent, then set it to AllNeedConsent: docs/")


async def test_doctor_says_when_nothing_keeps_the_mode_of_new_installations_away(cluster):
    for resource, name in (
        (METRICS_PROVIDERS, "prom"),
        (KEPTN_METRICS, "revenue"),
        (ANALYSIS_VALUE_TEMPLATES, "sum"),
    ):
        stored = cluster.at(resource, name, PLATFORM)
        stored["metadata"]["annotations"] = {"harbourmaster.dev/allow-from": "tenant"}
    (summary,) = (await report(cluster, "ProvidersNeedConsent")).values()
    assert "would refuse no reference" in summary.text
    assert await report(cluster, "AllNeedConsent") == {}


@pytest.mark.parametrize("is_installed", [False, True])
async def test_migrate_prints_the_annotations_for_a_new_installation(cluster, is_installed):
    """Whatever the mode of ours is now: beside Keptn it is Open."""
    if is_installed:
        flags(cluster, "--cross-namespace-references=Open", name=CONTROLLER)
    else:
        cluster.remove(DEPLOYMENTS, CONTROLLER, HOME)
    live = Installation(cluster, HOME)
    try:
        results = judge(await read_observed(live))
    finally:
        await live.close()
    commands = {finding.command.text for finding in results if finding.code == "reference"}
    assert commands == {
        f"kubectl annotate analysisvaluetemplate -n platform sum {CONSENT}",
        f"kubectl annotate keptnmetric -n platform revenue {CONSENT}",
        f"kubectl annotate keptnmetricsprovider -n platform prom {CONSENT}",
    }
