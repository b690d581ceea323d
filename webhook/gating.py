"""The decision whether a pod under review waits, where, and its patch (D7, keptn-spec 2.3).

It concerns pods that are created in a namespace with gates. No API is called: a pod whose owner is
not known yet gets a provisional gate, and the controller decides on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.gates.critical import SYSTEM_NAMESPACES, is_critical
from harbourmaster.gates.gate import (
    PROVISIONAL,
    SCHEDULER_NAME,
    annotation_operations,
    hold_operations,
    is_gated,
    removals,
)
from harbourmaster.gates.inheritance import tracking_by_parent, tracking_by_pod
from harbourmaster.gates.known_keys import STATE_KEYS
from harbourmaster.gates.metadata import CONTAINER_KEY, REMOVED_KEY, Metadata
from harbourmaster.gates.owners import supported_owner
from harbourmaster.gates.release import CHECKS_KEY, NONE, OURS
from harbourmaster.gates.stage_mistakes import scheduler_mistake, stage_mistakes
from harbourmaster.gates.stages import STAGED, STAGED_LABEL, STAGES_KEY
from harbourmaster.gates.waits import MET, WAIT_FOR_KEY, WAITED_KEY, waits_of
from harbourmaster.policies.merge import DEFAULT_SCHEDULER
from harbourmaster.policies.model import AdmissionWarning
from harbourmaster.policies.pods import is_absent, read_gates
from harbourmaster.webhook.parents import Lineage
from harbourmaster.webhook.review import MAX_WARNING, cut
from harbourmaster.webhook.reviewed_object import (
    ReviewedMeta,
    ReviewedSpec,
    annotations_of,
    containers_of,
    importance_of,
    labels_of,
    owners_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from harbourmaster.api.metadata import OwnerReference
    from harbourmaster.gates.inheritance import Tracking
    from harbourmaster.gates.version import Container
    from harbourmaster.webhook.parents import Parents
    from harbourmaster.webhook.reviewed_object import ReviewedObject

    Part = TypeVar("Part")
    Value = TypeVar("Value")


MAX_HASHED_BYTES: Final = 128 * 1024
"""The most bytes of a pod's containers that are hashed, which blocks other reviews for 6 ms."""


AT_GATE: Final = "gate"
WITH_SCHEDULER: Final = "scheduler"
"""The places where pods wait: at our gate, or with the scheduler that calls the extender."""


class Gating(Struct, frozen=True):
    """The decision of gates on one pod."""

    waits: str = ""
    """AT_GATE, WITH_SCHEDULER, or empty for a pod that does not wait."""
    operations: int = 0
    patch: bytes = b""
    """The operations as a JSON list."""
    warnings: tuple[AdmissionWarning, ...] = ()
    reason: str | None = None
    """Why the pod does not wait, where that is not a fault."""
    refusal: str = ""
    """Why the pod is denied."""
    is_computed: bool = False
    """Whether the decision depends on the containers, by the version."""
    lineage: Lineage | None = None
    """The owners from which the pod inherits, if they were looked up."""
    marks: frozenset[str] = frozenset()
    """The annotations that only we set, and that the pod does not have from us."""

    @property
    def is_gated(self) -> bool:
        """Whether the pod waits."""
        return bool(self.waits)


class GateRules(Struct, frozen=True):
    """The settings of gates: namespaces, places, versions and refusals."""

    is_on: bool = True
    allowed: frozenset[str] = frozenset()
    """Namespaces that alone may have gates; empty for all but the denied."""
    denied: frozenset[str] = frozenset()
    version_from_tag: bool = False
    waits: str = AT_GATE
    """The place for pods that could wait in either."""
    scheduler_name: str = SCHEDULER_NAME
    for_objects: bool = False
    """Whether pods wait for the objects that an annotation names."""
    denies_foreign: bool = False
    """Deny a pod that can't wait because it names a scheduler of its own."""
    denies_unknown: bool = False
    """Deny what has an unknown key of Keptn's or of ours."""
    hashed: str = ""
    """The hash of the pod's containers, in a recorded review that has not all of them."""

    def apply_in(self, namespace: str) -> bool:
        """Whether the settings let the namespace have gates."""
        if self.allowed:
            return self.is_on and namespace in self.allowed
        return self.is_on and namespace not in self.denied


class WaitsFor(NamedTuple):
    """The things that pods of a namespace may wait for."""

    checks: bool = True
    objects: bool = False
    """Whether pods may wait for the objects that an annotation names."""


FOR_CHECKS: Final = WaitsFor()
NOTHING: Final = WaitsFor(checks=False)


class _TooLargeError(Exception):
    """The version would take too long to compute while others wait for their answers."""


_EMPTY: Final = Raw(b"")


class _RawMetadata(Struct, frozen=True, gc=False, rename="camel"):
    annotations: Raw = _EMPTY
    labels: Raw = _EMPTY
    owner_references: Raw = _EMPTY


class _RawSpec(Struct, frozen=True, gc=False, rename="camel"):
    node_name: Raw = _EMPTY
    scheduler_name: Raw = _EMPTY
    scheduling_gates: Raw = _EMPTY
    priority: Raw = _EMPTY
    priority_class_name: Raw = _EMPTY
    tolerations: Raw = _EMPTY


class _Skeleton(Struct, frozen=True, gc=False):
    """A pod whose fields may have wrong types."""

    metadata: _RawMetadata = _RawMetadata()
    spec: _RawSpec = _RawSpec()


_GATES: Final = "spec.schedulingGates"
_OURS: Final = OURS.encode()
# With the quote: the key of a pod's stage begins as those of a template's stages.
_STATE_KEYS: Final = tuple(f'{key}"'.encode() for key in STATE_KEYS)
_LABELS: Final = "/metadata/labels"
_WAIT_FOR: Final = WAIT_FOR_KEY.encode()
_encode: Final = msgspec.json.Encoder().encode
_skeletons: Final = msgspec.json.Decoder(_Skeleton)
_texts: Final = msgspec.json.Decoder(str)
UNSUPPORTED: Final = Gating(reason="owner of pod is not supported by gates")
_UNTRACKED: Final = Gating(reason="neither the pod nor its owner names a workload")
_RELEASED: Final = Gating(reason="gate of pod is already removed")
_CRITICAL: Final = Gating(reason="critical add-ons are never gated")
_NAMES_NODE: Final = Gating(
    warnings=(AdmissionWarning("gate-node-name", "the pod names its node, so it can't wait"),),
)
FORBIDDEN: Final = Gating(
    warnings=(
        AdmissionWarning(
            "gate-wait-forbidden",
            f"pods of this namespace do not wait for objects: metadata.annotations[{WAIT_FOR_KEY}]"
            ": remove it, or ask an administrator to allow it",
        ),
    )
)
_TOO_LARGE: Final = AdmissionWarning(
    "gate-containers-large", "containers of that size are hashed by the controller, not here"
)


def gate(
    pod: ReviewedObject,
    labels: dict[str, str],
    namespace: str,
    parents: Parents,
    rules: GateRules,
    waits_for: WaitsFor = FOR_CHECKS,
) -> Gating:
    """Decide on a pod. Raises MalformedError where a field that counts has a wrong type.

    It starts without annotations that record how a pod waits, whether or not it waits.
    """
    gating, meta = _gate(pod, labels, namespace, parents, rules, waits_for), pod.metadata
    if gating.waits or not rules.is_on or meta is None or not find_keys(meta)[1]:
        return gating
    marks = STATE_KEYS & annotations_of(meta).keys()
    operations = removals(marks)
    patch = _encode(operations) if operations else b""
    return replace(gating, operations=len(operations), patch=patch, marks=marks)


def _gate(
    pod: ReviewedObject,
    labels: dict[str, str],
    namespace: str,
    parents: Parents,
    rules: GateRules,
    waits_for: WaitsFor,
) -> Gating:
    checked = UNSUPPORTED
    if waits_for.checks:
        checked = _gate_for_checks(
            pod, labels, namespace, parents, rules, forbids=not waits_for.objects
        )
    meta, spec = pod.metadata, pod.spec
    if meta is None or spec is None or not names_objects(meta.annotations):
        return checked
    if not waits_for.objects:
        return replace(checked, warnings=checked.warnings + FORBIDDEN.warnings)
    if checked.waits or checked.warnings:
        return checked
    waits = _gate_for_objects(annotations_of(meta), meta, spec, namespace, rules)
    return replace(waits, lineage=checked.lineage) if waits is not None else checked


def find_keys(of: Raw | ReviewedMeta | None) -> tuple[bool, bool]:
    """Whether annotations may name objects to wait for, and may record how a pod waits."""
    data = bytes(of.annotations if isinstance(of, ReviewedMeta) else of or b"")
    if _OURS not in data:
        return False, False
    return _WAIT_FOR in data, any(key in data for key in _STATE_KEYS)


def names_objects(annotations: Raw) -> bool:
    """Whether these may have the annotation that names what a pod waits for."""
    return _WAIT_FOR in bytes(annotations)


def _gate_for_objects(
    annotations: dict[str, str],
    meta: ReviewedMeta,
    spec: ReviewedSpec,
    namespace: str,
    rules: GateRules,
) -> Gating | None:
    """For a pod that has no checks; None for one that waits for no objects."""
    if waits_of(annotations) is None:
        return None
    if annotations.get(REMOVED_KEY):
        return _RELEASED
    if namespace in SYSTEM_NAMESPACES and is_critical(namespace, annotations, importance_of(spec)):
        return _CRITICAL
    if spec.node_name:
        return _NAMES_NODE
    gates = read_gates(spec.scheduling_gates, _GATES)
    present = _Present(annotations, meta.annotations, gates, spec.scheduler_name or "")
    return _place(present, {CHECKS_KEY: NONE}, (), rules)


def _gate_for_checks(
    pod: ReviewedObject,
    labels: dict[str, str],
    namespace: str,
    parents: Parents,
    rules: GateRules,
    *,
    forbids: bool,
) -> Gating:
    """Decide on a pod of a namespace with gates for checks; ``forbids``: to wait for objects."""
    meta, spec = pod.metadata, pod.spec
    if meta is None or spec is None:
        return UNSUPPORTED
    owner = supported_owner(owners_of(meta))
    if owner is None:
        return UNSUPPORTED
    annotations = annotations_of(meta)
    if annotations.get(REMOVED_KEY) or labels.get(REMOVED_KEY):
        return _RELEASED
    if namespace in SYSTEM_NAMESPACES and is_critical(namespace, annotations, importance_of(spec)):
        return _CRITICAL
    containers = _Containers(spec)
    lineage = None
    metadata = Metadata(annotations, labels)
    try:
        tracking = tracking_by_pod(
            metadata,
            containers.read,
            version_from_tag=rules.version_from_tag,
            hashed=rules.hashed,
        )
        if tracking is None:
            lineage = parents.of(owner, namespace)
            if lineage.metadata is not None:
                tracking = tracking_by_parent(
                    metadata,
                    lineage.metadata,
                    containers.read,
                    version_from_tag=rules.version_from_tag,
                    hashed=rules.hashed,
                )
            if tracking is None and lineage.is_known:
                return replace(_UNTRACKED, lineage=lineage)
        added, warnings = (
            _provisional_annotations(owner) if tracking is None else _tracking_annotations(tracking)
        )
    except _TooLargeError:
        added, warnings = PROVISIONAL, (_TOO_LARGE,)
    if spec.node_name:
        return _NAMES_NODE
    gates, named = read_gates(spec.scheduling_gates, _GATES), spec.scheduler_name or ""
    present = _Present(annotations, meta.annotations, gates, named, forbids, labels, meta.labels)
    gating = _place(present, added, warnings, rules)
    return replace(gating, lineage=lineage, is_computed=containers.were_read)


class _Containers:
    """The containers of a pod, decoded where they are asked for; ``read`` raises TooLargeError."""

    def __init__(self, spec: ReviewedSpec) -> None:
        self._spec = spec
        self.were_read = False

    def read(self) -> tuple[Container, ...]:
        self.were_read = True
        if memoryview(self._spec.containers).nbytes > MAX_HASHED_BYTES:
            raise _TooLargeError
        return containers_of(self._spec)


class _Present(Struct, frozen=True):
    """The present values of the fields that are patched."""

    annotations: Mapping[str, str]
    raw: Raw
    """The annotations as they came."""
    gates: list[Any] | None
    scheduler_name: str
    forbids_waits: bool = False
    """Whether it is not to wait for objects, whatever it names."""
    labels: Mapping[str, str] | None = None
    """None where it does not wait for checks, or they cannot be read."""
    raw_labels: Raw = _EMPTY

    def stage_operations(self, waits: str) -> list[dict[str, Any]]:
        """Return the operations that label the pod as one that is released in stages, or not."""
        labels, held = self.labels, self.annotations
        if labels is None:
            return []
        if waits != AT_GATE or STAGES_KEY not in held or any(stage_mistakes(held, "")):
            return removals((STAGED_LABEL,), _LABELS) if STAGED_LABEL in labels else []
        added = {STAGED_LABEL: STAGED} if labels.get(STAGED_LABEL) != STAGED else {}
        has_labels = not is_absent(self.raw_labels)
        return annotation_operations(added, has_annotations=has_labels, at=_LABELS)


def fixed_gating(
    data: bytes | Raw,
    namespace: str,
    warning: AdmissionWarning,
    rules: GateRules,
    waits_for: WaitsFor = FOR_CHECKS,
) -> Gating:
    """The patch of a pod on which nothing could be decided: the controller does it (decision D7).

    Only a pod that certainly need not wait, or can't, gets none. ``warning`` says what went wrong.
    Raises MalformedError where no patch fits.
    """
    pod = decode(_skeletons, data, "")
    meta, spec = pod.metadata, pod.spec
    raw = meta.annotations
    annotations = _read_or_none(annotations_of, ReviewedMeta(annotations=raw)) or {}
    if not waits_for.objects or waits_of(annotations) is None:
        if not waits_for.checks or is_absent(meta.owner_references):
            return UNSUPPORTED
        owners = _read_or_none(owners_of, ReviewedMeta(owner_references=meta.owner_references))
        if owners is not None and supported_owner(owners) is None:
            return UNSUPPORTED
    if annotations.get(REMOVED_KEY):
        return _RELEASED
    if namespace in SYSTEM_NAMESPACES:
        importance = _read_or_none(importance_of, _importance_fields(spec))
        if importance is not None and is_critical(namespace, annotations, importance):
            return _CRITICAL
    if _read_or_none(_text, spec.node_name):
        return Gating()
    if not is_absent(raw) and not bytes(raw).startswith(b"{"):
        raise MalformedError("metadata.annotations: expected object")
    gates = read_gates(spec.scheduling_gates, _GATES)
    named = _read_or_none(_text, spec.scheduler_name) or ""
    told = AdmissionWarning(
        warning.code, f"{warning.text}; the pod waits until the controller has decided"
    )
    labels = _read_or_none(labels_of, ReviewedMeta(labels=meta.labels))
    labels, forbids = labels if waits_for.checks else None, not waits_for.objects
    present = _Present(annotations, raw, gates, named, forbids, labels, meta.labels)
    gating = _place(present, PROVISIONAL, (told,), rules)
    return gating if gating.waits else replace(gating, warnings=(warning, *gating.warnings))


def _place(
    present: _Present,
    added: Mapping[str, str],
    warnings: tuple[AdmissionWarning, ...],
    rules: GateRules,
) -> Gating:
    """Let a pod wait where it can, and never in two places."""
    named, ours = present.scheduler_name, rules.scheduler_name
    waits, scheduler_name = AT_GATE, None
    if present.gates is None or not is_gated(present.gates):
        if named == ours:
            waits, scheduler_name = WITH_SCHEDULER, ""
            if rules.waits == AT_GATE:
                text = (
                    f"the pod names {ours}, so it waits there without a gate, if that scheduler "
                    "calls the extender"
                )
                warnings = (*warnings, AdmissionWarning("gate-scheduler-named", text))
        elif rules.waits == WITH_SCHEDULER:
            if named not in {"", DEFAULT_SCHEDULER}:
                return _foreign_scheduler(named, rules)
            waits, scheduler_name = WITH_SCHEDULER, ours
    held = present.annotations
    if waits == WITH_SCHEDULER and STAGES_KEY in held:
        mistake = scheduler_mistake(is_set=rules.waits == WITH_SCHEDULER)
        warnings = (*warnings, AdmissionWarning(mistake.code, mistake.text))
    if present.forbids_waits and WAIT_FOR_KEY in held:
        added = {WAITED_KEY: MET, **added}
    missing = {key: value for key, value in added.items() if held.get(key) != value}
    # When the API server asks again, the pod has those that admission set.
    marks = frozenset(key for key in STATE_KEYS & held.keys() if held[key] != added.get(key))
    operations = hold_operations(
        missing,
        has_annotations=not is_absent(present.raw),
        gates=present.gates,
        scheduler_name=scheduler_name,
        removed=marks - added.keys(),
    )
    operations += present.stage_operations(waits)
    patch = _encode(operations) if operations else b""
    return Gating(waits, len(operations), patch, warnings, marks=marks)


def _foreign_scheduler(named: str, rules: GateRules) -> Gating:
    shown, ours = cut(named, MAX_WARNING // 4), rules.scheduler_name
    text = f'the pod names the scheduler "{shown}", so it can\'t wait with {ours}'
    refusal = ""
    if rules.denies_foreign:
        refusal = f"{text}: leave out spec.schedulerName, or set onForeignScheduler: ignore"
    return Gating(warnings=(AdmissionWarning("gate-foreign-scheduler", text),), refusal=refusal)


def _provisional_annotations(
    owner: OwnerReference,
) -> tuple[Mapping[str, str], tuple[AdmissionWarning, ...]]:
    shown = cut(f"{owner.kind} {owner.name}", MAX_WARNING // 2)
    text = f"{shown} or its owner is not known yet: the controller decides whether the pod waits"
    return PROVISIONAL, (AdmissionWarning("gate-owner-unknown", text),)


def _tracking_annotations(
    tracking: Tracking,
) -> tuple[Mapping[str, str], tuple[AdmissionWarning, ...]]:
    if not tracking.missing_container:
        return tracking.annotations, ()
    shown = cut(tracking.missing_container, MAX_WARNING // 2)
    text = f'{CONTAINER_KEY}: the pod has no container "{shown}", its version is a hash'
    return tracking.annotations, (AdmissionWarning("gate-container-missing", text),)


def _importance_fields(spec: _RawSpec) -> ReviewedSpec:
    return ReviewedSpec(
        priority=spec.priority,
        priority_class_name=spec.priority_class_name,
        tolerations=spec.tolerations,
    )


def _text(raw: Raw) -> str:
    return decode(_texts, raw, "")


def _read_or_none(read: Callable[[Part], Value], part: Part) -> Value | None:
    try:
        return read(part)
    except MalformedError:
        return None
