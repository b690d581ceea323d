"""Reconcilers of analyses and of metrics, whose clock only the test advances."""

from __future__ import annotations

import pytest

from helpers.evaluation import AnalysisEnvironment, MetricEnvironment, objective


@pytest.fixture
def analysis_env(api, client, events):
    return AnalysisEnvironment(api, client, events)


@pytest.fixture
def ready_env(analysis_env):
    """One objective, whose query is answered by 4."""
    analysis_env.put_provider()
    analysis_env.put_template("ready", "sum(up)")
    analysis_env.put_definition(objective("ready", failure={"lessThan": {"fixedValue": "2"}}))
    analysis_env.queries.answers["sum(up)"] = "4"
    return analysis_env


@pytest.fixture
async def metric_env(api, client, events):
    environment = MetricEnvironment(api, client, events)
    environment.put_provider()
    yield environment
    await environment.metrics.close()


@pytest.fixture
def cpus_env(metric_env):
    metric_env.put_metric()
    return metric_env
