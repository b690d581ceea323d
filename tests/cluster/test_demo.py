"""``make demo`` as a user runs it, and what there is to see when it has shown all."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
import urllib.error
import urllib.request
from itertools import chain

import pytest

from harbourmaster.playground.group import living
from harbourmaster.playground.processes import read_records
from harbourmaster.playground.prometheus import Prometheus
from harbourmaster.playground.tour import CANARY, MEMBERS, STEPS
from helpers.command import demonstrating
from helpers.grafana import DASHBOARDS, filled_in, panels_of
from helpers.patience import PATIENCE

# A first run builds Prometheus.
pytestmark = pytest.mark.timeout(900)
PLANES = ("", *(f"{name}/" for name in MEMBERS))
RECORDS = (*(f"{folder}pids.json" for folder in PLANES), "harbourmaster.json")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A demo that has shown all and runs on; in the end Ctrl-C stops everything."""
    directory = tmp_path_factory.mktemp("demo") / "harbour"
    with demonstrating(directory, "demo", "Ctrl-C stops everything") as demo:
        assert demo.matched, demo.text
        yield demo
        # Here, since the order of tests is random and each needs what runs.
        assert all(living(directory / name) for name in RECORDS)
        assert demo.end() == 0
        assert not any(living(directory / name) for name in RECORDS)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def page(address, path="", **headers):
    """Status and text of a page."""
    request = urllib.request.Request(address + path, headers=headers)  # noqa: S310
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_every_step_is_told_in_order(demo):
    told = [
        int(number) for number in re.findall(rf"^== (\d+) of {STEPS}: ", demo.text, re.MULTILINE)
    ]
    assert told == list(range(STEPS + 1))


def test_why_names_the_value_that_fails_the_check(demo):
    _, after = demo.text.split("$ harbourmaster why pod --namespace=shop -l=app=till\n")
    said, _ = after.split("\n== ", 1)
    assert "few-errors" in said
    assert "value '7' did not meet objective '<5'" in said


def test_the_error_rate_holds_the_canary_until_it_is_promoted(demo):
    (pods,) = demo.rows("get pods -o")
    assert [row for row in pods if row[0] == CANARY].count([CANARY, "Running"]) == 1
    (versions,) = demo.rows("get keptnworkloadversions")
    assert [CANARY, "Held", "analysis", "error-rate", "failed"] in versions
    _, after = demo.text.split("$ harbourmaster gate promote deployment/till ")
    assert "successfully rolled out" in after


def test_the_wait_names_its_object_and_ends_with_it(demo):
    (listed,) = demo.rows("gate list --namespace=shop")
    assert any("configmap/prices" in " ".join(row) for row in listed)
    assert "pod/stall condition met" in demo.text


def test_the_policy_adds_its_toleration(demo):
    (shown,) = demo.rows("get pod/ledger")
    assert "example.com/dedicated-to" in " ".join(shown[0])
    (said,) = demo.rows("why pod shop/ledger")
    assert any("cluster-toleration" in row for row in said)


def test_one_pod_is_evicted_for_the_add_on(demo):
    assert "pod/dns condition met" in demo.text
    (events,) = demo.rows("get events --field-selector=reason=EvictedByRescheduler")
    assert len([row for row in events if "EvictedByRescheduler" in row]) == 1


def test_the_application_is_placed_and_moves(demo):
    assert [
        re.search("(?:Placed|Moved) to '(\\w+)'", " ".join(chain.from_iterable(table)))[1]
        for table in demo.rows("why application shop/ferry")
    ] == ["north", "south"]
    listed = demo.rows("get deployments --ignore-not-found")
    assert [any("ferry" in row for row in table) for table in listed] == [True, False, False, True]


def test_the_dashboard_lets_in_who_has_the_token_that_is_told_of(demo):
    address = re.search(r"^The dashboard: (\S+)$", demo.text, re.MULTILINE)[1]
    (command,) = re.findall(r"^\$ (\S+ \S+ create token .+)$", demo.text, re.MULTILINE)
    token = subprocess.run(
        shlex.split(command), capture_output=True, check=True, text=True
    ).stdout.strip()
    bearer = {"Authorization": f"Bearer {token}"}
    assert page(address)[0] != 200
    failed = re.search(r"^The release that failed: (\S+)$", demo.text, re.MULTILINE)[1]
    for path, shown in (
        ("", ("Overview",)),
        ("applications", ("till",)),
        ("gates", ("till-", "manual-approval")),
        ("clusters", tuple(MEMBERS)),
        ("clusters?view=placed", ("ferry", "south")),
        (failed.removeprefix(address), ("What failed", "few-errors")),
    ):
        status, text = page(address, path, **bearer)
        assert status == 200
        assert all(name in text for name in shown), path


@pytest.fixture(scope="module")
def server(demo, tmp_path_factory):
    """A Prometheus that scrapes the processes of the demo."""
    records = read_records(demo.directory / "harbourmaster.json")
    scrapes = {
        record.name: record.ready.replace("/readyz", "/metrics")
        for record in records
        if record.ready
    }
    with Prometheus(tmp_path_factory.mktemp("prometheus"), scrapes) as prometheus:
        prometheus.await_targets()
        yield prometheus.url


@pytest.mark.parametrize("name", DASHBOARDS)
def test_each_dashboard_of_grafana_shows_something(server, name):
    panels = panels_of(name)
    queries = {
        panel["title"]: filled_in(target["expr"]) for panel in panels for target in panel["targets"]
    }
    deadline = time.monotonic() + 2 * PATIENCE
    answered = set()
    # Rates need two samples; what is asked for is there after a few seconds.
    while len(answered) < len(queries) / 4 and time.monotonic() < deadline:
        answered |= {title for title, query in queries.items() if samples(server, query)}
    assert len(answered) >= len(queries) / 4, sorted(queries.keys() - answered)


def samples(server, query):
    url = f"{server}/api/v1/query"
    body = f"query={urllib.request.quote(query, safe='')}".encode()
    with urllib.request.urlopen(url, body, timeout=PATIENCE) as answer:  # noqa: S310
        return json.load(answer)["data"]["result"]
