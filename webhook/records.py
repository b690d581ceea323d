"""What is remembered of each review: its log line and its counts, worked out in batches.

Between two system calls the processor has forgotten this code, so a line written at once costs
several times what it costs among others. A review leaves a tuple; a moment later all are counted
and written together.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from telemetry.logging import clean, get_logger
from webhook.engine import MUTATED
from webhook.handlers import INVALID

if TYPE_CHECKING:
    import asyncio
    from typing import BinaryIO

    from telemetry.metrics import Metrics
    from webhook.engine import Verdict
    from webhook.handlers import Decision
    from webhook.review import RequestHead

MOMENT: Final = 0.05
"""Seconds that a record may wait; so much of the log is lost if the process is killed."""

_Pending: TypeAlias = "tuple[float, float, Verdict, str, str, str | None, str | None, str | None]"


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


class Records:
    """Counts and logs reviews; ``flush`` before the end."""

    def __init__(
        self, metrics: Metrics, loop: asyncio.AbstractEventLoop, stream: BinaryIO | None = None
    ) -> None:
        """``stream`` takes JSON lines; without it the usual logger writes."""
        self._metrics = metrics
        self._loop = loop
        self._stream = stream
        self._pending: list[_Pending] = []
        self._encode = msgspec.json.Encoder().encode
        self._log = get_logger("admission")

    def add(self, decision: Decision, seconds: float) -> None:
        """Remember a review that took ``seconds``."""
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
            )
        )

    def flush(self) -> None:
        """Count and write what waits."""
        pending, self._pending = self._pending, []
        lines: list[ReviewLine] = []
        tallies = self._metrics.admission
        for record in pending:
            verdict = record[2]
            tallies.durations[verdict.outcome].observe(record[1])
            if verdict.outcome == MUTATED:
                tallies.operations.observe(verdict.operations)
            for code in verdict.codes:
                self._metrics.admission_skipped.labels(code).inc()
            if verdict.codes or verdict.outcome in {MUTATED, INVALID}:
                lines.append(_line(record))
        if self._stream is None:
            for line in lines:
                self._write_usual(line)
        elif lines:
            self._stream.write(b"".join(self._encode(line) + b"\n" for line in lines))
            self._stream.flush()

    def _write_usual(self, line: ReviewLine) -> None:
        fields: dict[str, Any] = msgspec.structs.asdict(line)
        # The logger has these of its own.
        for name in ("component", "timestamp"):
            del fields[name]
        write = self._log.warning if fields.pop("level") == "warning" else self._log.info
        write(**fields)


def _kind(request: RequestHead) -> str:
    return request.kind.kind if request.kind is not None else ""


def _line(record: _Pending) -> ReviewLine:
    at, seconds, verdict, uid, kind, namespace, name, operation = record
    return ReviewLine(
        event=verdict.outcome,
        level="warning" if verdict.codes or verdict.outcome == INVALID else "info",
        timestamp=datetime.fromtimestamp(at, UTC),
        uid=clean(uid),
        kind=clean(kind),
        namespace=clean(namespace or ""),
        name=clean(name or ""),
        operation=clean(operation or ""),
        policies=tuple(map(clean, verdict.policies)),
        operations=verdict.operations,
        codes=verdict.codes,
        microseconds=int(seconds * 1e6),
    )
