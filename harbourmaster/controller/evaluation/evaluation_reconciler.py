"""Measures the objectives of KeptnEvaluations until they succeed or fail (keptn-spec 4.1).

Measurements are counted, so only time causes one, neither a changed metric nor a write to the
object. A restarted controller waits for the rest of the interval.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from harbourmaster.api.references import Reference
from harbourmaster.api.resources import EVALUATIONS, KEPTN_METRICS
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.lifecycle.writes import write_status
from harbourmaster.evaluation.metric_status import read_metric
from harbourmaster.evaluation.model import PENDING
from harbourmaster.evaluation.objectives import (
    fail_after_tries,
    max_tries,
    measure,
    missing_metric,
    summarize_unmet,
    wait_for_consent,
    wait_for_definition,
)
from harbourmaster.kube.errors import ApiError, ConflictError, NotFoundError
from harbourmaster.lifecycle.evaluations import (
    RETRIES,
    interval_of,
    objectives_of,
    progress_of,
    record_tries,
    written_at,
)
from harbourmaster.lifecycle.model import EvaluationStatus, Measurement
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.evaluation.objectives import Objective, Progress, Reading
    from harbourmaster.lifecycle.model import Evaluation, EvaluationDefinition

_SECOND: Final = timedelta(seconds=1)


class _LastMeasurement(NamedTuple):
    """The last measurement of an object."""

    uid: str
    time: datetime


class EvaluationReconciler:
    """Reconciles KeptnEvaluations by the key ``namespace/name``."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._evaluations = context.caches.evaluations.store
        self._definitions = context.caches.evaluation_definitions
        self._metrics = context.caches.metrics
        self._measured: dict[str, _LastMeasurement] = {}
        self._log = get_logger("evaluations")

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Yield the keys of evaluations that are not over, and of those with state to drop."""
        for key in list(self._evaluations.keys()) if keys is None else keys:
            evaluation = self._evaluations.get(key)
            if key in self._measured or (evaluation is not None and not _is_over(evaluation)):
                yield key

    async def reconcile(self, key: str) -> float | None:
        """Measure if it is due; return the seconds until the next measurement. Raises ApiError."""
        evaluation = self._evaluations.get(key)
        if evaluation is None or _is_over(evaluation):
            self._measured.pop(key, None)
            return None
        seconds, complaint = interval_of(evaluation)
        try:
            left = await self._time_left(evaluation, seconds)
            if left > 0:
                return left
            now = self._context.now()
            before = progress_of(evaluation.status)
            after = self._advance(evaluation, before)
            if not await self._write(evaluation, before, after, now):
                return None
        except NotFoundError:
            # It was deleted; the watch event is pending.
            return None
        if after.tries > before.tries:
            self._measured[key] = _LastMeasurement(evaluation.metadata.uid, now)
        if complaint and before.tries == 0 < after.tries:
            self._context.signals.emit(
                evaluation, "ReconcileEvaluation", "ReconcileError", complaint, warning=True
            )
        return None if after.is_over or after.tries == before.tries else seconds

    def _advance(self, evaluation: Evaluation, before: Progress) -> Progress:
        retries = RETRIES if evaluation.spec.retries is None else evaluation.spec.retries
        if before.tries >= max_tries(retries):
            return fail_after_tries(before)
        definition = self._definition(evaluation)
        if definition is None:
            return wait_for_definition(before, evaluation.spec.evaluation_definition)
        objectives = objectives_of(definition)
        if refusals := self._refusals(definition, objectives):
            return wait_for_consent(before, objectives, refusals)
        namespaces = self._context.definition_namespaces(evaluation.metadata.namespace)
        return measure(
            before,
            objectives,
            lambda objective: self._read(objective, namespaces),
            is_sticky=self._context.settings.sticky_evaluations,
        )

    async def _write(
        self, evaluation: Evaluation, before: Progress, after: Progress, now: datetime
    ) -> bool:
        """Write the status and emit events if it differs; return whether it did."""
        status = EvaluationStatus(
            retry_count=after.tries,
            evaluation_status={
                key: Measurement(value=result.value, status=result.status, message=result.message)
                for key, result in after.results.items()
            },
            overall_status=after.state,
            start_time=evaluation.status.start_time or format_rfc3339(now),
            end_time=format_rfc3339(now) if after.is_over else "",
            measurements=record_tries(evaluation.status, after, now),
        )
        if status == evaluation.status:
            return False
        signals = self._context.signals
        try:
            await write_status(self._context.client, EVALUATIONS, evaluation.metadata, status)
        except (ConflictError, NotFoundError):
            raise
        except ApiError as error:
            text = str(error)
            signals.emit(evaluation, "ReconcileEvaluation", "ReconcileError", text, warning=True)
            raise
        written = msgspec.structs.replace(evaluation, status=status)
        if after.is_over:
            if after.tries == before.tries:
                text = "; ".join(filter(None, ("retryCount exceeded", summarize_unmet(after))))
                signals.emit(written, "ReconcileEvaluation", "ReconcileTimeout", text)
            signals.report_completed(written)
        elif after.tries == before.tries and self._definition(evaluation) is not None:
            known = {result.message for result in before.results.values()}
            for key, result in after.results.items():
                if result.status == PENDING and result.message not in known:
                    text = f"{key}: {result.message}"
                    signals.emit(written, "Reference", "Refused", text, warning=True)
        elif after.tries == before.tries:
            name = evaluation.spec.evaluation_definition
            text = f"could not find KeptnEvaluationDefinition {name}"
            signals.emit(written, "CreateEvaluation", "NotFound", text, warning=True)
        log = self._log.info if after.is_over else self._log.debug
        log("evaluated", key=evaluation.metadata.key, tries=after.tries, state=after.state)
        return True

    async def _time_left(self, evaluation: Evaluation, seconds: float) -> float:
        """Return the seconds until the next measurement, or the failure after the last one."""
        last = self._measured.get(evaluation.metadata.key)
        if last is None or last.uid != evaluation.metadata.uid:
            if evaluation.status.retry_count <= 0:
                return 0.0
            # Another process has measured, or this one in an earlier leader term.
            last = _LastMeasurement(evaluation.metadata.uid, await self._last_write(evaluation))
            self._measured[evaluation.metadata.key] = last
        return (last.time + timedelta(seconds=seconds) - self._context.now()).total_seconds()

    async def _last_write(self, evaluation: Evaluation) -> datetime:
        """Return when the status was written, by its managed fields; now if they do not tell."""
        metadata, now = evaluation.metadata, self._context.now()
        raw = await self._context.client.get(EVALUATIONS, metadata.name, metadata.namespace)
        written = written_at(raw)
        # The time is cut to its second, and the clocks may differ.
        return min(written + _SECOND, now) if written is not None else now

    def _definition(self, evaluation: Evaluation) -> EvaluationDefinition | None:
        namespaces = self._context.definition_namespaces(evaluation.metadata.namespace)
        name = evaluation.spec.evaluation_definition
        return self._context.caches.definition(self._definitions, name, namespaces)

    def _refusals(
        self, definition: EvaluationDefinition, objectives: Iterable[Objective]
    ) -> dict[Objective, str]:
        """Return the refusals of metrics in other namespaces, which lack consent."""
        refusals, origin = {}, definition.metadata.namespace
        shared = self._context.definition_namespaces(origin)
        for objective in objectives:
            where = objective.namespace
            to = Reference(KEPTN_METRICS, where or origin, objective.metric, origin)
            metric = self._metrics.store.get(f"{where}/{objective.metric}")
            annotations = None if metric is None else metric.metadata.annotations
            if not to.is_allowed(self._context.references, annotations, shared):
                refusals[objective] = to.refusal
        return refusals

    def _read(self, objective: Objective, namespaces: tuple[str, ...]) -> Reading:
        """Return the current value of a metric, if it still counts."""
        if objective.namespace:
            namespaces = (objective.namespace,)
        metric = self._context.caches.definition(self._metrics, objective.metric, namespaces)
        if metric is None:
            return missing_metric(objective.metric, namespaces)
        return read_metric(
            metric, self._context.settings.stale_after_intervals, self._context.now()
        )


def _is_over(evaluation: Evaluation) -> bool:
    return bool(evaluation.metadata.deletion_timestamp) or progress_of(evaluation.status).is_over
