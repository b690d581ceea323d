"""Datadog's timeseries API, as recorded."""

from __future__ import annotations

import json

import pytest

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    NotFiniteError,
    TooLargeError,
)
from harbourmaster.providers.model import Question, Sample
from helpers.provider_clients import DATADOG

QUERY = DATADOG.question.query
SECRET = DATADOG.target.secret
RANGE = Question("m", 0.0, 9.0, 1.0)


async def answer_to(points, question=None):
    answer, _ = await DATADOG.answer_to({"series": [{"pointlist": points}]}, question)
    return answer


async def test_success_is_the_mean_of_the_points_that_have_a_value():
    answer = await DATADOG.ask("success")
    assert answer.value == "85.917"
    assert answer.samples == (Sample(1772366280.0, (84.5 + 86 + 87.25) / 3),)
    assert json.loads(answer.raw)["series"][0]["metric"] == "system.cpu.idle"


async def test_a_step_gives_all_points_that_have_a_value():
    question = Question(QUERY, start=1772362800.0, end=1772366400.5, step=60.0)
    answer = await DATADOG.ask("steps", question)
    assert answer.value == "85.917"
    assert answer.samples == (
        Sample(1772366100.0, 84.5),
        Sample(1772366160.0, 86.0),
        Sample(1772366280.0, 87.25),
    )


async def test_of_several_series_the_first_counts():
    assert (await DATADOG.ask("several")).value == "85.917"


@pytest.mark.parametrize("name", SECRET)
async def test_a_missing_key_is_named(name):
    secret = {key: value for key, value in SECRET.items() if key != name}
    error, _ = await DATADOG.answer_to(b"", secret=secret)
    assert type(error) is BadCredentialsError
    assert f"does not contain {name}: correct it" in str(error)


async def test_without_a_secret_the_reference_is_named():
    error, _ = await DATADOG.answer_to(b"", secret=None)
    assert str(error) == "no secret: set secretKeyRef"


@pytest.mark.parametrize("value", [b"", b" \n", b"two\nlines", b"caf\xc3\xa9", b"\xff"])
async def test_a_key_that_is_invalid_in_a_header_is_named_but_not_shown(value):
    secret = {**SECRET, "DD_CLIENT_APP_KEY": value}
    error, _ = await DATADOG.answer_to(b"", secret=secret)
    assert type(error) is BadCredentialsError
    assert "DD_CLIENT_APP_KEY" in str(error)
    assert "two" not in str(error)


async def test_a_query_cannot_change_the_url():
    query = "m}&from=0#/?x=\r\nHost: evil"
    _, ((method, url, options),) = await DATADOG.answer_to(
        {"series": []}, Question(query), server="/"
    )
    assert (method, url) == ("GET", "https://metrics.example.com/api/v1/query")
    assert options["params"] == {"from": "1772366100", "to": "1772366400", "query": query}


@pytest.mark.parametrize(
    ("points", "kind"),
    [
        ([[1772366100000.0, 1.0]] * 10_001, TooLargeError),
        ([[1e300, 1.0]], BadAnswerError),
        ([[-1.0, 1.0]], BadAnswerError),
        ([[1772366100000.0, 1.7e308]] * 2, NotFiniteError),
        ([[1772366100000.0, "84"]], BadAnswerError),
        ([[1772366100000.0]], BadAnswerError),
        ([[1772366100000.0, True]], BadAnswerError),
    ],
)
async def test_invalid_points_are_an_error(points, kind):
    assert type(await answer_to(points)) is kind


async def test_as_many_samples_as_allowed_are_kept():
    points = [[1772366100000.0 + index, 1.0] for index in range(10_000)]
    answer = await answer_to(points, RANGE)
    assert len(answer.samples) == 10_000


async def test_samples_are_in_the_order_of_time():
    points = [[3000.0, 3.0], [1000.0, 1.0], [2000.0, 2.0]]
    answer = await answer_to(points, RANGE)
    assert [sample.time for sample in answer.samples] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("values", "text"),
    [([0.0], "0"), ([12.0], "12"), ([1, 2, 2], "1.6667"), ([1234567.0], "1.2346e+06")],
)
async def test_the_value_has_five_digits(values, text):
    points = [[1000.0, value] for value in values]
    assert (await answer_to(points)).value == text
