"""The pod specs of all handled kinds, projected to the fields that decide.

One projection serves all kinds: it decodes only the fields used, everything else is skipped unread,
and the patch never touches it (kupid-spec 4, 6.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.decoding import (
    MalformedError,
    decode,
    decode_anything,
    decode_short,
    decode_texts,
)
from harbourmaster.policies.model import Affinity, Toleration

if TYPE_CHECKING:
    from collections.abc import Hashable

    Json = dict[str, Any]

PODS_OF: Final = "pods of "
PODS_OF_DAEMON_SETS: Final = f"{PODS_OF}DaemonSet"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
_MIRROR_BYTES: Final = MIRROR_ANNOTATION.encode()
_ABSENT: Final = (b"", b"null")
_EMPTY: Final = Raw(b"")
_LABEL_BYTES: Final = 122
"""The bytes of memory of a label besides its JSON."""
MAX_OWNED_BYTES: Final = 1024 * 1024
"""The most bytes of a pod's affinity, and of its tolerations, as JSON, because they are walked
several times. An API server stores a little more, because its own encoding is shorter."""


class PodSpec(Struct, frozen=True, gc=False, rename="camel"):
    """The five owned fields of a pod spec, and what limits the values of two of them."""

    affinity: Raw = _EMPTY
    node_name: str | None = None
    node_selector: Raw = _EMPTY
    scheduler_name: str | None = None
    tolerations: Raw = _EMPTY
    scheduling_gates: Raw = _EMPTY
    runtime_class_name: str | None = None
    containers: Raw = _EMPTY
    host_network: bool | None = None

    @property
    def has_gates(self) -> bool:
        """Whether the pod has scheduling gates."""
        gates = self.scheduling_gates
        return not is_absent(gates) and memoryview(gates).nbytes > len(b"[]")

    @property
    def key(self) -> Hashable:
        """Equal for specs on which every policy has the same effect."""
        return (
            bytes(self.affinity),
            self.node_name,
            bytes(self.node_selector),
            self.scheduler_name,
            bytes(self.tolerations),
        )

    @property
    def key_size(self) -> int:
        """About the bytes that ``key`` takes."""
        selector = bytes(self.node_selector)
        return (
            len(bytes(self.affinity))
            + len(bytes(self.tolerations))
            + len(self.node_name or "")
            + len(self.scheduler_name or "")
            + len(selector)
            + _LABEL_BYTES * selector.count(b":")
        )


class _TemplateMeta(Struct, frozen=True, gc=False):
    labels: Raw = _EMPTY
    annotations: Raw = _EMPTY


class _Template(Struct, frozen=True, gc=False):
    metadata: _TemplateMeta | None = None
    spec: PodSpec | None = None


class _TemplateSpec(Struct, frozen=True, gc=False):
    template: _Template | None = None


class _JobTemplate(Struct, frozen=True, gc=False):
    spec: _TemplateSpec | None = None


class WorkloadSpec(PodSpec, frozen=True, gc=False, rename="camel"):
    """A pod spec, or what holds one."""

    template: _Template | None = None
    job_template: _JobTemplate | None = None
    # Not ours, but an object that no API server could have decoded is refused as a whole.
    replicas: int | None = None


class ObjectMeta(Struct, frozen=True, gc=False, rename="camel"):
    """The part of an object's metadata that is looked at."""

    labels: Raw = _EMPTY
    annotations: Raw = _EMPTY
    deletion_timestamp: str | None = None


class Workload(Struct, frozen=True, gc=False, rename="camel"):
    """An object of any handled kind, as far as it matters here."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: WorkloadSpec | None = None


class PodView(Struct, frozen=True, gc=False):
    """A pod, or the pod of a template, as policies see it.

    ``spec`` is None where the object has none yet. ``is_left_alone`` marks what no policy may
    change: objects being deleted, and mirror pods, which the kubelet owns. ``affinity``,
    ``tolerations`` and ``node_selector`` are those of the spec, decoded with all their unknown
    fields. ``annotations`` are those of a template, as they came. ``kinds`` are the object's kind
    and, for a pod that a controller creates, PODS_OF with the kind that it is created for.
    ``class_labels`` is the nodeSelector that pods of a template get from their RuntimeClass.
    """

    labels: dict[str, str]
    spec: PodSpec | None
    is_left_alone: bool = False
    affinity: Json | None = None
    tolerations: list[Json] | None = None
    node_selector: dict[str, str] | None = None
    annotations: Raw = _EMPTY
    kinds: tuple[str, ...] = ("Pod",)
    class_labels: dict[str, str] = {}

    @property
    def is_template(self) -> bool:
        """Whether it is the pod of a template."""
        return self.kinds[0] != "Pod"

    @property
    def is_daemon(self) -> bool:
        """Whether the DaemonSet controller creates the pod."""
        return PODS_OF_DAEMON_SETS in self.kinds


class OversizedPodError(MalformedError):
    """Owned fields of more than MAX_OWNED_BYTES; ``pod`` has everything but the spec."""

    def __init__(self, text: str, pod: PodView) -> None:
        super().__init__(text)
        self.pod = pod


class Kind(Struct, frozen=True, gc=False):
    """A kind that is handled, and the JSON pointer of its pod spec.

    ``create_only`` kinds have an immutable pod spec: updates never change them (kupid-spec 2.4).
    """

    group: str
    version: str
    name: str
    shape: Literal["pod", "template", "job template"] = "template"
    create_only: bool = False

    @property
    def pointer(self) -> str:
        """The JSON pointer of the pod spec."""
        return _POINTERS[self.shape]

    @property
    def is_template(self) -> bool:
        """Whether the object is a template of pods, not a pod itself."""
        return self.shape != "pod"

    def view(self, workload: Workload, kinds: tuple[str, ...] = ()) -> PodView | None:
        """The pod in a decoded object; None where it holds no template. Raises MalformedError.

        ``kinds`` are those of a pod that a controller creates.
        """
        if workload.kind is not None or workload.api_version is not None:
            self._check_declared(workload)
        meta, annotations, labels = workload.metadata, _EMPTY, _EMPTY
        is_left_alone = meta is not None and meta.deletion_timestamp is not None
        if self.shape == "pod":
            spec: PodSpec | None = workload.spec
            if meta is not None:
                labels = meta.labels
                is_left_alone = is_left_alone or _is_mirror(meta.annotations)
        else:
            template = self.template_in(workload.spec)
            if template is None:
                return None
            spec = template.spec
            if template.metadata is not None:
                labels, annotations = template.metadata.labels, template.metadata.annotations
        texts = _read_texts(labels, _LABELS_AT[self.shape])
        kinds = kinds or (self.name,)
        bare = PodView(texts, None, is_left_alone, annotations=annotations, kinds=kinds)
        if spec is None:
            return bare
        owned = self._decode_owned(spec, bare)
        gates = spec.scheduling_gates
        if gates is not _EMPTY and bytes(memoryview(gates)[:1]) not in {b"[", b"n"}:
            read_gates(gates, f"{self.path}.schedulingGates")
        return PodView(texts, spec, is_left_alone, *owned, annotations, kinds)

    def read(self, data: bytes | Raw) -> PodView | None:
        """Decode an object and view it. Raises MalformedError."""
        return self.view(decode(_workload_decoder, data, ""))

    def template_in(self, spec: WorkloadSpec | None) -> _Template | None:
        """Return the template in the spec of a workload of this kind, if there is one."""
        if spec is None:
            return None
        if self.shape == "template":
            return spec.template
        job = spec.job_template.spec if spec.job_template else None
        return job.template if job else None

    def _check_declared(self, workload: Workload) -> None:
        version = f"{self.group}/{self.version}" if self.group else self.version
        if workload.kind in {self.name, None, ""} and workload.api_version in {version, None, ""}:
            return
        declared = "/".join(filter(None, (workload.api_version, workload.kind)))
        raise MalformedError(f"the object says {declared}, the request {version}/{self.name}")

    def _decode_owned(
        self, spec: PodSpec, bare: PodView
    ) -> tuple[Json | None, list[Json] | None, dict[str, str] | None]:
        """Refuse owned fields of wrong types at any depth, and what can't be read or written again.

        So nothing fails any more once it is decided which policies are merged. ``bare`` is the pod
        without its spec.
        """
        affinity = self._decode_anything(spec.affinity, "affinity", _affinity_types, bare)
        tolerations = self._decode_anything(
            spec.tolerations, "tolerations", _toleration_types, bare
        )
        labels: dict[str, str] | None = None
        if not is_absent(spec.node_selector):
            labels = decode_texts(spec.node_selector, f"{self.path}.nodeSelector")
        return affinity, tolerations, labels

    def _decode_anything(
        self, raw: Raw, name: str, types: msgspec.json.Decoder[Any], bare: PodView
    ) -> Any:  # noqa: ANN401 - with its unknown fields
        if is_absent(raw):
            return None
        at = f"{self.path}.{name}"
        if memoryview(raw).nbytes > MAX_OWNED_BYTES:
            limit = MAX_OWNED_BYTES // 1024
            raise OversizedPodError(f"{at}: more than {limit} KiB", bare)
        decode(types, raw, at)
        return decode_anything(raw, at)

    @property
    def path(self) -> str:
        """The path of the pod spec, as messages name it."""
        return _PATHS[self.shape]


_workload_decoder: Final = msgspec.json.Decoder(Workload)
_affinity_types: Final = msgspec.json.Decoder(Affinity)
_toleration_types: Final = msgspec.json.Decoder(list[Toleration])
_lists: Final = msgspec.json.Decoder(list[Any])

_POINTERS: Final = {
    "pod": "/spec",
    "template": "/spec/template/spec",
    "job template": "/spec/jobTemplate/spec/template/spec",
}


_PATHS: Final = {shape: at[1:].replace("/", ".") for shape, at in _POINTERS.items()}
_LABELS_AT: Final = {
    shape: f"{path.removesuffix('spec')}metadata.labels" for shape, path in _PATHS.items()
}


def is_absent(value: Raw) -> bool:
    """Whether a raw field is missing or null."""
    # Most are missing.
    return value is _EMPTY or (memoryview(value).nbytes <= len(b"null") and bytes(value) in _ABSENT)


def read_gates(raw: Raw, at: str) -> list[Any] | None:
    """Return the scheduling gates of a pod, None without the field. Raises MalformedError."""
    return None if is_absent(raw) else decode_short(_lists, raw, at)


def _read_texts(raw: Raw, at: str) -> dict[str, str]:
    return {} if is_absent(raw) else decode_texts(raw, at)


def _is_mirror(annotations: Raw) -> bool:
    # A mirror pod is rare and annotations are long: look before decoding.
    data = bytes(annotations)
    if not data or (data.startswith(b"{") and _MIRROR_BYTES not in data):
        return False
    return MIRROR_ANNOTATION in _read_texts(annotations, "metadata.annotations")


KINDS: Final[dict[tuple[str, str, str], Kind]] = {
    (kind.group, kind.version, kind.name): kind
    for kind in (
        Kind("", "v1", "Pod", "pod", create_only=True),
        Kind("", "v1", "ReplicationController"),
        Kind("apps", "v1", "ReplicaSet"),
        Kind("apps", "v1", "Deployment"),
        Kind("apps", "v1", "StatefulSet"),
        Kind("apps", "v1", "DaemonSet"),
        Kind("batch", "v1", "Job", create_only=True),
        Kind("batch", "v1", "CronJob", "job template"),
        Kind("batch", "v1beta1", "CronJob", "job template"),
    )
}
