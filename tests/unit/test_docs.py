"""What the manual lists is what the code has, no more and no less."""

from __future__ import annotations

import argparse
import ast
import re
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics

from controller.extender import answers as extender
from controller.settings import ControllerSettings
from kube.events import AGGREGATED, CREATED, DROPS, UPDATED
from lifecycle.events import CREATIONS, LONG_NAMES, occasions
from policies.merge import Note
from policies.model import POLICY
from rescheduling.answers import Outcome
from rescheduling.limits import Budgets, Limits
from serving.options import add_settings
from telemetry.analysis_metrics import ANALYSIS, OBJECTIVE, AnalysisMetrics, Results
from telemetry.api_calls import API_REQUEST_DURATION, NO_ANSWER, ApiCalls
from telemetry.cloud_events import CLOUD_EVENT_OUTCOMES
from telemetry.controller_metrics import create_controller_metrics
from telemetry.extender_metrics import ExtenderMetrics
from telemetry.lifecycle_metrics import DEPLOYMENTS, FINISHED, KEYS, LifecycleMetrics, Now
from telemetry.metric_schedule import MetricSchedule
from telemetry.metrics import (
    CERTIFICATE_ROLES,
    OUTCOMES,
    SHED_REASONS,
    create_metrics,
    set_certificate_expiry,
)
from telemetry.query_metrics import QueryMetrics
from telemetry.rescheduling_metrics import ReschedulingMetrics
from telemetry.span_queue import SPAN_OUTCOMES
from telemetry.watches import WatchTallies
from webhook import handlers, review
from webhook.settings import Settings, WebhookSettings

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
REFERENCE = ROOT / "docs" / "reference"
SERVER = REFERENCE / "server.md"
CLUSTER = REFERENCE / "cluster.md"
EVENTS = REFERENCE / "events.md"
MEASURING = REFERENCE / "metrics.md"
SCHEDULER = REFERENCE / "scheduler.md"
RESCHEDULER = REFERENCE / "rescheduler.md"

NOTHING = "\N{EN DASH}"
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]+)`")
SETTING = re.compile(r"^ +(--[a-z-]+) \S+.*?\[([A-Za-z.]+): ([^]]*)\]$", re.MULTILINE)


def without_blocks(page):
    """The text of a page, its code blocks left out."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def rows(page, first_column, which=None):
    """The rows of the table whose first column has that title; cells as written.

    There is one, or ``which`` says which.
    """
    tables = re.findall(r"(?:^\|.*\|\n)+", without_blocks(page), re.MULTILINE)
    lines = [[cells(line) for line in table.splitlines()] for table in tables]
    found = [table for table in lines if table[0][0] == first_column]
    assert which is not None or len(found) == 1
    return found[which or 0][2:]


def cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def code(cell):
    (found,) = CODE.findall(cell)
    return found


def anchors(page):
    titles = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def calls():
    """Every call in the rooms that answer: the function's name and the call."""
    for room in ("policies", "serving", "webhook"):
        for file in (ROOT / room).glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call):
                    name = node.func
                    yield getattr(name, "attr", None) or getattr(name, "id", ""), node


def constants(call, kind):
    """The arguments of that type that are written out, or named as a constant of the handlers."""
    values = (
        arg.value
        if isinstance(arg, ast.Constant)
        else getattr(handlers, getattr(arg, "id", ""), None)
        for arg in call.args
    )
    return [value for value in values if type(value) is kind]


def settings_of(settings):
    """The key, flag and default of each setting, as ``--help`` shows them."""
    parser = argparse.ArgumentParser(formatter_class=wide)
    add_settings(parser, settings)
    return {(key, flag, default) for flag, key, default in SETTING.findall(parser.format_help())}


def wide(prog):
    return argparse.HelpFormatter(prog, max_help_position=200)


class Mirror:
    """What the watches' metrics look at."""

    name = "pods"
    absent = False
    last_contact = 0.0
    store = ()


def server_families():
    metrics = create_metrics("1", handlers.OUTCOMES)
    # Those with a label show nothing before its first value.
    metrics.admission_skipped.labels("deadline").inc()
    metrics.policies.labels(POLICY).set(1)
    metrics.admission.matches["ClusterPodSchedulingPolicy web"] += 1
    set_certificate_expiry(metrics, "leaf", datetime.now(UTC))
    return own_families(metrics.registry)


def cluster_families():
    """What the controller has, of which the webhook has the part that is no controller's."""
    metrics = create_controller_metrics("1", ["registration"])
    metrics.watches.follow([Mirror()], float)
    metrics.watches.listed("pods", 1, 1.0)
    metrics.watches.events("pods", 1)
    metrics.watches.failed("pods", "GoneError")
    metrics.watches.undecodable("pods")
    metrics.api_calls.note("get", 200, 0.1)
    metrics.queues.depth("registration", 1)
    metrics.queues.retried("registration")
    metrics.queues.waited("registration", 1.0)
    metrics.queues.worked("registration", 1.0)
    metrics.certificate_expiry.labels("leaf").set(1)
    metrics.reconcile_errors.labels("registration", "ConflictError").inc()
    metrics.events.labels("created").inc()
    metrics.registration.repairs.labels("kind", "field").inc()
    metrics.registration.fights.labels("kind", "field").inc()
    return own_families(metrics.registry)


class Lifecycle:
    """What the lifecycle's metrics look at: one of each kind."""

    def now(self):
        deployments = {kind: {labels: 1.0} for kind, labels in DEPLOYMENTS.items()}
        active = {kind: {labels: 1} for kind, labels in KEYS.items()}
        return Now(active, deployments, deployments, 1)

    def exists(self, _anchor):
        return True


def lifecycle_families():
    metrics = LifecycleMetrics(registry := CollectorRegistry())
    metrics.lead(Lifecycle())
    for kind, labels in FINISHED.items():
        metrics.finished(kind, labels, 1.0, (kind, "prod/one"))
    return own_families(registry)


class Verdicts:
    """What the metrics of analyses look at: one of each kind."""

    def results(self):
        return Results({("a",) * len(ANALYSIS): 1.0}, {("a",) * len(OBJECTIVE): 1.0})


def measuring_families():
    # As whoever makes the controller's other metrics has done by then.
    disable_created_metrics()
    registry = CollectorRegistry()
    QueryMetrics(registry).answered("prometheus", "Answered", 0.1)
    MetricSchedule(registry).late(0.1)
    AnalysisMetrics(registry).lead(Verdicts())
    return own_families(registry)


def extender_families():
    disable_created_metrics()
    ExtenderMetrics(registry := CollectorRegistry(), extender.VERBS, extender.OUTCOMES)
    return own_families(registry)


def rescheduling_families():
    disable_created_metrics()
    metrics = ReschedulingMetrics(registry := CollectorRegistry())
    for metric in vars(metrics).values():
        child = metric.labels(*("a" for _ in metric._labelnames))
        child.observe(1) if isinstance(metric, Histogram) else child.inc()
    return own_families(registry)


def own_families(registry):
    """The families that are not Python's and the process's; each has a sample."""
    found = [
        family
        for family in registry.collect()
        if not family.name.startswith(("python_", "process_"))
    ]
    assert all(family.samples for family in found)
    return found


TABLES = pytest.mark.parametrize(
    ("page", "column", "families"),
    [
        pytest.param(SERVER, "metric", server_families, id="server"),
        pytest.param(CLUSTER, "metric of the cluster", cluster_families, id="cluster"),
        pytest.param(EVENTS, "metric of the lifecycle", lifecycle_families, id="lifecycle"),
        pytest.param(MEASURING, "metric of the measuring", measuring_families, id="measuring"),
        pytest.param(SCHEDULER, "metric of the extender", extender_families, id="extender"),
        pytest.param(
            RESCHEDULER, "metric of the rescheduler", rescheduling_families, id="rescheduler"
        ),
    ],
)


@pytest.mark.parametrize(
    ("page", "column", "settings", "told_elsewhere"),
    [
        (SERVER, "key", Settings, None),
        (CLUSTER, "key of the webhook", WebhookSettings, Settings),
        (CLUSTER, "key of the controller", ControllerSettings, None),
    ],
)
def test_the_manual_lists_every_setting_with_its_flag_and_default(
    monkeypatch, page, column, settings, told_elsewhere
):
    monkeypatch.setenv("COLUMNS", "1000")
    expected = settings_of(settings)
    if told_elsewhere is not None:
        expected -= settings_of(told_elsewhere)
    listed = {(code(row[0]), code(row[1]), code(row[2])) for row in rows(page, column)}
    assert listed == expected


def test_the_manual_lists_every_audit_code():
    given = set()
    for name, call in calls():
        # The code comes before the text, and both may be constants.
        if name in {Note.__name__, "_skip", "answer_failed"} and (texts := constants(call, str)):
            given.add(texts[0])
    assert {code(row[0]) for row in rows(SERVER, "code")} == given


@TABLES
def test_the_manual_lists_every_metric_with_its_type(page, column, families):
    suffix = {"counter": "_total"}
    exposed = {(family.name + suffix.get(family.type, ""), family.type) for family in families()}
    assert {(code(row[0]), row[1]) for row in rows(page, column)} == exposed


@TABLES
def test_the_manual_lists_every_label_of_the_metrics(page, column, families):
    listed = {code(row[0]): set(CODE.findall(row[2])) for row in rows(page, column)}
    for family in families():
        for sample in family.samples:
            name = re.sub("_(bucket|count|sum)$", "", sample.name)
            assert set(sample.labels) - {"le"} == listed[name]


def named_values(page, column):
    """The values of labels that the meanings name, by metric."""
    return {code(row[0]): set(CODE.findall(row[3])) for row in rows(page, column)}


def test_the_manual_names_every_value_of_a_label():
    named = set().union(*named_values(SERVER, "metric").values())
    kupid = {
        sample.labels["type"]
        for family in server_families()
        for sample in family.samples
        if sample.name.startswith("kupid_")
    }
    expected = {*OUTCOMES, *handlers.OUTCOMES, *SHED_REASONS, *CERTIFICATE_ROLES, *SPAN_OUTCOMES}
    assert expected | kupid <= named


def test_the_manual_of_the_cluster_names_every_value_of_a_label_that_is_ours():
    named = named_values(CLUSTER, "metric of the cluster")
    assert named["harbourmaster_events_total"] == {CREATED, UPDATED, AGGREGATED, *DROPS}
    assert named["harbourmaster_api_requests_total"] == {NO_ANSWER}
    assert named["harbourmaster_certificate_expiry_seconds"] == set(CERTIFICATE_ROLES)
    named = named_values(RESCHEDULER, "metric of the rescheduler")
    assert named["rescheduler_evictions_total"] == {each.value for each in Outcome}
    assert named["rescheduler_budget_remaining"] == {*Budgets(Limits()).left(0.0)}
    named = named_values(SCHEDULER, "metric of the extender")
    assert named["harbourmaster_extender_answers_total"] == {*extender.VERBS, *extender.OUTCOMES}


def spoken(reason):
    """The phase and the state of a reason in Keptn's words."""
    phase = max((each for each in LONG_NAMES if reason.startswith(each)), key=len)
    return phase, reason.removeprefix(phase)


def test_the_manual_of_events_gives_the_words_of_both_vocabularies():
    listed = 0
    for keptn, documented, kind, *_ in rows(EVENTS, "`keptn`", -1):
        if keptn == NOTHING:
            continue
        warning = "Warning" in keptn or None
        for reason in CODE.findall(keptn):
            listed += 1
            (first,) = occasions(*spoken(reason), "", "keptn", warning=warning)
            assert first.reason == reason
            assert kind == ("Warning" if first.is_warning else "Normal")
            others = occasions(*spoken(reason), "", "documented", warning=warning)
            named = {each.reason for each in others}
            if documented == "the same":
                assert named == {reason}
            elif documented.startswith("the same"):
                assert named == {reason.replace("Failed", "Errored")}
            else:
                assert named == set(CODE.findall(documented))
    assert listed > 20


def test_the_manual_of_events_lists_what_only_the_documentation_names():
    listed = {code(row[1]) for row in rows(EVENTS, "`keptn`", -1) if row[0] == NOTHING}
    assert listed == {*CREATIONS.values(), "Deprecated", "WorkloadDeployReconcile"}


def test_the_manual_of_events_names_every_fate_of_a_cloud_event():
    named = named_values(EVENTS, "metric of the lifecycle")
    assert named["harbourmaster_cloud_events_total"] == set(CLOUD_EVENT_OUTCOMES)


def test_what_both_processes_have_is_of_one_type_and_has_the_same_labels():
    server, cluster = (
        {family.name: (family.type, set(family.samples[0].labels)) for family in families}
        for families in (server_families(), cluster_families())
    )
    common = server.keys() & cluster.keys()
    assert common
    assert {name: server[name] for name in common} == {name: cluster[name] for name in common}


def test_the_first_metrics_of_the_cluster_are_those_that_a_webhook_adds():
    registry = CollectorRegistry()
    WatchTallies(registry).follow([Mirror()], float)
    ApiCalls(registry)
    added = [
        family.name + ("_total" if family.type == "counter" else "")
        for family in registry.collect()
    ]
    listed = [code(row[0]) for row in rows(CLUSTER, "metric of the cluster")]
    assert set(listed[: len(added)]) == set(added)
    assert listed[len(added) - 1] == API_REQUEST_DURATION


def test_the_manual_lists_every_http_status():
    given = {HTTPStatus.OK}
    for name, call in calls():
        if name == "Refusal":
            given.update(constants(call, int))
        given.update(
            keyword.value.value
            for keyword in call.keywords
            if keyword.arg == "status" and isinstance(keyword.value, ast.Constant)
        )
    for file in (ROOT / "serving").glob("*.py"):
        given.update(
            HTTPStatus[name] for name in re.findall(r"HTTPStatus\.([A-Z_]+)", file.read_text())
        )
    assert {int(row[0]) for row in rows(SERVER, "status")} == given


def test_the_manual_names_every_code_inside_a_review():
    text = without_blocks(SERVER)
    assert set(re.findall(r"code (\d{3})", text)) == {
        str(review.BAD_REQUEST),
        str(review.FORBIDDEN),
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link in LINK.findall(without_blocks(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link
