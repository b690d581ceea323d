"""Runs each Analysis once, until its verdict (keptn-spec 4.5).

A query never holds up a worker: its answer has the Analysis looked at again. What is known so far
stands in the status, so another process goes on from there.
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
    followed,
    measured,
    query_for,
)
from harbourmaster.controller.evaluation.collectors import AnalysisMetricValues
from harbourmaster.controller.lifecycle.writes import write_status
from harbourmaster.controller.objects import OwnWrites
from harbourmaster.controller.objects import reference as reference_to
from harbourmaster.evaluation.analysis import MeasuredObjective, judge
from harbourmaster.evaluation.analysis_progress import (
    LIMIT,
    by_status_key,
    from_status,
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
    """Why there is no value. ``due`` is when to try again; None for: when objects change."""

    text: str
    query: AnalysisQuery | None = None
    due: datetime | None = None
    attempts: int = 0
    is_passing: bool = False
    reason: str = UNMEASURED


class _Run:
    """An analysis in progress: values, failures and unanswered queries by template."""

    def __init__(self, uid: str, values: dict[ObjectReference, StoredValue]) -> None:
        self.uid = uid
        self.values = values
        self.failures: dict[ObjectReference, _Failure] = {}
        self.asked: dict[ObjectReference, tuple[AnalysisQuery, asyncio.Task[str]]] = {}

    def withdraw(self, reference: ObjectReference) -> None:
        """Want no answer any more."""
        asked = self.asked.pop(reference, None)
        if asked is not None:
            asked[1].cancel()

    def abandon(self) -> None:
        """Want no answer at all any more."""
        for reference in list(self.asked):
            self.withdraw(reference)


class AnalysisReconciler:
    """Reconciles one Analysis; keys are ``namespace/name``; ``wake`` has one looked at again."""

    def __init__(self, context: MetricContext, wake: Callable[[str], None]) -> None:
        self._context = context
        self._wake = wake
        self._store = context.caches.analyses.store
        self._runs: dict[str, _Run] = {}
        self._written = OwnWrites()
        self._log = get_logger("analyses")
        context.results.set_source(AnalysisMetricValues(self._store).read)

    async def close(self) -> None:
        """Want no answers any more, and show no results: another process may lead."""
        self._context.results.set_source(None)
        for key in list(self._runs):
            self._forget(key)

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Those without a verdict, and those to be forgotten."""
        for key in list(self._store.keys()) if keys is None else keys:
            found = self._store.get(key)
            if key in self._runs or found is None or not _is_over(found):
                yield key

    async def reconcile(self, key: str) -> float | None:
        """One step further. Raises ApiError."""
        found = self._store.get(key)
        if found is None or _is_over(found):
            self._forget(key)
            if found is None:
                self._written.forget(key)
            return None
        if self._written.hide(found.metadata):
            return None
        run = self._runs.get(key)
        if run is not None and run.uid != found.metadata.uid:
            self._forget(key)
        try:
            return await self._advance(found)
        except NotFoundError:
            # Gone, and the watch is about to tell.
            return None

    async def _advance(self, found: Analysis) -> float | None:
        status = found.status
        timeframe = status.timeframe
        if not timeframe.from_:
            try:
                timeframe = resolve_timeframe(found.spec.timeframe, self._context.now())
            except ValueError as error:
                await self._wait(found, Timeframe(), BAD_TIMEFRAME, str(error))
                return None
        wanted = found.spec.analysis_definition
        origin = found.metadata.namespace
        to = Reference(ANALYSIS_DEFINITIONS, wanted.namespace or origin, wanted.name, origin)
        try:
            definition = followed(self._context.caches.definitions, to, self._context.references)
        except UnaskableError as error:
            # Its arrival, and its consent, are changes that wake us.
            if isinstance(error, RefusedError):
                self._forget(found.metadata.key)
                await self._wait(found, timeframe, REFUSED, str(error), refused=wanted)
            else:
                await self._wait(found, timeframe, UNDEFINED, str(error))
            return None
        if status.state != PROGRESSING or status.timeframe != timeframe:
            # Before anything is asked: another process is to ask about the same time.
            await self._write(
                found,
                AnalysisStatus(
                    timeframe=timeframe, state=PROGRESSING, stored_values=status.stored_values
                ),
            )
            return None
        return await self._measure(found, definition)

    async def _wait(
        self,
        found: Analysis,
        timeframe: Timeframe,
        reason: str,
        text: str,
        refused: ObjectReference | None = None,
    ) -> None:
        """Say once for what it waits, and in the status over which time it will look.

        A refused reference is in the status as well.
        """
        state, stored = found.status.state or PENDING, from_status(found.status.stored_values)
        if refused is not None:
            stored = {refused: StoredValue(objective_reference=refused, err_msg=text)}
        status = AnalysisStatus(
            timeframe=timeframe, state=state, stored_values=by_status_key(stored)
        )
        if status != found.status:
            await self._write(found, status)
            self._tell(found, "Warning", reason, text)

    async def _measure(self, found: Analysis, definition: AnalysisDefinition) -> float | None:
        """Ask for what is missing; the verdict when nothing is."""
        run = self._run(found)
        needed = template_references(definition.spec.objectives)
        for reference in [each for each in run.asked if each not in needed]:
            run.withdraw(reference)
        values, waits = {}, []
        for reference in needed:
            value = self._value(found, definition, run, reference)
            if value is None:
                continue
            values[reference] = value
            failure = run.failures.get(reference)
            if value.err_msg and failure is not None and failure.due is not None:
                waits.append((failure.due - self._context.now()).total_seconds())
        if run.asked:
            # An answer wakes us.
            return None
        if any(value.err_msg for value in values.values()):
            await self._keep(found, run, values)
        else:
            await self._complete(found, definition, values)
        return min(waits, default=None)

    def _value(
        self,
        found: Analysis,
        definition: AnalysisDefinition,
        run: _Run,
        reference: ObjectReference,
    ) -> StoredValue | None:
        """What is known of a template's value, or why it isn't; None while somebody is asked."""
        try:
            query = query_for(
                reference,
                definition.metadata.namespace,
                found.spec.args,
                found.status.timeframe,
                self._context.caches,
                mode=self._context.references,
            )
        except UnaskableError as error:
            run.withdraw(reference)
            reason = UNMEASURED
            if isinstance(error, RefusedError):
                run.values.pop(reference, None)
                reason = REFUSED
            value = run.values.get(reference)
            if value is not None:
                # What it was asked with is gone, and its answer still is one.
                return value
            run.failures[reference] = _Failure(str(error), reason=reason)
            return StoredValue(objective_reference=reference, err_msg=str(error))
        value = run.values.get(reference)
        if value is not None and value.query == query.text:
            return value
        asked = run.asked.get(reference)
        if asked is not None and asked[0].is_like(query):
            return None
        run.withdraw(reference)
        failure = run.failures.get(reference)
        if failure is not None and failure.query is not None and failure.query.is_like(query):
            if failure.due is None or failure.due > self._context.now():
                return StoredValue(
                    objective_reference=reference, query=query.text, err_msg=failure.text
                )
        else:
            run.failures.pop(reference, None)
        self._ask(found.metadata.key, run, reference, query)
        return None

    def _ask(self, key: str, run: _Run, reference: ObjectReference, query: AnalysisQuery) -> None:
        task = asyncio.create_task(measured(self._context.questions, query))
        run.asked[reference] = (query, task)
        task.add_done_callback(partial(self._answered, key, run, reference))

    def _answered(
        self, key: str, run: _Run, reference: ObjectReference, task: asyncio.Task[str]
    ) -> None:
        """Take note of an answer, unless another one is wanted by now."""
        if task.cancelled():
            return
        error = task.exception()
        asked = run.asked.get(reference)
        if asked is None or asked[1] is not task:
            return
        query, _ = run.asked.pop(reference)
        if error is None:
            run.failures.pop(reference, None)
            run.values[reference] = StoredValue(
                objective_reference=reference, query=query.text, value=task.result()
            )
        else:
            run.values.pop(reference, None)
            self._note_failure(run, reference, query, error)
        self._wake(key)

    def _note_failure(
        self, run: _Run, reference: ObjectReference, query: AnalysisQuery, error: BaseException
    ) -> None:
        before = run.failures.get(reference)
        attempts = before.attempts + 1 if before is not None else 0
        is_passing, text = True, str(error)
        if isinstance(error, ProviderError):
            is_passing = error.helps_to_wait
        else:
            self._log.error("query crashed", query=query.text, exc_info=error)
            text = "the query crashed: see the log of the controller"
        # Secrets and servers are watched by nobody, so that nothing else tells of their change.
        seconds = retry_delay(attempts) if is_passing else LIMIT
        due = self._context.now() + timedelta(seconds=seconds)
        run.failures[reference] = _Failure(text, query, due, attempts, is_passing)

    async def _keep(
        self, found: Analysis, run: _Run, values: Mapping[ObjectReference, StoredValue]
    ) -> None:
        """Write what is known so far, and tell of what won't come by itself."""
        before = found.status
        status = AnalysisStatus(
            timeframe=before.timeframe, state=PROGRESSING, stored_values=by_status_key(values)
        )
        if status == before:
            return
        await self._write(found, status)
        known = {stored_value.err_msg for stored_value in before.stored_values.values()}
        for reference, value in values.items():
            failure = run.failures.get(reference)
            if value.err_msg in known or failure is None or failure.is_passing:
                continue
            self._tell(found, "Warning", failure.reason, f"{reference.name}: {value.err_msg}")

    async def _complete(
        self,
        found: Analysis,
        definition: AnalysisDefinition,
        values: Mapping[ObjectReference, StoredValue],
    ) -> None:
        """Write the verdict, and tell it."""
        measured = []
        for objective in definition.spec.objectives:
            value = values[objective.analysis_value_template_ref]
            measured.append((objective, MeasuredObjective(value.query, value.value)))
        verdict = judge(measured, definition.spec.total_score)
        await self._write(
            found,
            AnalysisStatus(
                timeframe=found.status.timeframe,
                state=COMPLETED,
                raw=verdict.raw,
                passed=verdict.passed,
                warning=verdict.warning,
            ),
        )
        self._tell(found, "Normal", FINISHED, verdict.summary)
        self._log.info(
            "analysis completed",
            key=found.metadata.key,
            passed=verdict.passed,
            warning=verdict.warning,
        )

    async def _write(self, found: Analysis, status: AnalysisStatus) -> None:
        await write_status(self._context.client, ANALYSES, found.metadata, status)
        self._written.note(found.metadata)

    def _run(self, found: Analysis) -> _Run:
        """How far it is, by what is remembered or else by its status."""
        run = self._runs.get(found.metadata.key)
        if run is None:
            run = _Run(found.metadata.uid, from_status(found.status.stored_values))
            self._runs[found.metadata.key] = run
        return run

    def _forget(self, key: str) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            run.abandon()

    def _tell(self, found: Analysis, kind: EventType, reason: str, text: str) -> None:
        self._context.events.emit(reference_to(ANALYSES, found.metadata), kind, reason, text)


def _is_over(found: Analysis) -> bool:
    """A verdict stays whatever happens to its object; and what ends needs none."""
    return bool(found.metadata.deletion_timestamp) or found.status.state == COMPLETED
