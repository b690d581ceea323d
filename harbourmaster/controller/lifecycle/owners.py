"""Owners of pods: whether a workload is deployed, and which of its pods count (keptn-spec 3.5).

The caches have the fields for the first question. The functions ask the API server for one object
at a time, and only for pods for which it matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata, OwnerReference
from harbourmaster.api.resources import CONTROLLER_REVISIONS
from harbourmaster.gates.inheritance import tracking_by_parent, tracking_by_pod
from harbourmaster.gates.metadata import Metadata as Keys
from harbourmaster.gates.owners import (
    DEPLOYMENT,
    ROLLOUT,
    STATEFUL_SET,
    SUPPORTED,
    is_parent,
    is_replica_set,
    parent_of,
)
from harbourmaster.gates.version import Container
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.kube.reading import readable
from harbourmaster.lifecycle.gated_pods import GENERATION_LABEL, REVISION_LABEL
from harbourmaster.lifecycle.workloads import Names, has_observed, names_of_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.gated_pods import Pod


_REVISIONS: Final = {
    DEPLOYMENT: "deployment.kubernetes.io/revision",
    ROLLOUT: "rollout.argoproj.io/revision",
}
"""The annotation that a ReplicaSet shares with its owner while it is the current one, by kind of
owner."""


_ANNOTATIONS: Final = {
    "deployment": _REVISIONS[DEPLOYMENT],
    "rollout": _REVISIONS[ROLLOUT],
    "desired": "deployment.kubernetes.io/desired-replicas",
    "desired_by_rollout": "rollout.argoproj.io/desired-replicas",
}


class Counters(Struct, frozen=True, gc=False, rename=_ANNOTATIONS.get):
    """The annotations of a ReplicaSet that its owner's controller writes: counters as texts."""

    deployment: str = ""
    rollout: str = ""
    desired: str = ""
    desired_by_rollout: str = ""

    @property
    def revision(self) -> int:
        """The number of the template, which grows; 0 if it is not known."""
        # A Rollout that was a Deployment has the other one, too.
        return _number(self.rollout or self.deployment)

    @property
    def desired_replicas(self) -> int:
        """The pods that the Deployment or Rollout is to have at the end; 0 if unknown."""
        return _number(self.desired or self.desired_by_rollout)


class OwnerMetadata(Struct, frozen=True, gc=False, rename="camel"):
    """Metadata with few annotations, because there may be ten thousand ReplicaSets."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    owner_references: tuple[OwnerReference, ...] = ()
    annotations: Counters = Counters()


class RollingUpdate(Struct, frozen=True, gc=False):
    """A rolling update. Pods with a lower number than ``partition`` keep their template."""

    partition: int | None = None


class UpdateStrategy(Struct, frozen=True, gc=False, rename="camel"):
    """The way in which a StatefulSet or DaemonSet replaces its pods."""

    type: str = ""
    rolling_update: RollingUpdate | None = None


class Ordinals(Struct, frozen=True, gc=False):
    """The numbers of a StatefulSet's pods, which begin with ``start``."""

    start: int = 0


class OwnerSpec(Struct, frozen=True, gc=False, rename="camel"):
    """The number of pods, and which of them are replaced at once."""

    replicas: int | None = None
    update_strategy: UpdateStrategy | None = None
    ordinals: Ordinals = Ordinals()
    workload_ref: dict[str, str] = {}
    """Names the Deployment whose template a Rollout uses."""

    @property
    def kept_pods(self) -> int | None:
        """Number of pods that keep the former template; None if all do until they are deleted."""
        strategy = self.update_strategy
        if strategy is None:
            return 0
        if strategy.type == "OnDelete":
            return None
        return (strategy.rolling_update.partition or 0) if strategy.rolling_update else 0


class OwnerStatus(Struct, frozen=True, gc=False, rename="camel"):
    """The report of the owner's controller. Each kind has some of the fields."""

    observed_generation: int | str | None = None
    replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    current_number_scheduled: int = 0
    desired_number_scheduled: int = 0
    number_ready: int = 0
    updated_number_scheduled: int = 0
    phase: str = ""
    conditions: tuple[dict[str, Any], ...] = ()

    @property
    def resumed(self) -> str | None:
        """The time at which a Rollout went on after its last pause, if any; None while it pauses.

        Argo changes the condition a moment after the phase.
        """
        pauses = [condition for condition in self.conditions if condition.get("type") == "Paused"]
        if self.phase == "Paused" or any(pause.get("status") == "True" for pause in pauses):
            return None
        return max((str(pause.get("lastTransitionTime")) for pause in pauses), default="")


class Owner(Struct, frozen=True, gc=False):
    """A ReplicaSet, StatefulSet, DaemonSet or Rollout."""

    metadata: OwnerMetadata
    spec: OwnerSpec = field(default_factory=OwnerSpec)
    status: OwnerStatus = field(default_factory=OwnerStatus)
    idle: Names | None = None
    """The workload version of its pods, for an owner that wants none."""

    @property
    def wants_pods(self) -> bool:
        """Whether it is to have pods, now or at the end of a rollout, or that is not known."""
        metadata, status = self.metadata, self.status
        is_known = has_observed(metadata.generation, status.observed_generation)
        replicas = max(self.spec.replicas or 0, metadata.annotations.desired_replicas)
        return not is_known or replicas > 0 or status.desired_number_scheduled > 0


_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


class OwnerGoneError(Exception):
    """The owner of a pod, or the owner's owner, does not exist any more. The text names it."""


class PodSpec(Struct, frozen=True, gc=False):
    """The containers of a pod."""

    containers: tuple[Container, ...] = ()


class PodContent(Struct, frozen=True, gc=False):
    """A pod, or the template of an owner, as far as a workload and its version depend on it."""

    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    spec: PodSpec = PodSpec()


class _LiveSpec(OwnerSpec, frozen=True, gc=False):
    template: PodContent = PodContent()


class LiveOwner(Struct, frozen=True, gc=False):
    """An owner as the API server has it now, with the metadata that pods inherit."""

    metadata: Metadata = Metadata()
    spec: _LiveSpec = _LiveSpec()
    status: OwnerStatus = OwnerStatus()


class _Revision(Struct, frozen=True, gc=False):
    """A ControllerRevision: ``data`` is what it restores of its owner, whose annotations it has."""

    metadata: Metadata = Metadata()
    data: LiveOwner = LiveOwner()


_decode: Final = msgspec.json.Decoder(LiveOwner).decode
_decode_revision: Final = msgspec.json.Decoder(_Revision).decode
decode_rollout: Final = msgspec.json.Decoder(Owner).decode


def decode_owner(raw: msgspec.Raw, *, version_from_tag: bool = False) -> Owner:
    """Return an owner of pods as caches keep it. Raises msgspec.ValidationError."""
    owner = decode_rollout(raw)
    # Only these have no pod that says which workload it is of, and templates are large.
    return (
        owner if owner.wants_pods else replace(owner, idle=_names(_decode(raw), version_from_tag))
    )


async def next_names(client: Client, namespace: str, owner: OwnerReference) -> Names | None:
    """Return the names by which admission would track further pods; None if it would not.

    Their version is not exact. Raises OwnerGoneError, ApiError.
    """
    live = await _get(client, namespace, owner)
    names = _names(live, by_tag=False)
    above = await inherited_metadata(client, namespace, owner) if names is None else None
    if above is None:
        return names
    metadata = Metadata(annotations=above.annotations, labels=above.labels)
    return _names(replace(live, metadata=metadata), by_tag=False)


def tracked_names(raw: bytes) -> Names | None:
    """Return the names by which admission would track pods of an owner of pods, see ``_names``."""
    return _names(_decode(raw), by_tag=False)


def _names(owner: LiveOwner, by_tag: bool) -> Names | None:
    """Return the names by which admission would track pods of the owner; None if it would not.

    A ReplicaSet has a copy of its Deployment's annotations, and not of its labels.
    """
    containers = owner.spec.template.spec.containers
    pod = msgspec.json.decode(owner.spec.template.metadata, type=Keys)
    above = Keys(owner.metadata.annotations, owner.metadata.labels)
    tracking = tracking_by_pod(
        pod, lambda: containers, version_from_tag=by_tag
    ) or tracking_by_parent(pod, above, lambda: containers, version_from_tag=by_tag)
    annotations = {**pod.annotations, **tracking.annotations} if tracking is not None else {}
    described = workload_of(annotations, pod.labels)
    return names_of_pod(described) if described is not None else None


async def has_template_of(
    client: Client, namespace: str, owner: OwnerReference, names: Names, *, by_tag: bool
) -> bool:
    """Tell whether an owner's present template is of the version with these names.

    ``by_tag`` is the setting ``versionFromTag``. Raises ApiError.
    """
    try:
        return _names(await _get(client, namespace, owner), by_tag) == names
    except OwnerGoneError:
        return False


async def versions_of_revisions(client: Client, namespace: str, *, by_tag: bool) -> set[str]:
    """Return the names of the workload versions to which ControllerRevisions may be rolled back.

    ``by_tag`` is the setting ``versionFromTag``. Raises ApiError.
    """

    def decode(raw: msgspec.Raw) -> Names | None:
        revision = _decode_revision(raw)
        return _names(replace(revision.data, metadata=revision.metadata), by_tag)

    page = await client.list(CONTROLLER_REVISIONS, namespace, limit=0)
    # Other controllers may keep other data.
    names_of_all = readable(page.items, decode, lambda _metadata, _error: None)
    return {names.version for names in names_of_all if names is not None}


async def inherited_metadata(client: Client, namespace: str, owner: OwnerReference) -> Keys | None:
    """Return the metadata that pods of this owner inherit, or None if it has no parent that counts.

    Raises OwnerGoneError, ApiError.
    """
    if is_replica_set(owner):
        above = parent_of((await _get(client, namespace, owner)).metadata.owner_references)
        if above is None:
            return None
        owner = above
    elif not is_parent(owner):
        return None
    metadata = (await _get(client, namespace, owner)).metadata
    return Keys(metadata.annotations, metadata.labels)


async def have_same_images(
    client: Client, namespace: str, owner: OwnerReference, former: OwnerReference
) -> bool:
    """Tell whether the templates of two owners name the same images. Raises ApiError.

    Returns False where that is not known: an owner is gone, or both are one with a new template.
    """
    if owner.uid == former.uid:
        return False
    try:
        owners = [await _get(client, namespace, reference) for reference in (owner, former)]
    except OwnerGoneError:
        return False
    first, second = (
        [container.image for container in live.spec.template.spec.containers] for live in owners
    )
    return first == second


async def replaced_owners(
    client: Client,
    pod: Pod,
    owner: OwnerReference,
    owners: Iterable[OwnerReference],
    find: Callable[[str], Owner | None],
    *,
    has_version: bool = True,
) -> dict[str, bool] | None:
    """Return which ``owners`` of a workload the pod's owner replaces, by uid; None if it is old.

    The value says whether an owner still has pods. ``find`` returns an owner by its uid, if it is
    cached. A pod that its owner keeps, such as one below the partition of a StatefulSet, is old
    only if ``has_version``: without a version that was checked it would wait forever.
    Raises ApiError.
    """
    replaced, namespace = {owner.uid: True}, pod.namespace
    if not _is_known(owner):
        return replaced
    try:
        live = await _get(client, namespace, owner)
        above = parent_of(live.metadata.owner_references) if is_replica_set(owner) else None
        newest = await _get(client, namespace, above) if above is not None else live
    except OwnerGoneError:
        return None
    if _is_old(pod, owner, live, newest, has_version=has_version):
        return None
    for reference in filter(_is_known, owners):
        present: Owner | LiveOwner | None = find(reference.uid)
        try:
            present = present or await _get(client, namespace, reference)
        except OwnerGoneError:
            replaced[reference.uid] = False
            continue
        if above is None or parent_of(present.metadata.owner_references) != above:
            continue
        # The Deployment gets the revision of its newest ReplicaSet a moment later.
        if rank(present) > rank(live):
            return None
        replaced[reference.uid] = bool(present.spec.replicas or present.status.replicas)
    return replaced


def _is_known(owner: OwnerReference) -> bool:
    return is_replica_set(owner) or is_parent(owner)


def rank(replica_set: Owner | LiveOwner) -> tuple[int, str]:
    """Return what orders the ReplicaSets of one Deployment: the revision, then the name."""
    metadata = replica_set.metadata
    if isinstance(metadata, OwnerMetadata):
        return metadata.annotations.revision, metadata.name
    texts = (metadata.annotations.get(_REVISIONS[kind], "") for kind in (ROLLOUT, DEPLOYMENT))
    return _number(next(filter(None, texts), "")), metadata.name


def _is_old(
    pod: Pod, owner: OwnerReference, live: LiveOwner, newest: LiveOwner, *, has_version: bool
) -> bool:
    """Whether a rollout replaces the pod, as far as that is certain."""
    if is_replica_set(owner):
        return 0 < rank(live)[0] < rank(newest)[0]
    if not has_version and live.spec.kept_pods is None:
        return False
    if owner.kind == STATEFUL_SET:
        return has_other_revision(pod, live, is_kept=not has_version)
    return _is_older(
        pod.labels.get(GENERATION_LABEL), live.metadata.annotations.get(_TEMPLATE_GENERATION)
    )


def has_other_revision(pod: Pod, owner: Owner | LiveOwner | None, *, is_kept: bool = True) -> bool:
    """Whether a StatefulSet would create the pod from another template if it were deleted.

    Without ``is_kept``, whether its newest template is another one than the pod's.
    """
    if owner is None or owner.metadata.uid not in [own.uid for own in pod.owner_references]:
        return False
    status, revision = owner.status, pod.labels.get(REVISION_LABEL)
    is_below = is_kept and _is_below_partition(pod, owner.spec)
    wanted = status.current_revision if is_below else status.update_revision
    is_observed = status.observed_generation == owner.metadata.generation
    return is_observed and bool(revision and wanted) and revision != wanted


def _is_below_partition(pod: Pod, spec: OwnerSpec) -> bool:
    ordinal = pod.name.rpartition("-")[2]
    kept_pods = spec.kept_pods or 0
    return ordinal.isdecimal() and int(ordinal) < spec.ordinals.start + kept_pods


async def _get(client: Client, namespace: str, owner: OwnerReference) -> LiveOwner:
    gone = f"{owner.kind} {owner.name}"
    try:
        live = _decode(await client.get(SUPPORTED[owner.kind], owner.name, namespace))
    except NotFoundError as error:
        raise OwnerGoneError(gone) from error
    if owner.uid and live.metadata.uid != owner.uid:
        raise OwnerGoneError(gone)
    return live


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _is_older(text: str | None, than: str | None) -> bool:
    """Whether one counter is below another; False if one of them is not a number."""
    if not (text and than and text.isdecimal() and than.isdecimal()):
        return False
    return int(text) < int(than)
