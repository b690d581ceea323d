"""Where a pod's spec stands in each kind that is handled, and the part of it that is looked at.

The projection decodes only the fields used; everything else is skipped unread, and the patch never
touches it (kupid.md 4, 6.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from policies.decoding import MalformedError, decode
from policies.model import Affinity, Toleration

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
_ABSENT: Final = (b"", b"null")


class PodSpec(Struct, frozen=True, gc=False, rename="camel"):
    """The five owned fields of a pod spec, and the gates that forbid one of them."""

    affinity: Raw = Raw(b"")
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    scheduler_name: str | None = None
    tolerations: Raw = Raw(b"")
    scheduling_gates: list[Any] | None = None


class Meta(Struct, frozen=True, gc=False, rename="camel"):
    """The part of an object's metadata that decides whether a pod is handled."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _TemplateMeta(Struct, frozen=True, gc=False):
    labels: dict[str, str] | None = None


class _ObjectMeta(Struct, frozen=True, gc=False, rename="camel"):
    deletion_timestamp: str | None = None


class _Template(Struct, frozen=True, gc=False):
    metadata: _TemplateMeta | None = None
    spec: PodSpec | None = None


class _TemplateSpec(Struct, frozen=True, gc=False):
    template: _Template | None = None
    # Not ours, but an object that no API server could have decoded is refused as a whole.
    replicas: int | None = None


class _JobTemplate(Struct, frozen=True, gc=False):
    spec: _TemplateSpec | None = None


class _CronJobSpec(Struct, frozen=True, gc=False, rename="camel"):
    job_template: _JobTemplate | None = None


class _Pod(Struct, frozen=True, gc=False, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    metadata: Meta | None = None
    spec: PodSpec | None = None


class _Workload(Struct, frozen=True, gc=False, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    metadata: _ObjectMeta | None = None
    spec: _TemplateSpec | None = None


class _CronJob(Struct, frozen=True, gc=False, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    metadata: _ObjectMeta | None = None
    spec: _CronJobSpec | None = None


_Object = TypeVar("_Object", _Pod, _Workload, _CronJob)


class PodView(Struct, frozen=True, gc=False):
    """A pod, or the pod of a template, as policies see it.

    ``spec`` is None where the object has none yet. ``is_left_alone`` marks what no policy may
    change: objects being deleted, and mirror pods, which the kubelet owns.
    """

    labels: dict[str, str]
    spec: PodSpec | None
    is_left_alone: bool = False


class Kind(Struct, frozen=True, gc=False):
    """A kind that is handled: the JSON pointer of its pod spec and how to read it.

    ``create_only`` kinds have an immutable pod spec: updates never change them (kupid.md 2.4).
    """

    group: str
    version: str
    name: str
    pointer: str
    read: Callable[[Kind, bytes | Raw], PodView | None]
    is_template: bool = True
    create_only: bool = False

    def project(self, data: bytes | Raw) -> PodView | None:
        """Read the object; None where it holds no pod template. Raises MalformedError."""
        return self.read(self, data)


def _reader(
    decoder: msgspec.json.Decoder[_Object], view: Callable[[_Object], PodView | None]
) -> Callable[[Kind, bytes | Raw], PodView | None]:
    def read(kind: Kind, data: bytes | Raw) -> PodView | None:
        found = decode(decoder, data, "")
        declared = found.api_version, found.kind
        expected = f"{kind.group}/{kind.version}".lstrip("/"), kind.name
        for is_set, should in zip(declared, expected, strict=True):
            if is_set and is_set != should:
                text = f"the object says {'/'.join(filter(None, declared))}"
                raise MalformedError(f"{text}, the request {'/'.join(expected)}")
        return view(found)

    return read


def _view_pod(pod: _Pod) -> PodView:
    meta = pod.metadata or Meta()
    mirrored = MIRROR_ANNOTATION in (meta.annotations or ())
    _check_types(pod.spec, "spec")
    return PodView(meta.labels or {}, pod.spec, mirrored or meta.deletion_timestamp is not None)


def _view_template(
    spec: _TemplateSpec | None, metadata: _ObjectMeta | None, at: str
) -> PodView | None:
    template = spec.template if spec else None
    if template is None:
        return None
    labels = template.metadata.labels if template.metadata else None
    _check_types(template.spec, at)
    is_deleted = metadata is not None and metadata.deletion_timestamp is not None
    return PodView(labels or {}, template.spec, is_deleted)


def _view_workload(workload: _Workload) -> PodView | None:
    return _view_template(workload.spec, workload.metadata, "spec.template.spec")


def _view_cron_job(cron_job: _CronJob) -> PodView | None:
    job = cron_job.spec.job_template if cron_job.spec else None
    at = "spec.jobTemplate.spec.template.spec"
    return _view_template(job.spec if job else None, cron_job.metadata, at)


_affinity_types = msgspec.json.Decoder(Affinity)
_toleration_types = msgspec.json.Decoder(list[Toleration])


def _check_types(spec: PodSpec | None, at: str) -> None:
    """Refuse owned fields of the wrong types at any depth, before anything is decided on them."""
    if spec is None:
        return
    if bytes(spec.affinity) not in _ABSENT:
        decode(_affinity_types, spec.affinity, f"{at}.affinity")
    if bytes(spec.tolerations) not in _ABSENT:
        decode(_toleration_types, spec.tolerations, f"{at}.tolerations")


def is_absent(value: Raw) -> bool:
    """Whether a raw field is missing or null."""
    return bytes(value) in _ABSENT


_read_pod = _reader(msgspec.json.Decoder(_Pod), _view_pod)
_read_workload = _reader(msgspec.json.Decoder(_Workload), _view_workload)
_read_cron_job = _reader(msgspec.json.Decoder(_CronJob), _view_cron_job)

_TEMPLATE: Final = "/spec/template/spec"
_CRON_TEMPLATE: Final = "/spec/jobTemplate/spec/template/spec"

KINDS: Final[dict[tuple[str, str, str], Kind]] = {
    (kind.group, kind.version, kind.name): kind
    for kind in (
        Kind("", "v1", "Pod", "/spec", _read_pod, is_template=False, create_only=True),
        Kind("", "v1", "ReplicationController", _TEMPLATE, _read_workload),
        Kind("apps", "v1", "ReplicaSet", _TEMPLATE, _read_workload),
        Kind("apps", "v1", "Deployment", _TEMPLATE, _read_workload),
        Kind("apps", "v1", "StatefulSet", _TEMPLATE, _read_workload),
        Kind("apps", "v1", "DaemonSet", _TEMPLATE, _read_workload),
        Kind("batch", "v1", "Job", _TEMPLATE, _read_workload, create_only=True),
        Kind("batch", "v1", "CronJob", _CRON_TEMPLATE, _read_cron_job),
        Kind("batch", "v1beta1", "CronJob", _CRON_TEMPLATE, _read_cron_job),
    )
}
