"""Gates over HTTP: paths, failures and lateness of ours, and what is counted and logged."""

from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.serving.bodies import read_body
from harbourmaster.serving.limits import Limits
from harbourmaster.serving.settings import ServerSettings
from harbourmaster.serving.site import Site
from harbourmaster.telemetry.metrics import ADMISSION_SKIPPED, create_metrics
from harbourmaster.telemetry.tallies import (
    ADMISSION_DURATION,
    ADMISSION_PATCH_OPERATIONS,
    KUPID_REQUESTS,
)
from harbourmaster.webhook.app import Reviews, create_app
from harbourmaster.webhook.engine import EngineHolder
from harbourmaster.webhook.handlers import OUTCOMES
from harbourmaster.webhook.records import Records
from helpers.admitted import GATE, PARENT, Answer, engine_of, family, keys, pod
from helpers.objects import body
from helpers.raw_http import Connection, post, post_chunked

TRACKED = keys(workload="waiter", version="0.4", app="shop")


class Admission:
    """What serves the review paths of a namespace with gates."""

    def __init__(self, log):
        self._output = log
        self.metrics = create_metrics("0", OUTCOMES)
        self._records = Records(self.metrics, asyncio.get_running_loop(), log)
        reviews = Reviews(
            EngineHolder(engine_of(family(TRACKED))),
            ServerSettings(),
            Limits(metrics=self.metrics),
            self._records,
        )
        self._app = create_app(reviews)

    async def ask(self, document, path="/mutate", *, send=post, **options):
        site = Site(self._app, host="127.0.0.1", port=0)
        await site.start()
        wire = await Connection.open(site, None)
        try:
            question = body(document, **options)
            answer = await wire.ask(send(question, path=path))
        finally:
            await wire.gone()
            await site.stop()
        assert answer.status == 200
        return Answer(json.loads(answer.body)["response"], None, document)

    def lines(self):
        self._records.flush()
        return [json.loads(line) for line in self._output.getvalue().splitlines()]

    def value(self, name, **labels):
        self._records.flush()
        return self.metrics.registry.get_sample_value(name, labels)


@pytest.fixture
async def admission(log):
    return Admission(log)


@pytest.mark.parametrize("path", ["/mutate", "/webhook", "/mutate-v1-pod"])
async def test_d2_every_path_for_mutation_gates(admission, path):
    found = await admission.ask(pod(), path)
    assert found.gates == [GATE]
    assert found.annotations == TRACKED


async def test_validation_gives_no_patch(admission):
    assert (await admission.ask(pod(), "/validate")).is_untouched


async def test_gated_pods_are_counted_and_logged(admission):
    await admission.ask(pod())
    assert admission.value(f"{ADMISSION_DURATION}_count", outcome="gated") == 1
    assert admission.value(f"{ADMISSION_PATCH_OPERATIONS}_sum") == 2
    assert admission.value(KUPID_REQUESTS, type="mutated") == 1
    assert admission.value(KUPID_REQUESTS, type="allowed") == 1
    (line,) = admission.lines()
    assert (line["event"], line["level"], line["operations"]) == ("gated", "info", 2)
    assert line["codes"] == []


async def test_provisional_gates_are_counted_and_logged_as_warnings(admission):
    await admission.ask(pod(owners=[{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x"}]))
    assert admission.value(ADMISSION_SKIPPED, reason="gate-owner-unknown") == 1
    (line,) = admission.lines()
    assert (line["event"], line["level"]) == ("gated", "warning")
    assert line["codes"] == ["gate-owner-unknown"]


@pytest.fixture
def late(monkeypatch):
    """A body is read whole, but the loop comes back to it too late."""

    async def read_late(*arguments, deadline, **options):
        found = await read_body(*arguments, deadline=deadline + 60, **options)
        await asyncio.sleep(max(0.0, deadline - asyncio.get_running_loop().time()) + 0.001)
        return found

    monkeypatch.setattr("harbourmaster.webhook.app.read_body", read_late)


async def test_a_late_answer_still_adds_the_gate(admission, late):
    found = await admission.ask(pod(TRACKED), "/mutate?timeout=20ms", send=post_chunked)
    assert found.gates == [GATE]
    assert found.annotations == TRACKED | {PARENT: "unresolved"}
    assert (
        "time limit of this request was reached" in found.response["auditAnnotations"]["deadline"]
    )
    assert admission.value(ADMISSION_SKIPPED, reason="deadline") == 1


@pytest.fixture
def broken(monkeypatch):
    def fail(*_arguments, **_options):
        raise ZeroDivisionError("secret of the object")

    monkeypatch.setattr("harbourmaster.webhook.app.answer", fail)
    return fail


async def test_a_defect_of_ours_still_adds_the_gate(admission, broken):
    found = await admission.ask(pod(TRACKED))
    assert found.gates == [GATE]
    assert found.annotations[PARENT] == "unresolved"
    assert "secret" not in json.dumps(found.response)
    assert {line["event"] for line in admission.lines()} == {"review failed", "gated"}


async def test_a_second_defect_denies_the_pod(admission, broken, monkeypatch):
    monkeypatch.setattr("harbourmaster.webhook.handlers.fixed", broken)
    found = await admission.ask(pod(TRACKED))
    assert not found.response["allowed"]
    assert "secret" not in json.dumps(found.response)
    assert admission.value(f"{ADMISSION_DURATION}_count", outcome="denied") == 1
    assert admission.value(KUPID_REQUESTS, type="denied") == 1
    line = next(line for line in admission.lines() if line["event"] == "denied")
    assert (line["level"], line["codes"]) == ("warning", ["internal-error"])


async def test_it_denies_nobody_at_validation(admission, broken, monkeypatch):
    monkeypatch.setattr("harbourmaster.webhook.handlers.fixed", broken)
    assert (await admission.ask(pod(TRACKED), "/validate")).is_untouched
