"""Grail's query API with OAuth, as recorded."""

from __future__ import annotations

import asyncio
import json

import pytest

from harbourmaster.providers.dql import Dql, TokenCache
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    NoValuesError,
    TimedOutError,
    TooManyValuesError,
    UnauthorizedError,
)
from harbourmaster.providers.http import HttpClient
from harbourmaster.providers.model import Question, Sample, Target
from helpers.provider_clients import (
    GARBAGE,
    FakeHttp,
    ReplayServer,
    outcome,
    replay,
    replay_and_hang,
)

NOW = 1772366400.5
CLIENT = "dt0s08.CANARYID." + "CANARY" * 10 + "ABCD"
SECRET = {"client": CLIENT.encode() + b"\n"}
QUERY = "timeseries avg(dt.host.cpu.usage), from:now()-5m"
COUNT = 'fetch logs | filter loglevel == "ERROR" | summarize count()'
RECORDS = 'fetch metric.series | filter metric.key == "web" | fields timestamp, value'
FIELDS = "fetch logs | summarize errors = count(), hosts = countDistinct(host.name)"
LAST = 1772366100.0 + 3 * 60


def target(url, secret=SECRET):
    return Target("dql", url, secret=secret, secret_key="client")  # noqa: S106


class Clock:
    """A clock that only ``sleep`` advances."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def clock():
    return Clock()


async def ask(clock, *cases, question=None):
    """The answer from a server that gives the tokens, too."""

    class Own(Dql):
        async def ask(self, http, target, question):
            url = f"{target.server}/sso/oauth2/token"
            dql = Dql(tokens=TokenCache(url=url, now=clock), now=lambda: NOW, sleep=clock.sleep)
            return await dql.ask(http, target, question)

    return await replay(Own(), target, question or Question(QUERY), "dql", *cases)


def grail(records, types=(), **more):
    result = {"records": records, "types": types, **more}
    return json.dumps({"state": "SUCCEEDED", "result": result}).encode()


TOKEN = b'{"access_token": "canary-token", "expires_in": 300}'


async def answer_to(*bodies, question=None, secret=SECRET, clock=None):
    http = FakeHttp(TOKEN, *bodies)
    sleep = (clock or Clock()).sleep
    dql = Dql(now=lambda: NOW, sleep=sleep)
    own = target("https://abc.example.com/", secret)
    return await outcome(dql, http, own, question or Question("m")), http


async def test_success_is_the_last_value_of_the_series(clock):
    answer = await ask(clock, "success")
    assert answer.value == "23.250000"
    assert answer.samples == (Sample(LAST, 23.25),)
    assert json.loads(answer.raw)["state"] == "SUCCEEDED"
    assert clock.now == 0


async def test_a_query_that_runs_is_looked_at_every_second(clock):
    assert (await ask(clock, "polled")).value == "23.250000"
    assert clock.now == 2


async def test_a_step_gives_all_values_of_the_range(clock):
    question = Question(QUERY, start=1772362800.0, end=1772366400.0, step=60.0)
    answer = await ask(clock, "steps", question=question)
    assert answer.value == "23.250000"
    assert [sample.value for sample in answer.samples] == [20.5, 21.0, 23.25]
    assert answer.samples[-1].time == LAST


async def test_a_long_may_be_a_string(clock):
    answer = await ask(clock, "count", question=Question(COUNT))
    assert answer.value == "42.000000"
    assert answer.samples == (Sample(NOW, 42.0),)


async def test_of_records_the_last_counts_and_of_summaries_the_average(clock):
    answer = await ask(clock, "records", question=Question(RECORDS))
    assert answer.value == "36.500000"
    assert answer.samples == (Sample(1772366340.0, 36.5),)


async def test_a_path_names_a_field(clock):
    answer = await ask(clock, "fields", question=Question(FIELDS, path="hosts"))
    assert answer.value == "3.000000"


async def test_harmless_notifications_are_ignored(clock):
    assert (await ask(clock, "noted")).value == "23.250000"


async def test_each_failure_is_an_error_that_says_why(clock, assert_golden):
    cases = ("empty", "several", "partial", "refused", "failed", "client-refused", "sso-throttled")
    cases += ("unauthorized", "forbidden", "throttled", "unavailable")
    errors = {case: await ask(clock, case) for case in cases}
    errors["fields"] = await ask(clock, "fields", question=Question(FIELDS))
    assert_golden({case: f"{type(error).__name__}: {error}" for case, error in errors.items()})


async def test_throttled_says_for_how_long(clock):
    assert (await ask(clock, "throttled")).seconds == 9


async def test_a_query_that_never_ends_is_given_up(clock):
    running = b'{"state": "RUNNING", "requestToken": "t"}'
    error, http = await answer_to(running, clock=clock)
    assert type(error) is TimedOutError
    assert str(error) == "the query did not end within 50 s"
    # The server holds each of them for a second, too.
    assert clock.now == 25
    assert len(http.sent) == 1 + 1 + 25


async def test_a_server_that_hangs_ends_in_a_time_out(clock):
    async with (
        ReplayServer("dql", "unavailable") as sso,
        HttpClient(allowed=("127.0.0.0/8",)) as http,
    ):
        tokens = TokenCache(url=f"{sso.url}/sso/oauth2/token", now=clock)
        await tokens.get(http, target(""))
        dql = Dql(tokens=tokens)
        assert type(await replay_and_hang(dql, target, Question(QUERY))) is TimedOutError
        await outcome(dql, http, target(sso.url), Question(QUERY))


async def test_tokens_that_never_come_end_in_a_time_out():
    class Own(Dql):
        async def ask(self, http, target, question):
            return await Dql(tokens=TokenCache(url=target.server)).ask(http, target, question)

    assert type(await replay_and_hang(Own(), target, Question(QUERY))) is TimedOutError


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_an_error(body):
    error, _ = await answer_to(body)
    assert type(error) is BadAnswerError


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_instead_of_a_token_is_an_error(body):
    error = await outcome(Dql(), FakeHttp(body), target("https://abc.example.com"), Question("m"))
    assert type(error) is BadAnswerError


@pytest.mark.parametrize(("seconds", "tokens"), [(0, 1), (269, 1), (270, 2), (9999, 2)])
async def test_a_token_is_kept_until_shortly_before_its_end(clock, seconds, tokens):
    class Both(FakeHttp):
        async def send(self, method, url, **options):
            self.sent.append(url)
            return self._replies["sso" not in url]

    http = Both(TOKEN, grail([{"value": 1}]))
    dql = Dql(tokens=TokenCache(now=clock))
    for _ in range(2):
        await outcome(dql, http, target("https://abc.example.com"), Question("m"))
        clock.now += seconds
    assert len([url for url in http.sent if "sso" in url]) == tokens


async def test_a_rejected_token_is_renewed_once(clock):
    assert (await ask(clock, "renewed")).value == "23.250000"


async def test_the_token_of_a_query_is_renewed_only_once(clock):
    assert type(await ask(clock, "refused-again")) is UnauthorizedError


async def test_concurrent_callers_request_one_token(clock):
    sent = []

    class Slow(FakeHttp):
        async def send(self, method, url, **options):
            sent.append(url)
            await asyncio.sleep(0)
            return await super().send(method, url, **options)

    tokens = TokenCache(now=clock)
    http = Slow(TOKEN)
    own = target("https://abc.example.com")
    assert set(await asyncio.gather(*(tokens.get(http, own) for _ in range(20)))) == {
        "canary-token"
    }
    assert len(sent) == 1


async def test_one_refusal_of_a_token_that_many_use_makes_one_new_one(clock):
    tokens = TokenCache(now=clock)
    http = FakeHttp(TOKEN, b'{"access_token": "b", "expires_in": 300}')
    own = target("https://abc.example.com")
    first = await tokens.get(http, own)
    renewed = await asyncio.gather(*(tokens.get(http, own, refused=first) for _ in range(20)))
    assert set(renewed) == {"b"}
    assert len(http.sent) == 2


async def test_the_client_goes_to_the_sso_and_the_token_to_the_server():
    _, http = await answer_to(grail([{"value": 1}]))
    (_, sso, first), (_, server, second) = http.sent
    assert sso == "https://sso.dynatrace.com/sso/oauth2/token"
    assert CLIENT.encode() in first["body"]
    assert "skip_verify" not in first
    assert server == "https://abc.example.com/platform/storage/query/v1/query:execute"
    assert second["headers"]["Authorization"] == "Bearer canary-token"
    assert CLIENT not in str(second)


async def test_only_the_secret_says_where_the_client_goes_and_for_what():
    secret = {
        **SECRET,
        "tokenUrl": b"https://sso.example.com/token",
        "scope": b"storage:logs:read storage:buckets:read",
        "resource": b"urn:dtenvironment:abc",
    }
    _, http = await answer_to(grail([{"value": 1}]), secret=secret)
    _, url, options = http.sent[0]
    assert url == "https://sso.example.com/token"
    assert options["body"].endswith(
        b"&scope=storage%3Alogs%3Aread+storage%3Abuckets%3Aread&resource=urn%3Adtenvironment%3Aabc"
    )


async def test_a_platform_token_is_sent_unchanged():
    token = "dt0s16.CANARYID." + "A" * 64
    http = FakeHttp(grail([{"value": 1}]))
    own = target("https://abc.example.com", {"client": token.encode()})
    assert (await outcome(Dql(), http, own, Question("m"))).value == "1.000000"
    assert http.sent[0][2]["headers"]["Authorization"] == f"Bearer {token}"


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        (None, "no secret: set secretKeyRef"),
        ({}, "does not contain the key client: correct it"),
        (
            {"client": b"dt0s08.canary"},
            "a Dynatrace client secret: expected dt0s08.<id>.<64 characters>",
        ),
        ({"client": CLIENT.encode() + b"A"}, "not a Dynatrace client secret"),
        (
            {**SECRET, "tokenUrl": b"http://canary.example.com"},
            "tokenUrl of the secret is not an https",
        ),
        ({**SECRET, "scope": b""}, "the key scope of the secret is empty"),
    ],
)
async def test_invalid_credentials_are_an_error(secret, message):
    error, http = await answer_to(b"", secret=secret)
    assert type(error) is BadCredentialsError
    assert message in str(error)
    assert not http.sent


async def test_an_access_token_with_invalid_characters_is_not_sent():
    http = FakeHttp(b'{"access_token": "a\\r\\nHost: b", "expires_in": 300}')
    error = await outcome(Dql(), http, target("https://abc.example.com"), Question("m"))
    assert type(error) is UnauthorizedError
    assert len(http.sent) == 1


async def test_clients_are_not_kept_without_end(monkeypatch):
    monkeypatch.setattr("harbourmaster.providers.dql._MAX_CLIENTS", 3)
    tokens = TokenCache()
    for scope in range(9):
        secret = {**SECRET, "scope": f"{scope}".encode()}
        await tokens.get(FakeHttp(TOKEN), target("https://abc.example.com", secret))
    assert len(tokens._grants) == 3
    assert CLIENT not in repr(tokens._grants)


async def test_a_query_cannot_change_the_request():
    query = 'fetch logs", "maxResultRecords": 1, "x": "\r\n'
    _, http = await answer_to(grail([]), question=Question(query))
    body = json.loads(http.sent[1][2]["body"])
    assert body == {
        "query": query,
        "requestTimeoutMilliseconds": 1000,
        "fetchTimeoutSeconds": 50,
        "maxResultRecords": 10_000,
    }


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        ([{"value": None}], NoValuesError),
        ([{}], NoValuesError),
        ([None], NoValuesError),
        ([{"a": "1"}], NoValuesError),
        ([{"value": "abc"}], BadAnswerError),
        ([{"value": True}], BadAnswerError),
        ([{"value": {"max": 1}}], NoValuesError),
        ([{"a": []}], NoValuesError),
        ([{"a": [None, None]}], NoValuesError),
        ([{"a": [1], "b": [2]}], TooManyValuesError),
    ],
)
async def test_records_without_a_value_are_an_error(records, kind):
    error, _ = await answer_to(grail(records))
    assert type(error) is kind


@pytest.mark.parametrize(
    ("records", "sample"),
    [
        ([{"value": 1}, {"value": None}], Sample(NOW, 1.0)),
        ([{"n": 5, "host": "a", "ok": True}], Sample(NOW, 5.0)),
        ([{"n": 5, "timestamp": "2026-03-01T11:00:00.123456789Z"}], Sample(1772362800.123456, 5.0)),
        ([{"n": 5, "timestamp": "yesterday"}], Sample(NOW, 5.0)),
        ([{"a": [1, 2], "timeframe": {"start": 7}, "interval": "x"}], Sample(NOW, 2.0)),
    ],
)
async def test_a_record_is_as_old_as_it_says(records, sample):
    answer, _ = await answer_to(grail(records))
    assert answer.samples == (sample,)


async def test_a_running_query_without_a_token_is_an_error():
    error, _ = await answer_to(b'{"state": "RUNNING"}')
    assert type(error) is BadAnswerError
