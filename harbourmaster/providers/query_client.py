"""Queries to metric providers: a limit for each target, a time limit, no secrets in results."""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from harbourmaster.api.credentials import redact, redact_bytes, secret_forms
from harbourmaster.api.turns import Turns
from harbourmaster.providers.addresses import describe_server
from harbourmaster.providers.connector import NAMESPACE
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
    from collections.abc import AsyncIterator, Hashable, Mapping

    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Provider, Question, Target

ANSWERED: Final = "Answered"
"""The outcome of a successful query; that of others is the reason of the error."""
UNKNOWN: Final = "unknown"
"""The label of all types that are not supported."""
CROWD: Final = 512
"""Running queries of a namespace, from which on it may run only one to each target."""


class QueryObserver(Protocol):
    """Gets the outcome of each query."""

    def count_answer(self, provider: str, outcome: str, seconds: float) -> None:
        """Count a query; ``provider`` is a type or UNKNOWN, ``outcome`` ANSWERED or a reason."""


class PerTargetLimit:
    """Limits the concurrent queries of each target, in which namespaces take turns.

    A namespace of which ``CROWD`` queries run may run only one to each target.
    """

    def __init__(self, per_target: int) -> None:
        self._per_target = per_target
        self._targets: dict[Hashable, Turns[tuple[str, asyncio.Future[None]]]] = {}
        self._running: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, target: Hashable, namespace: str) -> AsyncIterator[None]:
        """Wait for a turn of ``namespace`` at ``target``, and end it."""
        turns = self._targets.setdefault(target, Turns(self._per_target))
        turn = asyncio.get_running_loop().create_future()
        turns.put(namespace, (namespace, turn))
        try:
            self._start(turns)
            await turn
            yield
        finally:
            # One that is cancelled may have got its turn just now.
            if turn.done() and not turn.cancelled():
                turns.leave(namespace)
                self._running -= Counter([namespace])
                self._start(turns)
                if not turns.taken:
                    del self._targets[target]

    @property
    def is_idle(self) -> bool:
        """Whether no query runs or waits."""
        return not self._targets and not self._running

    def _start(self, turns: Turns[tuple[str, asyncio.Future[None]]]) -> None:
        """Start the queries that have room; those that were cancelled are skipped."""
        while (item := turns.pop(self._may_take)) is not None:
            namespace, turn = item
            if not turn.done():
                turns.take(namespace)
                self._running[namespace] += 1
                turn.set_result(None)

    def _may_take(self, namespace: str, taken: int) -> bool:
        return not taken or self._running[namespace] < CROWD


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
            async with time_limit, self._limit.turn(key, target.namespace):
                has_turn = True
                NAMESPACE.set(target.namespace)
                return await provider.ask(self._http, target, question)
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
