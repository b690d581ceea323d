"""The tables of the manual list exactly what the code has."""

from __future__ import annotations

import ast
import re
from http import HTTPStatus
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry

from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.cli.doctor import break_glass as doctor
from harbourmaster.controller.extender import extender
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.gates.mistakes import Mistake
from harbourmaster.kube.events import AGGREGATED, CREATED, DROPS, UPDATED
from harbourmaster.lifecycle import gate_waits
from harbourmaster.lifecycle.events import (
    APP_PHASES,
    APPLICATION_PHASES,
    LONG_NAMES,
    ONLY_DOCUMENTED,
    REASONS,
    WORKLOAD_PHASES,
    events_of,
)
from harbourmaster.lifecycle.gate_verdict import Code
from harbourmaster.policies.model import AdmissionWarning
from harbourmaster.registration.break_glass import BreakGlass
from harbourmaster.rescheduling.answers import EvictionOutcome
from harbourmaster.rescheduling.limits import Budgets, EvictionLimits
from harbourmaster.telemetry.api_metrics import NO_ANSWER, RequestCounters, WatchCollector
from harbourmaster.telemetry.cloud_events import CLOUD_EVENT_OUTCOMES
from harbourmaster.telemetry.metrics import CERTIFICATE_ROLES, SHED_REASONS
from harbourmaster.telemetry.span_model import SPAN_OUTCOMES
from harbourmaster.webhook import handlers, review, verdict
from harbourmaster.webhook.settings import Settings, WebhookSettings
from helpers.manual_commands import settings_of
from manual.families import (
    Mirror,
    cluster_families,
    extender_families,
    labels_of,
    lifecycle_families,
    measuring_families,
    rescheduling_families,
    server_families,
    shown_name,
)

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
REFERENCE = ROOT / "docs" / "reference"
SERVER = REFERENCE / "server.md"
ANSWERS = REFERENCE / "answers.md"
CLUSTER = REFERENCE / "cluster.md"
EVENTS = REFERENCE / "events.md"
TELEMETRY = REFERENCE / "telemetry.md"
MEASURING = REFERENCE / "metrics.md"
SCHEDULER = REFERENCE / "scheduler.md"
RESCHEDULER = REFERENCE / "rescheduler.md"

NOTHING = "\N{EN DASH}"
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]+)`")


def without_blocks(page):
    """The text of a page, its code blocks left out."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def tables(page, first_column):
    """The rows of each table whose first column has that title; cells as written."""
    texts = re.findall(r"(?:^\|.*\|\n)+", without_blocks(page), re.MULTILINE)
    lines = [[cells(line) for line in text.splitlines()] for text in texts]
    return [table[2:] for table in lines if table[0][0] == first_column]


def rows(page, first_column, which=None):
    """The rows of the only table whose first column has that title, or of that number."""
    matching = tables(page, first_column)
    assert which is not None or len(matching) == 1
    return matching[which or 0]


def cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def code(cell):
    (text,) = CODE.findall(cell)
    return text


def anchors(page):
    titles = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def calls():
    """Every call in the packages that answer reviews: the function's name and the call."""
    for package in ("harbourmaster/gates", "policies", "harbourmaster/serving", "webhook"):
        for file in (ROOT / package).glob("*.py"):
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


TABLES = pytest.mark.parametrize(
    ("page", "column", "families"),
    [
        pytest.param(SERVER, "metric", server_families, id="server"),
        pytest.param(CLUSTER, "metric of the cluster", cluster_families, id="cluster"),
        pytest.param(TELEMETRY, "metric of the lifecycle", lifecycle_families, id="lifecycle"),
        pytest.param(MEASURING, "metric of the measuring", measuring_families, id="measuring"),
        pytest.param(SCHEDULER, "metric of the extender", extender_families, id="extender"),
        pytest.param(
            RESCHEDULER, "metric of the rescheduler", rescheduling_families, id="rescheduler"
        ),
    ],
)


@pytest.mark.parametrize(
    ("pages", "column", "settings", "told_elsewhere"),
    [
        (["settings"], "key", Settings, None),
        (["settings"], "key of the webhook", WebhookSettings, Settings),
        (
            ["settings-controller", "settings-optional"],
            "key of the controller",
            ControllerSettings,
            None,
        ),
    ],
)
def test_the_manual_lists_every_setting_with_its_flag_and_default(
    pages, column, settings, told_elsewhere
):
    expected = settings_of(settings)
    if told_elsewhere is not None:
        expected -= settings_of(told_elsewhere)
    listed = [
        (code(row[0]), code(row[1]), code(row[2]))
        for page in pages
        for table in tables(REFERENCE / f"{page}.md", column)
        for row in table
    ]
    assert sorted(listed) == sorted(expected)


NOTING = {AdmissionWarning.__name__, Mistake.__name__, "skip", "answer_failed"}


def test_the_manual_lists_every_audit_code():
    given = set()
    for name, call in calls():
        # The code comes before the text, and both may be constants.
        if name in NOTING and (texts := constants(call, str)):
            given.add(texts[0])
    assert {code(row[0]) for row in rows(ANSWERS, "code")} == given


@TABLES
def test_the_manual_lists_every_metric_with_its_type(page, column, families):
    exposed = {(shown_name(family), family.type) for family in families()}
    assert {(code(row[0]), row[1]) for row in rows(page, column)} == exposed


@TABLES
def test_the_manual_lists_every_label_of_the_metrics(page, column, families):
    listed = {code(row[0]): set(CODE.findall(row[2])) for row in rows(page, column)}
    assert {shown_name(family): labels_of(family) for family in families()} == listed


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
    expected = {*verdict.OUTCOMES, *SHED_REASONS, *CERTIFICATE_ROLES, *SPAN_OUTCOMES}
    assert expected | kupid <= named


def test_the_manual_of_the_cluster_names_every_value_of_a_label_that_is_ours():
    named = named_values(CLUSTER, "metric of the cluster")
    assert named["harbourmaster_events_total"] == {CREATED, UPDATED, AGGREGATED, *DROPS}
    assert named["harbourmaster_api_requests_total"] == {NO_ANSWER}
    assert named["harbourmaster_certificate_expiry_seconds"] == set(CERTIFICATE_ROLES)
    named = named_values(RESCHEDULER, "metric of the rescheduler")
    assert named["rescheduler_evictions_total"] == {outcome.value for outcome in EvictionOutcome}
    assert named["rescheduler_budget_remaining"] == {*Budgets(EvictionLimits()).tokens_left(0.0)}
    named = named_values(SCHEDULER, "metric of the extender")
    assert named["harbourmaster_extender_answers_total"] == {*extender.VERBS, *extender.OUTCOMES}


def test_the_manual_of_gates_lists_every_reason_in_its_order():
    codes = [code(row[0]) for row in rows(REFERENCE / "gate-reasons.md", "code")]
    assert codes == list(get_args(Code))


NEVER_FAILS = "ApplicationDeployFailed"


def listed_reasons():
    """Keptn's reasons that the manual lists, with the cells of the documentation's and the type."""
    for keptn, documented, kind, _ in rows(EVENTS, "`keptn`", 0):
        for phase in (*APP_PHASES, *APPLICATION_PHASES, *WORKLOAD_PHASES):
            if f"{phase}{code(keptn)}" == NEVER_FAILS:
                continue
            yield f"{phase}{code(keptn)}", documented.replace("*Phase*`", f"`{phase}"), kind
    for keptn, documented, kind, *_ in rows(EVENTS, "`keptn`", -1):
        for reason in CODE.findall(keptn):
            if "of type" not in keptn:
                yield reason, documented, kind


def test_the_manual_of_events_lists_every_reason_in_both_vocabularies():
    # Besides the row on time-outs, which share a reason with successes.
    reasons = {"WorkloadDeployStarted": {"WorkloadDeployReconcile"}}
    for reason, documented, kind in listed_reasons():
        renamed = reason.replace("Failed", "Errored") if "with" in documented else reason
        same = {renamed} if documented.startswith("the same") else set(CODE.findall(documented))
        reasons.setdefault(reason, set()).update(same)
        phase = max((name for name in LONG_NAMES if reason.startswith(name)), key=len)
        (event,) = events_of(phase, reason.removeprefix(phase), "", "keptn")
        assert kind == ("Warning" if event.is_warning else "Normal")
    assert reasons == {reason: set(documented) for reason, documented in REASONS.items()}


def test_the_manual_of_events_lists_why_pods_wait_the_gravest_first():
    listed = [(code(row[0]), row[1]) for row in rows(EVENTS, "reason")]
    assert [reason for reason, _ in listed] == [*gate_waits.REASONS]
    for reason, kind in listed:
        wait = gate_waits.GateWait(reason=reason, identity="", text="")
        assert kind == ("Warning" if wait.is_warning else "Normal")


def emitted_reasons(*folders):
    """The reasons that are written out where events are emitted with their type."""
    calls = (
        node
        for folder in folders
        for file in [*(ROOT / folder).rglob("*.py"), ROOT / folder]
        if file.is_file()
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "emit"
    )
    for call in calls:
        _, kind, reason, *_ = [*call.args, None, None]
        if getattr(kind, "value", "") in {"Normal", "Warning"}:
            yield from ((part.value, kind.value) for part in ast.walk(reason) if literal(part))


def literal(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


CONTROLLER = "harbourmaster/controller"
INSTALLING = (f"{CONTROLLER}/registration", f"{CONTROLLER}/extender", f"{CONTROLLER}/namespaces.py")


def test_the_manual_of_events_lists_every_event_of_the_installation_with_its_type():
    listed = {(code(row[0]), row[1]) for row in rows(EVENTS, "event")}
    assert listed == {*emitted_reasons(*INSTALLING)}


def test_the_command_and_the_controller_have_the_same_events_on_break_glass_mode():
    stored = {"metadata": {"uid": "u"}}
    told = {
        (note["reason"], note["type"])
        for is_on in (True, False)
        for note in [doctor.event(MUTATING_WEBHOOKS, stored, BreakGlass(), is_on=is_on)]
    }
    assert told == {
        event for event in emitted_reasons(*INSTALLING) if event[0].startswith("BreakGlass")
    }


def test_the_reference_names_every_event_that_is_written_out():
    text = "".join(page.read_text() for page in REFERENCE.glob("*.md"))
    every = {reason for reason, _ in emitted_reasons(CONTROLLER)}
    assert len(every) > len({*emitted_reasons(*INSTALLING)})
    assert not {reason for reason in every if f"`{reason}`" not in text}


def test_the_manual_of_events_lists_what_only_the_documentation_names():
    listed = {code(row[1]) for row in rows(EVENTS, "`keptn`", -1) if row[0] == NOTHING}
    assert listed == ONLY_DOCUMENTED.keys()


def test_the_manual_of_events_names_every_fate_of_a_cloud_event():
    named = named_values(TELEMETRY, "metric of the lifecycle")
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
    WatchCollector(registry).follow([Mirror()], float)
    RequestCounters(registry)
    added = [shown_name(family) for family in registry.collect()]
    listed = [code(row[0]) for row in rows(CLUSTER, "metric of the cluster")]
    assert set(listed[: len(added)]) == set(added)
    assert listed[len(added) - 1] == "harbourmaster_api_request_duration_seconds"


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
    for file in (ROOT / "harbourmaster/serving").glob("*.py"):
        given.update(
            HTTPStatus[name] for name in re.findall(r"HTTPStatus\.([A-Z_]+)", file.read_text())
        )
    assert {int(row[0]) for row in rows(ANSWERS, "status")} == given


def test_the_manual_names_every_code_inside_a_review():
    text = without_blocks(ANSWERS)
    assert set(re.findall(r"code (\d{3})", text)) == {
        str(review.BAD_REQUEST),
        str(review.FORBIDDEN),
    }


LINKS = {page: links for page in PAGES if (links := LINK.findall(without_blocks(page)))}


def test_most_pages_have_links():
    assert len(LINKS) > len(PAGES) / 2


@pytest.mark.parametrize("page", LINKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    assert LINKS[page]
    for link in LINKS[page]:
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link
