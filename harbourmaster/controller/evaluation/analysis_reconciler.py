"""Runs each Analysis once until its result is known (keptn-spec 4.5).

No worker waits for a query: its answer queues the Analysis again. The values so far are in the
status, so that another process continues.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.api.references import Reference
from harbourmaster.api.resources import ANALYSES, ANALYSIS_DEFINITIONS
from harbourmaster.controller.evaluation.analysis_queries import (
    RefusedError,
    UnaskableError,
    fetch_value,
    query_for,
    resolve_reference,
)
from harbourmaster.controller.evaluation.collectors import AnalysisMetricValues
from harbourmaster.controller.lifecycle.writes import write_status
from harbourmaster.controller.objects import OwnWrites
from harbourmaster.controller.objects import reference as reference_to
from harbourmaster.evaluation.analysis import (
    LIMIT,
    MeasuredObjective,
    by_status_key,
    from_status,
    judge,
    resolve_timeframe,
    retry_delay,
    template_references,
)
from harbourmaster.evaluation.model import (
    COMPLETED,
    PENDING,
    PROGRESSING,
    AnalysisStatus,
    StoredValue,
    Timeframe,
)
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.providers.errors import ProviderError
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from harbourmaster.controller.evaluation.analysis_queries import AnalysisQuery
    from harbourmaster.controller.evaluation.caches import MetricContext
    from harbourmaster.evaluation.model import Analysis, AnalysisDefinition, ObjectReference
    from harbourmaster.kube.event_series import EventType

FINISHED: Final = "AnalysisCompleted"
UNDEFINED: Final = "AnalysisDefinitionNotFound"
BAD_TIMEFRAME: Final = "AnalysisTimeframeInvalid"
UNMEASURED: Final = "AnalysisValueMissing"
REFUSED: Final = "ReferenceRefused"


class _Failure(NamedTuple):
    """The reason why a template has no value."""

    text: str
    query: AnalysisQuery | None = None
    due: datetime | None = None
    """The time of the next try; None waits for a change of objects."""
    attempts: int = 0
    is_temporary: bool = False
    reason: str = UNMEASURED


class _Run:
    """An analysis in progress: values, failures and running queries by template."""

    def __init__(self, uid: str, values: dict[ObjectReference, StoredValue]) -> None:
        self.uid = uid
        self.values = values
        self.failures: dict[ObjectReference, _Failure] = {}
        self.running: dict[ObjectReference, tuple[AnalysisQuery, asyncio.Task[str]]] = {}

    def cancel(self, reference: ObjectReference) -> None:
        """Cancel the running query of a template, if there is one."""
        running = self.running.pop(reference, None)
        if running is not None:
            running[1].cancel()


class AnalysisReconciler:
    """Reconciles Analyses by the key ``namespace/name``; ``wake`` queues a key."""

    def __init__(self, context: MetricContext, wake: Callable[[str], None]) -> None:
        self._context = context
        self._wake = wake
        self._store = context.caches.analyses.store
        self._runs: dict[str, _Run] = {}
        self._written = OwnWrites()
        self._log = get_logger("analyses")
        context.results.set_source(AnalysisMetricValues(self._store).read)

    async def close(self) -> None:
        """Cancel all queries, and show no results, as another process may lead."""
        self._context.results.set_source(None)
        for key in list(self._runs):
            self._forget(key)

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Yield the keys of analyses that are not completed, and of those with state to drop."""
        for key in list(self._store.keys()) if keys is None else keys:
            analysis = self._store.get(key)
            if key in self._runs or analysis is None or not _is_over(analysis):
                yield key

    async def reconcile(self, key: str) -> float | None:
        """Take the next step; return the seconds until a retry is due. Raises ApiError."""
        analysis = self._store.get(key)
        if analysis is None or _is_over(analysis):
            self._forget(key)
            if analysis is None:
                self._written.forget(key)
            return None
        if self._written.hide(analysis.metadata):
            return None
        run = self._runs.get(key)
        if run is not None and run.uid != analysis.metadata.uid:
            self._forget(key)
        try:
            return await self._advance(analysis)
        except NotFoundError:
            # It was deleted; the watch event is pending.
            return None

    async def _advance(self, analysis: Analysis) -> float | None:
        status = analysis.status
        timeframe = status.timeframe
        if not timeframe.from_:
            try:
                timeframe = resolve_timeframe(analysis.spec.timeframe, self._context.now())
            except ValueError as error:
                await self._wait(analysis, Timeframe(), BAD_TIMEFRAME, str(error))
                return None
        reference = analysis.spec.analysis_definition
        origin = analysis.metadata.namespace
        to = Reference(ANALYSIS_DEFINITIONS, reference.namespace or origin, reference.name, origin)
        try:
            caches, mode = self._context.caches, self._context.references
            definition = resolve_reference(caches.definitions, to, mode)
        except UnaskableError as error:
            # Changes of the definition, also of its consent, queue the analysis.
            if isinstance(error, RefusedError):
                self._forget(analysis.metadata.key)
                await self._wait(analysis, timeframe, REFUSED, str(error), refused=reference)
            else:
                await self._wait(analysis, timeframe, UNDEFINED, str(error))
            return None
        if status.state != PROGRESSING or status.timeframe != timeframe:
            # Before the first query: another process must use this timeframe. Refusals are over.
            stored = by_status_key(from_status(status.stored_values))
            await self._write(
                analysis,
                AnalysisStatus(timeframe=timeframe, state=PROGRESSING, stored_values=stored),
            )
            return None
        return await self._measure(analysis, definition)

    async def _wait(
        self,
        analysis: Analysis,
        timeframe: Timeframe,
        reason: str,
        text: str,
        refused: ObjectReference | None = None,
    ) -> None:
        """Write the timeframe, and a refused reference, and emit an event if the status changes."""
        state, stored = analysis.status.state or PENDING, from_status(analysis.status.stored_values)
        if refused is not None:
            stored = {refused: StoredValue(objective_reference=refused, err_msg=text)}
        status = AnalysisStatus(
            timeframe=timeframe, state=state, stored_values=by_status_key(stored)
        )
        if status != analysis.status:
            await self._write(analysis, status)
            self._emit(analysis, "Warning", reason, text)

    async def _measure(self, analysis: Analysis, definition: AnalysisDefinition) -> float | None:
        """Start the missing queries; write the result if all values are known."""
        run = self._get_run(analysis)
        references = template_references(definition.spec.objectives)
        for reference in [running for running in run.running if running not in references]:
            run.cancel(reference)
        values, requeue_after = {}, []
        for reference in references:
            value = self._value(analysis, definition, run, reference)
            if value is None:
                continue
            values[reference] = value
            failure = run.failures.get(reference)
            if value.err_msg and failure is not None and failure.due is not None:
                requeue_after.append((failure.due - self._context.now()).total_seconds())
        if run.running:
            # Its answer queues the analysis.
            return None
        if any(value.err_msg for value in values.values()):
            await self._write_values(analysis, run, values)
        else:
            await self._complete(analysis, definition, values)
        return min(requeue_after, default=None)

    def _value(
        self,
        analysis: Analysis,
        definition: AnalysisDefinition,
        run: _Run,
        reference: ObjectReference,
    ) -> StoredValue | None:
        """Return the value of a template or its error; None while its query runs."""
        try:
            query = query_for(
                reference,
                definition.metadata.namespace,
                analysis.spec.args,
                analysis.status.timeframe,
                self._context.caches,
                mode=self._context.references,
            )
        except UnaskableError as error:
            run.cancel(reference)
            reason = UNMEASURED
            if isinstance(error, RefusedError):
                run.values.pop(reference, None)
                reason = REFUSED
            value = run.values.get(reference)
            if value is not None:
                # The objects of the query are gone, but its answer still counts.
                return value
            run.failures[reference] = _Failure(str(error), reason=reason)
            return StoredValue(objective_reference=reference, err_msg=str(error))
        value = run.values.get(reference)
        if value is not None and value.query == query.question.query:
            return value
        asked = run.running.get(reference)
        if asked is not None and asked[0].is_like(query):
            return None
        run.cancel(reference)
        failure = run.failures.get(reference)
        if failure is not None and failure.query is not None and failure.query.is_like(query):
            if failure.due is None or failure.due > self._context.now():
                return StoredValue(
                    objective_reference=reference, query=query.question.query, err_msg=failure.text
                )
        else:
            run.failures.pop(reference, None)
        task = asyncio.create_task(fetch_value(self._context.queries, query))
        run.running[reference] = (query, task)
        task.add_done_callback(partial(self._take_answer, analysis.metadata.key, run, reference))
        return None

    def _take_answer(
        self, key: str, run: _Run, reference: ObjectReference, task: asyncio.Task[str]
    ) -> None:
        """Keep the result of a query, unless another query has replaced it."""
        if task.cancelled():
            return
        error = task.exception()
        asked = run.running.get(reference)
        if asked is None or asked[1] is not task:
            return
        query, _ = run.running.pop(reference)
        if error is None:
            run.failures.pop(reference, None)
            run.values[reference] = StoredValue(
                objective_reference=reference, query=query.question.query, value=task.result()
            )
        else:
            run.values.pop(reference, None)
            self._keep_failure(run, reference, query, error)
        self._wake(key)

    def _keep_failure(
        self, run: _Run, reference: ObjectReference, query: AnalysisQuery, error: BaseException
    ) -> None:
        before = run.failures.get(reference)
        attempts = before.attempts + 1 if before is not None else 0
        is_temporary, text = True, str(error)
        if isinstance(error, ProviderError):
            is_temporary = error.helps_to_wait
        else:
            self._log.error("query crashed", query=query.question.query, exc_info=error)
            text = "the query crashed: see the log of the controller"
        # No watch tells of changes of Secrets and servers.
        seconds = retry_delay(attempts) if is_temporary else LIMIT
        due = self._context.now() + timedelta(seconds=seconds)
        run.failures[reference] = _Failure(text, query, due, attempts, is_temporary)

    async def _write_values(
        self, analysis: Analysis, run: _Run, values: Mapping[ObjectReference, StoredValue]
    ) -> None:
        """Write the values so far, and emit events for new permanent failures."""
        before = analysis.status
        status = AnalysisStatus(
            timeframe=before.timeframe, state=PROGRESSING, stored_values=by_status_key(values)
        )
        if status == before:
            return
        await self._write(analysis, status)
        known = {stored_value.err_msg for stored_value in before.stored_values.values()}
        for reference, value in values.items():
            failure = run.failures.get(reference)
            if value.err_msg in known or failure is None or failure.is_temporary:
                continue
            self._emit(analysis, "Warning", failure.reason, f"{reference.name}: {value.err_msg}")

    async def _complete(
        self,
        analysis: Analysis,
        definition: AnalysisDefinition,
        values: Mapping[ObjectReference, StoredValue],
    ) -> None:
        """Write the result, and emit its event."""
        measured = []
        for objective in definition.spec.objectives:
            value = values[objective.analysis_value_template_ref]
            measured.append((objective, MeasuredObjective(value.query, value.value)))
        verdict = judge(measured, definition.spec.total_score)
        await self._write(
            analysis,
            AnalysisStatus(
                timeframe=analysis.status.timeframe,
                state=COMPLETED,
                raw=verdict.raw,
                passed=verdict.passed,
                warning=verdict.warning,
            ),
        )
        self._emit(analysis, "Normal", FINISHED, verdict.summary)
        self._log.info(
            "analysis completed",
            key=analysis.metadata.key,
            passed=verdict.passed,
            warning=verdict.warning,
        )

    async def _write(self, analysis: Analysis, status: AnalysisStatus) -> None:
        await write_status(self._context.client, ANALYSES, analysis.metadata, status)
        self._written.note(analysis.metadata)

    def _get_run(self, analysis: Analysis) -> _Run:
        """Return the run of an analysis, which begins with the values of the status."""
        run = self._runs.get(analysis.metadata.key)
        if run is None:
            run = _Run(analysis.metadata.uid, from_status(analysis.status.stored_values))
            self._runs[analysis.metadata.key] = run
        return run

    def _forget(self, key: str) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            for reference in list(run.running):
                run.cancel(reference)

    def _emit(self, analysis: Analysis, kind: EventType, reason: str, text: str) -> None:
        self._context.events.emit(reference_to(ANALYSES, analysis.metadata), kind, reason, text)


def _is_over(analysis: Analysis) -> bool:
    return bool(analysis.metadata.deletion_timestamp) or analysis.status.state == COMPLETED
