"""Dynatrace's metrics API v2, as recorded."""

from __future__ import annotations

import json

import pytest

from harbourmaster.providers.dynatrace import Dynatrace
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    BadQueryError,
    NoValuesError,
    ThrottledError,
    TimedOutError,
    TooLargeError,
    TooManyValuesError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.providers.model import Question, Sample, Target
from helpers.exchanges import GARBAGE, Told, outcome, played, timed_out

QUERY = 'builtin:service.response.time:filter(eq("service","web & co")):splitBy()'
SECRET = {"token": b"dt0c01.CANARY\n"}


def target(url, secret=SECRET, key="token"):
    return Target("dynatrace", f"{url}/e/abc12345/", secret=secret, secret_key=key)


async def ask(case, question=None):
    return await played(Dynatrace(), target, question or Question(QUERY), "dynatrace", case)


async def told(document, question=None):
    http = Told(document if isinstance(document, bytes) else json.dumps(document).encode())
    answer = await outcome(
        Dynatrace(), http, target("https://dt.example.com"), question or Question("m")
    )
    return answer, http


def series(timestamps, values):
    return {"result": [{"data": [{"timestamps": timestamps, "values": values}]}]}


async def test_success_is_the_mean_of_the_points_that_have_a_value():
    answer = await ask("success")
    assert answer.value == "12.000000"
    assert answer.samples == (Sample(1772366340.0, 12.0),)
    assert json.loads(answer.raw)["resolution"] == "1m"


async def test_a_range_is_asked_for_in_milliseconds():
    answer = await ask("window", Question(QUERY, start=1772362800.0, end=1772366400.5))
    assert answer.value == "3.000000"


async def test_a_step_is_the_resolution_and_gives_all_points():
    answer = await ask("steps", Question(QUERY, start=1772362800.0, end=1772366400.0, step=300.0))
    assert answer.value == "12.000000"
    assert answer.samples == (Sample(1772366160.0, 10.0), Sample(1772366760.0, 14.0))


@pytest.mark.parametrize("step", [30.0, 90.0, 0.5])
async def test_a_step_that_is_no_whole_minute_is_not_asked_for(step):
    error, http = await told(b"", Question("m", start=0.0, end=9.0, step=step))
    assert type(error) is BadQueryError
    assert "whole minutes" in str(error)
    assert not http.sent


async def test_of_several_series_all_points_count():
    assert (await ask("several")).value == "30.000000"


@pytest.mark.parametrize(
    ("case", "kind", "message"),
    [
        ("empty", NoValuesError, "no values in query result"),
        ("nulls", NoValuesError, "no values in query result"),
        ("pages", TooManyValuesError, "further pages"),
        ("refused", BadQueryError, "The metric key 'builtin:no.such' is unknown"),
        ("unauthorized", UnauthorizedError, "HTTP 401"),
        ("forbidden", UnauthorizedError, "HTTP 403"),
        ("throttled", ThrottledError, "HTTP 429"),
        ("unavailable", UnreachableError, "HTTP 503: The service is unavailable"),
    ],
)
async def test_what_is_no_value_says_why(case, kind, message):
    error = await ask(case)
    assert type(error) is kind
    assert message in str(error)


async def test_throttled_says_for_how_long():
    assert (await ask("throttled")).seconds == 7


async def test_a_server_that_hangs_ends_in_a_time_out():
    assert type(await timed_out(Dynatrace(), target, Question(QUERY))) is TimedOutError


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_no_answer(body):
    error, _ = await told(body)
    assert type(error) in {BadAnswerError, NoValuesError}


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
async def test_points_that_are_none_make_no_value(document, kind):
    error, _ = await told(document)
    assert type(error) is kind


@pytest.mark.parametrize(
    ("secret", "key", "message"),
    [
        (None, "token", "no secret: set secretKeyRef"),
        ({}, "token", "secret does not contain the key token"),
        ({"token": b"\n"}, "token", "the key token of the secret is empty or not printable ASCII"),
    ],
)
async def test_credentials_that_are_none_are_told(secret, key, message):
    own = target("https://dt.example.com", secret, key)
    error = await outcome(Dynatrace(), Told(b""), own, Question("m"))
    assert type(error) is BadCredentialsError
    assert str(error) == message


async def test_no_query_alters_the_url():
    query = "m&from=now-1y#/?resolution=Inf\r\nHost: evil"
    _, http = await told(b'{"result": []}', Question(query))
    ((method, url, options),) = http.sent
    assert (method, url) == ("GET", "https://dt.example.com/e/abc12345/api/v2/metrics/query")
    assert options["params"] == {"metricSelector": query, "from": "now-5m"}
