"""The contract of all clients of metric providers, above all for answers without a value.

These tests prove keptn-spec 4.3.
"""

from __future__ import annotations

import inspect

import pytest

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    BadProviderError,
    NoValuesError,
    TimedOutError,
    UnreachableError,
)
from harbourmaster.providers.registry import PROVIDERS
from helpers.provider_clients import DATADOG, DYNATRACE, ELASTIC, GARBAGE, KAFKA, PROMETHEUS

CLIENTS = (DATADOG, DYNATRACE, ELASTIC, KAFKA, PROMETHEUS)


FAILURES = {
    DATADOG: ("nulls", "error", "refused", "unauthorized", "unavailable"),
    DYNATRACE: ("nulls", "pages", "refused", "unauthorized", "forbidden", "unavailable"),
    ELASTIC: (
        *("no-aggregation", "shards-failed", "timed-out", "refused", "no-index"),
        *("unauthorized", "unavailable"),
    ),
    KAFKA: (
        *("final-message", "object", "no-columns", "several", "null", "text", "failed"),
        *("refused", "unauthorized", "unavailable"),
    ),
    PROMETHEUS: (
        *("range-empty", "several", "range-several", "nan", "scalar-steps", "infinite"),
        *("negative", "scalar", "string", "matrix", "histogram", "text", "error"),
        *("unparsable", "execution", "too-many-points", "missing", "unavailable"),
        *("internal", "gateway", "login", "timeout"),
    ),
}
"""The recorded failures of each client, besides an answer without values and a throttled one."""


@pytest.mark.parametrize("client", CLIENTS, ids=str)
async def test_each_recorded_failure_is_an_error_that_says_why(client, assert_golden):
    errors = {case: await client.ask(case) for case in ("empty", "throttled", *FAILURES[client])}
    assert_golden({case: f"{type(error).__name__}: {error}" for case, error in errors.items()})


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
