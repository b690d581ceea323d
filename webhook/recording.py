"""Samples of reviews, written to files for ``replay`` without delaying admission.

A review that is taken waits in a short queue together with what was known, which is immutable.
Owners are not, so they are looked up at once.

A line of a file is a review without its secrets, what was known, and the answer. It is replayed
before it counts: what is not answered by the same bytes is not recorded.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import LineFailure, MalformedError
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.owners import supported_owner
from harbourmaster.gates.version import hash_of
from harbourmaster.policies.pods import KINDS
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.metrics import (
    FAILED,
    NOT_KEPT,
    QUEUE_FULL,
    TOO_LARGE,
    UNFAITHFUL,
    WRITTEN,
)
from harbourmaster.telemetry.text import reason
from harbourmaster.webhook.cases import answer_case, read_case, response_of
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import Decision
from harbourmaster.webhook.parents import Parent
from harbourmaster.webhook.redaction import redact
from harbourmaster.webhook.review import Request, WorkloadRequest
from harbourmaster.webhook.reviewed_object import containers_of, owners_of, read_object, view_of
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.verdict import MALFORMED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import Counter

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.webhook.record_files import RecordFiles
    from harbourmaster.webhook.review import RequestHead
    from harbourmaster.webhook.reviewed_object import ReviewedObject

MAX_REVIEW: Final = 256 * 1024
"""Bytes of a review and its answer, if they are kept; working on more would delay other reviews."""
MAX_WAITING: Final = 512
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
REST: Final = 9.0
"""Pause after the work on a review, in multiples of its time: at most a tenth of a core is used."""
BATCH: Final = 16
"""Lines that are written together, where so many wait."""
LAST_SECONDS: Final = 2.0
"""The time at the end in which waiting reviews may still be written."""
QUIET: Final = 60.0
"""Seconds between two log lines about files that can't be written."""
_UNDECIDED: Final = frozenset(("internal-error", "deadline", "no-node-matches"))
"""Codes of answers that depend on more than a recording has."""


MAX_POLICIES: Final = 64 * 1024
"""The most bytes of all matching policies: each line is replayed with them, and the policies that a
tenant can create would block other reviews for seconds."""
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_SETTINGS: Final = frozenset(AdmissionSettings.__struct_fields__)


class Taken(Struct, frozen=True, gc=False):
    """A review as it was answered, and what was known."""

    at: float
    body: bytes
    result: bytes
    decision: Decision
    engine: Engine
    may_patch: bool
    parents: tuple[tuple[str, str, Parent], ...]


def line_of(taken: Taken) -> tuple[bytes | None, str]:
    """The line of a review, and WRITTEN; or None and why there is none. Raises whatever it may."""
    request, engine, verdict = taken.decision.request, taken.engine, taken.decision.verdict
    policies = [policy.source for policy in _policies(request, engine)]
    if sum(map(len, policies)) > MAX_POLICIES:
        return None, TOO_LARGE
    review = redact(_decode(taken.body))
    if review is None:
        return None, NOT_KEPT
    kept = _encode(review)
    response = response_of(taken.result)
    case: dict[str, Any] = {
        "id": request.uid,
        "at": datetime.fromtimestamp(taken.at, UTC),
        "review": msgspec.Raw(kept),
        "namespaces": list(_namespaces(request, engine)),
        "policies": [msgspec.Raw(policy) for policy in policies],
        "settings": _settings(engine.settings),
        "response": response,
    }
    if taken.parents:
        case["parents"] = [_parent(*parent) for parent in taken.parents]
    if request.namespace in engine.snapshot.excluded:
        case["excluded"] = [request.namespace]
    if not taken.may_patch:
        case["mayPatch"] = False
    for name, labels in engine.snapshot.class_labels.items():
        if labels and name.encode() in kept:
            case.setdefault("classLabels", {})[name] = labels
    pod_hash = _hash(request)
    # Whoever has the answer has it already.
    if pod_hash and verdict.response.patch and pod_hash.encode() in verdict.response.patch:
        case["hash"] = pod_hash
    line = _encode(case)
    read = read_case(line)
    answered = None if isinstance(read, LineFailure) else answer_case(read).response
    if answered is None or bytes(answered) != bytes(response):
        return None, UNFAITHFUL
    return line + b"\n", WRITTEN


def _object_of(request: RequestHead) -> ReviewedObject | None:
    if isinstance(request, WorkloadRequest):
        return request.object
    if isinstance(request, Request) and request.has_object and request.kind_key in KINDS:
        try:
            return read_object(request.object)
        except MalformedError:
            return None
    return None


def _policies(request: RequestHead, engine: Engine) -> tuple[CompiledPolicy, ...]:
    """Those that were matched, whose answers the others have no part in."""
    kind, obj = KINDS.get(request.kind_key), _object_of(request)
    name = request.namespace or ""
    namespace = engine.snapshot.namespace(name)
    if kind is None or obj is None or namespace is None:
        return ()
    try:
        pod = view_of(kind, obj, request.username)
    except MalformedError:
        return ()
    return () if pod is None else engine.match(name, namespace, pod)


def _namespaces(request: RequestHead, engine: Engine) -> Iterable[dict[str, Any]]:
    name = request.namespace or ""
    namespace = engine.snapshot.namespace(name)
    if namespace is not None:
        metadata: dict[str, Any] = {"name": name, "labels": namespace.labels}
        annotations = {OPT_IN_KEY: OPT_IN} if namespace.has_gates else namespace.mistaken
        if namespace.selector:
            key, labels = namespace.selector
            selector = ",".join(f"{name}={value}" for name, value in labels.items())
            annotations = {**annotations, key: selector}
        if annotations:
            metadata["annotations"] = annotations
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _settings(settings: AdmissionSettings) -> dict[str, Any]:
    """Admission's part of them; the rest is where a server listens."""
    names = dict(zip(settings.__struct_fields__, settings.__struct_encode_fields__, strict=True))
    return {names[name]: getattr(settings, name) for name in names if name in _SETTINGS}


def parents_now(request: RequestHead, engine: Engine) -> Iterable[tuple[str, str, Parent]]:
    """The owners that a gate was decided by: kind, ``namespace/name`` and what is known of it."""
    name = request.namespace or ""
    namespace = engine.snapshot.namespace(name)
    if namespace is None or not engine.has_gates(name, namespace):
        return
    obj = _object_of(request)
    if obj is None or obj.metadata is None:
        return
    try:
        owner = supported_owner(owners_of(obj.metadata))
    except MalformedError:
        return
    if owner is None:
        return
    kind = owner.kind
    for _, key, parent in engine.snapshot.parents.of(owner, name).steps:
        if parent is None:
            return
        yield kind, key, parent
        if parent.owner is None:
            return
        kind = parent.owner.kind


def _parent(kind: str, key: str, parent: Parent) -> dict[str, Any]:
    namespace, _, name = key.partition("/")
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": parent.uid,
        "annotations": parent.metadata.annotations,
        "labels": parent.metadata.labels,
        "ownerReferences": [] if parent.owner is None else [parent.owner],
    }
    return {"kind": kind, "metadata": metadata}


def _hash(request: RequestHead) -> str:
    obj = _object_of(request)
    if obj is None or obj.spec is None:
        return ""
    try:
        return hash_of(containers_of(obj.spec))
    except MalformedError:
        return ""


class Recorder:
    """Takes a share of the reviews and writes them, from ``start`` to ``close``."""

    def __init__(
        self,
        files: RecordFiles,
        share: float,
        outcomes: Mapping[str, Counter],
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``outcomes`` count the sampled reviews by their outcome."""
        self._files = files
        self._share = share
        self._outcomes = outcomes
        self._chance = chance
        self._waiting: deque[Taken] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._lines: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._told = -QUIET
        self._log = get_logger("recording")

    def start(self) -> None:
        """Write from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def take(
        self, body: bytes, result: bytes, decision: Decision, engine: Engine, *, may_patch: bool
    ) -> None:
        """Keep a review, if it is sampled. Never waits."""
        if self._chance() >= self._share:
            return
        size = len(body) + len(result)
        if size > MAX_REVIEW:
            self._outcomes[TOO_LARGE].inc()
        elif len(self._waiting) >= MAX_WAITING or self._bytes + size > MAX_WAITING_BYTES:
            self._outcomes[QUEUE_FULL].inc()
        elif decision.verdict.outcome == MALFORMED or not _UNDECIDED.isdisjoint(
            decision.verdict.codes
        ):
            self._outcomes[NOT_KEPT].inc()
        else:
            try:
                parents = tuple(parents_now(decision.request, engine))
            except Exception:  # noqa: BLE001 - the review is answered, whatever is wrong here
                self._outcomes[UNFAITHFUL].inc()
                return
            self._waiting.append(
                Taken(time.time(), body, result, decision, engine, may_patch, parents)
            )
            self._bytes += size
            self._some.set()

    async def close(self) -> None:
        """Write what waits, if that can be done soon, and stop."""
        if self._task is None:
            return
        self._task.cancel()
        # One write at a time, and none is torn.
        await asyncio.wait((self._task, *([self._writing] if self._writing else ())))
        self._task = None
        clock = asyncio.get_running_loop().time
        end = clock() + LAST_SECONDS
        while (self._waiting or self._lines) and clock() < end:
            while self._waiting and len(self._lines) < BATCH:
                self._work_off()
            await self._flush()
        self._count(QUEUE_FULL, len(self._waiting))
        self._waiting.clear()
        # What ends after us must end whatever the disk says.
        with suppress(OSError):
            await asyncio.to_thread(self._files.close)

    async def _run(self) -> None:
        clock = time.perf_counter
        while True:
            if not self._waiting:
                self._some.clear()
                await self._some.wait()
            began = clock()
            self._work_off()
            spent = clock() - began
            if len(self._lines) >= BATCH or not self._waiting:
                await self._flush()
            await asyncio.sleep(spent * REST)

    def _work_off(self) -> None:
        """Make the line of the review that waits longest, if it may be kept."""
        taken = self._waiting.popleft()
        self._bytes -= len(taken.body) + len(taken.result)
        try:
            line, outcome = line_of(taken)
        except Exception:  # noqa: BLE001 - its text may be part of the object
            line, outcome = None, UNFAITHFUL
        if line is None:
            self._count(outcome)
        else:
            self._lines.append(line)

    async def _flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._writing = asyncio.ensure_future(self._write(lines))
            await asyncio.shield(self._writing)

    async def _write(self, lines: list[bytes]) -> None:
        try:
            await asyncio.to_thread(self._files.write, lines)
        except OSError as error:
            self._count(FAILED, len(lines))
            now = time.monotonic()
            if now - self._told >= QUIET:
                self._told = now
                self._log.error("reviews can't be recorded", error=reason(error))
        else:
            self._count(WRITTEN, len(lines))

    def _count(self, outcome: str, reviews: int = 1) -> None:
        self._outcomes[outcome].inc(reviews)
