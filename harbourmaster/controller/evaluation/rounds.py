"""Questions that metrics share: each is asked once for all of them, and nobody waits for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from harbourmaster.providers.errors import (
    BadCredentialsError,
    ProviderError,
    ThrottledError,
    UnauthorizedError,
)
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from harbourmaster.controller.evaluation.questions import Questions
    from harbourmaster.evaluation.model import Provider
    from harbourmaster.providers.model import Answer, Question

MOST_HELD: Final = 32 * 1024 * 1024
"""Bytes of answers that are kept for others, of all questions together."""
_SAMPLE: Final = 100
"""Bytes that a sample takes."""


class Until(Enum):
    """When to ask again after a fault."""

    SOON = auto()
    """The same question may be answered in a moment."""
    MINUTE = auto()
    """What is wrong can be mended where nobody watches: in a Secret."""
    SLOT = auto()
    """It is asked again when it is due, without much hope."""
    CHANGE = auto()
    """There is nothing to ask before the metric or its provider changes."""


class Fault(NamedTuple):
    """Why there is no value. ``kind`` is equal for faults that are worth one event."""

    text: str
    kind: str
    until: Until
    seconds: float | None = None
    """How long the provider wants to be left alone."""
    is_sequel: bool = False
    """It says less than the fault of its kind that was there before: nobody asked."""


class FetchOutcome(NamedTuple):
    """The result of a question of that time, in seconds since 1970."""

    asked: float
    result: Answer | Fault


Deliver: TypeAlias = "Callable[[str, FetchOutcome], None]"


@dataclass(slots=True, eq=False)
class Round:
    """One question: the keys of all metrics that have it, and of those that wait for an answer."""

    members: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    outcome: FetchOutcome | None = None
    """The last one, while it is young enough to be shared."""
    task: asyncio.Task[None] | None = None


class Rounds:
    """All questions of a term. ``deliver`` is called with each key that waited, and its outcome."""

    def __init__(self, questions: Questions, deliver: Deliver) -> None:
        self._questions = questions
        self._deliver = deliver
        self._rounds: dict[Hashable, Round] = {}
        self._held = 0
        self._log = get_logger("metrics")

    def join(self, question: Hashable, key: str) -> Round:
        """Have ``key`` among those that have the question."""
        found = self._rounds.get(question)
        if found is None:
            found = self._rounds[question] = Round()
        found.members.add(key)
        return found

    def leave(self, question: Hashable, key: str) -> None:
        """Undo ``join``; an answer that nobody waits for any more is not waited for."""
        found = self._rounds[question]
        found.members.discard(key)
        found.waiting.discard(key)
        if not found.members:
            del self._rounds[question]
            if found.task is not None:
                found.task.cancel()

    def ask(
        self,
        found: Round,
        key: str,
        provider: Provider,
        question: Question,
        *,
        now: float,
        keep: float,
    ) -> None:
        """Have ``key`` given the answer, of this question or of the one under way.

        ``keep`` is for how many seconds others may share it.
        """
        found.waiting.add(key)
        if found.task is None:
            found.task = asyncio.create_task(self._run(found, provider, question, now, keep))

    async def close(self) -> None:
        """Ask nothing any more."""
        tasks = [each.task for each in self._rounds.values() if each.task is not None]
        self._rounds.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, found: Round, provider: Provider, question: Question, now: float, keep: float
    ) -> None:
        result: Answer | Fault
        try:
            result = await self._questions.ask(provider, question)
        except ProviderError as error:
            result = fault_of(error)
        except Exception:  # noqa: BLE001 - whatever it is, metrics must not wait without end
            self._log.exception("query failed", provider=provider.metadata.key)
            text = "the query failed: see the log of the controller"
            result = Fault(text, "Bug", Until.SOON)
        found.task = None
        outcome = FetchOutcome(now, result)
        self._hold(found, outcome, keep)
        waiting, found.waiting = found.waiting, set()
        for key in waiting:
            self._deliver(key, outcome)

    def _hold(self, found: Round, outcome: FetchOutcome, keep: float) -> None:
        """Keep the outcome for others, unless too much is kept: they then ask for themselves."""
        size = _size(outcome.result)
        if self._held + size > MOST_HELD:
            found.outcome = None
            return
        found.outcome = outcome
        self._held += size
        asyncio.get_running_loop().call_later(keep, self._release, found, outcome, size)

    def _release(self, found: Round, outcome: FetchOutcome, size: int) -> None:
        self._held -= size
        if found.outcome is outcome:
            found.outcome = None


def fault_of(error: ProviderError) -> Fault:
    """What matters of an error; itself it would keep its traceback."""
    until = Until.SOON if error.helps_to_wait else Until.SLOT
    if isinstance(error, UnauthorizedError | BadCredentialsError):
        until = Until.MINUTE
    return Fault(
        text=str(error),
        # A provider that is away is so in several ways, one after the other.
        kind="NoContact" if until is Until.SOON and error.is_unreachable else error.reason,
        until=until,
        seconds=error.seconds if isinstance(error, ThrottledError) else None,
        is_sequel=isinstance(error, ThrottledError),
    )


def _size(result: Answer | Fault) -> int:
    """Bytes that it takes in memory, nearly."""
    return 0 if isinstance(result, Fault) else len(result.raw) + _SAMPLE * len(result.samples)
