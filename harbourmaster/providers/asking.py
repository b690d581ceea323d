"""Concurrency of queries: equal queries are sent once, and each target has its own limit."""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from harbourmaster.providers.addresses import shown
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadProviderError,
    ProviderError,
    ThrottledError,
    TimedOutError,
)
from harbourmaster.providers.http import BLOT, SHORTEST_SECRET
from harbourmaster.providers.model import Answer
from harbourmaster.providers.registry import PROVIDERS
from harbourmaster.providers.replies import words
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from harbourmaster.providers.http import Http
    from harbourmaster.providers.model import Provider, Question, Target

ANSWERED: Final = "Answered"
"""The outcome of a successful query; otherwise it is the reason of the error."""
UNKNOWN: Final = "unknown"
"""Stands for a type of provider that is not supported."""
CROWD: Final = 512
"""Running queries of all targets. Above this each target may run only one."""


class QueryObserver(Protocol):
    """Is notified of each query."""

    def answered(self, provider: str, outcome: str, seconds: float) -> None:
        """``provider`` is a type or UNKNOWN; ``outcome`` is ANSWERED or the reason of the error."""


class _Lane:
    """The queries to one target: the number of running ones, and those that wait."""

    __slots__ = ("running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class _Flight:
    """A running query, and how many callers wait for its answer."""

    __slots__ = ("task", "waiters")

    def __init__(self, task: asyncio.Task[Answer | ProviderError]) -> None:
        self.task = task
        self.waiters = 0


class Asker:
    """Queries targets. A target that hangs does not delay others."""

    def __init__(
        self,
        http: Http,
        *,
        timeout: float,
        per_target: int,
        observer: QueryObserver | None = None,
        providers: Mapping[str, Provider] = PROVIDERS,
    ) -> None:
        """``timeout``, in seconds, includes the wait for a turn."""
        self._http = http
        self._timeout = timeout
        self._per_target = per_target
        self._observer = observer
        self._providers = providers
        self._flights: dict[Hashable, _Flight] = {}
        self._lanes: dict[Hashable, _Lane] = {}
        self._running = 0

    async def ask(self, target: Target, question: Question, shared: Hashable = None) -> Answer:
        """The answer. Raises ProviderError, and nothing else.

        Concurrent callers with the same target and an equal ``shared`` (by default the question)
        get the same answer.
        """
        identity = _identity(target)
        key = (identity, question if shared is None else (shared,))
        flight = self._flights.get(key)
        if flight is None:
            task = asyncio.create_task(self._flown(identity, target, question))
            flight = self._flights[key] = _Flight(task)
            task.add_done_callback(lambda _task: self._landed(key, flight))
        flight.waiters += 1
        try:
            found = await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                # No caller is left; the next one starts a new query.
                self._landed(key, flight)
                flight.task.cancel()
        if isinstance(found, ProviderError):
            # Every waiting caller raises it: tracebacks must not accumulate.
            raise found.with_traceback(None)
        return found

    def _landed(self, key: Hashable, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def _flown(
        self, identity: Hashable, target: Target, question: Question
    ) -> Answer | ProviderError:
        """The answer or the error; returned, as asyncio logs exceptions that nobody retrieves."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        found: Answer | ProviderError
        try:
            found = await self._timed(identity, target, question)
        except ProviderError as error:
            found = error
        except Exception as error:  # noqa: BLE001 - one bad answer must not stop the caller
            _log_unexpected(error, target)
            found = BadAnswerError(f"unexpected answer ({type(error).__name__})")
        found = _without_secrets(found, target)
        if self._observer is not None:
            kind = target.type if target.type in self._providers else UNKNOWN
            outcome = found.reason if isinstance(found, ProviderError) else ANSWERED
            self._observer.answered(kind, outcome, loop.time() - began)
        return found

    async def _timed(self, identity: Hashable, target: Target, question: Question) -> Answer:
        provider = self._providers.get(target.type)
        if provider is None:
            raise BadProviderError(f"provider {words(target.type)} not supported")
        lane = self._lanes.setdefault(identity, _Lane())
        has_turn = False
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                try:
                    await self._turn(lane)
                    has_turn = True
                    return await provider.ask(self._http, target, question)
                finally:
                    self._end_turn(identity, lane, has_turn=has_turn)
        except TimeoutError:
            if not limit.expired():
                raise
            server = shown(target.server)
            if has_turn:
                raise TimedOutError(f"{server} did not answer within {self._timeout:g} s") from None
            raise ThrottledError(
                f"no turn within {self._timeout:g} s: earlier queries to {server} are unanswered"
            ) from None

    async def _turn(self, lane: _Lane) -> None:
        """Wait for a turn in ``lane``."""
        if not lane.waiting and self._has_room(lane):
            self._take(lane)
            return
        turn = asyncio.get_running_loop().create_future()
        lane.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # Cancelled waiters are skipped, but this one may have got its turn just now.
            if not turn.cancelled():
                self._release(lane)
            raise

    def _has_room(self, lane: _Lane) -> bool:
        return lane.running < (self._per_target if self._running < CROWD else 1)

    def _take(self, lane: _Lane) -> None:
        lane.running += 1
        self._running += 1

    def _release(self, lane: _Lane) -> None:
        lane.running -= 1
        self._running -= 1
        while lane.waiting and self._has_room(lane):
            turn = lane.waiting.popleft()
            if not turn.done():
                self._take(lane)
                turn.set_result(None)

    def _end_turn(self, identity: Hashable, lane: _Lane, *, has_turn: bool) -> None:
        if has_turn:
            self._release(lane)
        if not lane.running and not lane.waiting:
            self._lanes.pop(identity, None)


def _identity(target: Target) -> Hashable:
    """The target with its credentials: callers with others must not share its answers."""
    secret = None if target.secret is None else frozenset(target.secret.items())
    # Not by value, as it may be long; its id is unique while it is in use.
    static = None if target.static is None else id(target.static)
    return (
        target.type,
        target.server,
        secret,
        target.secret_key,
        target.skip_verify,
        target.table,
        static,
    )


def _log_unexpected(error: Exception, target: Target) -> None:
    """Log where it was raised, but not its text, which may have a credential."""
    places = "".join(traceback.format_tb(error.__traceback__))
    get_logger("providers").error(
        "unexpected provider error",
        provider=target.type,
        error=type(error).__name__,
        exception=places,
    )


def _without_secrets(found: Answer | ProviderError, target: Target) -> Answer | ProviderError:
    """``found`` without the values of the Secret that the server repeats."""
    stripped = {each.strip() for each in (target.secret or {}).values()}
    secrets = [each for each in stripped if len(each) >= SHORTEST_SECRET]
    for secret in sorted(secrets, key=len, reverse=True):
        text = secret.decode("utf-8", "replace")
        if isinstance(found, Answer):
            if secret in found.raw:
                found = Answer(found.value, found.samples, found.raw.replace(secret, BLOT.encode()))
        elif text in str(found):
            found.args = (str(found).replace(text, BLOT),)
    return found
