"""The inputs of the phase machine, and the actions that it requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct

from harbourmaster.lifecycle.model import WorkloadEntry
from harbourmaster.lifecycle.phases import Phase, Status

Carrier: TypeAlias = Callable[[Mapping[str, str], str, str], dict[str, str]]
"""Returns the carrier of a phase from the parent's carrier, a uid and the phase."""


class Child(Struct, frozen=True, gc=False):
    """An existing task or evaluation; an empty state is Pending."""

    name: str
    state: str = ""


class StagedPods(Struct, frozen=True, gc=False, kw_only=True):
    """The pods of a version that is released in stages, and what its owner says of others."""

    wanted: int | None
    """The number of pods at the end; None while the owner's status is of a former template."""
    are_others_serving: bool = False
    """Whether another version of the workload has available pods."""
    refusal: str = ""
    """Why stages do not apply to an owner of this kind or with this strategy."""
    released: int = 0
    """The released pods that have not ended and are not being deleted."""
    ready_since: str = ""
    """The time at which the last of the released pods became ready; empty if one is not ready."""
    progressed: str = ""
    """The time at which a released pod became ready last."""


class Inputs(Struct, frozen=True, kw_only=True):
    """The inputs of a version's next step, besides the version itself."""

    children: Mapping[tuple[str, str], str] = {}
    """States by kind and name. A child that the status names and that is missing is deleted."""
    definitions: frozenset[tuple[str, str]] = frozenset()
    """Existing definitions: kind of the child, name of the definition."""
    made: Mapping[tuple[str, str], Child] = {}
    """Children created in this pass, by phase and definition."""
    refused: frozenset[tuple[str, str]] = frozenset()
    """Children that could not be created in this pass: phase, definition."""
    repeated: frozenset[str] = frozenset()
    """Names of children whose results no longer count, because their checks are repeated."""
    workloads: Mapping[WorkloadEntry, str] = {}
    """States of an app's workloads; a missing one has no KeptnWorkloadVersion."""
    is_deployed: bool | None = None
    """Whether a workload's pods are ready; None if that was not checked yet."""
    pods: StagedPods | None = None
    """The pods of a version with stages; None if they were not counted yet."""
    resumed: str | None = ""
    """The time at which its rollout went on after its last pause, if any; None while it pauses."""


class Rules(Struct, frozen=True, kw_only=True):
    """The rules from the configuration and the settings."""

    is_blocking: bool = True
    """Whether a failed check stops the flow; otherwise it is a Warning (keptn-spec 3.12)."""
    has_promotion: bool = False
    has_idle_events: bool = True
    """Whether phases without checks give events, besides CloudEvents."""
    observability_timeout: float = 300.0
    """Seconds from ``deploymentStartTime``."""
    carrier: Carrier | None = None
    """Creates the trace of each phase; None if nothing is traced."""


class PhaseNotice(Struct, frozen=True, gc=False, kw_only=True):
    """An event to emit once the status is written, about the child ``about`` or the version.

    ``text`` and ``warning`` have defaults by phase and state. ``failed_task`` is the name of a task
    whose message ends the text. If ``is_minor``, there is a CloudEvent and no event.
    """

    phase: str
    state: str
    text: str = ""
    warning: bool | None = None
    about: str = ""
    failed_task: str = ""
    is_minor: bool = False


class Creation(Struct, frozen=True):
    """A child to create; ``previous`` is the name of the one that it replaces, if any."""

    phase: Phase
    definition: str
    previous: str = ""


class Step(Struct, frozen=True, kw_only=True):
    """A phase or a version brought as far as it goes now; ``state`` is that of a phase.

    A version with ``creations`` or ``needs_look`` must not be written yet: the machine first needs
    to know what was created, or whether the workload is deployed. ``requeue_after`` is the seconds
    until time changes it.
    """

    status: Status
    state: str = ""
    notices: tuple[PhaseNotice, ...] = ()
    creations: tuple[Creation, ...] = ()
    requeue_after: float | None = None
    needs_look: bool = False
