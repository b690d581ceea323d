"""A workload's template as one of its pods would be at our gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.inheritance import inherit, own
from harbourmaster.gates.metadata import Metadata
from harbourmaster.gates.owners import DAEMON_SET, DEPLOYMENT, REPLICA_SET, ROLLOUT, STATEFUL_SET
from harbourmaster.gates.version import Container
from harbourmaster.lifecycle.gated_pods import Pod

if TYPE_CHECKING:
    from harbourmaster.cli.why.model import WhyContext
    from harbourmaster.lifecycle.model import WorkloadVersion

_PARENTS: Final = frozenset((DEPLOYMENT, ROLLOUT, STATEFUL_SET, DAEMON_SET))
_KINDS: Final = _PARENTS | {REPLICA_SET}


class _Metadata(Struct, frozen=True):
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None

    @property
    def read(self) -> Metadata:
        return Metadata(self.annotations or {}, self.labels or {})


class _PodSpec(Struct, frozen=True):
    containers: tuple[Container, ...] | None = None


class _Template(Struct, frozen=True):
    metadata: _Metadata | None = None
    spec: _PodSpec = _PodSpec()


class _Spec(Struct, frozen=True):
    template: _Template = _Template()


class _Workload(Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()


_decode: Final = msgspec.json.Decoder(_Workload).decode


def template_pod(context: WhyContext, *, version_from_tag: bool) -> Pod | None:
    """The pod, without name and owner; None where nobody would gate it. Raises DecodeError."""
    subject = context.subject
    if subject.kind not in _KINDS:
        return None
    found = _decode(subject.raw)
    template = found.spec.template
    metadata = (template.metadata or _Metadata()).read
    above = (subject, *context.owners)
    parent = next((each for each in above if each.kind in _PARENTS), None)

    def containers() -> tuple[Container, ...]:
        return template.spec.containers or ()

    tracking = own(metadata, containers, version_from_tag=version_from_tag)
    if tracking is None and parent is not None:
        inherited = _decode(parent.raw).metadata.read
        tracking = inherit(metadata, inherited, containers, version_from_tag=version_from_tag)
    if tracking is None:
        return None
    return Pod(
        namespace=subject.namespace,
        annotations={**metadata.annotations, **tracking.annotations},
        labels=metadata.labels,
        has_annotations=True,
        gates=(GATE,),
    )


def owned(pod: Pod, version: WorkloadVersion) -> Pod:
    """The pod as one of the newest owner of its version."""
    newest = version.spec.resource_reference
    owner = OwnerReference(kind=newest.kind, name=newest.name, uid=newest.uid)
    return msgspec.structs.replace(pod, owner_references=(owner,))
