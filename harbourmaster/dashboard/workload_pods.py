"""Reads images, ready pods and warnings of a release from the objects of Kubernetes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.gates.owners import bases_of_pod, pod_name_base
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.gated_pods import REVISION_LABEL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from harbourmaster.dashboard.pages.cluster_map import PodCells
    from harbourmaster.dashboard.pages.states import Tone

Object: TypeAlias = Mapping[str, Any]
"""The JSON of an object."""
MOST_EVENTS: Final = 50
"""Maximum events on a page, the newest ones."""
_LONGEST: Final = 500
"""Characters of an event's message."""
_DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
_DIGITS: Final = 10
"""A number of pods has fewer; users that can change a ReplicaSet can write it."""


class VersionPods(Struct, frozen=True, gc=False):
    """The pods of one version of a workload."""

    images: tuple[str, ...]
    ready: int
    wanted: int
    """The number that its owner wants now; of a Deployment's newest version, at the end."""

    @property
    def tone(self) -> Tone:
        """The tone of its numbers."""
        if self.ready < self.wanted:
            return "warn"
        return "good" if self.wanted else "idle"


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
    others: int = 0
    """The number of further objects with such events."""


class ApplicationRead(Struct, frozen=True):
    """Everything that the page of an application reads; ``fault`` says what was not read."""

    pods: Mapping[str, VersionPods] = {}
    """The pods by the name of their KeptnWorkloadVersion."""
    events: tuple[Warned, ...] = ()
    fault: str = ""


def pods_of_replica_set(owner: Object, *, is_newest: bool) -> VersionPods:
    """Return the pods of a ReplicaSet, all of which have one version."""
    spec, notes = owner["spec"], owner["metadata"].get("annotations") or {}
    desired = notes.get(_DESIRED, "")
    is_number = desired.isdecimal() and len(desired) < _DIGITS
    wanted = int(desired) if is_newest and is_number else spec.get("replicas", 0)
    return VersionPods(_images(spec), owner.get("status", {}).get("readyReplicas", 0), wanted)


def selector_of(owner: Object) -> str:
    """Return the labels of the owner's pods as a selector."""
    labels = owner["spec"]["selector"].get("matchLabels") or {}
    return ",".join(f"{name}={value}" for name, value in labels.items())


def revision_of(version: str, owner: Object, revisions: Iterable[Object]) -> Object | None:
    """Return the newest ControllerRevision of an owner for a version; None without one."""
    fitting = []
    for revision in revisions:
        owners = [reference["uid"] for reference in revision["metadata"].get("ownerReferences", ())]
        if owner["metadata"]["uid"] in owners:
            # Their data may be of any form, because users may write them as well.
            with suppress(KeyError, TypeError, AttributeError):
                metadata = revision["data"]["spec"]["template"]["metadata"]
                notes, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
                described = workload_of(notes, labels)
                if described and described.version == version and _images(revision["data"]["spec"]):
                    fitting.append(revision)
    return max(fitting, key=lambda revision: int(revision["revision"]), default=None)


def selector_of_revision(revision: Object) -> str:
    """Return the label of a revision's pods as a selector."""
    # Pods of a StatefulSet have the name of the revision, those of a DaemonSet its label.
    metadata = revision["metadata"]
    label = metadata.get("labels", {}).get(REVISION_LABEL, "none")
    return f"{REVISION_LABEL} in ({metadata['name']},{label})"


def pods_of_revision(
    revision: Object, owner: Object, pods: Sequence[PodCells], *, is_newest: bool
) -> VersionPods:
    """Return the pods of a revision; the newest one wants all of the owner."""
    # A pod that runs may be unready.
    ready = sum(pod.state.tone == "good" for pod in pods)
    total = owner["spec"].get("replicas", owner["status"].get("desiredNumberScheduled", 0))
    return VersionPods(_images(revision["data"]["spec"]), ready, total if is_newest else len(pods))


def _images(spec: Object) -> tuple[str, ...]:
    containers = spec["template"]["spec"]["containers"]
    return tuple(dict.fromkeys(container.get("image", "") for container in containers))


def related_events(events: Iterable[Object], names: Collection[str]) -> tuple[Warned, ...]:
    """Return the events about objects with these names and the pods that they own, newest first.

    Those with one reason about the pods of one owner are one line: thousands can say the same.
    """
    prefixes = {pod_name_base(name): name for name in names}
    groups: dict[tuple[str, str, str], dict[str, Warned]] = {}
    for event in events:
        warned = _warned(event)
        name = warned.name if warned.name in names else None
        if warned.kind == "Pod":
            name = next(filter(None, map(prefixes.get, bases_of_pod(warned.name))), None)
        if name is not None:
            group = groups.setdefault((warned.kind, name, warned.reason), {})
            group[warned.name] = max(group.get(warned.name, warned), warned, key=_TIME)
    newest = (
        replace(max(group.values(), key=_TIME), others=len(group) - 1) for group in groups.values()
    )
    return tuple(sorted(newest, key=_TIME, reverse=True)[:MOST_EVENTS])


def _warned(event: Object) -> Warned:
    involved, series = event["involvedObject"], event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return Warned(
        kind=involved.get("kind", ""),
        name=involved.get("name", ""),
        reason=event.get("reason") or "",
        message=(event.get("message") or "")[:_LONGEST],
        time=next(filter(None, times), ""),
        count=max(series.get("count", 0), event.get("count") or 1),
    )


_TIME: Final = attrgetter("time")
