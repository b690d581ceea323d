"""Keeps the values of KeptnMetrics (keptn-spec 4.2).

A look at a metric never waits for a provider: it has a question asked, and the answer has the
metric looked at again, to be written. What is due follows from the clock and the status alone, so
another leader goes on where this one was.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import KEPTN_METRICS
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.evaluation.metric_entry import UNKNOWN, FetchInputs, MetricEntry
from harbourmaster.controller.evaluation.query_service import question
from harbourmaster.controller.evaluation.shared_queries import (
    Fault,
    FetchOutcome,
    RetryAfter,
    SharedQueries,
)
from harbourmaster.controller.objects import reference
from harbourmaster.evaluation.aggregation import aggregate
from harbourmaster.evaluation.metric_status import (
    has_current_question,
    measurement_time,
    status_after_answer,
    status_after_fault,
    without_raw,
)
from harbourmaster.evaluation.model import Metric, MetricStatus
from harbourmaster.kube.errors import ConflictError, InvalidError, NotFoundError
from harbourmaster.providers.numbers import format_shortest
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from harbourmaster.controller.evaluation.caches import MetricContext
    from harbourmaster.kube.event_series import EventType
    from harbourmaster.providers.model import Answer

FETCH_FAILED: Final = "MetricFetchFailed"
FETCHED: Final = "MetricFetched"
_AGAIN: Final = 5.0
"""Seconds until a metric is looked at again that the API server does not find."""


class MetricReconciler:
    """Reconciles one KeptnMetric; keys are ``namespace/name``; ``wake`` has one looked at again."""

    def __init__(self, context: MetricContext, wake: Callable[[str], None]) -> None:
        self._context = context
        self._metrics = context.caches.metrics.store
        self._providers = context.caches.providers.store
        self._wake = wake
        self._queries = SharedQueries(context.questions, self._deliver)
        self._entries: dict[str, MetricEntry] = {}
        self._log = get_logger("metrics")

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Those that are not known as they are now: our own writes wake nobody."""
        for key in list(self._metrics.keys()) if keys is None else keys:
            found, entry = self._metrics.get(key), self._entries.get(key)
            if entry is None:
                if found is not None:
                    yield key
            elif (
                found is None
                or found.metadata.deletion_timestamp
                or not self._is_known(found, entry)
            ):
                yield key
            elif entry.status == found.status:
                entry.status = None

    async def reconcile(self, key: str) -> float | None:
        """Ask if it is time, or write the result. Raises ApiError."""
        metric = self._metrics.get(key)
        if metric is None or metric.metadata.deletion_timestamp:
            self._forget(key)
            return None
        entry = self._entry(key, metric)
        if entry.outcome is None:
            if entry.is_waiting:
                return None
            now = self._now()
            requeue_after = entry.requeue_after(now)
            if requeue_after is None or requeue_after > 0:
                return requeue_after
            self._fetch(key, metric, entry, now)
            if entry.outcome is None:
                return None
        outcome = entry.outcome
        try:
            await self._write(metric, entry, outcome)
        except NotFoundError:
            # Gone, which the watch is about to tell; or its definition is just being replaced.
            return _AGAIN
        now = self._now()
        late = entry.settle(outcome, now)
        if math.isfinite(late):
            self._context.lateness.observe(late)
        return entry.requeue_after(now)

    async def close(self) -> None:
        """Leave all questions unanswered that are under way."""
        await self._queries.close()

    def _deliver(self, key: str, outcome: FetchOutcome) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry.is_waiting:
            entry.is_waiting = False
            entry.outcome = outcome
            self._wake(key)

    def _is_known(self, found: Metric, entry: MetricEntry) -> bool:
        return entry.interval == found.spec.interval and entry.inputs == self._inputs(found)

    def _inputs(self, found: Metric) -> FetchInputs:
        metadata, spec = found.metadata, found.spec
        place = f"{metadata.namespace}/{spec.provider.name}"
        provider = self._providers.get(place)
        return FetchInputs(
            uid=metadata.uid,
            place=place,
            query=spec.query,
            range=spec.range,
            provider_uid="" if provider is None else provider.metadata.uid,
            provider_generation=0 if provider is None else provider.metadata.generation,
        )

    def _entry(self, key: str, found: Metric) -> MetricEntry:
        """The entry of the metric as it is now; what is new in it is due at once."""
        inputs, interval = self._inputs(found), found.spec.interval
        entry = self._entries.get(key)
        if entry is not None and entry.inputs.uid != inputs.uid:
            self._forget(key)
            entry = None
        if entry is None:
            entry = self._entries[key] = MetricEntry(key, inputs, interval)
            self._join(key, entry)
            is_current = has_current_question(found.status, found.spec)
            entry.begin(found.status, self._now(), is_current=is_current)
        elif entry.inputs != inputs:
            self._leave(key, entry)
            entry.change(inputs, interval)
            self._join(key, entry)
        elif entry.interval != interval:
            entry.change_interval(interval)
        return entry

    def _join(self, key: str, entry: MetricEntry) -> None:
        """Have it among those of its question, where there is somebody to ask."""
        if entry.inputs.provider_uid:
            entry.query = self._queries.join(entry.inputs.query_key, key)

    def _leave(self, key: str, entry: MetricEntry) -> None:
        if entry.query is not None:
            self._queries.leave(entry.inputs.query_key, key)
            entry.query = None

    def _forget(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._leave(key, entry)

    def _fetch(self, key: str, found: Metric, entry: MetricEntry, now: float) -> None:
        """Take the outcome that others had, or have the question asked."""
        provider = self._providers.get(entry.inputs.place)
        entry.fetched = now
        fault = ""
        if provider is None or entry.query is None:
            fault = f"KeptnMetricsProvider {entry.inputs.place} not found"
        else:
            shared = entry.query.outcome
            if shared is not None and shared.asked > max(entry.asked, entry.shared_since(now)):
                entry.outcome = shared
                return
            try:
                asked = question(found.spec, now)
            except ValueError as error:
                fault = str(error)
            else:
                entry.is_waiting = True
                self._queries.ask(entry.query, key, provider, asked, now=now, keep=entry.keep)
                return
        entry.outcome = FetchOutcome(now, Fault(fault, "BadMetric", RetryAfter.CHANGE))

    async def _write(self, found: Metric, entry: MetricEntry, outcome: FetchOutcome) -> None:
        """Write the status where it differs, and tell of what has changed."""
        before = found.status if entry.status is None else entry.status
        result = outcome.result
        time = _stamp(_moment(found, outcome))
        is_foreign = entry.valued is not None and entry.valued != entry.inputs.question
        if isinstance(result, Fault):
            is_told = result.is_throttled and entry.told == result.kind and before.err_msg
            text = before.err_msg if is_told else result.text
            # A value that is an answer to another question goes.
            kept = MetricStatus() if is_foreign else before
            after = status_after_fault(kept, found.spec, text, time)
        else:
            after = status_after_answer(before, found.spec, _value(found, result), result.raw, time)
        if after != before:
            await self._patch(found, before, after)
            entry.status = without_raw(after)
        if not isinstance(result, Fault):
            entry.valued = entry.inputs.question
        elif is_foreign:
            entry.valued = None
        self._tell(found, entry, before, result)

    async def _patch(self, found: Metric, before: MetricStatus, after: MetricStatus) -> None:
        metadata = found.metadata
        path: str = "/status"
        value: object = after
        if before != MetricStatus() and after == msgspec.structs.replace(
            before, err_msg=after.err_msg
        ):
            path, value = "/status/errMsg", after.err_msg
        operations: list[dict[str, Any]] = [
            # An answer is for the very question that was asked; labels may change meanwhile.
            {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
            {"op": "test", "path": "/metadata/generation", "value": metadata.generation},
            {"op": "add", "path": path, "value": value},
        ]
        try:
            await self._context.client.patch(
                KEPTN_METRICS,
                metadata.name,
                JsonPatch(operations),
                metadata.namespace,
                subresource="status",
            )
        except InvalidError as error:
            if await self._is_as_known(found):
                raise
            raise ConflictError(error.message, status=error.status, call=error.call) from error

    async def _is_as_known(self, found: Metric) -> bool:
        """Whether the API server has the very metric that the cache has."""
        raw = await self._context.client.get(
            KEPTN_METRICS, found.metadata.name, found.metadata.namespace
        )
        stored = msgspec.json.decode(raw, type=Metric).metadata
        return (stored.uid, stored.generation) == (found.metadata.uid, found.metadata.generation)

    def _tell(
        self, found: Metric, entry: MetricEntry, before: MetricStatus, result: Answer | Fault
    ) -> None:
        """Tell of a fault once, and of its end."""
        kind = result.kind if isinstance(result, Fault) else ""
        if kind == entry.told:
            return
        was_told, entry.told = entry.told, kind
        if isinstance(result, Fault):
            if was_told != UNKNOWN or before.err_msg != result.text:
                self._emit(found, "Warning", FETCH_FAILED, result.text)
                self._log.warning("fetch failed", key=found.metadata.key, error=result.text)
        else:
            self._emit(found, "Normal", FETCHED, "fetching the metric succeeds again")
            self._log.info("fetch recovered", key=found.metadata.key)

    def _emit(self, found: Metric, kind: EventType, reason: str, note: str) -> None:
        about = reference(KEPTN_METRICS, found.metadata)
        self._context.events.emit(about, kind, reason, note, action="Fetch")

    def _now(self) -> float:
        return self._context.now().timestamp()


def _moment(found: Metric, outcome: FetchOutcome) -> float:
    """When the result of a question was true."""
    if isinstance(outcome.result, Fault):
        return outcome.asked
    span = found.spec.range
    seconds = parse_duration(span.interval) if span is not None else 0.0
    return measurement_time(outcome.result.samples[-1].time, outcome.asked, seconds)


def _value(found: Metric, answer: Answer) -> str:
    span = found.spec.range
    if span is None or not span.aggregation:
        return answer.value
    return format_shortest(aggregate(span.aggregation, [sample.value for sample in answer.samples]))


def _stamp(moment: float) -> str:
    return format_rfc3339(datetime.fromtimestamp(moment, UTC))
