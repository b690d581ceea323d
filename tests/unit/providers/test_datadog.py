"""Datadog's timeseries API, as recorded."""

from __future__ import annotations

import json

import pytest

from harbourmaster.providers.datadog import Datadog
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    BadProviderError,
    BadQueryError,
    NotFiniteError,
    NoValuesError,
    ThrottledError,
    TimedOutError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.providers.model import Question, Sample, Target
from helpers.exchanges import GARBAGE, Told, outcome, played, timed_out

NOW = 1772366400.9
QUERY = 'avg:system.cpu.idle{env:prod,service:"web"}'
SECRET = {"DD_CLIENT_API_KEY": b"dd-api-canary\n", "DD_CLIENT_APP_KEY": b"dd-app-canary"}


def target(url, secret=SECRET):
    return Target("datadog", url, secret=secret, secret_key="ignored")  # noqa: S106


async def ask(*cases, question=None):
    return await played(
        Datadog(now=lambda: NOW), target, question or Question(QUERY), "datadog", *cases
    )


async def told(document, question=None):
    http = Told(document if isinstance(document, bytes) else json.dumps(document).encode())
    return await outcome(
        Datadog(now=lambda: NOW), http, target("https://dd.example.com"), question or Question("m")
    )


async def test_success_is_the_mean_of_the_points_that_have_a_value():
    answer = await ask("success")
    assert answer.value == "85.917"
    assert answer.samples == (Sample(1772366280.0, (84.5 + 86 + 87.25) / 3),)
    assert json.loads(answer.raw)["series"][0]["metric"] == "system.cpu.idle"


async def test_a_step_gives_all_points_that_have_a_value():
    question = Question(QUERY, start=1772362800.0, end=1772366400.5, step=60.0)
    answer = await ask("steps", question=question)
    assert answer.value == "85.917"
    assert answer.samples == (
        Sample(1772366100.0, 84.5),
        Sample(1772366160.0, 86.0),
        Sample(1772366280.0, 87.25),
    )


async def test_of_several_series_the_first_counts():
    assert (await ask("several")).value == "85.917"


@pytest.mark.parametrize(
    ("case", "kind", "message"),
    [
        ("empty", NoValuesError, "no values in query result"),
        ("nulls", NoValuesError, "no values in query result"),
        ("error", BadQueryError, "Rule 'scope_expr' didn't match"),
        ("refused", BadQueryError, "HTTP 400: Error parsing query: unable"),
        ("unauthorized", UnauthorizedError, "HTTP 403"),
        ("throttled", ThrottledError, "HTTP 429"),
        ("unavailable", UnreachableError, "HTTP 503: Service Unavailable"),
    ],
)
async def test_what_is_no_value_says_why(case, kind, message):
    error = await ask(case)
    assert type(error) is kind
    assert message in str(error)


async def test_throttled_says_for_how_long():
    assert (await ask("throttled")).seconds == 42


async def test_a_server_that_hangs_ends_in_a_time_out():
    assert type(await timed_out(Datadog(), target, Question(QUERY))) is TimedOutError


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_no_answer(body):
    error = await told(body)
    assert type(error) in {BadAnswerError, NoValuesError}


@pytest.mark.parametrize("name", SECRET)
async def test_a_missing_key_is_named(name):
    secret = {key: value for key, value in SECRET.items() if key != name}
    error = await outcome(
        Datadog(), Told(b""), target("https://dd.example.com", secret), Question("m")
    )
    assert type(error) is BadCredentialsError
    assert str(error) == f"secret does not contain {name}"


async def test_without_a_secret_both_keys_are_named():
    error = await outcome(
        Datadog(), Told(b""), target("https://dd.example.com", None), Question("m")
    )
    assert str(error) == "secret does not contain DD_CLIENT_API_KEY and DD_CLIENT_APP_KEY"


@pytest.mark.parametrize("value", [b"", b" \n", b"two\nlines", b"caf\xc3\xa9", b"\xff"])
async def test_a_key_that_can_be_no_header_is_named_and_not_shown(value):
    secret = {**SECRET, "DD_CLIENT_APP_KEY": value}
    error = await outcome(
        Datadog(), Told(b""), target("https://dd.example.com", secret), Question("m")
    )
    assert type(error) is BadCredentialsError
    assert "DD_CLIENT_APP_KEY" in str(error)
    assert "two" not in str(error)


@pytest.mark.parametrize("server", ["https://dd.example.com?x=1", "https://dd.example.com/#a"])
async def test_a_server_that_is_more_than_a_path_is_refused(server):
    error = await outcome(Datadog(), Told(b""), target(server), Question("m"))
    assert type(error) is BadProviderError


async def test_no_query_alters_the_url():
    http = Told(b'{"series": []}')
    query = "m}&from=0#/?x=\r\nHost: evil"
    await outcome(
        Datadog(now=lambda: NOW), http, target("https://dd.example.com/"), Question(query)
    )
    ((method, url, options),) = http.sent
    assert (method, url) == ("GET", "https://dd.example.com/api/v1/query")
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
async def test_points_that_are_none_make_no_value(points, kind):
    assert type(await told({"series": [{"pointlist": points}]})) is kind


async def test_as_many_samples_as_allowed_are_kept():
    points = [[1772366100000.0 + index, 1.0] for index in range(10_000)]
    answer = await told({"series": [{"pointlist": points}]}, Question("m", 0.0, 9.0, 1.0))
    assert len(answer.samples) == 10_000


async def test_samples_are_in_the_order_of_time():
    points = [[3000.0, 3.0], [1000.0, 1.0], [2000.0, 2.0]]
    answer = await told({"series": [{"pointlist": points}]}, Question("m", 0.0, 9.0, 1.0))
    assert [sample.time for sample in answer.samples] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("values", "text"),
    [([0.0], "0"), ([12.0], "12"), ([1, 2, 2], "1.6667"), ([1234567.0], "1.2346e+06")],
)
async def test_the_value_has_five_digits(values, text):
    points = [[1000.0, value] for value in values]
    assert (await told({"series": [{"pointlist": points}]})).value == text
