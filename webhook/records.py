"""The log line, the metrics and the span of each review, made in batches.

Each review appends a tuple; a moment later all of them are counted and written together. In a batch
a line costs a fraction of what it costs alone, because the code stays in the processor's caches.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import clean
from harbourmaster.webhook.engine import audit_results
from harbourmaster.webhook.verdict import DENIED, GATED, INVALID, MUTATED

if TYPE_CHECKING:
    import asyncio
    from typing import BinaryIO

    from harbourmaster.telemetry.metrics import Metrics
    from harbourmaster.telemetry.spans import Tracer
    from harbourmaster.webhook.engine import Engine
    from harbourmaster.webhook.handlers import Decision
    from harbourmaster.webhook.review import RequestHead
    from harbourmaster.webhook.verdict import Audit, Verdict

MOMENT: Final = 0.05
"""Seconds that a record may wait; so much of the log is lost if the process is killed."""

_MAX_POLICIES: Final = 16
"""Policies named in one span."""
_DEFECTS: Final = frozenset(("internal-error", "deadline"))
"""Codes of reviews in which we failed, and not the question."""

_REFUSED: Final = frozenset((DENIED, INVALID))
_TOLD: Final = _REFUSED | {MUTATED, GATED}
"""Outcomes of which there is a log line."""

_Trace: TypeAlias = "tuple[str, str] | None"
_Pending: TypeAlias = (
    "tuple[float, float, Verdict, str, str, str | None, str | None, str | None, _Trace]"
)


class ReviewLine(Struct, frozen=True, gc=False, kw_only=True):
    """The log line of one review; times in microseconds."""

    event: str
    level: str
    timestamp: datetime
    component: str = "admission"
    uid: str
    kind: str
    namespace: str
    name: str
    operation: str
    policies: tuple[str, ...]
    operations: int
    codes: tuple[str, ...]
    microseconds: int
    trace_id: str | msgspec.UnsetType = msgspec.UNSET


class _Shown:
    """Holds what the lines of one verdict share, and counts its reviews."""

    __slots__ = ("codes", "level", "policies", "times", "verdict")

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.times = 0
        self.codes = verdict.codes
        self.policies = tuple(map(clean, verdict.policies))
        self.level = "warning" if self.codes or verdict.outcome in _REFUSED else "info"

    def count(self, metrics: Metrics) -> None:
        """Count what all of its reviews have in common."""
        operations = self.verdict.operations
        if operations:
            metrics.admission.operations.observe(operations, self.times)
        for reference in self.verdict.policies:
            metrics.admission.matches[reference] += self.times
        for code in self.codes:
            metrics.admission_skipped.labels(code).inc(self.times)


class Records:
    """Counts and logs reviews; ``flush`` before the end."""

    def __init__(
        self,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
        stream: BinaryIO | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """``stream`` takes JSON lines; without it the usual logger writes."""
        self.are_traced = tracer is not None
        """Whether ``add`` wants what the caller says of its trace."""
        self._metrics = metrics
        self._loop = loop
        self._stream = stream
        self._tracer = tracer
        self._pending: list[_Pending] = []
        self._encode = msgspec.json.Encoder().encode
        self._log = get_logger("admission")

    def add(self, decision: Decision, seconds: float, trace: _Trace = None) -> None:
        """Record a review that took ``seconds``; ``trace`` is its traceparent and tracestate."""
        request = decision.request
        pending = self._pending
        if not pending:
            self._loop.call_later(MOMENT, self.flush)
        # Only strings are kept: the request holds the whole body.
        pending.append(
            (
                time.time(),
                seconds,
                decision.verdict,
                request.uid,
                _kind(request),
                request.namespace,
                request.name,
                request.operation,
                trace,
            )
        )

    def audit(self, audit: Audit, engine: Engine) -> None:
        """Count what policies in Audit mode would have done."""
        try:
            self._metrics.admission.audits.update(audit_results(audit, engine))
        except Exception:  # noqa: BLE001 - answers do not depend on it
            self._log.exception("audit failed")

    def flush(self) -> None:
        """Count, trace and write what waits."""
        pending, self._pending = self._pending, []
        lines: list[ReviewLine] = []
        durations, tracer = self._metrics.admission.durations, self._tracer
        shown_by_verdict: dict[int, _Shown] = {}
        for record in pending:
            verdict = record[2]
            shown = shown_by_verdict.get(id(verdict))
            if shown is None:
                shown = shown_by_verdict[id(verdict)] = _Shown(verdict)
            shown.times += 1
            durations[verdict.outcome].observe(record[1])
            trace_id = msgspec.UNSET if tracer is None else _record_span(record, tracer)
            if shown.codes or verdict.outcome in _TOLD:
                lines.append(_line(record, shown, trace_id))
        for shown in shown_by_verdict.values():
            shown.count(self._metrics)
        if self._stream is None:
            for line in lines:
                self._write_usual(line)
        elif lines:
            self._stream.write(b"".join(self._encode(line) + b"\n" for line in lines))
            self._stream.flush()

    def _write_usual(self, line: ReviewLine) -> None:
        fields: dict[str, Any] = msgspec.to_builtins(line)
        # The logger has these of its own.
        for name in ("component", "timestamp"):
            del fields[name]
        write = self._log.warning if fields.pop("level") == "warning" else self._log.info
        write(**fields)


def _kind(request: RequestHead) -> str:
    return request.kind.kind if request.kind is not None else ""


def _record_span(record: _Pending, tracer: Tracer) -> str | msgspec.UnsetType:
    """Make the span of a review; returns its trace's id, unset where it is not sampled."""
    ended, seconds, verdict, *_, trace = record
    context = tracer.sample(*(trace or ()))
    if context is None:
        return msgspec.UNSET
    return tracer.record(
        context,
        "review",
        (ended - seconds, ended),
        _attributes(record),
        is_server=True,
        error=next((code for code in verdict.codes if code in _DEFECTS), ""),
    )


def _attributes(record: _Pending) -> dict[str, str | int | tuple[str, ...]]:
    """Return the attributes of a review's span, which show nothing of the object's content."""
    _, _, verdict, uid, kind, namespace, _, operation, _ = record
    return {
        "k8s.namespace.name": clean(namespace or ""),
        "harbourmaster.review.uid": clean(uid),
        "harbourmaster.review.kind": clean(kind),
        "harbourmaster.review.operation": clean(operation or ""),
        "harbourmaster.outcome": verdict.outcome,
        "harbourmaster.operations": verdict.operations,
        "harbourmaster.codes": verdict.codes,
        "harbourmaster.policies": tuple(map(clean, verdict.policies[:_MAX_POLICIES])),
    }


def _line(record: _Pending, shown: _Shown, trace_id: str | msgspec.UnsetType) -> ReviewLine:
    at, seconds, verdict, uid, kind, namespace, name, operation, _ = record
    texts = uid, kind, namespace or "", name or "", operation or ""
    # All at once, because only a hostile review has anything to clean.
    if clean(text := "".join(texts)) is not text:
        texts = tuple(map(clean, texts))  # type: ignore[assignment] # as many
    uid, kind, namespace, name, operation = texts
    return ReviewLine(
        event=verdict.outcome,
        level=shown.level,
        timestamp=datetime.fromtimestamp(at, UTC),
        uid=uid,
        kind=kind,
        namespace=namespace,
        name=name,
        operation=operation,
        policies=shown.policies,
        operations=verdict.operations,
        codes=shown.codes,
        microseconds=int(seconds * 1e6),
        trace_id=trace_id,
    )
