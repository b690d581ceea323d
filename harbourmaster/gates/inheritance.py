"""The annotations of gated pods, from their own and their parent's metadata (keptn-spec 2.3-2.5).

Admission uses this, and the controller for pods that were gated before their owner was known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from harbourmaster.gates.metadata import (
    APP_KEY,
    APP_TYPE_KEY,
    CONTAINER_KEY,
    SINGLE_SERVICE,
    VERSION_KEY,
    WORKLOAD_KEY,
    inheritable,
)
from harbourmaster.gates.version import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harbourmaster.gates.metadata import Metadata
    from harbourmaster.gates.version import Container


class Tracking(Struct, frozen=True):
    """The annotations that a tracked pod gets, and notes about them."""

    annotations: dict[str, str]
    """To be set on the pod, whatever it has under these keys; none that it already has."""
    missing_container: str = ""
    """The container that was to give the version and is not in the pod; the version is a hash."""


def tracking_by_pod(
    pod: Metadata,
    containers: Callable[[], Sequence[Container]],
    *,
    version_from_tag: bool = False,
    hashed: str = "",
) -> Tracking | None:
    """Track a pod by its own workload; None if it names none, so that its parent may.

    ``containers`` is called where the version is to be computed; ``hashed`` is the hash of them,
    where they are not all there any more.
    """
    if not pod.get(WORKLOAD_KEY):
        return None
    version, missing = _version(pod, containers, version_from_tag, hashed)
    return _tracking(pod, {} if pod.get(VERSION_KEY) else {VERSION_KEY: version}, missing)


def tracking_by_parent(
    pod: Metadata,
    parent: Metadata,
    containers: Callable[[], Sequence[Container]],
    *,
    version_from_tag: bool = False,
    hashed: str = "",
) -> Tracking | None:
    """Track a pod that names no workload by its parent; None if the parent names none either.

    The parent's values replace the pod's; those that only the pod has stay.
    """
    workload = parent.get(WORKLOAD_KEY)
    if not workload:
        return None
    version, missing = _version(parent, containers, version_from_tag, hashed)
    inherited = {WORKLOAD_KEY: workload, VERSION_KEY: version, **inheritable(parent)}
    return _tracking(pod, inherited, missing)


def _version(
    named_by: Metadata, containers: Callable[[], Sequence[Container]], from_tag: bool, hashed: str
) -> tuple[str, str]:
    """Return the version, and the name of the container that should define it, if it is missing."""
    if given := named_by.get(VERSION_KEY):
        return given, ""
    container = named_by.get(CONTAINER_KEY)
    version = version_of(containers(), container, from_tag=from_tag, hashed=hashed)
    return version.text, container if version.misses_container else ""


def _tracking(pod: Metadata, wanted: dict[str, str], missing_container: str) -> Tracking:
    if not wanted.get(APP_KEY) and not pod.get(APP_KEY):
        wanted[APP_KEY] = wanted.get(WORKLOAD_KEY) or pod.get(WORKLOAD_KEY)
        wanted[APP_TYPE_KEY] = SINGLE_SERVICE
    held = pod.annotations
    return Tracking(
        {key: value for key, value in wanted.items() if held.get(key) != value}, missing_container
    )
