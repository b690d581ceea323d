"""Elasticsearch's _search, as recorded."""

from __future__ import annotations

import json

import pytest

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    BadQueryError,
    NoValuesError,
    TooLargeError,
    TooManyValuesError,
)
from harbourmaster.providers.model import Question, Sample
from helpers.provider_clients import ELASTIC, ELASTIC_QUERY, NOW

HITS = {"size": 0, "track_total_hits": True, "query": {"term": {"level": "error"}}}
SEVERAL = {
    "size": 0,
    "aggs": {
        "latency": {"percentiles": {"field": "latency", "percents": [50, 95]}},
        "hosts": {"terms": {"field": "host"}},
    },
}
WINDOW = {
    "size": 0,
    "query": {"range": {"@timestamp": {"gte": "$from", "lt": "$to"}}},
    "aggs": ELASTIC_QUERY["aggs"],
}


async def ask(case, query=ELASTIC_QUERY, secret=ELASTIC.target.secret, **more):
    return await ELASTIC.ask(case, Question(json.dumps(query), **more), secret=secret)


async def answer_to(document, query=ELASTIC_QUERY, secret=ELASTIC.target.secret, **more):
    text = query if isinstance(query, str) else json.dumps(query)
    return await ELASTIC.answer_to(document, Question(text, **more), secret=secret)


def body_of(sent):
    """The body of the one request."""
    ((_, _, options),) = sent
    return json.loads(options["body"])


async def test_success_is_the_only_number_of_the_aggregations():
    answer = await ask("success")
    assert answer.value == "75.250000"
    assert answer.samples == (Sample(NOW, 75.25),)
    assert json.loads(answer.raw)["aggregations"] == {"latency": {"value": 75.25}}


@pytest.mark.parametrize("case", ["hits", "hits-of-old"])
async def test_without_aggregations_it_is_the_number_of_hits(case):
    assert (await ask(case, HITS)).value == "1250.000000"


@pytest.mark.parametrize("path", ["", "hits.total.value", "total.value"])
async def test_a_lower_bound_of_hits_is_an_error(path):
    error = await ask("hits-in-part", HITS, path=path)
    assert type(error) is BadQueryError
    assert "track_total_hits" in str(error)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("aggregations.latency.values.95.0", "120.500000"),
        ("latency.values.95.0", "120.500000"),
        ("95.0", "120.500000"),
        ("ncy.values.50", "40.500000"),
        ("buckets.1.doc_count", "350.000000"),
        ("hits.total.value", "1250.000000"),
    ],
)
async def test_a_path_names_one_of_several(path, value):
    assert (await ask("several", SEVERAL, path=path)).value == value


async def test_several_numbers_are_an_error_that_names_them():
    error = await ask("several", SEVERAL)
    assert type(error) is TooManyValuesError
    assert str(error) == (
        "too many values in query result: aggregations.latency.values.50.0, "
        "aggregations.latency.values.95.0, aggregations.hosts.doc_count_error_upper_bound, "
        "aggregations.hosts.sum_other_doc_count, aggregations.hosts.buckets.0.doc_count, …"
    )


async def test_an_ambiguous_path_is_an_error():
    error = await ask("several", SEVERAL, path="doc_count")
    assert type(error) is TooManyValuesError


async def test_the_end_of_a_path_comes_before_a_part_of_one():
    answer, _ = await answer_to(
        {"aggregations": {"a": {"value": 1}, "values": {"b": 2}}}, path="value"
    )
    assert answer.value == "1.000000"


async def test_a_path_without_a_number_is_an_error():
    error, _ = await answer_to(
        {"took": 7, "_shards": {"total": 3}, "hits": {"hits": []}}, path="total"
    )
    assert type(error) is NoValuesError
    assert str(error) == "no values in query result: no number at 'total'"


async def test_a_skipped_cluster_is_an_error():
    error, _ = await answer_to({"_clusters": {"skipped": 1}, "aggregations": {"a": {"value": 1}}})
    assert type(error) is BadAnswerError


async def test_without_a_secret_it_is_asked_without_credentials():
    answer = await ask("anonymous", secret=None)
    assert answer.value == "75.250000"


async def test_an_id_with_a_key_is_sent_in_base64():
    secret = {"apiKey": b"canary-id:canary-key"}
    assert (await ask("success", secret=secret)).value == "75.250000"


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ({}, "does not contain the key that secretKeyRef names: correct it"),
        ({"apiKey": b""}, "the key apiKey of the secret is empty or not printable ASCII"),
        ({"user": b"a"}, "secret key does not contain user and password"),
    ],
)
async def test_a_secret_without_credentials_is_an_error(secret, message):
    error, sent = await answer_to({}, secret=secret)
    assert type(error) is BadCredentialsError
    assert message in str(error)
    assert not sent


async def test_an_api_key_that_is_the_name_of_the_key_is_not_shown():
    error, _ = await ELASTIC.answer_to({}, secret={"a": b"b"}, secret_key="canary:key")  # noqa: S106
    assert type(error) is BadCredentialsError


async def test_the_range_is_put_in_its_places():
    answer = await ask("window", WINDOW, start=1772362800.0, end=1772366400.0)
    assert answer.value == "75.250000"
    assert answer.samples[0].time == 1772366400.0


async def test_without_a_range_its_places_are_the_last_five_minutes():
    _, sent = await answer_to({}, WINDOW)
    body = body_of(sent)
    assert body["query"]["range"]["@timestamp"] == {
        "gte": "2026-03-01T11:55:00.500+00:00",
        "lt": "2026-03-01T12:00:00.500+00:00",
    }


async def test_a_range_in_the_query_is_sent_unchanged():
    _, sent = await answer_to({}, start=1.0, end=2.0)
    assert body_of(sent) == ELASTIC_QUERY


async def test_a_query_over_all_time_is_not_sent_for_a_range():
    error, sent = await answer_to({}, HITS, start=1.0, end=2.0)
    assert type(error) is BadQueryError
    assert "$from" in str(error)
    assert not sent


async def test_a_placeholder_is_a_whole_string():
    query = {"query": {"match": {"$from": "$from or $to", "a": ['"$to"', 1.5, None, True]}}}
    _, sent = await answer_to({}, query)
    assert body_of(sent) == query


@pytest.mark.parametrize(
    "query", ["", "{", "[]", '"a"', "null", "{} {}", '{"a": NaN}', "[" * 9000, '{"a": \ud800}']
)
async def test_an_invalid_query_is_not_sent(query):
    error, sent = await answer_to({}, query)
    assert type(error) is BadQueryError
    assert not sent


async def test_a_step_is_not_asked_for():
    error, sent = await answer_to({}, start=1.0, end=2.0, step=1.0)
    assert type(error) is BadQueryError
    assert not sent


async def test_a_query_cannot_change_the_url():
    _, sent = await answer_to({}, {"query": {"match": {"a": "\r\n/../?x=1#"}}})
    ((method, url, options),) = sent
    assert (method, url) == ("POST", "https://metrics.example.com/logs-web/_search")
    assert not options["params"]


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"aggregations": {"a": {"value": True}}}, NoValuesError),
        ({"aggregations": {"a": {"value": "1"}}}, NoValuesError),
        ({"aggregations": {"a": list(range(10_001))}}, TooLargeError),
        ({"aggregations": {"a" * 1001: 1}}, TooLargeError),
        ({"hits": {"total": "many"}}, BadAnswerError),
        ({"hits": {"total": {"value": [1]}}}, BadAnswerError),
        ({"hits": {}}, NoValuesError),
    ],
)
async def test_invalid_numbers_are_an_error(document, kind):
    error, _ = await answer_to(document)
    assert type(error) is kind


async def test_a_number_out_of_range_is_an_error():
    error, _ = await answer_to(b'{"aggregations": {"a": %s}}' % (b"9" * 400))
    assert error.helps_to_wait
    assert not error.is_unreachable
