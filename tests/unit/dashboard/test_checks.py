"""The pages of metrics, evaluations, analyses, tasks and definitions, and what links them.

Several states are those that users of Argo Rollouts, Flagger and Keptn reported: a measurement of
NaN, a query without values, an error that is older than the value beside it, and a value that
nothing compares with its threshold.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial

import msgspec
import pytest

from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_DEFINITIONS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_METRICS,
    TASK_DEFINITIONS,
    TASKS,
)
from harbourmaster.dashboard.pages.checks import MOST, check, checks
from harbourmaster.dashboard.query import PageQuery
from harbourmaster.dashboard.sources import SOURCES, PageSources
from harbourmaster.dashboard.visibility import EVERYWHERE, ListScope, Visibility
from harbourmaster.evaluation.model import Analysis, AnalysisDefinition
from harbourmaster.lifecycle.model import (
    Evaluation,
    EvaluationDefinition,
    Task,
    TaskDefinition,
    WorkloadVersion,
)
from helpers.dashboard import Filled

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALL = Visibility({kind.name: EVERYWHERE for kind in SOURCES})
CART = ("KeptnAppVersion", "cart-1.4.2-6b86b273")


@pytest.fixture
def stores():
    return Filled(NOW, max_age=3600)


def tries(stores, *values):
    """The record of an objective that was measured each 30 s."""
    return [
        {
            "time": stores.ago(30 * (len(values) - number)),
            "value": value,
            "status": "Failed",
            **({} if value else {"message": "inconclusive: empty value for: p95: no values"}),
        }
        for number, value in enumerate(values, 1)
    ]


def evaluated(stores, *values, name="pre-errors-1", **status):
    """An evaluation of the cart, which measured these values of p95."""
    stores.app("shop", "cart", 2)
    message = f"value '{values[-1]}' did not meet objective '<200'"
    stores.made(
        "evaluations",
        Evaluation,
        "shop",
        name,
        CART,
        spec={"evaluationDefinition": "errors", "retries": 10, "retryInterval": "30s"},
        status={
            "retryCount": len(values),
            "overallStatus": "Failed",
            "endTime": stores.ago(10),
            "evaluationStatus": {
                "p95": {"value": values[-1], "status": "Failed", "message": message}
            },
            "measurements": {"p95": {"target": "<200", "tries": tries(stores, *values)}},
            **status,
        },
    )


async def shown(stores, kind, name, visible=ALL, namespace="shop"):
    query = PageQuery(namespace=namespace, name=name)
    return check(kind, await stores.world(), visible, query, NOW)


def rows(page, title):
    return dict(page.lists).get(title, ())


async def test_a_metric_tells_its_error_thresholds_and_releases(stores):
    evaluated(stores, "180", "412.5")
    stores.app("shop", "ledger", 1)
    stores.metric("shop", "p95", lastUpdated=stores.ago(600), errMsg="connection refused")
    page = await shown(stores, KEPTN_METRICS, "p95")
    assert page.row.state.word == "Unavailable"
    assert page.row.text.endswith("longer than 30s: connection refused")
    assert ("Provider name", "prometheus") in page.facts
    assert {(row.name, row.text) for row in rows(page, "Definitions")} == {
        ("errors", "p95 <200"),
        ("latency", "p95 <200"),
    }
    released = [(row.name, row.text, row.state.word) for row in rows(page, "Releases that use it")]
    assert ("cart", "version 1.4.2", "Failed") in released
    assert ("ledger", "version 1.4.2", "Progressing") in released
    assert [row.name for row in rows(page, "Last runs")] == [
        "pre-errors-1",
        "pre-eval-latency-ledger",
        "pre-errors-81724",
    ]
    (plot,) = page.plots
    assert [mark.measured.value for mark in plot.marks] == ["180", "412.5"]
    assert plot.target == "<200"


@pytest.mark.parametrize(
    ("age", "state", "text"),
    [
        (4, "Current", "an earlier query failed: no values in query result"),
        (25, "Failing", "the last query failed: no values in query result"),
        (
            60,
            "Unavailable",
            "the value of p95 is 1m0s old, longer than 30s: no values in query result",
        ),
    ],
)
async def test_an_error_beside_a_newer_value_is_not_its_state(stores, age, state, text):
    stores.metric("shop", "p95", lastUpdated=stores.ago(age), errMsg="no values in query result")
    page = await shown(stores, KEPTN_METRICS, "p95")
    assert (page.row.state.word, page.row.text) == (state, text)


async def test_the_value_of_a_metric_is_compared_with_each_threshold(stores):
    stores.metric("shop", "p95", value="150")
    for name, target in (("strict", "<100"), ("loose", "<200")):
        objective = {"keptnMetricRef": {"name": "p95"}, "evaluationTarget": target}
        spec = {"objectives": [objective, objective]}
        stores.made("evaluation_definitions", EvaluationDefinition, "shop", name, spec=spec)
    page = await shown(stores, KEPTN_METRICS, "p95")
    # Both objectives of a definition are there, with one row.
    assert {row.name for row in rows(page, "Definitions")} == {"strict", "loose"}
    strict = await shown(stores, EVALUATION_DEFINITIONS, "strict")
    (row, _) = rows(strict, "Objectives")
    assert (row.value, row.target, row.state.word) == ("150", "<100", "Failed")
    assert row.text == "value '150' did not meet objective '<100'"
    loose = await shown(stores, EVALUATION_DEFINITIONS, "loose")
    assert rows(loose, "Objectives")[0].state.word == "Succeeded"


async def test_the_stored_results_of_a_metric_are_its_plot(stores):
    results = [
        {"value": value, "range": {}, "lastUpdated": stores.ago(90 - 30 * number), "errMsg": error}
        for number, (value, error) in enumerate((("1", ""), ("NaN", ""), ("", "no values")))
    ]
    stores.metric("shop", "p95", value="", lastUpdated="", intervalResults=results)
    (plot,) = (await shown(stores, KEPTN_METRICS, "p95")).plots
    assert [(mark.measured.value, mark.kind) for mark in plot.marks] == [
        ("1", "plain"),
        ("NaN", "none"),
        ("", "none"),
    ]
    assert plot.marks[2].measured.message == "no values"


async def test_an_evaluation_has_all_tries_its_release_definition_and_metric(stores):
    evaluated(stores, "180", "230", "412.5")
    page = await shown(stores, EVALUATIONS, "pre-errors-1")
    assert (page.row.state.word, page.row.value, page.row.target) == ("Failed", "412.5", "<200")
    assert page.row.release.name == "cart"
    assert page.row.release.path == "/applications/shop/cart?version=cart-1.4.2-6b86b273"
    (objective,) = rows(page, "Objectives")
    assert objective.path == "/checks/keptnmetrics/shop/p95"
    assert [row.path for row in rows(page, "Definition")] == [
        "/checks/keptnevaluationdefinitions/shop/errors"
    ]
    (plot,) = page.plots
    assert [mark.kind for mark in plot.marks] == ["unmet"] * 3


async def test_a_threshold_that_was_changed_since_is_that_of_the_measurement(stores):
    evaluated(stores, "412.5")
    objective = {"keptnMetricRef": {"name": "p95"}, "evaluationTarget": "<500"}
    define = partial(
        stores.made,
        "evaluation_definitions",
        EvaluationDefinition,
        "shop",
        "errors",
        spec={"objectives": [objective]},
    )
    define()
    page = await shown(stores, EVALUATIONS, "pre-errors-1")
    assert page.row.target == "<200"
    # One without a record has that of the definition.
    evaluated(stores, "412.5", measurements={})
    define()
    page = await shown(stores, EVALUATIONS, "pre-errors-1")
    assert (page.row.target, page.plots) == ("<500", ())


async def test_a_metric_of_the_namespace_hides_the_shared_one(stores):
    evaluated(stores, "412.5")
    stores.metric("keptn-system", "p95", value="1")
    stores.metric("keptn-system", "p99", value="1")
    world = await stores.world()
    world = PageSources(**{**vars(world), "definition_namespaces": ("keptn-system",)})
    find = partial(check, KEPTN_METRICS, world, ALL, now=NOW)
    shared = find(query=PageQuery(namespace="keptn-system", name="p95"))
    assert rows(shared, "Releases that use it") == ()
    own = find(query=PageQuery(namespace="shop", name="p95"))
    assert rows(own, "Releases that use it") != ()
    stores.remove("metrics", "shop/p95")
    shared = find(query=PageQuery(namespace="keptn-system", name="p95"))
    assert [row.name for row in rows(shared, "Last runs")] == ["pre-errors-1", "pre-errors-81724"]


async def test_a_definition_of_another_namespace_does_not_read_a_metric_of_its_name(stores):
    evaluated(stores, "412.5")
    objective = {"keptnMetricRef": {"name": "p95"}, "evaluationTarget": "<1"}
    for namespace in ("mail", "keptn-system"):
        spec = {"objectives": [objective]}
        put = partial(stores.made, "evaluation_definitions", EvaluationDefinition, namespace)
        put("errors", spec=spec)
        put("of-" + namespace, spec=spec)
    world = await stores.world()
    world = PageSources(**{**vars(world), "definition_namespaces": ("keptn-system",)})
    page = check(KEPTN_METRICS, world, ALL, PageQuery(namespace="shop", name="p95"), NOW)
    assert {(row.namespace, row.name) for row in rows(page, "Definitions")} == {
        ("shop", "errors"),
        ("shop", "latency"),
        ("keptn-system", "of-keptn-system"),
    }


async def test_an_analysis_whose_query_has_no_answer_tells_why(stores):
    stored = {"rate": {"query": "rate", "value": "", "errMsg": "no values found for rate"}}
    timeframe = {"from": stores.ago(300), "to": stores.ago(60)}
    status = {"state": "Progressing", "storedValues": stored, "timeframe": timeframe}
    stores.made("analyses", Analysis, "shop", "stage-1", status=status)
    page = await shown(stores, ANALYSES, "stage-1")
    assert (page.row.state.word, page.row.text) == ("Failed", "no values found for rate")


def analysed(stores):
    """An analysis of a stage of the cart, of which one objective failed."""
    stores.app("shop", "cart", 2)
    verdicts = ({"pass": True}, {"pass": False, "warning": True}, {"pass": False})
    results = [
        {
            "result": verdict,
            "objective": {
                "analysisValueTemplateRef": {"name": f"rate-{number}"},
                "target": {"failure": {"greaterThan": {"fixedValue": "500m"}}},
                "weight": 2,
            },
            "value": 0.25 * number,
            "query": f"rate{number}",
            "score": 1,
        }
        for number, verdict in enumerate(verdicts, 1)
    ]
    raw = {"objectiveResults": results, "totalScore": 3, "maximumScore": 6}
    stores.made(
        "analyses",
        Analysis,
        "shop",
        "stage-1-analysis-1",
        ("KeptnWorkloadVersion", "cart-web-1.4.2"),
        spec={"analysisDefinition": {"name": "canary"}, "args": {"stage": "1"}},
        status={
            "state": "Completed",
            "raw": msgspec.json.encode(raw).decode(),
            "timeframe": {"from": stores.ago(300), "to": stores.ago(60)},
        },
    )
    objective = {"analysisValueTemplateRef": {"name": "rate-1"}, "target": {"failure": 3}}
    spec = {"objectives": [objective], "totalScore": {"passPercentage": 90}}
    stores.made("analysis_definitions", AnalysisDefinition, "shop", "canary", spec=spec)


async def test_an_analysis_has_its_objectives_with_their_criteria(stores):
    analysed(stores)
    page = await shown(stores, ANALYSES, "stage-1-analysis-1")
    assert page.row.state.word == "Failed"
    assert [(row.name, row.state.word, row.value) for row in rows(page, "Objectives")] == [
        ("rate-3", "Failed", "0.75"),
        ("rate-2", "Warning", "0.5"),
        ("rate-1", "Succeeded", "0.25"),
    ]
    assert rows(page, "Objectives")[0].target == "failure if greater than 500m"
    assert page.row.value == "0.75"
    definition = await shown(stores, ANALYSIS_DEFINITIONS, "canary")
    # What is wrong with a target is said in its place.
    assert rows(definition, "Objectives")[0].target == "target.failure: an object is needed"
    assert [row.name for row in rows(definition, "Last runs")] == ["stage-1-analysis-1"]
    assert ("Total score pass percentage", "90") in definition.facts


async def test_an_analysis_may_name_a_definition_of_another_namespace(stores):
    reference = {"name": "canary", "namespace": "mail"}
    stores.made("analyses", Analysis, "shop", "stage-1", spec={"analysisDefinition": reference})
    for namespace in ("shop", "mail"):
        stores.made("analysis_definitions", AnalysisDefinition, namespace, "canary")
    page = await shown(stores, ANALYSES, "stage-1")
    assert [row.namespace for row in rows(page, "Definition")] == ["mail"]
    used = await shown(stores, ANALYSIS_DEFINITIONS, "canary", namespace="mail")
    assert [row.name for row in rows(used, "Last runs")] == ["stage-1"]
    unused = await shown(stores, ANALYSIS_DEFINITIONS, "canary")
    assert rows(unused, "Last runs") == ()


async def test_a_task_tells_why_it_failed_and_its_definition_who_uses_it(stores):
    stores.app("shop", "cart", 2)
    status = {
        "status": "Failed",
        "jobName": "pre-backup-1-abc",
        "reason": "BackoffLimitExceeded",
        "message": "exit code 3",
        "startTime": stores.ago(60),
        "endTime": stores.ago(20),
    }
    spec = {"taskDefinition": "backup", "checkType": "pre", "retries": 0}
    stores.made("tasks", Task, "shop", "pre-backup-1", CART, spec=spec, status=status)
    stores.made(
        "task_definitions",
        TaskDefinition,
        "shop",
        "backup",
        spec={"container": {"name": "x", "image": "example.com/backup:1"}},
    )
    page = await shown(stores, TASKS, "pre-backup-1")
    assert page.row.text == "BackoffLimitExceeded: exit code 3"
    assert page.row.time == stores.ago(20)
    assert {("Job", "pre-backup-1-abc"), ("Retries", "0"), ("Check type", "pre")} <= set(page.facts)
    definition = await shown(stores, TASK_DEFINITIONS, "backup")
    assert [row.name for row in rows(definition, "Last runs")] == ["pre-backup-1"]
    assert [row.name for row in rows(definition, "Releases that use it")] == ["cart"]


async def test_a_list_has_the_failed_first_then_the_newest(stores):
    states = ("Succeeded", "Failed", "Progressing", "Succeeded")
    for number, state in enumerate(states):
        spec = {"taskDefinition": "backup"}
        made = partial(stores.made, "tasks", Task, "shop", f"task-{number}", age=100 - number)
        made(spec=spec, status={"status": state})
    world = await stores.world()
    page = checks(world, ALL, PageQuery(view="tasks"), NOW)
    assert [row.name for row in page.listing.rows] == ["task-1", "task-2", "task-3", "task-0"]
    assert [(part.label, part.count) for part in page.parts] == [
        ("failed", 1),
        ("progressing", 1),
        ("succeeded", 2),
    ]
    only = checks(world, ALL, PageQuery(view="tasks", state="Failed"), NOW)
    assert [row.name for row in only.listing.rows] == ["task-1"]
    assert checks(world, ALL, PageQuery(view="unknown"), NOW).view == "metrics"


async def test_of_an_application_the_newest_version_counts(stores):
    stores.app("shop", "cart", 5, "1.4.1")
    stores.app("shop", "cart", 0, "1.4.2")
    page = await shown(stores, TASK_DEFINITIONS, "backup")
    released = [(row.name, row.text) for row in rows(page, "Releases that use it")]
    assert released == [("cart", "version 1.4.2")]


async def test_what_cannot_be_listed_is_neither_shown_nor_linked(stores):
    evaluated(stores, "412.5")
    only = Visibility({EVALUATIONS.name: ListScope(namespaces=frozenset({"shop"}))})
    page = await shown(stores, EVALUATIONS, "pre-errors-1", only)
    assert page.row.release is None
    assert rows(page, "Definition") == ()
    assert [row.path for row in rows(page, "Objectives")] == [""]
    assert await shown(stores, KEPTN_METRICS, "p95", only) is None
    elsewhere = Visibility({EVALUATIONS.name: ListScope(namespaces=frozenset({"mail"}))})
    assert await shown(stores, EVALUATIONS, "pre-errors-1", elsewhere) is None
    listed = checks(await stores.world(), elsewhere, PageQuery(view="evaluations"), NOW)
    assert listed.listing.rows == ()


async def test_a_metric_that_may_not_be_listed_still_hides_the_shared_one(stores):
    evaluated(stores, "412.5")
    stores.metric("shop", "p95", value="412.5")
    stores.metric("keptn-system", "p95", value="1")
    world = await stores.world()
    world = PageSources(**{**vars(world), "definition_namespaces": ("keptn-system",)})
    shared = ListScope(namespaces=frozenset({"keptn-system"}))
    visible = Visibility({kind.name: EVERYWHERE for kind in SOURCES} | {KEPTN_METRICS.name: shared})
    find = partial(check, sources=world, visible=visible, now=NOW)
    of_shop = partial(PageQuery, namespace="shop")
    page = find(EVALUATIONS, query=of_shop(name="pre-errors-1"))
    assert [row.path for row in rows(page, "Objectives")] == [""]
    page = find(EVALUATION_DEFINITIONS, query=of_shop(name="errors"))
    # That it is not there is more than this user can know.
    assert [(row.path, row.state.word) for row in rows(page, "Objectives")] == [("", "Unknown")]
    page = find(KEPTN_METRICS, query=PageQuery(namespace="keptn-system", name="p95"))
    assert page.lists == ()


async def test_an_application_and_a_workload_of_one_name_are_two_releases(stores):
    stores.app("shop", "cart-web", 2)
    spec = {"app": "cart", "workloadName": "cart-web", "preDeploymentTasks": ["backup"]}
    reference = {"uid": "u", "kind": "ReplicaSet", "name": "cart-web-1"}
    spec |= {"version": "1.4.2", "resourceReference": reference}
    stores.made("workload_versions", WorkloadVersion, "shop", "cart-web-1", spec=spec)
    page = await shown(stores, TASK_DEFINITIONS, "backup")
    of = [row.path for row in rows(page, "Releases that use it") if row.name == "cart-web"]
    assert sorted(path.partition("?")[0] for path in of) == [
        "/applications/shop/cart",
        "/applications/shop/cart-web",
    ]


async def test_long_texts_are_cut(place):
    long = "1" * 100_000
    place.filled.metric("shop", "p95", value=long, errMsg=long, lastUpdated=place.filled.ago(600))
    objective = {"keptnMetricRef": {"name": "p95"}, "evaluationTarget": "<" + long}
    spec = {"objectives": [objective, {**objective, "keptnMetricRef": {"name": long}}] * 100}
    place.filled.made("evaluation_definitions", EvaluationDefinition, "shop", "errors", spec=spec)
    paths = ("keptnmetrics/shop/p95", "keptnevaluationdefinitions/shop/errors")
    for path in (*paths, "?view=metrics", "?view=definitions"):
        assert len(await place.page(f"/checks/{path}".replace("/?", "?"))) < 200_000


async def test_lists_of_an_object_are_bounded(stores):
    stores.app("shop", "cart", 2)
    for number in range(MOST + 5):
        evaluated(stores, "1", name=f"pre-errors-{number}")
    page = await shown(stores, KEPTN_METRICS, "p95")
    assert len(rows(page, "Last runs")) == MOST + 1


async def test_without_sources_every_view_is_empty():
    for view in ("metrics", "evaluations", "analyses", "tasks", "definitions"):
        assert checks(PageSources(), ALL, PageQuery(view=view), NOW).listing.rows == ()


async def test_every_link_leads_to_a_page_and_back(place):
    """From the lists, all pages of checks are reached, and the release from each."""
    stores = place.filled
    evaluated(stores, "NaN", "", "412.5")
    analysed(stores)
    # One that no version owns.
    stores.remove("evaluations", "shop/pre-errors-81724")
    spec = {"taskDefinition": "backup"}
    stores.made("tasks", Task, "shop", "pre-backup-1", CART, spec=spec)
    views = ("metrics", "evaluations", "analyses", "tasks", "definitions")
    todo = [f"/checks?view={view}" for view in views]
    reached = {}
    while todo:
        path = todo.pop()
        if path in reached:
            continue
        text = await place.page(path)
        links = {link for link in re.findall(r'href="(/[^"]*)"', text) if "/shop/" in link}
        reached[path] = links
        todo += [link for link in links if link.startswith("/checks/")]
    plurals = {path.split("/")[2] for path in reached if path.startswith("/checks/")}
    assert len(plurals) == 7
    release = "/applications/shop/cart"
    pages = {path: links for path, links in reached.items() if path.startswith("/checks/")}
    assert [
        path
        for path, links in pages.items()
        if "analysisdefinitions" not in path and not any(link.startswith(release) for link in links)
    ] == []
    # In the other direction, the release leads to its checks.
    of_release = await place.page(release)
    assert 'href="/checks/keptnevaluations/shop/pre-errors-81724"' in of_release
    # A value that is NaN or missing is text in the table, not an error of the page.
    evaluation = await place.page("/checks/keptnevaluations/shop/pre-errors-1")
    assert "<bdi>NaN</bdi>" in evaluation
    assert "inconclusive: empty value for: p95: no values" in evaluation


async def test_a_user_without_the_kind_learns_which_permission_is_missing(place):
    place.filled.metric("shop", "p95")
    place.access.kinds["sailor"] = {"keptntasks"}
    text = await place.page("/checks/keptnmetrics/shop/p95", "sailor", status=403)
    assert "list keptnmetrics.metrics.keptn.sh in the namespace shop" in text
