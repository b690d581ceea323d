"""Decodes what a page reads about workloads: images, ready pods, and warnings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.gates.workload import workload_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from harbourmaster.dashboard.pages.cluster_map import PodCells

MOST_EVENTS: Final = 50
"""Maximum events on a page, the newest ones."""
_LONGEST: Final = 500
"""Characters of an event's message."""
_BASE: Final = 58
"""Characters of an owner's name that begin the names of its pods."""
_DESIRED: Final = ".kubernetes.io/desired-replicas"
HASH: Final = "controller-revision-hash"


class VersionPods(Struct, frozen=True, gc=False):
    """The pods of one version of a workload."""

    images: tuple[str, ...]
    ready: int
    wanted: int
    """The number that its owner wants now; of a Deployment's newest version, at the end."""


class Warned(Struct, frozen=True, gc=False):
    """Events of type Warning with one reason, about objects of one kind and owner."""

    kind: str
    name: str
    """The object of the newest event."""
    reason: str
    message: str
    time: str
    count: int
    """The number of times that the newest event was seen."""
    others: int
    """The number of further objects with such events."""


class ApplicationRead(Struct, frozen=True):
    """Everything that the page of an application reads; ``faults`` say what was not read."""

    pods: Mapping[str, VersionPods] = {}
    """The pods by the name of their KeptnWorkloadVersion."""
    events: tuple[Warned, ...] = ()
    faults: tuple[str, ...] = ()


class _Wire(Struct, frozen=True, gc=False, rename="camel"):
    pass


class _Owner(_Wire, frozen=True):
    uid: str = ""


class _Metadata(_Wire, frozen=True):
    name: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: tuple[_Owner, ...] = ()


class _Container(_Wire, frozen=True):
    image: str = ""


class _PodSpec(_Wire, frozen=True):
    containers: tuple[_Container, ...] = ()

    @property
    def images(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(container.image for container in self.containers))


class _Template(_Wire, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()


class _Selector(_Wire, frozen=True):
    match_labels: dict[str, str] | None = None


class _Spec(_Wire, frozen=True):
    replicas: int | None = None
    selector: _Selector = _Selector()
    template: _Template = _Template()


class _Status(_Wire, frozen=True):
    ready_replicas: int = 0
    desired_number_scheduled: int = 0


class Owner(_Wire, frozen=True):
    """A ReplicaSet, StatefulSet or DaemonSet."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def selector(self) -> str:
        """The labels of its pods as a selector; empty if it has none."""
        labels = self.spec.selector.match_labels or {}
        return ",".join(f"{name}={value}" for name, value in labels.items())

    def pods(self, *, is_newest: bool) -> VersionPods:
        """Return the pods of a ReplicaSet, all of which have one version."""
        spec, notes = self.spec, self.metadata.annotations or {}
        desired = next((notes[key] for key in notes if key.endswith(_DESIRED)), "")
        wanted = int(desired) if is_newest and desired.isdecimal() else spec.replicas or 0
        return VersionPods(spec.template.spec.images, self.status.ready_replicas, wanted)


class _Data(_Wire, frozen=True):
    spec: _Spec = _Spec()


class Revision(_Wire, frozen=True):
    """A ControllerRevision of a StatefulSet or DaemonSet."""

    metadata: _Metadata
    data: _Data = _Data()
    revision: int = 0

    @property
    def version(self) -> str:
        """The version that its pods name; empty if they name none."""
        metadata = self.data.spec.template.metadata
        described = workload_of(metadata.annotations or {}, metadata.labels or {})
        return "" if described is None else described.version

    @property
    def selector(self) -> str:
        """The label of its pods as a selector."""
        # Pods of a StatefulSet have the name of the revision, those of a DaemonSet its label.
        label = (self.metadata.labels or {}).get(HASH, "")
        return f"{HASH} in ({','.join(filter(None, (self.metadata.name, label)))})"

    def pods(self, owner: Owner, pods: Sequence[PodCells], *, is_newest: bool) -> VersionPods:
        """Return the pods of the revision; the newest one wants all of the owner."""
        # A pod that runs may be unready.
        ready = sum(pod.state.tone == "good" for pod in pods)
        wanted = owner.spec.replicas
        total = owner.status.desired_number_scheduled if wanted is None else wanted
        images = self.data.spec.template.spec.images
        return VersionPods(images, ready, total if is_newest else len(pods))


decode_owner: Final = msgspec.json.Decoder(Owner).decode
decode_revision: Final = msgspec.json.Decoder(Revision).decode


def revision_of(version: str, owner: Owner, revisions: Iterable[Revision]) -> Revision | None:
    """Return the newest revision of the owner with pods of a version; None without one."""
    fitting = [
        revision
        for revision in revisions
        if any(by.uid == owner.metadata.uid for by in revision.metadata.owner_references)
        and revision.version == version
    ]
    return max(fitting, key=attrgetter("revision"), default=None)


class _Involved(_Wire, frozen=True):
    kind: str = ""
    name: str = ""


class _Series(_Wire, frozen=True):
    count: int = 0
    last_observed_time: str = ""


class Event(_Wire, frozen=True):
    """An event of the core group."""

    metadata: _Metadata
    involved_object: _Involved = _Involved()
    reason: str | None = ""
    message: str | None = ""
    count: int | None = 0
    last_timestamp: str | None = ""
    event_time: str | None = ""
    series: _Series | None = None

    @property
    def time(self) -> str:
        """The time at which it was seen last."""
        last = self.series.last_observed_time if self.series is not None else ""
        return last or self.last_timestamp or self.event_time or ""

    @property
    def times(self) -> int:
        """The number of times that it was seen."""
        return max(self.series.count if self.series is not None else 0, self.count or 0, 1)


decode_event: Final = msgspec.json.Decoder(Event).decode


def related_events(
    events: Iterable[Event], objects: Collection[tuple[str, str]], owners: Collection[str]
) -> tuple[Warned, ...]:
    """Return the events about objects by kind and name, and pods by their owner, newest first.

    Those with one reason about the pods of one owner are one line: thousands can say the same.
    """
    prefixes = {f"{owner}-"[:_BASE]: owner for owner in owners}
    groups: dict[tuple[str, str, str], list[Event]] = {}
    for event in events:
        involved = event.involved_object
        name: str | None = involved.name if (involved.kind, involved.name) in objects else None
        if involved.kind == "Pod":
            base, dash, _ = involved.name.rpartition("-")
            name = prefixes.get(base + dash) or prefixes.get(involved.name[:_BASE])
        if name is not None:
            groups.setdefault((involved.kind, name, event.reason or ""), []).append(event)
    warned = [_warned(group) for group in groups.values()]
    return tuple(sorted(warned, key=attrgetter("time"), reverse=True)[:MOST_EVENTS])


def _warned(group: list[Event]) -> Warned:
    newest = max(group, key=attrgetter("time"))
    involved = newest.involved_object
    return Warned(
        kind=involved.kind,
        name=involved.name,
        reason=newest.reason or "",
        message=(newest.message or "")[:_LONGEST],
        time=newest.time,
        count=newest.times,
        others=len({event.involved_object.name for event in group}) - 1,
    )
