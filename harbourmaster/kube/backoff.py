"""Delays before the next attempt: growing, with jitter, and never too many attempts at once."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.kube.event_series import Limiter
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.kube.event_series import Allowance

_MAX_EXPONENT: Final = 60
"""Limits are reached long before; it prevents overflows."""


class Backoff(Struct, frozen=True, gc=False):
    """Waits in seconds, ``first * factor ** attempt`` up to ``limit``.

    ``jitter`` is the share of a wait that chance may remove, so that clients that failed together
    do not retry together.
    """

    first: float = 0.2
    factor: float = 2.0
    limit: float = 30.0
    jitter: float = 0.5

    def delay(self, attempt: int, chance: float) -> float:
        """Return the wait after failure number ``attempt``, from 0; ``chance`` is from 0 to 1."""
        whole = min(self.first * self.factor ** min(attempt, _MAX_EXPONENT), self.limit)
        return whole * (1 - self.jitter * chance)


class Pace:
    """At most ``count`` starts within any ``seconds``."""

    def __init__(self, count: int, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._starts: deque[float] = deque(maxlen=count)

    def wait(self) -> float:
        """Seconds until the next start is allowed; 0 for now."""
        if len(self._starts) < (self._starts.maxlen or 0):
            return 0.0
        return max(self._starts[0] + self._seconds - self._clock(), 0.0)

    def start(self) -> None:
        """Note a start."""
        self._starts.append(self._clock())


class PacedCall:
    """Calls ``act`` at once, or when ``allowance`` permits it again; requests until then merge."""

    def __init__(self, act: Callable[[], None], allowance: Allowance) -> None:
        self._act = act
        self._limiter = Limiter(allowance, 1)
        self.is_due = False
        """Whether a call is to come."""

    def __call__(self) -> None:
        """Call now or later."""
        if not self.is_due:
            self._run()

    def _run(self) -> None:
        loop = asyncio.get_running_loop()
        wait = self._limiter.turn(None, loop.time())
        self.is_due = wait > 0
        if self.is_due:
            loop.call_later(wait, self._run)
        else:
            self._act()


RESTARTS: Final = Backoff(first=1.0, limit=60.0)
_UNRELATED: Final = 60.0
"""Seconds after which a crash is not a consequence of the one before."""


async def supervise(
    name: str,
    run: Callable[[], Awaitable[None]],
    on_crash: Callable[[str], None],
    *,
    chance: Callable[[], float] = random.random,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Run until ``run`` returns. A crash is logged, and ``run`` starts again after a back-off."""
    loop = asyncio.get_running_loop()
    failures = 0
    while True:
        begun = loop.time()
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
            failures = failures + 1 if loop.time() - begun < _UNRELATED else 1
            get_logger(name).error("crashed, restarting", exc_info=error)
            on_crash(name)
        else:
            return
        await sleep(RESTARTS.delay(failures - 1, chance()))
