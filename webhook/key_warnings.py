"""The keys of gates on objects under review: the wait that a template inherits, and warnings.

The warnings are on keys that were meant for gates and have no effect (decision D19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.decoding import MalformedError, decode_texts
from harbourmaster.gates.gate import annotation_operations, removals
from harbourmaster.gates.known_keys import PREFIXES
from harbourmaster.gates.metadata import Metadata
from harbourmaster.gates.mistakes import (
    WAIT_SHADOWED,
    key_mistakes,
    kind_mistakes,
    owner_mistakes,
    state_mistakes,
)
from harbourmaster.gates.owners import DAEMON_SET, REPLICA_SET, SUPPORTED
from harbourmaster.gates.stage_mistakes import (
    StagedWorkload,
    Strategy,
    scheduler_mistake,
    stage_mistakes,
    workload_mistakes,
)
from harbourmaster.gates.stages import STAGE_KEY, STAGES_KEY
from harbourmaster.gates.waits import inherit_wait
from harbourmaster.policies.model import AdmissionWarning
from harbourmaster.policies.pods import is_absent
from harbourmaster.rescheduling.model import NEVER_EVICT
from harbourmaster.webhook.gating import WITH_SCHEDULER, Gating
from harbourmaster.webhook.reviewed_object import annotations_of, labels_of, owners_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from msgspec import Raw

    from harbourmaster.gates.mistakes import Mistake
    from harbourmaster.policies.pods import Kind, PodView
    from harbourmaster.webhook.gating import GateRules
    from harbourmaster.webhook.parents import Lineage
    from harbourmaster.webhook.reviewed_object import ReviewedMeta, ReviewedObject

_KEPTN, _OURS = (prefix.encode() for prefix in PREFIXES)
_TEMPLATE: Final = "annotations of the pod template"
_STAGE: Final = STAGE_KEY.encode()
"""The beginning of all keys of stages."""
_MARK: Final = NEVER_EVICT.encode()
_NAME: Final = "app.kubernetes.io/name"
_NONE: Final[dict[str, str]] = {}


def pod_warnings(
    pod: ReviewedObject, labels: dict[str, str], marks: Collection[str], is_foreign: bool
) -> tuple[AdmissionWarning, ...]:
    """Warn of a pod's keys, and of its owner if gates do not support it (``is_foreign``).

    ``marks``: the annotations that only we set, and that it does not have from us.
    """
    meta = pod.metadata
    if meta is None:
        return ()
    annotations = _keys(meta.annotations)
    labelled = labels if _is_ours(meta.labels) else _NONE
    mistakes = key_mistakes(annotations, labelled) if annotations or labelled else ()
    mistakes += (*state_mistakes(marks), *stage_mistakes(annotations, "metadata.annotations"))
    # A pod with an owner asks by our keys alone.
    is_bare = _NAME in labels and is_absent(meta.owner_references)
    if is_foreign and (annotations or labelled or is_bare):
        mistakes += owner_mistakes(annotations, labels, owners_of(meta))
    return warnings_of(mistakes) if mistakes else ()


def owner_warnings(lineage: Lineage | None) -> tuple[AdmissionWarning, ...]:
    """Warn of the keys of the owner that a pod would inherit from."""
    owner = None if lineage is None else lineage.metadata
    if owner is None:
        return ()
    at = "metadata.{} of the pod's owner"
    return warnings_of(key_mistakes(owner.annotations, owner.labels, at))


def object_warnings(
    kind: Kind, workload: ReviewedObject, pod: PodView
) -> tuple[AdmissionWarning, ...]:
    """Warn of the keys of a pod, or of a workload and its template."""
    meta = workload.metadata
    mistakes: tuple[Mistake, ...] = ()
    if meta is not None and (_is_ours(meta.annotations) or _is_ours(meta.labels)):
        mistakes = key_mistakes(_keys(meta.annotations), _keys(meta.labels))
    if not kind.is_template:
        return warnings_of(mistakes)
    annotations, labels = _keys(pod.annotations), pod.labels
    if annotations or any(key.startswith(PREFIXES) for key in labels):
        at = f"{kind.path.removesuffix('spec')}metadata"
        mistakes += key_mistakes(annotations, labels, f"{at}.{{}}")
        mistakes += state_mistakes(annotations, f"{at}.annotations")
        if kind.name not in SUPPORTED:
            mistakes += kind_mistakes(annotations, labels, kind.name, at)
    return warnings_of(mistakes)


def gating_of_template(kind: Kind, workload: ReviewedObject, pod: PodView) -> Gating:
    """Return the patch by which a template gets the wait of its workload's own metadata.

    It is empty for the ReplicaSet of a Deployment, whose controller compares the templates of both.
    Raises MalformedError.
    """
    meta = workload.metadata
    if meta is None or (kind.name == REPLICA_SET and not is_absent(meta.owner_references)):
        return Gating()
    has_annotations = not is_absent(pod.annotations)
    annotations = decode_texts(pod.annotations, _TEMPLATE) if has_annotations else _NONE
    added, removed, is_shadowed = inherit_wait(annotations_of(meta), annotations)
    at = kind.pointer.removesuffix("spec") + "metadata"
    template = kind.template_in(workload.spec)
    if template is not None and template.metadata is None and added:
        operations = [{"op": "add", "path": at, "value": {"annotations": added}}]
    else:
        at = f"{at}/annotations"
        operations = annotation_operations(added, has_annotations=has_annotations, at=at)
        operations += removals(removed, at)
    return Gating(
        operations=len(operations),
        patch=msgspec.json.encode(operations) if operations else b"",
        warnings=warnings_of((WAIT_SHADOWED,)) if is_shadowed else (),
    )


def stage_warnings(
    kind: Kind, workload: ReviewedObject, pod: PodView, rules: GateRules
) -> tuple[AdmissionWarning, ...]:
    """Warn of stages that do not work, and of settings that do not suit them.

    Raises MalformedError.
    """
    meta, spec = workload.metadata, workload.spec
    if meta is None or spec is None or pod.spec is None or kind.name not in SUPPORTED:
        return ()
    # A Deployment is warned, and not its ReplicaSets.
    texts = bytes(meta.annotations) + bytes(pod.annotations)
    if kind.name == REPLICA_SET or _STAGE not in texts:
        return ()
    template = Metadata(_keys(pod.annotations), pod.labels)
    is_set = rules.waits == WITH_SCHEDULER
    if STAGES_KEY in template.annotations and (
        is_set or pod.spec.scheduler_name == rules.scheduler_name
    ):
        return warnings_of((scheduler_mistake(is_set=is_set),))
    takes_ports = pod.spec.host_network or b'"hostPort"' in bytes(pod.spec.containers)
    staged = StagedWorkload(
        kind.name,
        Metadata(annotations_of(meta), labels_of(meta)),
        template,
        spec.strategy or spec.update_strategy or Strategy(),
        # Without a number, an autoscaler or the nodes decide.
        100 if spec.replicas is None else spec.replicas,
        spec.progress_deadline_seconds or 600,
        has_host_ports=kind.name == DAEMON_SET and bool(takes_ports),
    )
    return warnings_of(workload_mistakes(staged))


def eviction_warnings(
    kind: Kind, workload: ReviewedObject, pod: PodView
) -> tuple[AdmissionWarning, ...]:
    """Warn of a mark for the rescheduler that a workload has itself, where its pods need it."""
    meta = workload.metadata if kind.is_template else None
    is_marked = meta is not None and (
        _MARK in bytes(meta.annotations) or _MARK in bytes(meta.labels)
    )
    if not is_marked or _MARK in bytes(pod.annotations) or NEVER_EVICT in pod.labels:
        return ()
    text = f"{NEVER_EVICT} protects no pod: metadata: write it in the metadata of the pod template"
    return (AdmissionWarning("never-evict-unused", text),)


def warnings_of(mistakes: Iterable[Mistake]) -> tuple[AdmissionWarning, ...]:
    """Return mistakes as admission warnings."""
    return tuple(AdmissionWarning(mistake.code, mistake.text) for mistake in mistakes)


def key_refusal(meta: ReviewedMeta | None, warnings: Iterable[AdmissionWarning]) -> str:
    """Why an object with these is refused where unknown keys are; empty for one that is not.

    One with an owner is not: the owner was asked, and its pods must come back after a drain.
    """
    if meta is not None and not is_absent(meta.owner_references):
        return ""
    text = next((warning.text for warning in warnings if warning.code == "gate-key-unknown"), "")
    return text and f"{text} (onUnknownKeys is Deny)"


def _is_ours(raw: Raw) -> bool:
    # Most objects have no such key: look before decoding.
    data = bytes(raw)
    return _KEPTN in data or _OURS in data


def _keys(raw: Raw) -> dict[str, str]:
    """The map, or an empty one where it has no key of ours."""
    if not _is_ours(raw):
        return _NONE
    try:
        return decode_texts(raw, "")
    except MalformedError:
        return _NONE
