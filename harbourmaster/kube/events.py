"""Kubernetes events about objects, published in the background.

An event that cannot be published is counted and dropped. Repetitions become one event with a count.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import Counter
from datetime import UTC, datetime
from http import HTTPStatus
from random import random
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import EVENTS
from harbourmaster.api.turns import Turns, has_room
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.errors import AlreadyExistsError, ApiError, NotFoundError
from harbourmaster.kube.event_series import (
    MAX_TEXT,
    Allowance,
    Details,
    Limiter,
    ObjectReference,
    Series,
    SeriesTable,
    occurrence,
    shorten,
)
from harbourmaster.kube.lease import micro_time
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harbourmaster.kube.client import Client
    from harbourmaster.kube.event_series import EventType, Occurrence

__all__ = ["EventRecorder", "ObjectReference"]

FLUSH_TIMEOUT: Final = 1.0
"""Seconds in which a recorder that ends may publish what it has."""
PER_OBJECT: Final = Allowance(burst=25, period=300.0)
OVERALL: Final = Allowance(burst=100, period=0.5)
CREATED: Final = "created"
UPDATED: Final = "updated"
AGGREGATED: Final = "aggregated"
DROPS: Final = ("over_rate", "queue_full", "refused", "unreachable", "forgotten", "shutdown", "bug")
"""Reasons for losing an event."""
_CLUSTER_NAMESPACE: Final = "default"
"""The namespace of events about cluster-scoped objects."""
SERIES: Final = 1024
"""Series, and objects with an allowance, that are kept."""
_QUIET: Final = 360.0
_PERIOD: Final = 30.0
"""Seconds between two reports of one series."""
_CALL_TIMEOUT: Final = 5.0
_ATTEMPTS: Final = 3
_BACKOFF: Final = Backoff(first=0.5, limit=30.0)


class EventRecorder:
    """Publishes the events of ``controller``; ``instance`` in ``namespace`` is its pod.

    ``on_outcome`` is called with the outcome of each: created, updated, aggregated or one of
    DROPS. For one event loop. ``run`` sends ``lanes`` events at a time, those of one object in
    order.
    """

    def __init__(  # noqa: PLR0913 - limits, and knobs for tests
        self,
        client: Client,
        *,
        controller: str,
        instance: str,
        namespace: str = "",
        queue_size: int = 256,
        per_object: Allowance = PER_OBJECT,
        overall: Allowance = OVERALL,
        series: int = SERIES,
        lanes: int = 1,
        on_outcome: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        chance: Callable[[], float] = random,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Events by outcome."""
        self._client = client
        self._controller = controller
        # The namespace distinguishes two installations whose events are in one namespace.
        reporter = f"{namespace}/{instance}" if namespace else instance
        self._reporter = {
            "reportingController": f"harbourmaster.dev/{controller}",
            "reportingInstance": shorten(reporter, MAX_TEXT),
        }
        self._queue_size = queue_size
        self._lanes = [_Lane() for _ in range(lanes)]
        self._table = SeriesTable(series, _QUIET)
        self._by_object = Limiter(per_object, series)
        self._overall = Limiter(overall, 1)
        share = Allowance(max(overall.burst * 3 // 4, 1), overall.period * 4 / 3)
        self._by_namespace = Limiter(share, series)
        self._on_outcome = on_outcome or (lambda _outcome: None)
        self._clock = clock
        self._now = now
        self._chance = chance
        self._fault = ""
        self._log = get_logger("events").bind(controller=controller)

    def emit(  # noqa: PLR0913 - an event has many parts
        self,
        regarding: ObjectReference,
        type: EventType,  # noqa: A002 - as the API calls it
        reason: str,
        note: str,
        action: str = "Reconcile",
        *,
        related: ObjectReference | None = None,
        annotations: Mapping[str, str] | None = None,
        identity: str = "",
    ) -> None:
        """Queue an event. Never waits and never raises.

        ``reason`` and ``action`` are words in CamelCase, ``note`` is a sentence for people.
        Repetitions keep the first one's ``related`` object and ``annotations``; with an
        ``identity``, another note is a repetition too.
        """
        try:
            what = occurrence(regarding, type, reason, note, action)
            self._take(replace(what, identity=identity), Details(related, annotations or {}))
        except Exception:  # noqa: BLE001 - an event must not break what it reports
            self._log.exception("event lost")
            self._drop("bug")

    async def run(self) -> None:
        """Send until cancelled, and then the rest for at most a second."""
        try:
            async with asyncio.TaskGroup() as group:
                for lane in self._lanes[1:]:
                    group.create_task(self._work(lane))
                await self._work(self._lanes[0])
        finally:
            await self._flush()

    async def _work(self, lane: _Lane) -> None:
        while True:
            series = self._next(lane, self._clock())
            if series is None:
                await self._until_due(lane)
                continue
            await asyncio.sleep(await self._send(lane, series))

    def _take(self, what: Occurrence, details: Details) -> None:
        now, at = self._clock(), micro_time(self._now())
        series = self._table.count_again(what, now, at)
        if series is not None:
            self._note(AGGREGATED)
            if series.count == series.told + 1:
                self._lanes[0].wake.set()
            return
        who = what.key.regarding
        limits = (
            (self._by_object, who),
            (self._by_namespace, who.namespace),
            (self._overall, None),
        )
        if any(limiter.wait(key, now) for limiter, key in limits):
            self._drop("over_rate")
            return
        waiting = sum(len(lane.queue) for lane in self._lanes)
        own = sum(lane.queue.count(who.namespace) for lane in self._lanes)
        if not has_room(self._queue_size, waiting, own):
            self._drop("queue_full")
            return
        for limiter, key in limits:
            limiter.take(key, now)
        series = Series(what, self._new_name(), first=at, last=at, seen=now, details=details)
        if self._table.begin(series) is not None:
            self._drop("forgotten")
        self._enqueue(series)

    def _enqueue(self, series: Series) -> None:
        """Put a new event into the lane of its object."""
        regarding = series.occurrence.key.regarding
        lane = self._lanes[hash(regarding) % len(self._lanes)]
        lane.queue.put(regarding.namespace, series)
        lane.wake.set()

    def _next(self, lane: _Lane, now: float, *, everything: bool = False) -> Series | None:
        """Return the series to send: new events first, then due counts, which one lane sends."""
        if lane.queue:
            return lane.queue.first
        for series in self._counts(lane):
            if everything or now - series.reported >= _PERIOD:
                return series
        return None

    def _counts(self, lane: _Lane) -> Iterable[Series]:
        """Return the series whose counts this lane sends; new events include their count."""
        if lane is not self._lanes[0]:
            return ()
        return (series for series in self._table.behind if series.told)

    async def _until_due(self, lane: _Lane) -> None:
        reported = min((series.reported for series in self._counts(lane)), default=None)
        wait = None if reported is None else max(reported + _PERIOD - self._clock(), 0.0)
        lane.wake.clear()
        try:
            async with asyncio.timeout(wait):
                await lane.wake.wait()
        except TimeoutError:
            return

    async def _send(self, lane: _Lane, series: Series) -> float:
        """Report a series to the API server; returns the seconds until the next report."""
        count, is_new = series.count, not series.told
        try:
            if is_new:
                await self._call("POST", self._path(series), self._event(series))
            else:
                value = {"series": _series_fields(series)}
                await self._call("PATCH", self._path(series, series.name), value)
        except AlreadyExistsError:
            # It is ours: names are random, and an earlier response was lost.
            pass
        except NotFoundError as error:
            if is_new:
                return self._give_up(lane, series, error)
            # Events expire after an hour: it is created again, with its count.
            series.told, series.name = 0, self._new_name()
            self._enqueue(series)
            return 0.0
        except (ApiError, TimeoutError) as error:
            after = self._retry_later if _is_passing(error) else self._give_up
            return after(lane, series, error)
        except Exception as error:  # noqa: BLE001 - one event must not end all others
            return self._give_up(lane, series, error)
        if self._fault:
            self._fault = ""
            self._log.info("event publishing recovered")
        lane.failures = 0
        lane.settle(series)
        self._table.record_report(series, count, self._clock())
        if series.is_behind:
            self._lanes[0].wake.set()
        self._note(CREATED if is_new else UPDATED)
        return 0.0

    def _give_up(self, lane: _Lane, series: Series, error: Exception) -> float:
        """Forget a series that the API server rejects; its namespace may be gone."""
        self._note_fault(error)
        lane.settle(series)
        self._table.forget(series)
        self._drop("refused")
        return 0.0

    def _retry_later(self, lane: _Lane, series: Series, error: Exception) -> float:
        """Retry later: a new event a few times, a count with the next report."""
        self._note_fault(error)
        if series.told:
            series.reported = self._clock()
        else:
            lane.attempts += 1
            if lane.attempts >= _ATTEMPTS:
                lane.settle(series)
                self._table.forget(series)
                self._drop("unreachable")
        lane.failures += 1
        asked = (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0
        return max(_BACKOFF.delay(lane.failures - 1, self._chance()), asked)

    async def _flush(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_TIMEOUT):
                await asyncio.gather(*(self._drain(lane) for lane in self._lanes))
        for lane in self._lanes:
            while lane.queue:
                lane.queue.pop()
                self._drop("shutdown")

    async def _drain(self, lane: _Lane) -> None:
        while series := self._next(lane, self._clock(), everything=True):
            if await self._send(lane, series):
                break

    async def _call(self, method: str, path: str, value: Mapping[str, Any]) -> None:
        content_type = MergePatch.content_type if method == "PATCH" else "application/json"
        async with asyncio.timeout(_CALL_TIMEOUT):
            await self._client.request(
                method,
                path,
                body=msgspec.json.encode(value),
                content_type=content_type,
                timeout=_CALL_TIMEOUT,
                retries=0,
            )

    def _event(self, series: Series) -> dict[str, Any]:
        what = series.occurrence
        namespace = self._namespace_of(series)
        metadata: dict[str, Any] = {"name": series.name, "namespace": namespace}
        if series.details.annotations:
            metadata["annotations"] = series.details.annotations
        event: dict[str, Any] = {
            **EVENTS.type_fields,
            "metadata": metadata,
            "eventTime": series.first,
            **self._reporter,
            "type": what.type,
            "reason": what.reason,
            "action": what.action,
            "regarding": what.regarding,
            "note": what.note,
        }
        if series.details.related is not None:
            event["related"] = series.details.related
        return event if series.count == 1 else {**event, "series": _series_fields(series)}

    def _path(self, series: Series, name: str | None = None) -> str:
        return EVENTS.path(self._namespace_of(series), name)

    def _namespace_of(self, series: Series) -> str:
        return series.occurrence.regarding.namespace or _CLUSTER_NAMESPACE

    def _new_name(self) -> str:
        return f"{self._controller}.{secrets.token_hex(8)}"

    def _note(self, outcome: str) -> None:
        self.counts[outcome] += 1
        self._on_outcome(outcome)

    def _drop(self, why: str) -> None:
        if not self.counts[why]:
            self._log.warning("events dropped", why=why)
        self._note(why)

    def _note_fault(self, error: Exception) -> None:
        # The text differs for each event, as it has its name.
        fault = f"{type(error).__name__} {error.reason if isinstance(error, ApiError) else ''}"
        if fault != self._fault:
            self._fault = fault
            self._log.warning("event not published", error=reason(error))


class _Lane:
    """A queue of new events that are sent one after the other."""

    __slots__ = ("attempts", "failures", "queue", "wake")

    def __init__(self) -> None:
        self.queue: Turns[Series] = Turns()
        self.wake = asyncio.Event()
        self.failures = 0
        """Number of consecutive failures."""
        self.attempts = 0
        """Number of attempts to send the first series in the queue."""

    def settle(self, series: Series) -> None:
        """Take a series out of the queue."""
        if self.queue and self.queue.first is series:
            self.queue.pop()
            self.attempts = 0


def _series_fields(series: Series) -> dict[str, Any]:
    return {"count": series.count, "lastObservedTime": series.last}


def _is_passing(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if not isinstance(error, ApiError):
        return True
    return (
        error.status
        in {
            0,
            HTTPStatus.OK,
            HTTPStatus.UNAUTHORIZED,
            HTTPStatus.CONFLICT,
            HTTPStatus.TOO_MANY_REQUESTS,
        }
        or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )
