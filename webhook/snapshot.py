"""The state of the cluster at one moment: immutable, and replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from harbourmaster.gates.known_keys import mistaken_opt_in
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.mistakes import opt_in_mistakes
from harbourmaster.policies.index import PolicySet, policy_set
from harbourmaster.policies.model import AdmissionWarning
from harbourmaster.rescheduling.unmet import KnownNodes
from harbourmaster.webhook.key_warnings import warnings_of
from harbourmaster.webhook.parents import NO_PARENTS, Parents
from harbourmaster.webhook.review import MAX_WARNING, cut

NAME_LABEL: Final = "kubernetes.io/metadata.name"


class NamespaceMetadata(Struct, frozen=True, gc=False):
    """The part of a Namespace's metadata that admission reads."""

    name: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class NamespaceObject(Struct, frozen=True, gc=False, rename="camel"):
    """A Namespace as the API gives it, projected."""

    metadata: NamespaceMetadata = NamespaceMetadata()

    def to_namespace(self) -> Namespace:
        """The namespace as admission keeps it; the name label is there though a file lacks it."""
        name = self.metadata.name or ""
        labels = {NAME_LABEL: name, **(self.metadata.labels or {})}
        annotations = self.metadata.annotations or {}
        # The label only selects webhooks; a stale one must not gate any pod.
        if annotations.get(OPT_IN_KEY) == OPT_IN:
            return Namespace(labels, has_gates=True)
        opt_in = mistaken_opt_in(annotations)
        mistaken = {key: cut(value, MAX_WARNING) for key, value in opt_in.items()}
        warnings = warnings_of(opt_in_mistakes(name, annotations, labels))
        return Namespace(labels, False, mistaken, warnings)


class Namespace(Struct, frozen=True, gc=False):
    """A namespace: its labels, and whether its pods may get a scheduling gate (decision D6)."""

    labels: dict[str, str]
    has_gates: bool = False
    mistaken: dict[str, str] = {}
    """The annotation that asks for gates and does not get them, if there is one."""
    warnings: tuple[AdmissionWarning, ...] = ()
    """The warning for users that create a pod or a workload there."""


class Snapshot(Struct, frozen=True, gc=False):
    """Policies and namespaces that belong together; a request keeps the one it started with."""

    policies: PolicySet = policy_set(())
    namespaces: Mapping[str, Namespace] | None = None
    """Namespaces by name; None if every namespace exists, with only its name label."""
    excluded: frozenset[str] = frozenset()
    """Namespaces in which nothing is ever changed: our own, whatever a registration says."""
    parents: Parents = NO_PARENTS
    """The owners of pods, in stores that follow the cluster."""
    nodes: KnownNodes | None = None
    """None where they are not known, or not asked for."""
    audited: PolicySet = PolicySet(audits=True)
    """Policies that are only evaluated."""

    def namespace(self, name: str) -> Namespace | None:
        """The namespace of that name; None where it is not known."""
        if self.namespaces is None:
            return Namespace({NAME_LABEL: name}) if name else None
        return self.namespaces.get(name)


def describe(snapshot: Snapshot) -> dict[str, Any]:
    """Counts for a log line."""
    namespaces = "any" if snapshot.namespaces is None else len(snapshot.namespaces)
    policies = snapshot.policies
    return {
        "cluster_policies": policies.cluster_size,
        "namespaced_policies": policies.namespaced_size,
        "invalid": policies.invalid,
        "namespaces": namespaces,
    }
