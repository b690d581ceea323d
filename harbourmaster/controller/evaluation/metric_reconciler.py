"""Updates the values of KeptnMetrics (keptn-spec 4.2).

No worker waits for a query: its answer queues the metric again, which then is written. The due
times follow from the clock and the status alone, so that another leader continues.
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
from harbourmaster.controller.evaluation.query_service import question
from harbourmaster.controller.evaluation.shared_queries import (
    UNKNOWN,
    Fault,
    FetchInputs,
    FetchOutcome,
    MetricEntry,
    RetryAfter,
    SharedQueries,
)
from harbourmaster.controller.objects import reference
from harbourmaster.evaluation.metric_status import (
    aggregate,
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
_NOT_FOUND_RETRY: Final = 5.0
"""Seconds until a metric is reconciled again that the API server does not find."""


class MetricReconciler:
    """Reconciles KeptnMetrics by the key ``namespace/name``; ``wake`` queues a key."""

    def __init__(self, context: MetricContext, wake: Callable[[str], None]) -> None:
        self._context = context
        self._metrics = context.caches.metrics.store
        self._providers = context.caches.providers.store
        self._wake = wake
        self._queries = SharedQueries(context.queries, self._deliver)
        self._entries: dict[str, MetricEntry] = {}
        self._log = get_logger("metrics")

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Yield the keys of metrics whose inputs changed, which our own writes do not."""
        for key in list(self._metrics.keys()) if keys is None else keys:
            metric, entry = self._metrics.get(key), self._entries.get(key)
            if entry is None:
                if metric is not None:
                    yield key
            elif (
                metric is None
                or metric.metadata.deletion_timestamp
                or not self._has_same_inputs(metric, entry)
            ):
                yield key
            elif entry.status == metric.status:
                entry.status = None

    async def reconcile(self, key: str) -> float | None:
        """Start a query if it is due, or write its outcome. Raises ApiError.

        Returns the seconds until the metric is due; None if it waits for an answer or a change.
        """
        metric = self._metrics.get(key)
        if metric is None or metric.metadata.deletion_timestamp:
            self._forget(key)
            return None
        entry = self._update_entry(key, metric)
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
            # It was deleted, and the watch event is pending; or its definition is being replaced.
            return _NOT_FOUND_RETRY
        now = self._now()
        late = entry.settle(outcome, now)
        if math.isfinite(late):
            self._context.lateness.observe(late)
        return entry.requeue_after(now)

    async def close(self) -> None:
        """Cancel all running queries."""
        await self._queries.close()

    def _deliver(self, key: str, outcome: FetchOutcome) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry.is_waiting:
            entry.is_waiting = False
            entry.outcome = outcome
            self._wake(key)

    def _has_same_inputs(self, metric: Metric, entry: MetricEntry) -> bool:
        return entry.interval == metric.spec.interval and entry.inputs == self._inputs(metric)

    def _inputs(self, metric: Metric) -> FetchInputs:
        metadata, spec = metric.metadata, metric.spec
        provider_key = f"{metadata.namespace}/{spec.provider.name}"
        provider = self._providers.get(provider_key)
        return FetchInputs(
            uid=metadata.uid,
            provider_key=provider_key,
            query=spec.query,
            range=spec.range,
            provider_uid="" if provider is None else provider.metadata.uid,
            provider_generation=0 if provider is None else provider.metadata.generation,
        )

    def _update_entry(self, key: str, metric: Metric) -> MetricEntry:
        """Return the entry for the current metric, which is due at once if its inputs changed."""
        inputs, interval = self._inputs(metric), metric.spec.interval
        entry = self._entries.get(key)
        if entry is not None and entry.inputs.uid != inputs.uid:
            self._forget(key)
            entry = None
        if entry is None:
            entry = self._entries[key] = MetricEntry(key, inputs, interval)
            self._join(key, entry)
            is_current = has_current_question(metric.status, metric.spec)
            entry.begin(metric.status, self._now(), is_current=is_current)
        elif entry.inputs != inputs:
            self._leave(key, entry)
            entry.change(inputs, interval)
            self._join(key, entry)
        elif entry.interval != interval:
            entry.change_interval(interval)
        return entry

    def _join(self, key: str, entry: MetricEntry) -> None:
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

    def _fetch(self, key: str, metric: Metric, entry: MetricEntry, now: float) -> None:
        """Take a cached outcome of the same query, or send the query."""
        provider = self._providers.get(entry.inputs.provider_key)
        entry.fetched = now
        fault = ""
        if provider is None or entry.query is None:
            fault = f"KeptnMetricsProvider {entry.inputs.provider_key} not found"
        else:
            shared = entry.query.outcome
            if shared is not None and shared.asked > max(entry.asked, entry.shared_since(now)):
                entry.outcome = shared
                return
            try:
                metric_question = question(metric.spec, now)
            except ValueError as error:
                fault = str(error)
            else:
                entry.is_waiting = True
                self._queries.ask(
                    entry.query, key, provider, metric_question, now=now, keep=entry.cache_seconds
                )
                return
        entry.outcome = FetchOutcome(now, Fault(fault, "BadMetric", RetryAfter.CHANGE))

    async def _write(self, metric: Metric, entry: MetricEntry, outcome: FetchOutcome) -> None:
        """Write the status if it differs, and emit events."""
        before = metric.status if entry.status is None else entry.status
        result = outcome.result
        time = format_rfc3339(datetime.fromtimestamp(_result_time(metric, outcome), UTC))
        is_foreign = entry.answered is not None and entry.answered != entry.inputs.question
        if isinstance(result, Fault):
            is_reported = result.is_throttled and entry.reported == result.kind and before.err_msg
            text = before.err_msg if is_reported else result.text
            # A value of another question is removed.
            base = MetricStatus() if is_foreign else before
            after = status_after_fault(base, metric.spec, text, time)
        else:
            after = status_after_answer(
                before, metric.spec, _format_value(metric, result), result.raw, time
            )
        if after != before:
            await self._patch(metric, before, after)
            entry.status = without_raw(after)
        if not isinstance(result, Fault):
            entry.answered = entry.inputs.question
        elif is_foreign:
            entry.answered = None
        self._report(metric, entry, before, result)

    async def _patch(self, metric: Metric, before: MetricStatus, after: MetricStatus) -> None:
        metadata = metric.metadata
        path: str = "/status"
        value: object = after
        if before != MetricStatus() and after == msgspec.structs.replace(
            before, err_msg=after.err_msg
        ):
            path, value = "/status/errMsg", after.err_msg
        operations: list[dict[str, Any]] = [
            # The answer is for this generation; labels may change meanwhile.
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
            if await self._is_cache_current(metric):
                raise
            raise ConflictError(error.message, status=error.status, call=error.call) from error

    async def _is_cache_current(self, metric: Metric) -> bool:
        """Return whether the API server has the metric of the cache in this generation."""
        raw = await self._context.client.get(
            KEPTN_METRICS, metric.metadata.name, metric.metadata.namespace
        )
        stored = msgspec.json.decode(raw, type=Metric).metadata
        return (stored.uid, stored.generation) == (metric.metadata.uid, metric.metadata.generation)

    def _report(
        self, metric: Metric, entry: MetricEntry, before: MetricStatus, result: Answer | Fault
    ) -> None:
        """Emit an event for a new fault, and for its end."""
        kind = result.kind if isinstance(result, Fault) else ""
        if kind == entry.reported:
            return
        former_kind, entry.reported = entry.reported, kind
        if isinstance(result, Fault):
            if former_kind != UNKNOWN or before.err_msg != result.text:
                self._emit(metric, "Warning", FETCH_FAILED, result.text)
                self._log.warning("fetch failed", key=metric.metadata.key, error=result.text)
        else:
            self._emit(metric, "Normal", FETCHED, "fetching the metric succeeds again")
            self._log.info("fetch recovered", key=metric.metadata.key)

    def _emit(self, metric: Metric, kind: EventType, reason: str, note: str) -> None:
        about = reference(KEPTN_METRICS, metric.metadata)
        self._context.events.emit(about, kind, reason, note, action="Fetch")

    def _now(self) -> float:
        return self._context.now().timestamp()


def _result_time(metric: Metric, outcome: FetchOutcome) -> float:
    """Return the time of the value of an outcome, or of its fault."""
    if isinstance(outcome.result, Fault):
        return outcome.asked
    span = metric.spec.range
    seconds = parse_duration(span.interval) if span is not None else 0.0
    return measurement_time(outcome.result.samples[-1].time, outcome.asked, seconds)


def _format_value(metric: Metric, answer: Answer) -> str:
    span = metric.spec.range
    if span is None or not span.aggregation:
        return answer.value
    return format_shortest(aggregate(span.aggregation, [sample.value for sample in answer.samples]))
