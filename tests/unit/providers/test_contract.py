"""The contract of all clients of metric providers, above all for answers without a value."""

from __future__ import annotations

import inspect

import pytest

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    BadProviderError,
    BadQueryError,
    NotFiniteError,
    NoValuesError,
    ThrottledError,
    TimedOutError,
    TooManyValuesError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.providers.registry import PROVIDERS
from helpers.provider_clients import DATADOG, DYNATRACE, ELASTIC, GARBAGE, KAFKA, PROMETHEUS

CLIENTS = (DATADOG, DYNATRACE, ELASTIC, KAFKA, PROMETHEUS)
NO_VALUES = "no values in query result"
THROTTLED = "too many requests to the provider (HTTP 429)"
SEVERAL = "too many values in query result"


@pytest.mark.parametrize(
    ("client", "case", "kind", "message"),
    [
        *((client, "empty", NoValuesError, NO_VALUES) for client in CLIENTS),
        *((client, "throttled", ThrottledError, THROTTLED) for client in CLIENTS),
        (DATADOG, "nulls", NoValuesError, NO_VALUES),
        (DATADOG, "error", BadQueryError, "at ',}' (line 1, column 30).)"),
        (DATADOG, "refused", BadQueryError, "Rule 'scope_expr' didn't match)"),
        (DATADOG, "unauthorized", UnauthorizedError, "(HTTP 403)"),
        (DATADOG, "unavailable", UnreachableError, "failed (HTTP 503: Service Unavailable)"),
        (DYNATRACE, "nulls", NoValuesError, NO_VALUES),
        (DYNATRACE, "pages", TooManyValuesError, "further pages"),
        (DYNATRACE, "refused", BadQueryError, "400: The metric key 'builtin:no.such' is unknown)"),
        (DYNATRACE, "unauthorized", UnauthorizedError, "(HTTP 401)"),
        (DYNATRACE, "forbidden", UnauthorizedError, "(HTTP 403)"),
        (
            DYNATRACE,
            "unavailable",
            UnreachableError,
            "failed (HTTP 503: The service is unavailable)",
        ),
        (ELASTIC, "no-aggregation", NoValuesError, f"{NO_VALUES}: no number at ''"),
        (ELASTIC, "shards-failed", BadAnswerError, "the search failed on 1 shards"),
        (ELASTIC, "timed-out", TimedOutError, "timed out within Elasticsearch"),
        (ELASTIC, "refused", BadQueryError, "(HTTP 400: unknown query [termm])"),
        (ELASTIC, "no-index", BadQueryError, "(HTTP 404: no such index [logs-web])"),
        (ELASTIC, "unauthorized", UnauthorizedError, "(HTTP 401)"),
        (ELASTIC, "unavailable", UnreachableError, "failed (HTTP 503: all shards failed)"),
        (KAFKA, "final-message", NoValuesError, NO_VALUES),
        (KAFKA, "object", NoValuesError, NO_VALUES),
        (KAFKA, "no-columns", NoValuesError, NO_VALUES),
        (KAFKA, "several", TooManyValuesError, SEVERAL),
        (KAFKA, "null", BadAnswerError, "no value instead of a number"),
        (KAFKA, "text", BadAnswerError, "'abc' is not a number"),
        (KAFKA, "failed", BadAnswerError, "All nodes are dead or exceed max allowed lag.)"),
        (KAFKA, "refused", BadQueryError, "Statement: SELECT VALUE FROM HEAT_DEMAND)"),
        (KAFKA, "unauthorized", UnauthorizedError, "(HTTP 401)"),
        (KAFKA, "unavailable", UnreachableError, "KSQL is not yet ready to serve requests.)"),
        (PROMETHEUS, "range-empty", NoValuesError, NO_VALUES),
        (PROMETHEUS, "several", TooManyValuesError, SEVERAL),
        (PROMETHEUS, "range-several", TooManyValuesError, SEVERAL),
        (PROMETHEUS, "nan", NotFiniteError, "the value is NaN, expected a finite number"),
        (PROMETHEUS, "scalar-steps", NotFiniteError, "the value is NaN, expected a finite number"),
        (PROMETHEUS, "infinite", NotFiniteError, "the value is +Inf, expected a finite number"),
        (PROMETHEUS, "negative", NotFiniteError, "the value is -Inf, expected a finite number"),
        (PROMETHEUS, "scalar", BadAnswerError, "could not cast result"),
        (PROMETHEUS, "string", BadAnswerError, "could not cast result"),
        (PROMETHEUS, "matrix", BadAnswerError, "could not cast result"),
        (PROMETHEUS, "histogram", BadAnswerError, "could not cast result"),
        (PROMETHEUS, "text", BadAnswerError, "the value 'abc' is not a number"),
        (PROMETHEUS, "error", BadAnswerError, "the provider reports an error: without saying why"),
        (
            PROMETHEUS,
            "unparsable",
            BadQueryError,
            'invalid parameter "query": 1:6: parse error: unexpected end of input inside braces',
        ),
        (
            PROMETHEUS,
            "execution",
            BadQueryError,
            "the provider rejected the query: vector cannot contain metrics with the same labelset",
        ),
        (
            PROMETHEUS,
            "too-many-points",
            BadQueryError,
            "points per timeseries. Try decreasing the query resolution (?step=XX)",
        ),
        (PROMETHEUS, "missing", BadQueryError, "(HTTP 404: 404 page not found)"),
        (PROMETHEUS, "unavailable", UnreachableError, "the provider failed: TSDB not ready"),
        (
            PROMETHEUS,
            "internal",
            UnreachableError,
            "the provider failed: runtime error: index out of range",
        ),
        (
            PROMETHEUS,
            "gateway",
            UnreachableError,
            "(HTTP 502: <html><body>502 Bad Gateway</body></html>)",
        ),
        (
            PROMETHEUS,
            "login",
            UnreachableError,
            "the server answered with text/html instead of JSON",
        ),
        (
            PROMETHEUS,
            "timeout",
            TimedOutError,
            "the provider aborted the query: query timed out in expression evaluation",
        ),
    ],
    ids=lambda part: str(part) if part in CLIENTS else None,
)
async def test_each_recorded_failure_is_an_error_that_says_why(client, case, kind, message):
    error = await client.ask(case)
    assert type(error) is kind
    assert str(error).endswith(message)


@pytest.mark.parametrize(
    ("client", "seconds"), [(DATADOG, 42), (DYNATRACE, 7), (PROMETHEUS, 7)], ids=str
)
async def test_the_wait_that_a_provider_asks_for_is_kept(client, seconds):
    assert (await client.ask("throttled")).seconds == seconds


@pytest.mark.parametrize("client", CLIENTS, ids=str)
async def test_a_server_that_never_answers_is_a_timeout(client):
    assert type(await client.ask_hanging()) is TimedOutError


@pytest.mark.parametrize("client", CLIENTS, ids=str)
@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_an_error(client, body):
    error, _ = await client.answer_to(body)
    # No answer of Prometheus is without a status.
    kinds = {BadAnswerError} if client is PROMETHEUS else {BadAnswerError, NoValuesError}
    assert type(error) in kinds


@pytest.mark.parametrize("client", [KAFKA, PROMETHEUS], ids=str)
@pytest.mark.parametrize(
    "secret",
    [{}, {"user": b"u"}, {"password": b"canary"}, {"User": b"u", "password": b"canary"}],
    ids=sorted,
)
async def test_a_secret_without_user_and_password_is_an_error(client, secret):
    error, sent = await client.answer_to(b"", secret=secret)
    assert type(error) is BadCredentialsError
    assert str(error) == "secret key does not contain user and password"
    assert not sent


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize(
    ("client", "case", "user", "value"),
    [
        (ELASTIC, "basic", b"elastic", "75.250000"),
        (KAFKA, "basic", b"key", "0.25"),
        (PROMETHEUS, "authorized", b"harbour", "4"),
    ],
    ids=str,
)
async def test_a_user_is_sent_as_basic_authorization(client, case, user, value, end):
    secret = {"user": user + end, "password": b"canary-password" + end}
    assert (await client.ask(case, secret=secret)).value == value


@pytest.mark.parametrize("client", CLIENTS, ids=str)
async def test_another_content_type_is_another_server(client):
    error, _ = await client.answer_to(b"{}", kind="text/html")
    assert type(error) is UnreachableError


@pytest.mark.parametrize("client", CLIENTS, ids=str)
@pytest.mark.parametrize("rest", ["?x=1", "/?tenant=x", "/#a"])
async def test_a_server_with_a_query_or_a_fragment_is_a_bad_provider(client, rest):
    error, sent = await client.answer_to(b"", server=rest)
    assert type(error) is BadProviderError
    assert not sent


def test_every_type_of_the_definition_has_its_client():
    assert sorted(PROVIDERS) == [
        *("cortex", "datadog", "dql", "dynatrace", "elastic"),
        *("kafka", "prometheus", "static", "thanos"),
    ]
    for kind, provider in PROVIDERS.items():
        api = "prometheus" if kind in {"cortex", "thanos"} else kind
        assert type(provider).__name__.lower() == api
        assert inspect.iscoroutinefunction(provider.ask)
