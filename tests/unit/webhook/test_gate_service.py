"""Gates over HTTP: paths, failures and lateness of ours, and what is counted and logged."""

from __future__ import annotations

import json

import pytest

from helpers.admission import GATE, PARENT, Admission, Answer, engine_of, family, keys, pod
from helpers.objects import body
from helpers.raw_http import post, post_chunked

TRACKED = keys(workload="waiter", version="0.4", app="shop")


@pytest.fixture
async def admission(log):
    return Admission(log, engine_of(family(TRACKED)))


async def ask(admission, document, path="/mutate", *, send=post):
    answer = await admission.ask(send(body(document), path=path))
    assert answer.status == 200
    return Answer(json.loads(answer.body)["response"], None, document)


async def test_gated_pods_are_counted_and_logged(admission):
    await ask(admission, pod())
    assert admission.value("duration_seconds_count", outcome="gated") == 1
    assert admission.value("patch_operations_sum") == 2
    assert admission.kupid() == {"processed": 1, "allowed": 1, "mutated": 1}
    (line,) = admission.lines()
    assert (line["event"], line["level"], line["operations"]) == ("gated", "info", 2)
    assert line["codes"] == []


async def test_a_late_answer_still_adds_the_gate(admission, late):
    answer = await ask(admission, pod(TRACKED), "/mutate?timeout=20ms", send=post_chunked)
    assert answer.gates == [GATE]
    assert answer.annotations == TRACKED | {PARENT: "unresolved"}
    assert (
        "time limit of this request was reached" in answer.response["auditAnnotations"]["deadline"]
    )
    assert admission.value("skipped_total", reason="deadline") == 1


async def test_a_defect_of_ours_still_adds_the_gate(admission, broken):
    answer = await ask(admission, pod(TRACKED))
    assert answer.gates == [GATE]
    assert answer.annotations[PARENT] == "unresolved"
    assert "secret" not in json.dumps(answer.response)
    assert {line["event"] for line in admission.lines()} == {"review failed", "gated"}


async def test_a_second_defect_denies_the_pod(admission, broken, monkeypatch):
    monkeypatch.setattr("harbourmaster.webhook.handlers.fixed_gating", broken)
    answer = await ask(admission, pod(TRACKED))
    assert not answer.response["allowed"]
    assert "secret" not in json.dumps(answer.response)
    assert admission.value("duration_seconds_count", outcome="denied") == 1
    assert admission.kupid() == {"processed": 1, "denied": 1}
    line = next(line for line in admission.lines() if line["event"] == "denied")
    assert (line["level"], line["codes"]) == ("warning", ["internal-error"])


async def test_it_denies_nobody_at_validation(admission, broken, monkeypatch):
    monkeypatch.setattr("harbourmaster.webhook.handlers.fixed_gating", broken)
    assert (await ask(admission, pod(TRACKED), "/validate")).is_untouched
