"""Versions on their way through the phases in memory: what reconcilers do, without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata
from harbourmaster.lifecycle.machine import advance
from harbourmaster.lifecycle.model import (
    AppVersion,
    AppVersionSpec,
    AppVersionStatus,
    ResourceReference,
    WorkloadEntry,
    WorkloadVersion,
    WorkloadVersionSpec,
    WorkloadVersionStatus,
)
from harbourmaster.lifecycle.phases import check_phases, phases_of
from harbourmaster.lifecycle.steps import Child, Inputs, Rules
from helpers.lifecycle_objects import owner

NOW = datetime(2026, 11, 21, 18, 0, 0, tzinfo=UTC)
STAMP = "2026-11-21T18:00:00Z"
CHECKS = {
    "pre_deployment_tasks": ("migrate",),
    "pre_deployment_evaluations": ("load",),
    "post_deployment_tasks": ("announce",),
    "post_deployment_evaluations": ("errors",),
}
"""One check in each phase."""


def _metadata(name, kind):
    return Metadata(
        name=name,
        namespace="prod",
        uid=f"uid-{name}",
        resource_version="1",
        owner_references=(owner(kind),),
    )


def app_version(name="shop-1.0-6b86b273", workloads=(), status=None, **spec):
    """A version of the app ``shop``; ``workloads`` are pairs of name and version."""
    return AppVersion(
        metadata=_metadata(name, "KeptnApp"),
        spec=AppVersionSpec(
            app_name="shop",
            version="1.0",
            workloads=tuple(WorkloadEntry(name=workload, version=at) for workload, at in workloads),
            **spec,
        ),
        status=status or AppVersionStatus(),
    )


def workload_version(name="shop-cart-2.0", status=None, **spec):
    """The workload ``cart`` of the app ``shop`` in version 2.0."""
    return WorkloadVersion(
        metadata=_metadata(name, "KeptnWorkload"),
        spec=WorkloadVersionSpec(
            app="shop",
            version="2.0",
            workload_name="shop-cart",
            resource_reference=ResourceReference(uid="rs-1", kind="ReplicaSet", name="cart-1"),
            **spec,
        ),
        status=status or WorkloadVersionStatus(),
    )


class Walk:
    """A version that is brought further pass by pass, with the world that it sees.

    ``children`` holds states by kind and name, ``created`` every creation with its name, ``told``
    all that was told, ``statuses`` all that was written.
    """

    def __init__(self, version, *, rules=None, undefined=()):
        self.version = version
        self.rules = rules or Rules()
        self.undefined = set(undefined)
        self.children = {}
        self.created = []
        self.told = []
        self.statuses = []
        self.workloads = {}
        self.is_deployed = False
        self.resumed = ""
        self.refused = set()
        self.now = NOW
        self.wait = None

    @property
    def status(self):
        return self.version.status

    @property
    def reasons(self):
        return [f"{event.phase}{event.state}" for event in self.told]

    def phase(self, name):
        return next(phase for phase in phases_of(self.version) if phase.name == name)

    def names(self, definition):
        """The children made for a definition, in order."""
        return [name for creation, name in self.created if creation.definition == definition]

    def end(self, definition, state="Succeeded"):
        """Let the latest child of a definition be in a state."""
        creation, name = next(
            created for created in reversed(self.created) if created[0].definition == definition
        )
        self.children[creation.phase.kind, name] = state

    def lose(self, definition):
        """Delete the latest child of a definition; return its name."""
        creation, name = next(
            created for created in reversed(self.created) if created[0].definition == definition
        )
        del self.children[creation.phase.kind, name]
        return name

    def later(self, seconds):
        self.now += timedelta(seconds=seconds)

    def go(self, *, crash=False):
        """One pass; with ``crash`` all but the write. The outcome that would be written."""
        made = {}
        is_deployed = None
        for _ in range(50):
            world = Inputs(
                children=dict(self.children),
                definitions=self._definitions(),
                made=made,
                refused=frozenset(self.refused),
                workloads=self.workloads,
                is_deployed=is_deployed,
                resumed="" if is_deployed is None else self.resumed,
                pods=None if is_deployed is None else self.look(),
            )
            outcome = advance(self.version, world, self.rules, self.now)
            if outcome.creations:
                for creation in outcome.creations:
                    made[creation.phase.name, creation.definition] = self._create(creation)
            elif outcome.needs_look:
                is_deployed = self.is_deployed
            else:
                break
        else:
            raise AssertionError("it goes round in circles")
        self.wait = outcome.requeue_after
        if not crash and outcome.status != self.status:
            self.version = replace(self.version, status=outcome.status)
            self.statuses.append(outcome.status)
            self.told += outcome.notices
        return outcome

    def _create(self, creation):
        """Create a child, or find the one of an earlier pass that was cut off."""
        phase = creation.phase
        first = f"{phase.check_type}-{creation.definition}"
        # Each successor's name follows from that of the one it replaces.
        name = f"{creation.previous}x" if creation.previous else first
        if (phase.kind, name) not in self.children:
            self.children[phase.kind, name] = ""
            self.created.append((creation, name))
        return Child(name, self.children[phase.kind, name])

    def look(self):
        """Return the pods, of a version with stages."""

    def _definitions(self):
        return frozenset(
            (phase.kind, name)
            for phase in check_phases(self.version)
            for name in getattr(self.version.spec, phase.checks)
            if name not in self.undefined
        )
