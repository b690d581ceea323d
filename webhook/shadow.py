"""Shadow mode: what kupid and Keptn did with an object, compared with what we would have done.

The first mutating webhook sees an object before all others and decides on it as ever, but answers
without a patch. The validating one sees the same object after them. Differences are counted by
owner, field and reason. Nothing here changes or refuses an object.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.patches import MergePatch, Operation, apply
from harbourmaster.api.resources import CONFIG_MAPS
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import READ_KEYS
from harbourmaster.gates.owners import workload_above
from harbourmaster.kube.errors import ApiError
from harbourmaster.policies.keys import node_term_key
from harbourmaster.policies.merge import DEFAULT_SCHEDULER
from harbourmaster.policies.pods import KINDS
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.webhook.review import Review, allowed, cut, decode_review, encode_review

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.kube.client import Client
    from harbourmaster.policies.pods import Kind
    from harbourmaster.webhook.engine import Engine, Verdict
    from harbourmaster.webhook.handlers import Decision
    from harbourmaster.webhook.review import GroupVersionKind, Request

    Json = dict[str, Any]
    Fields = dict[str, str]

CONFIG_MAP: Final = "harbourmaster-shadow"
"""In our namespace; its key REPORT has a ShadowReport as JSON."""
REPORT: Final = "report.json"
MAX_DIFFERENCES: Final = 1000
"""Of different owners, fields or reasons; more are only counted."""
MAX_PENDING: Final = 4096
"""Objects that are between the two webhooks."""
PAIR_SECONDS: Final = 60.0
"""The longest that the API server takes from one webhook to the other."""
ONLY_OURS: Final = "only-harbourmaster"
ONLY_THEIRS: Final = "only-kupid-or-keptn"
BOTH: Final = "different-values"
REFUSED: Final = "refused"
INTENDED: Final = {
    "kupid-excluded-namespace": "kupid excludes namespaces with the label role=kube-system",
    "kupid-excluded-kind": "kupid changes templates of fewer kinds, and no pods",
    "older-template": "kupid changes a template only when it is written again; pods of a template "
    "that is older than the policy get it all the same",
    "default-scheduler": "a policy replaces schedulerName: default-scheduler",
    "policy-order": "kupid applies several policies in random order",
    "node-name-as-affinity": "a pod that waits at a gate gets a policy's nodeName as node affinity",
    "other-gates": "Keptn removes scheduling gates of others, which are kept",
    "owner-unknown": "a pod whose owner is not known yet waits, Keptn admits it without a gate",
    "container-missing": "a pod without the container that keptn.sh/container names has a hash as "
    "its version, Keptn admits it without a gate",
    "names-node": "a pod with spec.nodeName cannot wait at a gate",
}
"""The reasons of differences that are known, with what they are."""
_NOTES: Final = {
    "gate-owner-unknown": "owner-unknown",
    "gate-container-missing": "container-missing",
    "gate-node-name": "names-node",
}
"""Reasons by the code of the warning that our answer has."""
_OF_KUPID: Final = frozenset(("DaemonSet", "Deployment", "StatefulSet", "Job", "CronJob"))
_POLICY_FIELDS: Final = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")
_GATES: Final = "spec.schedulingGates"
_OUR_GATE: Final = f"{_GATES}[{GATE}]"
_KUPID_EXCLUDED: Final = ("role", "kube-system")
_OF_CRON_JOB: Final = re.compile(r"-\d{8,}$")
_SHOWN: Final = 100
_KEPT: Final = 200
"""Characters of a value; a longer one is kept by its hash."""
_WRITE_SECONDS: Final = 5.0
"""Between two writes of the report."""


class _Meta(Struct, frozen=True, rename="camel"):
    name: str = ""
    generate_name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


_decode: Final = msgspec.json.Decoder().decode
_operations: Final = msgspec.json.Decoder(list[Operation]).decode
_encode_value: Final = msgspec.json.Encoder().encode


class Difference(Struct, frozen=True, rename="camel"):
    """One field in which the objects of one owner differ; ``ours`` and ``theirs`` are of the first.

    They are shortened, and empty where the field is not set.
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
    """Why it is no fault, if that is known."""

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for differences that count as one."""
        return (self.kind, self.namespace, self.name, self.field, self.reason)


class ShadowReport(Struct, frozen=True):
    """What was compared; ``more`` counts differences beyond MAX_DIFFERENCES."""

    compared: int = 0
    equal: int = 0
    different: int = 0
    unpaired: int = 0
    """Objects that only one of the two webhooks saw: refused by others, or while we started."""
    more: int = 0
    differences: tuple[Difference, ...] = ()


class Expected(NamedTuple):
    """What an object was, and would be with us."""

    at: float
    before: Fields
    ours: Fields
    codes: tuple[str, ...] = ()
    """Of the warnings."""
    policies: int = 0
    """How many match."""
    refusal: str | None = None


class Shadow:
    """The tallies; ``on_change`` is called when there is more to report."""

    def __init__(
        self, on_change: Callable[[], object], clock: Callable[[], float] = monotonic
    ) -> None:
        self._on_change = on_change
        self._clock = clock
        self._pending: dict[tuple[str, ...], list[Expected]] = {}
        self._order: deque[tuple[float, tuple[str, ...]]] = deque()
        self._counts = dict.fromkeys(("compared", "equal", "different", "unpaired", "more"), 0)
        self._differences: dict[tuple[str, ...], Difference] = {}
        self._log = get_logger("shadow")

    def restore(self, report: ShadowReport) -> None:
        """Continue with what was reported before a restart."""
        for name in self._counts:
            self._counts[name] += getattr(report, name)
        self._differences = {each.key: each for each in report.differences} | self._differences

    def report(self) -> ShadowReport:
        """What was found until now."""
        return ShadowReport(**self._counts, differences=tuple(self._differences.values()))

    def observe(
        self, body: bytes, engine: Engine, decision: Decision, *, is_first: bool
    ) -> tuple[bytes, Decision]:
        """Keep or compare what ``decision`` is on, and answer that the object passes as it is."""
        review = Review()
        try:
            review = decode_review(body)
            if review.request is not None and not review.request.dry_run:
                self._note(review.request, engine, decision.verdict, is_first=is_first)
        except Exception:  # noqa: BLE001 - logged with its traceback; a defect must stop no pod
            self._log.exception("object not compared")
        uid = review.request.uid if review.request else ""
        return encode_review(review.api_version, uid, allowed()), decision

    def _note(self, request: Request, engine: Engine, verdict: Verdict, *, is_first: bool) -> None:
        kind = _kind_of(request.kind)
        if kind is None or not request.has_object:
            return
        document = _decode(request.object)
        metadata = msgspec.convert(document["metadata"], _Meta)
        namespace, name = request.namespace or "", metadata.generate_name or metadata.name
        owner = next((each for each in metadata.owner_references if each.controller), None)
        key = (kind.name, namespace, name, owner.uid if owner else "")
        self._expire()
        if is_first:
            now, before, response = self._clock(), projection(document, kind), verdict.response
            if response.patch:
                apply(document, _operations(response.patch))
            expected = Expected(
                now,
                before,
                projection(document, kind),
                verdict.codes,
                len(verdict.policies),
                None if response.allowed else cut(response.reason or "", _SHOWN),
            )
            self._pending.setdefault(key, []).append(expected)
            self._order.append((now, key))
            return
        self._on_change()
        found = self._pending.get(key)
        if not found:
            self._counts["unpaired"] += 1
            return
        # The last: of requests for one object that were refused, nothing came here.
        expected = found.pop()
        if not found:
            del self._pending[key]
        top = _workload(owner, metadata.labels) if owner else (kind.name, name)
        known = engine.snapshot.namespace(namespace)
        labels = known.labels if known else {}
        differences = compare(expected, projection(document, kind), kind.name, top[0], labels)
        self._counts["compared"] += 1
        self._counts["different" if differences else "equal"] += 1
        for field, reason, ours, theirs in differences:
            self._add(Difference(top[0], namespace, top[1], field, reason, ours, theirs))

    def _add(self, one: Difference) -> None:
        known = self._differences.get(one.key)
        if known is not None:
            one = msgspec.structs.replace(known, objects=known.objects + 1)
        elif len(self._differences) >= MAX_DIFFERENCES:
            self._counts["more"] += 1
            return
        else:
            one = msgspec.structs.replace(one, intended=INTENDED.get(one.reason, ""))
        self._differences[one.key] = one

    def _expire(self) -> None:
        """Forget objects that did not come again."""
        limit = self._clock() - PAIR_SECONDS
        while self._order and (self._order[0][0] < limit or len(self._order) > MAX_PENDING):
            at, key = self._order.popleft()
            found = self._pending.get(key)
            if found and found[0].at <= at:
                del found[0]
                self._counts["unpaired"] += 1
                if not found:
                    del self._pending[key]


async def keep_written(
    shadow: Shadow, changed: asyncio.Event, client: Client, namespace: str
) -> None:
    """Write the report to our ConfigMap after changes, at most every few seconds."""
    log = get_logger("shadow")
    try:
        former = report_in(await client.get(CONFIG_MAPS, CONFIG_MAP, namespace))
        shadow.restore(former or ShadowReport())
    except (ApiError, msgspec.MsgspecError) as error:
        log.warning("former report not read, starting at zero", error=str(error))
    while True:
        await changed.wait()
        changed.clear()
        text = str(_encode_value(shadow.report()), "utf-8")
        try:
            patch = MergePatch({"data": {REPORT: text}})
            await client.patch(CONFIG_MAPS, CONFIG_MAP, patch, namespace)
        except ApiError as error:
            log.warning("report not written", error=str(error))
            changed.set()
        await asyncio.sleep(_WRITE_SECONDS)


def report_in(config_map: bytes) -> ShadowReport | None:
    """The report that a ConfigMap holds; None if it holds none. Raises MsgspecError."""
    text = (_decode(config_map).get("data") or {}).get(REPORT)
    return msgspec.json.decode(text, type=ShadowReport) if text else None


def projection(document: Json, kind: Kind) -> Fields:
    """What policies and gates write of an object, as text that is equal for equal meaning."""
    spec = document
    for name in kind.pointer.split("/")[1:]:
        spec = spec.get(name) or {}
    at = kind.pointer[1:].replace("/", ".")
    found = {f"{at}.{name}": _text(spec.get(name)) for name in _POLICY_FIELDS}
    if spec.get("schedulerName") == DEFAULT_SCHEDULER:
        del found[f"{at}.schedulerName"]
    if not kind.is_template:
        gates = [each.get("name") for each in spec.get("schedulingGates") or ()]
        found[_GATES] = _text([each for each in gates if each != GATE])
        found[_OUR_GATE] = "present" if GATE in gates else ""
        annotations = document["metadata"].get("annotations") or {}
        for key in READ_KEYS & annotations.keys():
            found[f"metadata.annotations[{key}]"] = _text(annotations[key])
    return {name: _kept(text) for name, text in found.items() if text}


def compare(
    expected: Expected,
    theirs: Fields,
    kind: str,
    owner_kind: str,
    namespace_labels: Mapping[str, str],
) -> list[tuple[str, str, str, str]]:
    """Fields that differ, each with the reason and both values.

    ``owner_kind`` is that of the topmost owner that is known, or of the object itself.
    """
    if expected.refusal is not None:
        return [("", REFUSED, expected.refusal, "admitted")]
    before, ours = expected.before, expected.ours
    found = []
    for field in sorted(ours.keys() | theirs.keys()):
        mine, other, former = (each.get(field, "") for each in (ours, theirs, before))
        if mine == other:
            continue
        way = ONLY_OURS if other == former else ONLY_THEIRS if mine == former else BOTH
        if field.rpartition(".")[2] not in _POLICY_FIELDS:
            reason = _gate_reason(field, expected)
        elif _is_node_name(field, expected, theirs):
            reason = "node-name-as-affinity"
        elif way == ONLY_OURS:
            reason = _kupid_reason(field, kind, owner_kind, namespace_labels)
        else:
            reason = "policy-order" if way == BOTH and expected.policies > 1 else ""
        found.append((field, reason or way, cut(mine, _SHOWN), cut(other, _SHOWN)))
    return found


def _gate_reason(field: str, expected: Expected) -> str:
    if field == _GATES:
        return "other-gates"
    return next((_NOTES[code] for code in expected.codes if code in _NOTES), "")


def _is_node_name(field: str, expected: Expected, theirs: Fields) -> bool:
    """Whether both force the pod to a node, they by its name and we by affinity."""
    at, _, name = field.rpartition(".")
    before, ours = expected.before, expected.ours

    def has_changed(fields: Fields, one: str) -> bool:
        return fields.get(f"{at}.{one}", "") != before.get(f"{at}.{one}", "")

    return (
        name in {"nodeName", "affinity"}
        and has_changed(theirs, "nodeName")
        and has_changed(ours, "affinity")
        and not has_changed(ours, "nodeName")
    )


def _kupid_reason(
    field: str, kind: str, owner_kind: str, namespace_labels: Mapping[str, str]
) -> str:
    """Why only we change what policies own."""
    label, value = _KUPID_EXCLUDED
    if namespace_labels.get(label) == value:
        return "kupid-excluded-namespace"
    if owner_kind not in _OF_KUPID:
        return "kupid-excluded-kind"
    if kind not in _OF_KUPID:
        return "older-template"
    return "default-scheduler" if field.endswith(".schedulerName") else ""


def _workload(owner: OwnerReference, labels: Mapping[str, str]) -> tuple[str, str]:
    """Kind and name of what an object of this owner belongs to."""
    kind, name = workload_above(owner, labels)
    of_cron_job = _OF_CRON_JOB.sub("", name)
    return ("CronJob", of_cron_job) if kind == "Job" and of_cron_job != name else (kind, name)


def _kept(text: str) -> str:
    """A text that is equal for equal texts, and not long."""
    if len(text) <= _KEPT:
        return text
    return f"{text[:_SHOWN]} {hashlib.sha256(text.encode()).hexdigest()}"


def _kind_of(kind: GroupVersionKind | None) -> Kind | None:
    return KINDS.get((kind.group, kind.version, kind.kind)) if kind else None


def _text(value: Any, name: str = "") -> str:  # noqa: ANN401 - any JSON
    """A value as text; the order of lists and what is set twice make no difference."""
    if value in (None, "", [], {}):
        return ""
    if isinstance(value, dict):
        items = ((key, _text(each, key)) for key, each in sorted(value.items()))
        return f"{{{', '.join(f'{key}: {text}' for key, text in items if text)}}}"
    if isinstance(value, list):
        if name == "nodeSelectorTerms":
            keys = [node_term_key(each) for each in value]
            value = [
                each
                for each, key in zip(value, keys, strict=True)
                # One that requires more than another adds nothing.
                if not any(other < key for other in keys)
            ]
        return f"[{', '.join(sorted({_text(each) for each in value}))}]"
    return str(_encode_value(value), "utf-8")
