"""Elasticsearch's _search, as recorded."""

from __future__ import annotations

import json

import pytest

from harbourmaster.providers.elastic import Elastic
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

NOW = 1772366400.5
AVERAGE = {"latency": {"avg": {"field": "latency"}}}
RECENT = {"range": {"@timestamp": {"gte": "now-5m"}}}
QUERY = {
    "size": 0,
    "query": {"bool": {"filter": [{"term": {"service": "web"}}, RECENT]}},
    "aggs": AVERAGE,
}
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
    "aggs": AVERAGE,
}
KEY = {"apiKey": b"Y2FuYXJ5LWlkOmNhbmFyeS1rZXk=\n"}


def target(url, secret=KEY):
    return Target("elastic", f"{url}/logs-web", secret=secret, secret_key="apiKey")  # noqa: S106


async def ask(case, query=QUERY, wanted=target, **more):
    question = Question(json.dumps(query), **more)
    return await played(Elastic(now=lambda: NOW), wanted, question, "elastic", case)


async def told(document, query=QUERY, *, secret=KEY, **more):
    text = query if isinstance(query, str) else json.dumps(query)
    http = Told(document if isinstance(document, bytes) else json.dumps(document).encode())
    own = target("https://es.example.com", secret)
    return await outcome(Elastic(now=lambda: NOW), http, own, Question(text, **more)), http


async def test_success_is_the_only_number_of_the_aggregations():
    answer = await ask("success")
    assert answer.value == "75.250000"
    assert answer.samples == (Sample(NOW, 75.25),)
    assert json.loads(answer.raw)["aggregations"] == {"latency": {"value": 75.25}}


@pytest.mark.parametrize("case", ["hits", "hits-of-old"])
async def test_without_aggregations_it_is_the_number_of_hits(case):
    assert (await ask(case, HITS)).value == "1250.000000"


@pytest.mark.parametrize("path", ["", "hits.total.value", "total.value"])
async def test_hits_that_are_not_all_counted_are_no_value(path):
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


async def test_several_numbers_are_none_and_are_named():
    error = await ask("several", SEVERAL)
    assert type(error) is TooManyValuesError
    assert str(error) == (
        "too many values in query result: aggregations.latency.values.50.0, "
        "aggregations.latency.values.95.0, aggregations.hosts.doc_count_error_upper_bound, "
        "aggregations.hosts.sum_other_doc_count, aggregations.hosts.buckets.0.doc_count, …"
    )


async def test_a_path_that_several_have_is_none():
    error = await ask("several", SEVERAL, path="doc_count")
    assert type(error) is TooManyValuesError


async def test_the_end_of_a_path_comes_before_a_part_of_one():
    answer, _ = await told({"aggregations": {"a": {"value": 1}, "values": {"b": 2}}}, path="value")
    assert answer.value == "1.000000"


async def test_what_is_no_result_is_no_value():
    error, _ = await told({"took": 7, "_shards": {"total": 3}, "hits": {"hits": []}}, path="total")
    assert type(error) is NoValuesError
    assert str(error) == "no values in query result: no number at 'total'"


@pytest.mark.parametrize(
    ("case", "kind", "message"),
    [
        ("empty", NoValuesError, "no values in query result"),
        ("no-aggregation", NoValuesError, "no values in query result"),
        ("shards-failed", BadAnswerError, "the search failed on 1 shards"),
        ("timed-out", TimedOutError, "timed out within Elasticsearch"),
        ("refused", BadQueryError, "HTTP 400: unknown query [termm]"),
        ("no-index", BadQueryError, "HTTP 404: no such index [logs-web]"),
        ("unauthorized", UnauthorizedError, "HTTP 401"),
        ("throttled", ThrottledError, "HTTP 429"),
        ("unavailable", UnreachableError, "HTTP 503: all shards failed"),
    ],
)
async def test_what_is_no_value_says_why(case, kind, message):
    error = await ask(case)
    assert type(error) is kind
    assert message in str(error)


async def test_a_cluster_that_was_left_out_is_told():
    error, _ = await told({"_clusters": {"skipped": 1}, "aggregations": {"a": {"value": 1}}})
    assert type(error) is BadAnswerError


async def test_a_server_that_hangs_ends_in_a_time_out():
    error = await timed_out(Elastic(), target, Question(json.dumps(QUERY)))
    assert type(error) is TimedOutError


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_no_answer(body):
    error, _ = await told(body)
    assert type(error) in {BadAnswerError, NoValuesError}


async def test_without_a_secret_it_is_asked_without_credentials():
    answer = await ask("anonymous", wanted=lambda url: target(url, None))
    assert answer.value == "75.250000"


async def test_a_user_is_sent_as_basic_authorization():
    secret = {"user": b"elastic", "password": b"canary-password"}
    assert (await ask("basic", wanted=lambda url: target(url, secret))).value == "75.250000"


async def test_an_id_with_a_key_is_sent_in_base64():
    secret = {"apiKey": b"canary-id:canary-key"}
    assert (await ask("success", wanted=lambda url: target(url, secret))).value == "75.250000"


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ({}, "secret does not contain the key that secretKeyRef names"),
        ({"apiKey": b""}, "the key apiKey of the secret is empty or not printable ASCII"),
        ({"user": b"a"}, "secret key does not contain user and password"),
    ],
)
async def test_a_secret_without_credentials_is_told(secret, message):
    error, http = await told({}, secret=secret)
    assert type(error) is BadCredentialsError
    assert str(error) == message
    assert not http.sent


async def test_an_api_key_that_is_the_name_of_the_key_is_not_shown():
    own = Target("elastic", "https://es.example.com", secret={"a": b"b"}, secret_key="canary:key")  # noqa: S106
    error = await outcome(Elastic(), Told(b"{}"), own, Question("{}"))
    assert type(error) is BadCredentialsError


async def test_the_range_is_put_in_its_places():
    answer = await ask("window", WINDOW, start=1772362800.0, end=1772366400.0)
    assert answer.value == "75.250000"
    assert answer.samples[0].time == 1772366400.0


async def test_without_a_range_its_places_are_the_last_five_minutes():
    _, http = await told({}, WINDOW)
    body = json.loads(http.sent[0][2]["body"])
    assert body["query"]["range"]["@timestamp"] == {
        "gte": "2026-03-01T11:55:00.500+00:00",
        "lt": "2026-03-01T12:00:00.500+00:00",
    }


async def test_a_range_of_its_own_is_sent_as_it_is():
    _, http = await told({}, start=1.0, end=2.0)
    assert json.loads(http.sent[0][2]["body"]) == QUERY


async def test_a_query_over_all_time_is_not_sent_for_a_range():
    error, http = await told({}, HITS, start=1.0, end=2.0)
    assert type(error) is BadQueryError
    assert "$from" in str(error)
    assert not http.sent


async def test_a_place_is_a_whole_string_and_no_part_of_one():
    query = {"query": {"match": {"$from": "$from or $to", "a": ['"$to"', 1.5, None, True]}}}
    _, http = await told({}, query)
    assert json.loads(http.sent[0][2]["body"]) == query


@pytest.mark.parametrize(
    "query", ["", "{", "[]", '"a"', "null", "{} {}", '{"a": NaN}', "[" * 9000, '{"a": \ud800}']
)
async def test_a_query_that_is_no_object_is_not_sent(query):
    error, http = await told({}, query)
    assert type(error) is BadQueryError
    assert not http.sent


async def test_a_step_is_not_asked_for():
    error, http = await told({}, start=1.0, end=2.0, step=1.0)
    assert type(error) is BadQueryError
    assert not http.sent


async def test_no_query_alters_the_url():
    _, http = await told({}, {"query": {"match": {"a": "\r\n/../?x=1#"}}})
    ((method, url, options),) = http.sent
    assert (method, url) == ("POST", "https://es.example.com/logs-web/_search")
    assert "params" not in options


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
async def test_numbers_that_are_none_make_no_value(document, kind):
    error, _ = await told(document)
    assert type(error) is kind


async def test_a_number_without_end_is_no_value():
    error, _ = await told(b'{"aggregations": {"a": %s}}' % (b"9" * 400))
    assert error.helps_to_wait
    assert not error.is_unreachable
