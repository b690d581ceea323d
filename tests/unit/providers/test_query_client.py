"""Each target has its own limit, each answer a time limit, and no result has a secret."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import weakref
from urllib.parse import quote

import pytest

from harbourmaster.providers import query_client
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadProviderError,
    NoValuesError,
    ProviderError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
)
from harbourmaster.providers.model import Answer, Question, Sample, Target
from harbourmaster.providers.query_client import ANSWERED, UNKNOWN, QueryClient
from helpers.logs import captured_log
from helpers.virtual_time import virtual

CANARY = b"canary-7f3a9c"
PROM = Target("prom", "https://prom.example.com", secret={"user": b"me", "password": CANARY})
OTHER = Target("prom", "https://other.example.com")


def answer(value="4", raw=b""):
    return Answer(value, (Sample(0.0, 4.0),), raw)


class Scripted:
    """A provider that answers when it is told to; ``asked`` has all questions."""

    def __init__(self, result=None):
        self.result = result
        self.asked = []
        self.running = 0
        self.most = 0
        self.go = asyncio.Event()

    async def ask(self, _http, target, question):
        self.asked.append((target, question))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.result is None or target.server == "https://hung.example.com":
                await self.go.wait()
        finally:
            self.running -= 1
        if isinstance(self.result, Exception):
            raise self.result
        return self.result or answer(question.query)


class RecordedQueries:
    def __init__(self):
        self.outcomes = []

    def count_answer(self, provider, outcome, seconds):
        self.outcomes.append((provider, outcome, seconds))


def make_client(provider, **options):
    options = {"timeout": 20.0, "per_target": 3, **options}
    return QueryClient(None, providers={"prom": provider}, **options)


def start(client, count=1, target=PROM, query="up"):
    return [
        asyncio.create_task(client.ask(target, Question(query.format(n=n)))) for n in range(count)
    ]


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


def is_idle(client):
    return client._limit.is_idle


@pytest.mark.parametrize(
    ("target", "running"),
    [
        (Target("prom", "https://prom.example.com"), 2),
        (Target("prom", "https://prom.example.com", secret={}), 2),
        (Target("prom", "https://prom.example.com", {"user": b"me", "password": b"other"}), 2),
        (Target("prom", "https://prom.example.com/b", secret=PROM.secret), 2),
        (Target("prom", "https://prom.example.com", PROM.secret, secret_key="k"), 2),  # noqa: S106
        (Target("prom", "https://prom.example.com", secret=PROM.secret, skip_verify=True), 2),
        (Target("prom", "https://prom.example.com", secret=PROM.secret, static={"up": 1}), 2),
        (Target("prom", "https://prom.example.com", dict(reversed(PROM.secret.items()))), 1),
    ],
    ids=str,
)
@virtual
async def test_targets_share_a_limit_only_if_their_credentials_are_equal_too(target, running):
    provider = Scripted()
    client = make_client(provider, per_target=1)
    tasks = start(client) + start(client, target=target)
    await settle()
    assert provider.running == running
    provider.go.set()
    await asyncio.gather(*tasks)


@virtual
async def test_a_cancelled_caller_cancels_its_query_only():
    provider = Scripted()
    client = make_client(provider)
    first, second = start(client, 2)
    await settle()
    first.cancel()
    await settle()
    assert provider.running == 1
    provider.go.set()
    assert (await second).value == "up"
    assert is_idle(client)


@virtual
async def test_a_target_has_so_many_questions_at_a_time():
    provider = Scripted()
    client = make_client(provider)
    tasks = start(client, 6, query="q{n}")
    await settle()
    assert provider.running == 2
    provider.go.set()
    answers = await asyncio.gather(*tasks)
    assert [answer.value for answer in answers] == [f"q{n}" for n in range(6)]
    assert provider.most == 2
    assert is_idle(client)


@virtual
async def test_a_hanging_target_does_not_delay_others():
    provider = Scripted(answer())
    client = make_client(provider)
    hung = start(client, 50, Target("prom", "https://hung.example.com"), "q{n}")
    await settle()
    began = asyncio.get_running_loop().time()
    for n in range(10):
        await client.ask(OTHER, Question(f"q{n}"))
    assert asyncio.get_running_loop().time() == began
    results = await asyncio.gather(*hung, return_exceptions=True)
    assert asyncio.get_running_loop().time() == began + 20
    assert [type(error) for error in results[:2]] == [TimedOutError] * 2
    assert {type(error) for error in results[2:]} == {ThrottledError}
    assert str(results[0]) == "hung.example.com:443 did not answer within 20 s"
    assert str(results[9]) == (
        "no turn within 20 s: earlier queries to hung.example.com:443 are unanswered"
    )
    assert is_idle(client)


@virtual
@pytest.mark.claim("O25")
async def test_queries_of_one_namespace_do_not_delay_those_of_another():
    provider = Scripted(answer())
    client = make_client(provider, per_target=10)
    url = "https://hung.example.com"
    loud, quiet = (Target("prom", url, namespace=name) for name in ("loud", "quiet"))
    hung = start(client, 10_000, loud, "q{n}")
    await settle()
    assert provider.running == 8
    (task,) = start(client, target=quiet)
    await settle()
    assert [target.namespace for target, _ in provider.asked].count("quiet") == 1
    for waiting in [*hung, task]:
        waiting.cancel()
    await asyncio.gather(*hung, task, return_exceptions=True)
    assert is_idle(client)


@virtual
@pytest.mark.claim("O25")
async def test_a_crowd_of_one_namespace_is_none_of_another(monkeypatch):
    monkeypatch.setattr(query_client, "CROWD", 4)
    provider = Scripted()
    client = make_client(provider)
    for n in range(9):
        start(client, 4, Target("prom", f"https://{n}.example.com", namespace="loud"))
    await settle()
    assert provider.running == 2 + 2 + 7
    tasks = start(client, 2, Target("prom", "https://0.example.com", namespace="quiet"))
    tasks += start(client, 2, Target("prom", "https://quiet.example.com", namespace="quiet"))
    await settle()
    assert provider.running == 11 + 3
    provider.go.set()
    await asyncio.gather(*tasks)


@virtual
async def test_in_a_crowd_each_target_has_one_turn(monkeypatch):
    monkeypatch.setattr(query_client, "CROWD", 4)
    provider = Scripted()
    client = make_client(provider)
    places = [Target("prom", f"https://{n}.example.com") for n in range(4)]
    tasks = [task for place in places for task in start(client, 4, place, "q{n}")]
    await settle()
    # Two of the first, two of the second; then it is a crowd.
    assert provider.running == 6
    provider.go.set()
    await asyncio.gather(*tasks)
    assert len(provider.asked) == 16
    assert is_idle(client)


@virtual
async def test_cancelled_waiters_are_skipped():
    provider = Scripted()
    client = make_client(provider, per_target=1)
    tasks = start(client, 5, query="q{n}")
    await settle()
    for task in tasks[1:4]:
        task.cancel()
    await settle()
    provider.go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(result, "value", None) for result in results] == ["q0", None, None, None, "q4"]
    assert [question.query for _, question in provider.asked] == ["q0", "q4"]
    assert is_idle(client)


@virtual
async def test_a_turn_that_comes_as_its_caller_is_cancelled_is_for_the_next():
    class Cancels:
        """Cancels the caller that has just been given a turn."""

        def count_answer(self, *_):
            second.cancel()

    provider = Scripted()
    client = make_client(provider, per_target=1, observer=Cancels())
    first, second, third = start(client, 3, query="q{n}")
    await settle()
    provider.go.set()
    assert (await first).value == "q0"
    assert (await third).value == "q2"
    with pytest.raises(asyncio.CancelledError):
        await second
    assert is_idle(client)


async def test_an_error_has_no_frames_of_the_provider():
    client = make_client(Scripted(NoValuesError("no values in query result")))
    with pytest.raises(NoValuesError, match=r"^no values in query result$") as caught:
        await client.ask(PROM, Question("up"))
    assert [frame.name for frame in caught.traceback][1:] == ["ask"]
    assert is_idle(client)


@pytest.mark.parametrize("error", [KeyError(CANARY.decode()), TimeoutError(), RecursionError()])
async def test_unexpected_errors_are_logged_without_their_text(error):
    with captured_log() as stream:
        client = make_client(Scripted(error))
        with pytest.raises(BadAnswerError) as caught:
            await client.ask(PROM, Question("up"))
    assert str(caught.value) == f"unexpected answer ({type(error).__name__})"
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["level"], line["component"], line["provider"]) == ("error", "providers", "prom")
    assert "test_query_client.py" in line["exception"]
    assert CANARY not in stream.getvalue()


@pytest.mark.parametrize("kind", ["", "influx", "PROM", "x\n" * 500])
async def test_an_unknown_type_is_not_supported(kind):
    observer = RecordedQueries()
    client = make_client(Scripted(), observer=observer)
    with pytest.raises(BadProviderError) as caught:
        await client.ask(Target(kind, "https://prom.example.com"), Question("up"))
    assert str(caught.value).startswith(f"provider {kind.split()[0] if kind else ''}")
    assert str(caught.value).endswith(" not supported")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250
    assert [(provider, outcome) for provider, outcome, _ in observer.outcomes] == [
        (UNKNOWN, "BadProvider")
    ]
    assert is_idle(client)


@virtual
async def test_each_query_is_observed_once():
    observer = RecordedQueries()
    provider = Scripted()
    client = make_client(provider, observer=observer, timeout=3.0)
    (task,) = start(client)
    await asyncio.sleep(1.5)
    provider.go.set()
    await task
    provider.go.clear()
    with pytest.raises(TimedOutError):
        await client.ask(OTHER, Question("up"))
    assert observer.outcomes == [("prom", ANSWERED, 1.5), ("prom", "TimedOut", 3.0)]


async def test_repeated_secrets_are_redacted():
    error = UnreachableError(f"failed: {CANARY.decode()} is no password")
    with pytest.raises(UnreachableError, match=r"^failed: \*\*\* is no password$"):
        await make_client(Scripted(error)).ask(PROM, Question("up"))
    redacted = await make_client(Scripted(answer(raw=b'"' + CANARY + b'"'))).ask(
        PROM, Question("up")
    )
    assert redacted == answer(raw=b'"***"')


async def test_encoded_secrets_are_redacted():
    text = 'one/two "three"'
    target = Target("prom", "https://prom.example.com", {"password": text.encode()})
    for form in (quote(text, ""), json.dumps(text)[1:-1], base64_of(text)):
        error = UnreachableError(f"failed: {form}")
        with pytest.raises(UnreachableError) as caught:
            await make_client(Scripted(error)).ask(target, Question("up"))
        assert "***" in str(caught.value)
        assert form[:-4] not in str(caught.value)


def base64_of(text):
    return base64.b64encode(text.encode()).decode()


async def test_blank_secrets_are_not_redacted():
    blank = Target("prom", "https://prom.example.com", {"password": b" \n \n \n"})
    with pytest.raises(UnreachableError, match=r"^refused$"):
        await make_client(Scripted(UnreachableError("refused"))).ask(blank, Question("up"))


async def test_a_secret_with_a_line_end_is_redacted():
    ended = Target("prom", "https://prom.example.com", {"password": CANARY + b"\n"})
    redacted = await make_client(Scripted(answer(raw=b'"' + CANARY + b'"'))).ask(
        ended, Question("up")
    )
    assert redacted == answer(raw=b'"***"')


async def test_a_redacted_error_keeps_its_other_fields():
    error = ThrottledError(f"too often, {CANARY.decode()}", 7.0)
    with pytest.raises(ThrottledError) as caught:
        await make_client(Scripted(error)).ask(PROM, Question("up"))
    assert (str(caught.value), caught.value.seconds) == ("too often, ***", 7.0)


async def test_nothing_of_a_target_is_kept():
    class Tracked(dict):
        pass

    provider = Scripted(answer())
    client = make_client(provider)
    secret = Tracked(password=CANARY)
    gone = weakref.ref(secret)
    await client.ask(Target("prom", "https://prom.example.com", secret=secret), Question("up"))
    with pytest.raises(ProviderError):
        await client.ask(Target("x", "https://prom.example.com", secret=secret), Question("up"))
    del secret
    provider.asked.clear()
    # The loop holds the answer until its next round.
    await asyncio.sleep(0)
    gc.collect()
    assert gone() is None
    assert is_idle(client)
