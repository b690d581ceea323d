"""Queries to metric providers: a limit for each target, a time limit, no secrets in results."""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from harbourmaster.api.credentials import redact, redact_bytes, secret_forms
from harbourmaster.providers.addresses import describe_server
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadProviderError,
    ProviderError,
    ThrottledError,
    TimedOutError,
)
from harbourmaster.providers.model import Answer
from harbourmaster.providers.registry import PROVIDERS
from harbourmaster.providers.requests import one_line
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Provider, Question, Target

ANSWERED: Final = "Answered"
"""The outcome of a successful query; that of others is the reason of the error."""
UNKNOWN: Final = "unknown"
"""The label of all types that are not supported."""
CROWD: Final = 512
"""Running queries of all targets, from which on each target may run only one."""


class QueryObserver(Protocol):
    """Gets the outcome of each query."""

    def count_answer(self, provider: str, outcome: str, seconds: float) -> None:
        """Count a query; ``provider`` is a type or UNKNOWN, ``outcome`` ANSWERED or a reason."""


class _TargetQueue:
    __slots__ = ("running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.waiting: deque[asyncio.Future[None]] = deque()


class PerTargetLimit:
    """Limits the concurrent queries of each target; callers get their turns in order.

    While ``CROWD`` queries of all targets run, each target may run only one.
    """

    def __init__(self, per_target: int) -> None:
        self._per_target = per_target
        self._queues: dict[Hashable, _TargetQueue] = {}
        self._running = 0

    async def acquire(self, target: Hashable) -> None:
        """Wait for a turn of ``target``, which ends with ``release``."""
        queue = self._queues.setdefault(target, _TargetQueue())
        if not queue.waiting and self._has_room(queue):
            self._start(queue)
            return
        turn = asyncio.get_running_loop().create_future()
        queue.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # Cancelled waiters are skipped, but this one may have got its turn just now.
            if not turn.cancelled():
                self.release(target)
            raise

    def release(self, target: Hashable) -> None:
        """End a turn of ``target``, and start the next ones."""
        queue = self._queues[target]
        queue.running -= 1
        self._running -= 1
        while queue.waiting and self._has_room(queue):
            turn = queue.waiting.popleft()
            if not turn.done():
                self._start(queue)
                turn.set_result(None)
        if not queue.running:
            del self._queues[target]

    @property
    def is_idle(self) -> bool:
        """Whether no query runs or waits."""
        return not self._queues and not self._running

    def _has_room(self, queue: _TargetQueue) -> bool:
        return queue.running < (self._per_target if self._running < CROWD else 1)

    def _start(self, queue: _TargetQueue) -> None:
        queue.running += 1
        self._running += 1


class QueryClient:
    """Sends queries to providers. A target that hangs does not delay others."""

    def __init__(
        self,
        http: HttpClient,
        *,
        timeout: float,
        per_target: int,
        observer: QueryObserver | None = None,
        providers: Mapping[str, Provider] = PROVIDERS,
    ) -> None:
        """Take the time limit in seconds, which includes the wait for a turn."""
        self._http = http
        self._timeout = timeout
        self._observer = observer
        self._providers = providers
        self._limit = PerTargetLimit(per_target)

    async def ask(self, target: Target, question: Question) -> Answer:
        """Return the answer without secrets. Raises ProviderError, and nothing else."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        result: Answer | ProviderError
        try:
            result = await self._ask_in_time(target, question)
        except ProviderError as error:
            # Frames of the traceback have the credentials.
            result = error.with_traceback(None)
        except Exception as error:  # noqa: BLE001 - one bad answer must not stop the caller
            _log_unexpected(error, target)
            result = BadAnswerError(f"unexpected answer ({type(error).__name__})")
        result = _redact(result, target)
        if self._observer is not None:
            kind = target.type if target.type in self._providers else UNKNOWN
            outcome = result.reason if isinstance(result, ProviderError) else ANSWERED
            self._observer.count_answer(kind, outcome, loop.time() - start)
        if isinstance(result, ProviderError):
            raise result
        return result

    async def _ask_in_time(self, target: Target, question: Question) -> Answer:
        provider = self._providers.get(target.type)
        if provider is None:
            raise BadProviderError(f"provider {one_line(target.type)} not supported")
        key = _limit_key(target)
        has_turn = False
        time_limit = asyncio.timeout(self._timeout)
        try:
            async with time_limit:
                await self._limit.acquire(key)
                has_turn = True
                try:
                    return await provider.ask(self._http, target, question)
                finally:
                    self._limit.release(key)
        except TimeoutError:
            if not time_limit.expired():
                raise
            server = describe_server(target.server)
            if has_turn:
                raise TimedOutError(f"{server} did not answer within {self._timeout:g} s") from None
            raise ThrottledError(
                f"no turn within {self._timeout:g} s: earlier queries to {server} are unanswered"
            ) from None


def _limit_key(target: Target) -> Hashable:
    """Return the target with its credentials: wrong ones must not delay queries with others."""
    secret = None if target.secret is None else frozenset(target.secret.items())
    # The id, as the values may be many; it is unique while the object is in use.
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
    """Log where the error was raised, but not its text, which may have a credential."""
    places = "".join(traceback.format_tb(error.__traceback__))
    get_logger("providers").error(
        "unexpected provider error",
        provider=target.type,
        error=type(error).__name__,
        exception=places,
    )


def _redact(result: Answer | ProviderError, target: Target) -> Answer | ProviderError:
    """Remove the values of the Secret that the server repeats."""
    secrets = (value.decode("utf-8", "replace") for value in (target.secret or {}).values())
    forms = secret_forms(secret.strip() for secret in secrets)
    if isinstance(result, Answer):
        return Answer(result.value, result.samples, redact_bytes(result.raw, forms))
    result.args = (redact(str(result), forms),)
    return result
