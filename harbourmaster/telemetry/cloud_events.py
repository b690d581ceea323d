"""CloudEvents 1.0 to one HTTP endpoint, in binary mode: a bounded queue, and lanes that empty it.

Adding an event never blocks. An endpoint that is down, slow or hanging causes lost events, which
are counted, and one log line a minute. Events about one object arrive in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from random import random
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from harbourmaster.api.turns import Turns, has_room
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.peer_protocol import limit_peers
from harbourmaster.telemetry.text import endpoint_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SENT: Final = "sent"
REFUSED: Final = "refused"
UNREACHABLE: Final = "unreachable"
QUEUE_FULL: Final = "queue_full"
TOO_LARGE: Final = "too_large"
SWITCHED_OFF: Final = "switched_off"
SHUTDOWN: Final = "shutdown"
CLOUD_EVENT_OUTCOMES: Final = (
    *(SENT, REFUSED, UNREACHABLE, QUEUE_FULL, TOO_LARGE, SWITCHED_OFF, SHUTDOWN),
)
"""Outcomes of a CloudEvent; all except the first are losses."""

SOURCE: Final = "keptn.sh"
LANES: Final = 16
"""Events that are sent concurrently."""
CAPACITY: Final = 10_000
"""Events that wait: a kilobyte each. When it is full, new ones are dropped."""
MAX_BODY: Final = 64 * 1024
ATTEMPTS: Final = 6
"""Maximum number of attempts for an event; with their pauses they take about half a minute."""
TIMEOUT: Final = 5.0
"""Seconds for one attempt."""
FIRST_PAUSE: Final = 0.5
MAX_PAUSE: Final = 30.0
FLUSH_TIMEOUT: Final = 2.0
"""Seconds at shutdown to send the remaining events."""
QUIET: Final = 60.0
"""Seconds between two log lines about an endpoint that fails."""
_READ: Final = 16 * 1024
_RETRIED: Final = frozenset(
    (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
)


class CloudEvent(Struct, frozen=True, gc=False):
    """One event; ``id`` and ``time`` stay as they are in each attempt."""

    id: str
    type: str
    time: str
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers of the binary mode."""
        return {
            "ce-specversion": "1.0",
            "ce-id": self.id,
            "ce-source": SOURCE,
            "ce-type": self.type,
            "ce-time": self.time,
            "Content-Type": "application/json",
        }


class CloudEventSender:
    """Sends to the URL that ``endpoint`` returns, of http or https; empty switches sending off.

    ``on_outcome`` gets the outcome of each event. For one event loop; ``run`` sends.
    """

    def __init__(
        self,
        endpoint: Callable[[], str],
        on_outcome: Callable[[str], None],
        *,
        capacity: int = CAPACITY,
        timeout: float = TIMEOUT,
        tls: ssl.SSLContext | None = None,
        chance: Callable[[], float] = random,
    ) -> None:
        self._endpoint = endpoint
        self._on_outcome = on_outcome
        self._capacity = capacity
        self._timeout = timeout
        self._tls = tls
        self._chance = chance
        self._lanes = [_Lane() for _ in range(LANES)]
        self._waiting = 0
        self._checked: tuple[str, URL | None] = ("", None)
        self._reported_at = -QUIET
        self._has_reported_fault = False
        self._log = get_logger("cloud-events")

    @property
    def is_on(self) -> bool:
        """Whether events are sent."""
        return self._target() is not None

    def put(self, kind: str, data: Mapping[str, Any], about: tuple[str, str, str]) -> None:
        """Queue an event of the type ``kind``; events with an equal ``about`` keep their order.

        It is a kind, a namespace and a name. Namespaces take turns and leave room to each other.

        Never waits. Does nothing without an endpoint.
        """
        if not self.is_on:
            return
        body = msgspec.json.encode(data)
        if len(body) > MAX_BODY:
            self._on_outcome(TOO_LARGE)
            return
        namespace = about[1]
        own = sum(lane.queue.count(namespace) for lane in self._lanes)
        if not has_room(self._capacity, self._waiting, own):
            self._on_outcome(QUEUE_FULL)
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        lane = self._lanes[hash(about) % LANES]
        lane.queue.put(namespace, CloudEvent(secrets.token_hex(16), kind, now, body))
        lane.wake.set()
        self._waiting += 1

    async def run(self) -> None:
        """Send until cancelled, and then the remaining events, for two seconds at most."""
        async with self._session() as session:
            try:
                async with asyncio.TaskGroup() as group:
                    for lane in self._lanes:
                        group.create_task(self._work(session, lane))
            finally:
                await self._flush(session)

    async def _work(self, session: aiohttp.ClientSession, lane: _Lane) -> None:
        while True:
            await lane.wake.wait()
            lane.wake.clear()
            while lane.queue:
                await self._deliver(session, lane)

    async def _deliver(self, session: aiohttp.ClientSession, lane: _Lane) -> None:
        """Send the first event of a lane, with retries as long as they may help."""
        attempt = 0
        while (target := self._target()) is not None:
            answer = await self._post(session, target, lane.queue.first)
            attempt += 1
            if answer.outcome == SENT:
                self._note_success()
            else:
                self._note_fault(target, answer.fault)
            if answer.outcome != UNREACHABLE or attempt == ATTEMPTS:
                self._settle(lane, answer.outcome)
                return
            pause = min(FIRST_PAUSE * 2 ** (attempt - 1), MAX_PAUSE)
            await asyncio.sleep(max(pause * (0.5 + self._chance() / 2), answer.pause))
        self._settle(lane, SWITCHED_OFF)

    async def _post(
        self, session: aiohttp.ClientSession, target: URL, event: CloudEvent
    ) -> _Answer:
        try:
            async with session.post(
                target, data=event.body, headers=event.headers, allow_redirects=False
            ) as response:
                status = response.status
                asked = _retry_after(response.headers.get("Retry-After", ""))
                with contextlib.suppress(aiohttp.ClientError):
                    # A connection whose answer was read can be used again.
                    await response.content.read(_READ)
        except TimeoutError:
            return _Answer(UNREACHABLE, f"no answer within {self._timeout:g} s")
        except Exception as error:  # noqa: BLE001 - whatever it is, the next one may do
            return _Answer(UNREACHABLE, _describe(error))
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return _Answer(SENT)
        is_passing = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _RETRIED
        return _Answer(UNREACHABLE if is_passing else REFUSED, f"status {status}", asked)

    async def _flush(self, session: aiohttp.ClientSession) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_TIMEOUT):
                await asyncio.gather(*(self._drain(session, lane) for lane in self._lanes))
        for lane in self._lanes:
            while lane.queue:
                self._settle(lane, SHUTDOWN)

    async def _drain(self, session: aiohttp.ClientSession, lane: _Lane) -> None:
        while lane.queue and (target := self._target()) is not None:
            answer = await self._post(session, target, lane.queue.first)
            if answer.outcome == UNREACHABLE:
                return
            self._settle(lane, answer.outcome)

    def _settle(self, lane: _Lane, outcome: str) -> None:
        lane.queue.pop()
        self._waiting -= 1
        self._on_outcome(outcome)

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=LANES, ssl=self._tls or True)
        limit_peers(connector, asyncio.get_running_loop())
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # No proxies, and no credentials from ~/.netrc.
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            headers={"User-Agent": "harbourmaster"},
            auto_decompress=False,
        )

    def _target(self) -> URL | None:
        endpoint = self._endpoint()
        if endpoint != self._checked[0]:
            target = _usable(endpoint)
            if endpoint and target is None:
                self._log.warning(
                    "CloudEvents disabled: cloudEventsEndpoint: invalid URL, expected one like "
                    "http://receiver:8080/events"
                )
            self._checked = (endpoint, target)
        return self._checked[1]

    def _note_fault(self, target: URL, fault: str) -> None:
        now = time.monotonic()
        if now - self._reported_at >= QUIET:
            self._reported_at, self._has_reported_fault = now, True
            # Without the path, which may be secret.
            self._log.warning(
                "CloudEvent delivery failed", endpoint=str(target.origin()), error=fault
            )

    def _note_success(self) -> None:
        if self._has_reported_fault:
            self._has_reported_fault = False
            self._log.info("CloudEvent delivery recovered")


class _Answer(Struct, frozen=True, gc=False):
    """Outcome and fault of an attempt, and the pause that the endpoint requests, in seconds."""

    outcome: str
    fault: str = ""
    pause: float = 0.0


class _Lane:
    __slots__ = ("queue", "wake")

    def __init__(self) -> None:
        self.queue: Turns[CloudEvent] = Turns()
        self.wake = asyncio.Event()


def _usable(endpoint: str) -> URL | None:
    try:
        return URL(endpoint) if endpoint_url(endpoint) else None
    except ValueError:
        return None


def _retry_after(value: str) -> float:
    """Return the seconds of a Retry-After header, at most MAX_PAUSE."""
    try:
        asked = (
            float(int(value))
            if value.isdecimal()
            else (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        )
    except (TypeError, ValueError):
        return 0.0
    return min(max(asked, 0.0), MAX_PAUSE)


def _describe(error: Exception) -> str:
    """Describe an error without the URL, which may have credentials."""
    inner = getattr(error, "os_error", None) or error.__cause__ or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {inner.verify_message}"
    return getattr(inner, "strerror", None) or type(inner).__name__
