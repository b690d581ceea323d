"""ksqlDB's pull queries, as recorded (krake-spec 4)."""

from __future__ import annotations

import json

import pytest

from harbourmaster.providers.errors import BadProviderError, BadQueryError
from harbourmaster.providers.kafka import statement
from harbourmaster.providers.model import Question, Sample, Table
from helpers.provider_clients import KAFKA, NOW


async def test_success_is_the_first_column_of_the_row():
    answer = await KAFKA.ask("success")
    assert answer.value == "0.25"
    assert answer.samples == (Sample(NOW, 0.25),)
    assert json.loads(answer.raw)[1] == {"row": {"columns": [0.25]}}


@pytest.mark.parametrize(("case", "value"), [("final-message-last", "4"), ("text-number", "4.5")])
async def test_other_forms_of_a_value_are_read(case, value):
    assert (await KAFKA.ask(case)).value == value


@pytest.mark.parametrize(
    "body",
    [
        b'{"header": {"queryId": "q"}}\n{"row": {"columns": [7]}}\n{"finalMessage": "done"}\n',
        b'[{"header":{"queryId":"q"}},\n{"row":{"columns":[7]}},\n{"finalMessage":"done"}]',
    ],
)
async def test_lines_are_read_like_an_array(body):
    answer, _ = await KAFKA.answer_to(body, kind="application/vnd.ksql.v1+json; charset=utf-8")
    assert answer.value == "7"


@pytest.mark.parametrize("column", [True, [1], {"a": 1}, "NaN", "Infinity", "0x10", "1_0", ""])
async def test_a_column_without_a_number_is_an_error(column):
    error, _ = await KAFKA.answer_to([{"row": {"columns": [column]}}])
    assert error.helps_to_wait
    assert not error.is_unreachable


@pytest.mark.parametrize(
    "query", ["'; DROP TABLE x; --", "''", "\\'", 'a"b', "a\nb", "${v}", "\u2019"]
)
async def test_a_query_stays_one_literal(query):
    _, ((method, url, options),) = await KAFKA.answer_to([], Question(query))
    assert (method, url) == ("POST", "https://metrics.example.com/query")
    assert not options["params"]
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
async def test_an_invalid_identifier_is_not_sent(name, part):
    parts = {"name": "t", "comparison_column": "c", "value_column": "v", part: name}
    error, sent = await KAFKA.answer_to(b"[]", table=Table(**parts))
    assert type(error) is BadProviderError
    named = {"name": "table", "comparison_column": "comparisonColumn"}.get(part, "valueColumn")
    assert f"spec.kafka.{named} is not a KSQL identifier" in str(error)
    assert not sent


async def test_without_a_table_nothing_is_sent():
    error, sent = await KAFKA.answer_to(b"[]", table=None)
    assert type(error) is BadProviderError
    assert not sent


@pytest.mark.parametrize(
    "question", [Question("m", start=1.0, end=2.0), Question("m", start=1.0, end=2.0, step=1.0)]
)
async def test_the_past_is_not_asked_for(question):
    error, sent = await KAFKA.answer_to(b"[]", question)
    assert type(error) is BadQueryError
    assert not sent
