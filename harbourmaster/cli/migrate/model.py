"""The observations and the report of ``harbourmaster migrate``: plain data, no I/O."""

from __future__ import annotations

import shlex
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from harbourmaster.cli.oversized import Oversized
from harbourmaster.cli.references import Unconsented
from harbourmaster.gates.workload import WorkloadMetadata
from harbourmaster.serving.options import flag_of

KUPID: Final = "kupid"
KEPTN: Final = "keptn"
System: TypeAlias = Literal["kupid", "keptn"]
Severity: TypeAlias = Literal["blocking", "danger", "change", "remains"]
"""Blocks pods now; may destroy or lose something; behaves differently; harmless leftovers."""

SEVERITIES: Final[tuple[Severity, ...]] = ("blocking", "danger", "change", "remains")
OVERLAY_LABEL: Final = "harbourmaster.dev/overlay"
MIGRATED: Final = "migrated"
"""The label of an installation by the overlay of ``migrate --output yaml``, and its value."""
PODS_SHOWN: Final = 20
"""Pods named one by one; the rest is counted."""


class Ref(Struct, frozen=True, order=True):
    """An object as kubectl takes it: ``kind`` is lower case; cluster-wide ones lack a namespace."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.kind} {self.name}{where}"


class CalledService(Struct, frozen=True, order=True):
    """A Service that is called; ``answers`` is None if this is unknown."""

    namespace: str
    name: str
    answers: bool | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Command(Struct, frozen=True):
    """One command line; ``output`` is the file that its output goes to."""

    arguments: tuple[str, ...]
    output: str = ""

    @property
    def text(self) -> str:
        """For a shell; names of strangers are quoted."""
        line = shlex.join(self.arguments)
        return f"{line} > {shlex.quote(self.output)}" if self.output else line


class Registration(Struct, frozen=True):
    """A webhook configuration of kupid or Keptn."""

    ref: Ref
    system: System
    services: tuple[CalledService, ...] = ()
    fails_closed: bool = False
    """Whether some entry refuses what it could not look at."""
    covers_pods: bool = False
    """Whether that entry, or any if none fails closed, is asked about pods."""
    of_certmanager: bool = False
    """Whether cert-manager fills in its CA."""

    @property
    def is_broken(self) -> bool:
        """Whether it refuses objects because its webhook does not answer."""
        return self.fails_closed and any(service.answers is False for service in self.services)


class ReplacedDefinition(Struct, frozen=True):
    """A CRD of kupid or Keptn. ``objects`` is None if they can't be counted."""

    name: str
    system: System
    stored_versions: tuple[str, ...] = ()
    storage_version: str = ""
    objects: int | None = 0
    conversion: CalledService | None = None
    """The Service that converts its versions, unless it is Harbourmaster's."""
    is_injected: bool = False
    """Whether Keptn's certificate manager writes the CA of the conversion."""
    release: str = ""
    """The Helm release that made it, as ``namespace/name``."""
    of_gardener: bool = False
    """Whether a ManagedResource of Gardener's made it."""
    is_kept: bool = False
    """Whether it is marked to outlive its ManagedResource."""

    @property
    def ref(self) -> Ref:
        """The definition itself."""
        return Ref("crd", self.name)

    @property
    def is_converted(self) -> bool:
        """Whether another webhook converts its versions, or may."""
        return self.conversion is not None and self.conversion.answers is not False

    @property
    def is_unconverted(self) -> bool:
        """Whether its versions need a conversion that no webhook does."""
        return self.conversion is not None and self.conversion.answers is False


class ReplacedWorkload(Struct, frozen=True):
    """A Deployment. ``role`` is kupid, lifecycle, metrics, certificates or scheduler."""

    ref: Ref
    system: System
    role: str
    is_ready: bool = False
    of_gardener: bool = False


class Release(Struct, frozen=True):
    """A Helm release; deleting its Secrets only makes Helm forget it."""

    namespace: str
    name: str
    system: System


class Leftover(Struct, frozen=True):
    """Any other object, in the order of removal; ``service`` is the one that it calls."""

    ref: Ref
    system: System
    service: CalledService | None = None


class OldNamespace(Struct, frozen=True):
    """A namespace made for them. ``keeps`` says what is in it that is not theirs to lose."""

    name: str
    system: System
    keeps: tuple[str, ...] = ()

    @property
    def ref(self) -> Ref:
        """The namespace itself."""
        return Ref("namespace", self.name)


class Policy(Struct, frozen=True):
    """A stored policy that something is to be said about."""

    ref: Ref
    faults: tuple[str, ...] = ()
    """Why our validation refuses it."""
    lost: tuple[str, ...] = ()
    """Namespaces where kupid applied it and Harbourmaster, which excludes them, doesn't."""
    gained: tuple[str, ...] = ()
    """Namespaces that kupid excluded by their label, and Harbourmaster doesn't."""
    is_audited: bool = False
    """Whether Harbourmaster only evaluates it."""


class StuckPod(Struct, frozen=True):
    """A pod that waits for Keptn. ``gate`` is the index of its gate, None for its scheduler."""

    namespace: str
    name: str
    gate: int | None = None
    is_annotated: bool = False
    is_owned: bool = True
    """Whether a controller makes another one once it is deleted."""
    workload: WorkloadMetadata | None = None
    """The workload of the pod, by which its checks are found."""
    is_told: bool = False
    """Whether its scheduler, or our controller, has told it of its checks."""
    failure: str = ""
    """The check that failed, or why that is unknown: no command may release the pod."""

    @property
    def ref(self) -> Ref:
        """The pod itself."""
        return Ref("pod", self.name, self.namespace)


class Setting(Struct, frozen=True):
    """A setting of ours that keeps what Keptn does, which has it at ``source``."""

    key: str
    value: str
    source: str
    ours: str
    """The value here."""

    @property
    def flag(self) -> str:
        """The flag that sets it."""
        return f"{flag_of(tuple(self.key.split('.')))}={self.value}"


class Judged(Struct, frozen=True):
    """A finding about Keptn: its code, the parts of its text, and a command that deals with it."""

    code: str
    subject: Ref | str
    parts: dict[str, str] = {}
    command: Command | None = None


class KeptnFacts(Struct, frozen=True):
    """Results about Keptn's installation and objects."""

    settings: tuple[Setting, ...] = ()
    """Those that keep what Keptn does."""
    is_overlaid: bool = False
    """Whether we are installed by the overlay with such settings."""
    exposes: bool = True
    """Whether Keptn serves values on port 9999."""
    findings: tuple[Judged, ...] = ()

    @property
    def unset(self) -> tuple[Setting, ...]:
        """Those of the settings that are different here."""
        return tuple(
            setting for setting in self.settings if parts(setting.ours) != parts(setting.value)
        )


class Ours(Struct, frozen=True):
    """Harbourmaster itself in the cluster."""

    namespace: str
    is_ready: bool = False
    """Whether its webhook has a ready replica."""
    is_registered: bool = False
    """Whether its configurations are there and carry a CA."""
    is_beside_keptn: bool = False
    """Whether its controller leaves Keptn's work to Keptn for now."""
    is_shadow: bool = False
    """Whether it is installed in shadow mode, and only compares."""
    is_led: bool = False
    """Whether its controller leads, in the cluster or outside."""
    release: str = ""
    """The Helm release of its webhook, as ``namespace/name``."""

    @property
    def is_at_work(self) -> bool:
        """Whether any of its processes runs."""
        return self.is_ready or self.is_led


class Observed(Struct, frozen=True):
    """All that was found. ``unread`` holds one line for each thing that could not be read."""

    ours: Ours
    registrations: tuple[Registration, ...] = ()
    definitions: tuple[ReplacedDefinition, ...] = ()
    workloads: tuple[ReplacedWorkload, ...] = ()
    releases: tuple[Release, ...] = ()
    gardener: tuple[Ref, ...] = ()
    """ControllerRegistrations and ManagedResources that bring kupid back."""
    leftovers: tuple[Leftover, ...] = ()
    namespaces: tuple[OldNamespace, ...] = ()
    policies: tuple[Policy, ...] = ()
    oversized: tuple[Oversized, ...] = ()
    pods: tuple[StuckPod, ...] = ()
    gated_pods: int = 0
    """The number of pods behind the gate; ``pods`` has the first PODS_SHOWN of them."""
    scheduled_pods: int = 0
    """The number of pods that wait for keptn-scheduler."""
    references: tuple[Unconsented, ...] = ()
    """References to other namespaces that have not consented."""
    keptn: KeptnFacts = KeptnFacts()
    shadows: tuple[Ref, ...] = ()
    """Webhook configurations that shadow mode has left."""
    unread: tuple[str, ...] = ()

    def is_running(self, system: System) -> bool:
        """Whether anything of the system is alive that does its work."""
        return self._has_ready(system, frozenset((KUPID, "lifecycle", "metrics")))

    @property
    def has_lifecycle(self) -> bool:
        """Whether Keptn's operator checks deployments."""
        return self._has_ready(KEPTN, frozenset(("lifecycle",)))

    @property
    def has_metrics(self) -> bool:
        """Whether Keptn's operator fetches metrics."""
        return self._has_ready(KEPTN, frozenset(("metrics",)))

    @property
    def has_operator(self) -> bool:
        """Whether any of Keptn's operators does its work."""
        return self.has_lifecycle or self.has_metrics

    def stuck_pods(self) -> tuple[StuckPod, ...]:
        """Return the ``pods`` that nothing will release."""
        if not self.has_lifecycle:
            return self.pods
        if not self._has_ready(KEPTN, frozenset(("scheduler",))):
            return tuple(pod for pod in self.pods if pod.gate is None)
        return ()

    def is_installed(self, system: System) -> bool:
        """Whether more is there than definitions, and namespaces that stay."""
        if system == KUPID and self.gardener:
            return True
        going = [namespace for namespace in self.namespaces if not namespace.keeps]
        parts = (self.registrations, self.workloads, self.releases, self.leftovers, going)
        return any(item.system == system for part in parts for item in part)

    @property
    def serves(self) -> bool:
        """Whether we are there, and asked."""
        return self.ours.is_ready and self.ours.is_registered

    @property
    def needs_successor(self) -> bool:
        """Whether kupid or Keptn works or has left objects, and we do not serve or convert."""
        if self.serves:
            return any(definition.is_converted for definition in self.definitions)
        working = [
            registration for registration in self.registrations if not registration.is_broken
        ]
        going = [namespace for namespace in self.namespaces if not namespace.keeps]
        held = [
            definition
            for definition in self.definitions
            if definition.is_converted or definition.objects != 0
        ]
        return any((self.gardener, working, self.workloads, self.leftovers, going, held))

    def _has_ready(self, system: System, roles: frozenset[str]) -> bool:
        return any(
            workload.is_ready
            for workload in self.workloads
            if workload.system == system and workload.role in roles
        )


class MigrationFinding(Struct, frozen=True):
    """A finding, and the command that deals with it, if any."""

    code: str
    severity: Severity
    object: str
    why: str
    command: Command | None = None


class MigrationStep(Struct, frozen=True):
    """A step of the migration: after each one every policy lives and pods can be created."""

    code: str
    title: str
    why: str
    commands: tuple[Command, ...] = ()


def kubectl(*arguments: str, namespace: str = "", output: str = "") -> Command:
    """A call of kubectl."""
    where = ("-n", namespace) if namespace else ()
    return Command(("kubectl", *where, *arguments), output)


def delete(ref: Ref, *options: str) -> Command:
    """The command that deletes an object; it is not an error if the object is gone."""
    return kubectl(
        "delete", ref.kind, ref.name, "--ignore-not-found", *options, namespace=ref.namespace
    )


def title(system: System | None) -> str:
    """Return the name of a system in texts."""
    return "kupid" if system == KUPID else "Keptn"


def parts(value: str) -> set[str]:
    """The parts of a setting that is a list, in any order."""
    return set(value.split(","))
