"""Each question once, each target in its own lane, each answer in time."""

from __future__ import annotations

import asyncio
import gc
import json
import traceback
import weakref

import pytest

from harbourmaster.providers import asking
from harbourmaster.providers.asking import ANSWERED, UNKNOWN, Asker
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
from helpers.logs import captured_log
from helpers.virtual_time import virtual

CANARY = b"canary-7f3a9c"
PROM = Target("prom", "https://prom.example.com", secret={"user": b"me", "password": CANARY})
OTHER = Target("prom", "https://other.example.com")


def answer(value="4", raw=b""):
    return Answer(value, (Sample(0.0, 4.0),), raw)


class Scripted:
    """A provider that answers when it is told to; ``asked`` has all questions."""

    def __init__(self, found=None):
        self.found = found
        self.asked = []
        self.running = 0
        self.most = 0
        self.go = asyncio.Event()

    async def ask(self, _http, target, question):
        self.asked.append((target, question))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.found is None or target.server == "https://hung.example.com":
                await self.go.wait()
        finally:
            self.running -= 1
        if isinstance(self.found, Exception):
            raise self.found
        return self.found or answer(question.query)


class Told:
    def __init__(self):
        self.outcomes = []

    def answered(self, provider, outcome, seconds):
        self.outcomes.append((provider, outcome, seconds))


def asker(provider, **options):
    options = {"timeout": 20.0, "per_target": 2, **options}
    return Asker(None, providers={"prom": provider}, **options)


def start(one, count=1, target=PROM, query="up", **options):
    return [
        asyncio.create_task(one.ask(target, Question(query.format(n=n)), **options))
        for n in range(count)
    ]


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


def is_idle(one):
    return (one._flights, one._lanes, one._running) == ({}, {}, 0)


@virtual
async def test_the_same_question_is_asked_once():
    provider = Scripted()
    one = asker(provider)
    tasks = start(one, 100)
    await settle()
    provider.go.set()
    answers = await asyncio.gather(*tasks)
    assert len(provider.asked) == 1
    assert all(answer is answers[0] for answer in answers)
    assert is_idle(one)


@virtual
async def test_an_answer_is_not_cached():
    provider = Scripted(answer())
    one = asker(provider)
    for _ in range(2):
        await one.ask(PROM, Question("up"))
    assert len(provider.asked) == 2


@pytest.mark.parametrize(
    "other",
    [
        Target("prom", "https://prom.example.com"),
        Target("prom", "https://prom.example.com", secret={}),
        Target("prom", "https://prom.example.com", secret={"user": b"me", "password": b"other"}),
        Target("prom", "https://prom.example.com/b", secret=PROM.secret),
        Target("prom", "https://prom.example.com", secret=PROM.secret, secret_key="k"),  # noqa: S106
        Target("prom", "https://prom.example.com", secret=PROM.secret, skip_verify=True),
        Target("prom", "https://prom.example.com", secret=PROM.secret, static={"up": 1}),
    ],
    ids=str,
)
@virtual
async def test_another_target_is_asked_itself_even_if_only_its_credentials_differ(other):
    provider = Scripted()
    one = asker(provider)
    tasks = start(one) + start(one, target=other)
    await settle()
    assert len(provider.asked) == 2
    provider.go.set()
    await asyncio.gather(*tasks)


@virtual
async def test_an_equal_target_is_the_same():
    provider = Scripted()
    one = asker(provider)
    same = Target(PROM.type, PROM.server, secret=dict(reversed(PROM.secret.items())))
    tasks = start(one) + start(one, target=same)
    await settle()
    assert len(provider.asked) == 1
    provider.go.set()
    await asyncio.gather(*tasks)


@virtual
async def test_different_queries_may_share_an_answer():
    provider = Scripted()
    one = asker(provider, per_target=10)
    tasks = start(one, 3, query="up {n}", shared="up") + start(one, 3, query="down {n}", shared=1)
    tasks += start(one, 1, query="up 0")
    await settle()
    provider.go.set()
    found = [each.value for each in await asyncio.gather(*tasks)]
    assert found == ["up 0"] * 3 + ["down 0"] * 3 + ["up 0"]
    assert len(provider.asked) == 3


@virtual
async def test_a_cancelled_caller_does_not_affect_the_others():
    provider = Scripted()
    one = asker(provider)
    first, second = start(one, 2)
    await settle()
    first.cancel()
    await settle()
    assert first.cancelled()
    provider.go.set()
    assert (await second).value == "up"


@virtual
async def test_a_query_without_callers_is_cancelled():
    provider = Scripted()
    one = asker(provider)
    tasks = start(one, 2)
    await settle()
    for task in tasks:
        task.cancel()
    await settle()
    assert provider.running == 0
    assert is_idle(one)
    # Who comes right then asks anew.
    (first,) = start(one)
    await settle()
    first.cancel()
    (second,) = start(one)
    await settle()
    (third,) = start(one)
    await settle()
    assert provider.running == 1
    provider.go.set()
    assert (await second).value == (await third).value == "up"
    assert len(provider.asked) == 3
    assert is_idle(one)


@virtual
async def test_a_target_has_so_many_questions_at_a_time():
    provider = Scripted()
    one = asker(provider)
    tasks = start(one, 6, query="q{n}")
    await settle()
    assert provider.running == 2
    provider.go.set()
    answers = await asyncio.gather(*tasks)
    assert [answer.value for answer in answers] == [f"q{n}" for n in range(6)]
    assert provider.most == 2
    assert is_idle(one)


@virtual
async def test_a_hanging_target_does_not_delay_others():
    provider = Scripted(answer())
    one = asker(provider)
    hung = start(one, 50, Target("prom", "https://hung.example.com"), "q{n}")
    await settle()
    began = asyncio.get_running_loop().time()
    for n in range(10):
        await one.ask(OTHER, Question(f"q{n}"))
    assert asyncio.get_running_loop().time() == began
    found = await asyncio.gather(*hung, return_exceptions=True)
    assert asyncio.get_running_loop().time() == began + 20
    assert [type(error) for error in found[:2]] == [TimedOutError] * 2
    assert {type(error) for error in found[2:]} == {ThrottledError}
    assert str(found[0]) == "hung.example.com:443 did not answer within 20 s"
    assert str(found[9]) == (
        "no turn within 20 s: earlier queries to hung.example.com:443 are unanswered"
    )
    assert is_idle(one)


@virtual
async def test_in_a_crowd_each_target_has_one_turn(monkeypatch):
    monkeypatch.setattr(asking, "CROWD", 4)
    provider = Scripted()
    one = asker(provider)
    places = [Target("prom", f"https://{n}.example.com") for n in range(4)]
    tasks = [task for place in places for task in start(one, 4, place, "q{n}")]
    await settle()
    # Two of the first, two of the second; then it is a crowd.
    assert provider.running == 6
    provider.go.set()
    await asyncio.gather(*tasks)
    assert len(provider.asked) == 16
    assert is_idle(one)


@virtual
async def test_cancelled_waiters_are_skipped():
    provider = Scripted()
    one = asker(provider, per_target=1)
    tasks = start(one, 5, query="q{n}")
    await settle()
    for task in tasks[1:4]:
        task.cancel()
    await settle()
    provider.go.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(each, "value", None) for each in found] == ["q0", None, None, None, "q4"]
    assert [question.query for _, question in provider.asked] == ["q0", "q4"]
    assert is_idle(one)


@virtual
async def test_a_turn_that_comes_when_its_owner_leaves_is_for_the_next():
    class Leaves:
        """Ends the flight that has just been given a turn."""

        def answered(self, *_):
            if flights:
                flights.pop().task.cancel()

    provider, flights = Scripted(), []
    one = asker(provider, per_target=1, observer=Leaves())
    first, second, third = start(one, 3, query="q{n}")
    await settle()
    flights.append(list(one._flights.values())[1])
    provider.go.set()
    assert (await first).value == "q0"
    assert (await third).value == "q2"
    with pytest.raises(asyncio.CancelledError):
        await second
    assert is_idle(one)


@virtual
async def test_all_callers_get_the_error_without_its_traceback():
    provider = Scripted(NoValuesError("no values in query result"))
    one = asker(provider)
    errors = await asyncio.gather(*start(one, 3), return_exceptions=True)
    assert {str(error) for error in errors} == {"no values in query result"}
    assert len(traceback.extract_tb(errors[0].__traceback__)) == 1
    with pytest.raises(NoValuesError) as caught:
        await one.ask(PROM, Question("up"))
    names = [frame.name for frame in caught.traceback]
    assert names[-1] == "ask"
    assert is_idle(one)


@pytest.mark.parametrize("error", [KeyError(CANARY.decode()), TimeoutError(), RecursionError()])
async def test_unexpected_errors_are_logged_without_their_text(error):
    with captured_log() as stream:
        one = asker(Scripted(error))
        with pytest.raises(BadAnswerError) as caught:
            await one.ask(PROM, Question("up"))
    assert str(caught.value) == f"unexpected answer ({type(error).__name__})"
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["level"], line["component"], line["provider"]) == ("error", "providers", "prom")
    assert "test_asking.py" in line["exception"]
    assert CANARY not in stream.getvalue()


@pytest.mark.parametrize("kind", ["", "influx", "PROM", "x\n" * 500])
async def test_an_unknown_type_is_not_supported(kind):
    told = Told()
    one = asker(Scripted(), observer=told)
    with pytest.raises(BadProviderError) as caught:
        await one.ask(Target(kind, "https://prom.example.com"), Question("up"))
    assert str(caught.value).startswith(f"provider {kind.split()[0] if kind else ''}")
    assert str(caught.value).endswith(" not supported")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250
    assert [(provider, outcome) for provider, outcome, _ in told.outcomes] == [
        (UNKNOWN, "BadProvider")
    ]
    assert is_idle(one)


@virtual
async def test_each_query_is_observed_once():
    told = Told()
    provider = Scripted()
    one = asker(provider, observer=told, timeout=3.0)
    tasks = start(one, 5)
    await asyncio.sleep(1.5)
    provider.go.set()
    await asyncio.gather(*tasks)
    provider.go.clear()
    with pytest.raises(TimedOutError):
        await one.ask(OTHER, Question("up"))
    assert told.outcomes == [("prom", ANSWERED, 1.5), ("prom", "TimedOut", 3.0)]


async def test_repeated_secrets_are_redacted():
    error = UnreachableError(f"failed: {CANARY.decode()} is no password")
    with pytest.raises(UnreachableError, match=r"^failed: \*\*\* is no password$"):
        await asker(Scripted(error)).ask(PROM, Question("up"))
    found = await asker(Scripted(answer(raw=b'"' + CANARY + b'"'))).ask(PROM, Question("up"))
    assert found == answer(raw=b'"***"')


async def test_blank_secrets_are_not_redacted():
    blank = Target("prom", "https://prom.example.com", {"password": b" \n \n \n"})
    with pytest.raises(UnreachableError, match=r"^refused$"):
        await asker(Scripted(UnreachableError("refused"))).ask(blank, Question("up"))


async def test_a_secret_with_a_line_end_is_redacted():
    ended = Target("prom", "https://prom.example.com", {"password": CANARY + b"\n"})
    found = await asker(Scripted(answer(raw=b'"' + CANARY + b'"'))).ask(ended, Question("up"))
    assert found == answer(raw=b'"***"')


async def test_a_redacted_error_keeps_its_other_fields():
    error = ThrottledError(f"too often, {CANARY.decode()}", 7.0)
    with pytest.raises(ThrottledError) as caught:
        await asker(Scripted(error)).ask(PROM, Question("up"))
    assert (str(caught.value), caught.value.seconds) == ("too often, ***", 7.0)


async def test_nothing_of_a_target_is_kept():
    class Tracked(dict):
        pass

    provider = Scripted(answer())
    one = asker(provider)
    secret = Tracked(password=CANARY)
    gone = weakref.ref(secret)
    await one.ask(Target("prom", "https://prom.example.com", secret=secret), Question("up"))
    with pytest.raises(ProviderError):
        await one.ask(Target("x", "https://prom.example.com", secret=secret), Question("up"))
    del secret
    provider.asked.clear()
    # The loop holds the answer until its next round.
    await asyncio.sleep(0)
    gc.collect()
    assert gone() is None
    assert is_idle(one)
