"""The state of the cluster at one moment: immutable, and replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.gates.known_keys import mistaken_opt_in
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.mistakes import opt_in_mistakes
from harbourmaster.policies.index import PolicySet, policy_set
from harbourmaster.policies.model import AdmissionWarning
from harbourmaster.rescheduling.unmet import KnownNodes
from harbourmaster.webhook.key_warnings import warnings_of
from harbourmaster.webhook.parents import NO_PARENTS, Parents
from harbourmaster.webhook.review import MAX_WARNING, cut

if TYPE_CHECKING:
    from harbourmaster.policies.pods import PodView

NAME_LABEL: Final = "kubernetes.io/metadata.name"
_NONE: Final[dict[str, str]] = {}
_MAX_SELECTOR: Final = 4096
"""Characters of a namespace's annotation up to which it is read as a selector."""


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
        labels = {NAME_LABEL: name}
        # Texts that many namespaces share are held once.
        for key, value in (self.metadata.labels or {}).items():
            labels[key] = name if value == name else intern(value)
        annotations = self.metadata.annotations or {}
        # The label only selects webhooks; a stale one must not gate any pod.
        selector = _selector_in(annotations)
        if annotations.get(OPT_IN_KEY) == OPT_IN:
            return Namespace(labels, has_gates=True, selector=selector)
        opt_in = mistaken_opt_in(annotations)
        mistaken = {key: cut(value, MAX_WARNING) for key, value in opt_in.items()} or _NONE
        warnings = warnings_of(opt_in_mistakes(name, annotations, labels))
        return Namespace(labels, False, mistaken, warnings, selector)


class _Scheduling(Struct, frozen=True, gc=False, rename="camel"):
    node_selector: dict[str, str] | None = None


class _RuntimeClass(Struct, frozen=True, gc=False):
    metadata: NamespaceMetadata = NamespaceMetadata()
    scheduling: _Scheduling | None = None


class Namespace(Struct, frozen=True, gc=False):
    """A namespace: its labels, and whether its pods may get a scheduling gate (decision D6)."""

    labels: dict[str, str]
    has_gates: bool = False
    mistaken: dict[str, str] = {}
    """The annotation that asks for gates and does not get them, if there is one."""
    warnings: tuple[AdmissionWarning, ...] = ()
    """The warning for users that create a pod or a workload there."""
    selector: tuple[str, dict[str, str]] | None = None
    """The annotation with which admission plugins give pods a nodeSelector, and its labels."""


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
    class_labels: Mapping[str, dict[str, str]] = {}
    """The nodeSelector that pods get from a RuntimeClass, by its name."""

    def with_class(self, pod: PodView) -> PodView:
        """Return the pod of a template with the labels of its RuntimeClass."""
        if not self.class_labels or not pod.is_template or pod.spec is None:
            return pod
        labels = self.class_labels.get(pod.spec.runtime_class_name or "")
        return replace(pod, class_labels=labels) if labels else pod

    def namespace(self, name: str) -> Namespace | None:
        """The namespace of that name; None where it is not known."""
        if self.namespaces is None:
            return Namespace({NAME_LABEL: name}) if name else None
        return self.namespaces.get(name)


_decode_class: Final = msgspec.json.Decoder(_RuntimeClass).decode


def decode_class(raw: bytes | msgspec.Raw) -> tuple[str, dict[str, str]]:
    """Read the name of a RuntimeClass, and the labels that its pods get as nodeSelector."""
    decoded = _decode_class(raw)
    return decoded.metadata.name or "", (decoded.scheduling or _Scheduling()).node_selector or {}


def _selector_in(annotations: Mapping[str, str]) -> tuple[str, dict[str, str]] | None:
    """Read the selector of a namespace; OpenShift ignores its own beside that of Kubernetes."""
    for key in ("scheduler.alpha.kubernetes.io/node-selector", "openshift.io/node-selector"):
        if key in annotations:
            text = annotations[key]
            pairs = (pair.partition("=") for pair in text.split(",") if len(text) <= _MAX_SELECTOR)
            return key, {name.strip(): value.strip() for name, sign, value in pairs if sign}
    return None


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
