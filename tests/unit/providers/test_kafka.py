"""ksqlDB's pull queries, as recorded (krake-spec 4)."""

from __future__ import annotations

import json

import pytest

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    BadProviderError,
    BadQueryError,
    NoValuesError,
    ThrottledError,
    TimedOutError,
    TooManyValuesError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.providers.http import Http
from harbourmaster.providers.kafka import Kafka, statement
from harbourmaster.providers.model import Question, Sample, Table, Target
from helpers.exchanges import GARBAGE, Told, outcome, played, timed_out

NOW = 1772366400.5
TABLE = Table("HEAT_DEMAND", "ZONE", "VALUE")
SECRET = {"user": b"key", "password": b"canary-password\n"}


def target(url, secret=None, table=TABLE):
    return Target("kafka", url, secret=secret, table=table)


def with_secret(url):
    return target(url, SECRET)


async def ask(case, wanted=target):
    return await played(Kafka(now=lambda: NOW), wanted, Question("zone'1"), "kafka", case)


async def told(body, question=None, table=TABLE, secret=None, kind="application/json"):
    http = Told(body, kind=kind)
    own = target("https://ksql.example.com/", secret, table)
    return await outcome(Kafka(now=lambda: NOW), http, own, question or Question("m")), http


async def test_success_is_the_first_column_of_the_row():
    answer = await ask("success")
    assert answer.value == "0.25"
    assert answer.samples == (Sample(NOW, 0.25),)
    assert json.loads(answer.raw)[1] == {"row": {"columns": [0.25]}}


@pytest.mark.parametrize(("case", "value"), [("final-message-last", "4"), ("text-number", "4.5")])
async def test_what_else_is_a_value(case, value):
    assert (await ask(case)).value == value


async def test_a_user_is_sent_as_basic_authorization():
    assert (await ask("basic", with_secret)).value == "0.25"


@pytest.mark.parametrize(
    ("case", "kind", "message"),
    [
        ("empty", NoValuesError, "no values in query result"),
        ("final-message", NoValuesError, "no values in query result"),
        ("object", NoValuesError, "no values in query result"),
        ("no-columns", NoValuesError, "no values in query result"),
        ("several", TooManyValuesError, "too many values in query result"),
        ("null", BadAnswerError, "no value instead of a number"),
        ("text", BadAnswerError, "'abc' is not a number"),
        ("failed", BadAnswerError, "Unable to execute pull query"),
        ("refused", BadQueryError, "HTTP 400: HEAT_DEMAND does not exist."),
        ("unauthorized", UnauthorizedError, "HTTP 401"),
        ("throttled", ThrottledError, "HTTP 429"),
        ("unavailable", UnreachableError, "HTTP 503: KSQL is not yet ready"),
    ],
)
async def test_what_is_no_value_says_why(case, kind, message):
    error = await ask(case)
    assert type(error) is kind
    assert message in str(error)


async def test_a_server_that_hangs_ends_in_a_time_out():
    assert type(await timed_out(Kafka(), target, Question("m"))) is TimedOutError


async def test_a_server_that_is_not_there_is_unreachable():
    async with Http(allowed=("127.0.0.0/8",)) as http:
        error = await outcome(Kafka(), http, target("http://127.0.0.1:1"), Question("m"))
    assert type(error) is UnreachableError


async def test_another_content_type_is_no_provider():
    error, _ = await told(b"<html>", kind="text/html")
    assert type(error) is UnreachableError


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_no_answer(body):
    error, _ = await told(body)
    assert type(error) in {BadAnswerError, NoValuesError}


@pytest.mark.parametrize(
    "body",
    [
        b'{"header": {"queryId": "q"}}\n{"row": {"columns": [7]}}\n{"finalMessage": "done"}\n',
        b'[{"header":{"queryId":"q"}},\n{"row":{"columns":[7]}},\n{"finalMessage":"done"}]',
    ],
)
async def test_lines_are_read_like_an_array(body):
    answer, _ = await told(body, kind="application/vnd.ksql.v1+json; charset=utf-8")
    assert answer.value == "7"


@pytest.mark.parametrize("column", [True, [1], {"a": 1}, "NaN", "Infinity", "0x10", "1_0", ""])
async def test_a_column_that_is_no_number_is_no_value(column):
    error, _ = await told(json.dumps([{"row": {"columns": [column]}}]).encode())
    assert error.helps_to_wait
    assert not error.is_unreachable


@pytest.mark.parametrize(
    "query", ["'; DROP TABLE x; --", "''", "\\'", 'a"b', "a\nb", "${v}", "\u2019"]
)
async def test_a_query_stays_one_literal(query):
    _, http = await told(b"[]", Question(query))
    ((method, url, options),) = http.sent
    assert (method, url) == ("POST", "https://ksql.example.com/query")
    assert "params" not in options
    document = json.loads(options["body"])
    assert set(document) == {"ksql", "streamsProperties"}
    start = "SELECT VALUE FROM HEAT_DEMAND WHERE ZONE = '"
    assert document["ksql"].startswith(start)
    literal = document["ksql"].removeprefix(start).removesuffix("';")
    assert literal.replace("''", "") == literal.replace("'", "")
    assert literal.replace("''", "'") == query


@pytest.mark.parametrize("name", ["a", "_b1", "HEAT_DEMAND", "`any-thing`", "`a``b`"])
def test_identifiers_of_ksql_are_taken(name):
    text = statement(Table(name, name, name), "m")
    assert text.split() == ["SELECT", name, "FROM", name, "WHERE", name, "=", "'m';"]


@pytest.mark.parametrize(
    "name", ["", "1a", "a b", "a;", "a--", "a.b", "``", "`a`b`", "`a\nb`", "`a", "*", "a'", "é"]
)
@pytest.mark.parametrize("part", ["name", "comparison_column", "value_column"])
async def test_what_is_no_identifier_is_not_sent(name, part):
    parts = {"name": "t", "comparison_column": "c", "value_column": "v", part: name}
    error, http = await told(b"[]", table=Table(**parts))
    assert type(error) is BadProviderError
    named = {"name": "table", "comparison_column": "comparisonColumn"}.get(part, "valueColumn")
    assert f"spec.kafka.{named} is not a KSQL identifier" in str(error)
    assert not http.sent


async def test_without_a_table_nothing_is_sent():
    error, http = await told(b"[]", table=None)
    assert type(error) is BadProviderError
    assert not http.sent


async def test_a_secret_without_user_and_password_is_told():
    error, http = await told(b"[]", secret={"user": b"a"})
    assert type(error) is BadCredentialsError
    assert str(error) == "secret key does not contain user and password"
    assert not http.sent


@pytest.mark.parametrize(
    "question", [Question("m", start=1.0, end=2.0), Question("m", start=1.0, end=2.0, step=1.0)]
)
async def test_the_past_is_not_asked_for(question):
    error, http = await told(b"[]", question)
    assert type(error) is BadQueryError
    assert not http.sent
