"""Shadow mode: what kupid and Keptn did with an object, compared with what we would have done.

The first mutating webhook sees an object before all others and decides on it as ever, but answers
without a patch. The validating one sees the same object after them. Differences are counted by
owner, field and reason. Nothing here changes or refuses an object.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import Counter
from contextlib import suppress
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.patches import MergePatch, Operation, apply
from harbourmaster.api.resources import CONFIG_MAPS
from harbourmaster.gates.gate import GATE, SCHEDULER_NAME
from harbourmaster.gates.metadata import READ_KEYS
from harbourmaster.gates.owners import workload_above
from harbourmaster.kube.errors import ApiError
from harbourmaster.policies.keys import node_term_key
from harbourmaster.policies.merge import DEFAULT_SCHEDULER
from harbourmaster.policies.model import TOLERATIONS
from harbourmaster.policies.pods import KINDS
from harbourmaster.policies.tolerations import DEFAULTS
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.webhook.review import Review, allow, cut, encode_review

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.kube.client import Client
    from harbourmaster.policies.pods import Kind
    from harbourmaster.webhook.engine import Engine
    from harbourmaster.webhook.handlers import Decision
    from harbourmaster.webhook.review import Request, ReviewBody
    from harbourmaster.webhook.verdict import Verdict

    Clock = Callable[[], float]
    Json = dict[str, Any]
    Fields = dict[str, str]

CONFIG_MAP: Final = "harbourmaster-shadow"
"""The ConfigMap in our namespace with a ShadowReport as JSON under the key REPORT."""
REPORT: Final = "report.json"
MAX_DIFFERENCES: Final = 1000
"""The most differences, by owner, field and reason, that are kept; more are only counted."""
MAX_BYTES: Final = 900_000
"""The most bytes of all differences as JSON; a ConfigMap can have 1 MiB."""
MAX_PENDING: Final = 4096
"""Different objects that are between the two webhooks."""
MAX_OF_OWNER: Final = 8
"""Different objects of one owner among these."""
PAIR_SECONDS: Final = 60.0
"""After these, an object that has not come again counts as unpaired."""
WRITE_SECONDS: Final = 5.0
"""Between two writes of the report."""
EQUAL: Final = "equal"
DIFFERENT: Final = "different"
UNPAIRED: Final = "unpaired"
"""Objects that only one of the two webhooks saw: refused by others, or while we started."""
MORE: Final = "more"
"""Differences beyond MAX_DIFFERENCES or MAX_BYTES."""
ONLY_OURS: Final = "only-harbourmaster"
ONLY_THEIRS: Final = "only-kupid-or-keptn"
BOTH: Final = "different-values"
REFUSED: Final = "refused"
NOT_BY_TEMPLATE: Final = "not-by-template"
"""ONLY_OURS, of a pod. Not known to be intended: the template may be older than the policy."""
INTENDED: Final = {
    "kupid-excluded-namespace": "kupid excludes namespaces with the label role=kube-system",
    "kupid-excluded-kind": "kupid changes only templates, and of fewer kinds",
    "default-scheduler": "a policy replaces schedulerName: default-scheduler",
    "policy-order": "kupid applies several policies in random order",
    "node-name-as-affinity": "a pod at a gate gets a policy's nodeName as node affinity",
    "other-gates": "Keptn removes scheduling gates of others, which are kept",
    "gate-owner-unknown": "a pod whose owner is not known yet waits, Keptn does not gate it",
    "gate-container-missing": "Keptn does not gate a pod without the container of its version",
    "gate-node-name": "a pod with spec.nodeName cannot wait at a gate",
}
"""The reasons of differences that are known; those on gates are codes of our warnings."""
_OF_KUPID: Final = frozenset(("DaemonSet", "Deployment", "StatefulSet", "Job", "CronJob"))
_POLICY_FIELDS: Final = ("affinity", "nodeName", "nodeSelector", "schedulerName", TOLERATIONS)
_GATES: Final = "spec.schedulingGates"
_OUR_GATE: Final = f"{_GATES}[{GATE}]"
_OF_CRON_JOB: Final = re.compile(r"-\d{8,}$")
_SHOWN: Final = 100
_NAME: Final = 253
"""Characters of a kind or name, which nothing has validated yet."""
_KEPT: Final = 200
"""Characters of a value; a longer one is kept by its hash."""
_ABSORBED: Final = 64
"""Terms that are compared with each other, as each pair takes time; more stay as they are."""
_decode: Final = msgspec.json.Decoder().decode
_operations: Final = msgspec.json.Decoder(list[Operation]).decode
_encode: Final = msgspec.json.Encoder().encode


class Difference(Struct, frozen=True):
    """One field in which the objects of one owner differ; ``ours`` and ``theirs`` are of the first.

    They are shortened, and empty where the field is not set. ``field`` is empty for a refusal.
    """

    kind: str
    namespace: str
    name: str
    field: str
    reason: str
    ours: str
    theirs: str
    objects: int = 1
    intended: str = ""
    """Why, if the difference is known."""

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for differences that count as one."""
        return (self.kind, self.namespace, self.name, self.field, self.reason)


class ShadowReport(Struct, frozen=True):
    """The result of all comparisons: numbers of objects by result, and the differences."""

    counts: dict[str, int] = {}
    differences: tuple[Difference, ...] = ()


class Expected(NamedTuple):
    """The owned fields of an object before and after our decision."""

    before: Fields
    ours: Fields
    codes: tuple[str, ...]
    """The codes of the warnings."""
    policies: int
    """The number of matching policies."""
    refusal: str | None


class Shadow:
    """The tallies; ``on_change`` is called when there is more to report."""

    def __init__(self, on_change: Callable[[], object], clock: Clock = time.monotonic) -> None:
        self._on_change, self._clock = on_change, clock
        # By owner: what is expected of equal objects, and when each was seen, in seconds.
        self._pending: dict[bytes, list[tuple[Expected, list[float]]]] = {}
        self._counts = Counter({EQUAL: 0, DIFFERENT: 0, UNPAIRED: 0, MORE: 0})
        self._differences: dict[tuple[str, ...], Difference] = {}
        self._bytes = 0
        self._log = get_logger("shadow")

    def restore(self, report: ShadowReport) -> None:
        """Continue with what was reported before a restart."""
        self._counts.update(report.counts)
        for difference in report.differences:
            self._add(difference)

    def report(self) -> ShadowReport:
        """Return the report of all comparisons until now."""
        return ShadowReport(dict(self._counts), tuple(self._differences.values()))

    def observe(
        self, body: ReviewBody, engine: Engine, decision: Decision, *, is_first: bool
    ) -> bytes:
        """Keep or compare the object of ``body``, and return an answer that leaves it as it is."""
        review = Review()
        try:
            review = body.review()
            request = review.request
            if request is not None and request.has_object and not request.is_dry_run:
                self._note(request, engine, decision.verdict, is_first=is_first)
        except Exception:  # noqa: BLE001 - logged with its traceback; a defect must stop no pod
            self._log.exception("object not compared")
        uid = review.request.uid if review.request else ""
        return encode_review(review.api_version, uid, allow())

    def _note(self, request: Request, engine: Engine, verdict: Verdict, *, is_first: bool) -> None:
        kind = KINDS.get(request.kind_key)
        if kind is None:
            return
        document, namespace = _decode(request.object), request.namespace or ""
        metadata = document["metadata"]
        owners = msgspec.convert(metadata.get("ownerReferences") or (), tuple[OwnerReference, ...])
        owner = next((reference for reference in owners if reference.controller), None)
        name = metadata.get("generateName") or metadata.get("name") or ""
        named_by = (kind.name, namespace, name, owner.uid if owner else "")
        key = hashlib.blake2b(_encode(named_by), digest_size=16).digest()
        fields = projection(document, kind)
        if is_first:
            response, policies = verdict.response, len(verdict.policies)
            if response.patch:
                apply(document, _operations(response.patch))
            refusal = None if response.allowed else cut(response.reason or "", _SHOWN)
            ours = projection(document, kind)
            self._expect(key, Expected(fields, ours, verdict.codes, policies, refusal))
            return
        self._on_change()
        expected = self._take_pair(key, fields)
        if expected is None:
            self._counts[UNPAIRED] += 1
            return
        top = _workload(owner, metadata.get("labels") or {}) if owner else (kind.name, name)
        known = engine.snapshot.namespace(namespace)
        if known and known.labels.get("role") == "kube-system":
            gap = "kupid-excluded-namespace"
        elif (kind.name if kind.is_template else top[0]) not in _OF_KUPID:
            gap = "kupid-excluded-kind"
        else:
            gap = "" if kind.is_template else NOT_BY_TEMPLATE
        differences = compare(expected, fields, gap)
        self._counts[DIFFERENT if differences else EQUAL] += 1
        kind_name, namespace, name = (cut(text, _NAME) for text in (top[0], namespace, top[1]))
        for difference in differences:
            self._add(Difference(kind_name, namespace, name, *difference))

    def _expect(self, key: bytes, expected: Expected) -> None:
        waiting = self._pending.pop(key, [])
        times = next((times for known, times in waiting if known == expected), None)
        if times is None:
            waiting.append((expected, times := []))
        times.append(self._clock())
        self._pending[key], gone = waiting[-MAX_OF_OWNER:], waiting[:-MAX_OF_OWNER]
        if sum(map(len, self._pending.values())) > MAX_PENDING:
            gone += self._pending.pop(next(iter(self._pending)))
        self._counts[UNPAIRED] += sum(len(times) for _, times in gone)

    def _take_pair(self, key: bytes, theirs: Fields) -> Expected | None:
        """Take the waiting object of the owner that differs least from ``theirs``."""
        waiting = self._pending.pop(key, None)
        if waiting is None:
            return None
        expected, times = min(waiting, key=lambda item: len(item[0].ours.items() ^ theirs.items()))
        times.pop()
        if left := [item for item in waiting if item[1]]:
            self._pending[key] = left
        return expected

    def expire(self) -> None:
        """Count objects as unpaired that have not come again for PAIR_SECONDS."""
        limit, pending, self._pending = self._clock() - PAIR_SECONDS, self._pending, {}
        for key, waiting in pending.items():
            for expected, times in waiting:
                if left := [at for at in times if at > limit]:
                    self._pending.setdefault(key, []).append((expected, left))
                if left != times:
                    self._counts[UNPAIRED] += len(times) - len(left)
                    self._on_change()

    def _add(self, difference: Difference) -> None:
        known = self._differences.get(difference.key)
        if known is not None:
            self._differences[difference.key] = replace(
                known, objects=known.objects + difference.objects
            )
            return
        difference = replace(difference, intended=INTENDED.get(difference.reason, ""))
        size = self._bytes + len(_encode(difference))
        if len(self._differences) < MAX_DIFFERENCES and size <= MAX_BYTES:
            self._differences[difference.key], self._bytes = difference, size
        else:
            self._counts[MORE] += difference.objects


async def keep_written(
    shadow: Shadow, changed: asyncio.Event, client: Client, namespace: str
) -> None:
    """Write the report to our ConfigMap after changes, at most every few seconds.

    It continues the one that is there.
    """
    log = get_logger("shadow")
    is_read = False
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), PAIR_SECONDS)
        shadow.expire()
        if not changed.is_set():
            continue
        changed.clear()
        try:
            if not is_read:
                former, is_read = await client.get(CONFIG_MAPS, CONFIG_MAP, namespace), True
                shadow.restore(report_in(former))
            patch = MergePatch({"data": {REPORT: _encode(shadow.report()).decode()}})
            await client.patch(CONFIG_MAPS, CONFIG_MAP, patch, namespace)
        except (ApiError, msgspec.MsgspecError) as error:
            # The next write replaces a malformed former report, and no other.
            log.warning("report not written, trying again", error=str(error))
            changed.set()
        await asyncio.sleep(WRITE_SECONDS)


def report_in(config_map: bytes) -> ShadowReport:
    """The report that a ConfigMap holds, at first an empty one. Raises MsgspecError."""
    data = _decode(config_map).get("data") or {}
    return msgspec.json.decode(data.get(REPORT, "{}"), type=ShadowReport)


def projection(document: Json, kind: Kind) -> Fields:
    """Return the fields that policies and gates write, as text that is equal for equal meaning."""
    spec = document
    for name in kind.pointer.split("/")[1:]:
        spec = spec.get(name) or {}
    at = kind.path
    fields = {f"{at}.{name}": _text(spec.get(name)) for name in _POLICY_FIELDS}
    if spec.get("schedulerName") == DEFAULT_SCHEDULER:
        del fields[f"{at}.schedulerName"]
    if not kind.is_template:
        # Those of the API server, which policies replace here.
        others = [item for item in spec.get(TOLERATIONS) or () if item not in DEFAULTS.values()]
        fields[f"{at}.{TOLERATIONS}"] = _text(others)
        gates = [
            scheduling_gate.get("name") for scheduling_gate in spec.get("schedulingGates") or ()
        ]
        fields[_GATES] = _text([gate for gate in gates if gate != GATE])
        fields[_OUR_GATE] = "present" if GATE in gates else ""
        annotations = document["metadata"].get("annotations") or {}
        for key in READ_KEYS & annotations.keys():
            fields[f"metadata.annotations[{key}]"] = _text(annotations[key])
    for name, text in fields.items():
        if len(text) > _KEPT:
            fields[name] = f"{text[:_SHOWN]} {hashlib.sha256(text.encode()).hexdigest()}"
    return {name: text for name, text in fields.items() if text}


def compare(expected: Expected, theirs: Fields, gap: str) -> list[tuple[str, str, str, str]]:
    """Fields that differ, each with the reason and both values.

    ``gap`` is the reason, if there is a known one, for which kupid does not change the object.
    """
    before, ours, codes, policies, refusal = expected
    if refusal is not None:
        return [("", REFUSED, refusal, "admitted")]
    differences = []
    for field in sorted(ours.keys() | theirs.keys()):
        mine, their, former = (fields.get(field, "") for fields in (ours, theirs, before))
        if mine == their:
            continue
        way = ONLY_OURS if their == former else ONLY_THEIRS if mine == former else BOTH
        at, _, name = field.rpartition(".")
        node = f"{at}.nodeName"
        reason = ""
        if field == _GATES:
            gates, left = (set(text.strip("[]").split(", ")) - {""} for text in (mine, their))
            if gates <= left:
                continue  # added by others
            # What is kept by its hash does not say which gates are missing.
            reason = "other-gates" if {mine[-1:], their[-1:]} <= {"", "]"} else ""
        elif name not in _POLICY_FIELDS or f'"{SCHEDULER_NAME}"' in {mine, their}:
            reason = next((code for code in codes if code in INTENDED), "")
        elif (
            _OUR_GATE in ours and name in {"nodeName", "affinity"} and node in theirs.keys() - ours
        ):
            reason = "node-name-as-affinity"
        elif way == ONLY_OURS:
            reason = gap or ("default-scheduler" if name == "schedulerName" else "")
        elif way == BOTH and policies > 1:
            reason = "policy-order"
        differences.append((field, reason or way, cut(mine, _SHOWN), cut(their, _SHOWN)))
    return differences


def _workload(owner: OwnerReference, labels: dict[str, str]) -> tuple[str, str]:
    """Kind and name of what an object of this owner belongs to."""
    kind, name = workload_above(owner, labels)
    of_cron_job = _OF_CRON_JOB.sub("", name)
    return ("CronJob", of_cron_job) if kind == "Job" and of_cron_job != name else (kind, name)


def _text(value: Any, name: str = "") -> str:  # noqa: ANN401 - any JSON
    """A value as text; the order of lists and what is set twice make no difference."""
    if value in (None, "", [], {}):
        return ""
    if isinstance(value, dict):
        items = ((key, _text(item, key)) for key, item in sorted(value.items()))
        return f"{{{', '.join(f'{key}: {text}' for key, text in items if text)}}}"
    if isinstance(value, list):
        if name == "nodeSelectorTerms" and len(value) <= _ABSORBED:
            # A term that requires more than another one adds nothing.
            keys = [node_term_key(term) for term in value]
            kept = [not any(narrower < key for narrower in keys) for key in keys]
            value = compress(value, kept)
        return f"[{', '.join(sorted({_text(item) for item in value}))}]"
    return _encode(value).decode()
