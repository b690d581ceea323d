"""Dynatrace's metrics API v2, as recorded."""

from __future__ import annotations

import json

import pytest

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    BadQueryError,
    TooLargeError,
)
from harbourmaster.providers.model import Question, Sample
from helpers.provider_clients import DYNATRACE

QUERY = DYNATRACE.question.query


def series(timestamps, values):
    return {"result": [{"data": [{"timestamps": timestamps, "values": values}]}]}


async def test_success_is_the_mean_of_the_points_that_have_a_value():
    answer = await DYNATRACE.ask("success")
    assert answer.value == "12.000000"
    assert answer.samples == (Sample(1772366340.0, 12.0),)
    assert json.loads(answer.raw)["resolution"] == "1m"


async def test_a_range_is_asked_for_in_milliseconds():
    answer = await DYNATRACE.ask("window", Question(QUERY, start=1772362800.0, end=1772366400.5))
    assert answer.value == "3.000000"


async def test_a_step_is_the_resolution_and_gives_all_points():
    answer = await DYNATRACE.ask(
        "steps", Question(QUERY, start=1772362800.0, end=1772366400.0, step=300.0)
    )
    assert answer.value == "12.000000"
    assert answer.samples == (Sample(1772366160.0, 10.0), Sample(1772366760.0, 14.0))


@pytest.mark.parametrize("step", [30.0, 90.0, 0.5])
async def test_a_step_must_be_whole_minutes(step):
    error, sent = await DYNATRACE.answer_to(b"", Question("m", start=0.0, end=9.0, step=step))
    assert type(error) is BadQueryError
    assert "whole minutes" in str(error)
    assert not sent


async def test_of_several_series_all_points_count():
    assert (await DYNATRACE.ask("several")).value == "30.000000"


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (series([60000, 120000], [1.0]), BadAnswerError),
        (series([60000], [1.0, 2.0]), BadAnswerError),
        (series([60000], ["1.0"]), BadAnswerError),
        (series([1e300], [1.0]), BadAnswerError),
        (series([60000] * 10_001, [1.0] * 10_001), TooLargeError),
    ],
)
async def test_invalid_points_are_an_error(document, kind):
    error, _ = await DYNATRACE.answer_to(document)
    assert type(error) is kind


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        (None, "no secret: set secretKeyRef"),
        ({}, "does not contain the key token: correct it"),
        ({"token": b"\n"}, "the key token of the secret is empty or not printable ASCII"),
    ],
)
async def test_invalid_credentials_are_an_error(secret, message):
    error, _ = await DYNATRACE.answer_to(b"", secret=secret)
    assert type(error) is BadCredentialsError
    assert message in str(error)


async def test_a_query_cannot_change_the_url():
    query = "m&from=now-1y#/?resolution=Inf\r\nHost: evil"
    _, ((method, url, options),) = await DYNATRACE.answer_to({"result": []}, Question(query))
    assert (method, url) == ("GET", "https://metrics.example.com/e/abc12345/api/v2/metrics/query")
    assert options["params"] == {"metricSelector": query, "from": "now-5m"}
