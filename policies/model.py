"""The two policy kinds, field by field, as they stand in the API.

``PodSchedulingPolicy`` and ``ClusterPodSchedulingPolicy`` of ``kupid.gardener.cloud/v1alpha1``.
Every field may be absent or null, which mean the same; an empty selector and an absent one do not.
Unknown fields are dropped on decoding, as the API server prunes them.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from harbourmaster.api.selectors import LabelSelector

GROUP: Final = "kupid.gardener.cloud"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
POLICY: Final = "PodSchedulingPolicy"
CLUSTER_POLICY: Final = "ClusterPodSchedulingPolicy"
AFFINITY: Final = "affinity"
NODE_NAME: Final = "nodeName"
NODE_SELECTOR: Final = "nodeSelector"
SCHEDULER_NAME: Final = "schedulerName"
TOLERATIONS: Final = "tolerations"
ON_TOO_LARGE: Final = "harbourmaster.dev/on-too-large"
"""Annotation of a policy: how to treat a pod that cannot get it because of a limit on sizes."""
WARN: Final = "Warn"
DENY: Final = "Deny"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class NodeSelectorRequirement(Struct, frozen=True, gc=False, rename="camel"):
    """One expression on a node's labels or fields."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class NodeSelectorTerm(Struct, frozen=True, gc=False, rename="camel"):
    """Requirements that must all hold on one node."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Struct, frozen=True, gc=False, rename="camel"):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(Struct, frozen=True, gc=False, rename="camel"):
    """A term that adds ``weight`` (1-100) to a node's score."""

    weight: int | None = None
    preference: NodeSelectorTerm | None = None


class NodeAffinity(Struct, frozen=True, gc=False, rename="camel"):
    """The nodes that a pod requires, and those that it prefers."""

    required: NodeSelector | None = field(default=None, name=REQUIRED)
    preferred: list[PreferredSchedulingTerm] | None = field(default=None, name=PREFERRED)


class PodAffinityTerm(Struct, frozen=True, gc=False, rename="camel"):
    """Pods to be near to, or away from, within one topology domain."""

    label_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    topology_key: str | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodAffinityTerm(Struct, frozen=True, gc=False, rename="camel"):
    """A pod affinity term that adds ``weight`` (1-100) to a node's score."""

    weight: int | None = None
    pod_affinity_term: PodAffinityTerm | None = None


class PodAffinity(Struct, frozen=True, gc=False, rename="camel"):
    """Required and preferred terms; the same shape serves anti-affinity."""

    required: list[PodAffinityTerm] | None = field(default=None, name=REQUIRED)
    preferred: list[WeightedPodAffinityTerm] | None = field(default=None, name=PREFERRED)


class Affinity(Struct, frozen=True, gc=False, rename="camel"):
    """The affinity of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Struct, frozen=True, gc=False, rename="camel"):
    """A taint that the pod tolerates; ``tolerationSeconds`` in seconds."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class PolicySpec(Struct, frozen=True, gc=False, rename="camel"):
    """The selectors and values of a policy; only the cluster kind has a ``namespaceSelector``."""

    pod_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    affinity: Affinity | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    scheduler_name: str | None = None
    tolerations: list[Toleration] | None = None


class OwnerReference(Struct, frozen=True, gc=False, rename="camel"):
    """An owner of the policy object."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(Struct, frozen=True, gc=False, rename="camel"):
    """A manager of fields of the object."""

    manager: str | None = None
    operation: str | None = None
    api_version: str | None = None
    fields_type: str | None = None
    subresource: str | None = None


class PolicyMetadata(Struct, frozen=True, gc=False, rename="camel"):
    """The object metadata that validation looks at."""

    name: str | None = None
    namespace: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None
    managed_fields: list[ManagedFieldsEntry] | None = None


class Policy(Struct, frozen=True, gc=False, rename="camel"):
    """A policy object of either kind."""

    api_version: str = ""
    kind: str = ""
    metadata: PolicyMetadata = PolicyMetadata()
    spec: PolicySpec | None = None

    @property
    def is_cluster_scoped(self) -> bool:
        """Whether this is the cluster kind."""
        return self.kind == CLUSTER_POLICY

    @property
    def reference(self) -> str:
        """The policy as people name it: kind, and name or namespace/name."""
        namespace = "" if self.is_cluster_scoped else f"{self.metadata.namespace or ''}/"
        return f"{self.kind} {namespace}{self.metadata.name or ''}"


def is_policy_kind(group: str, version: str, kind: str) -> bool:
    """Whether the kind is one of the two policy kinds, in the version that is served."""
    return group == GROUP and version == VERSION and kind in {POLICY, CLUSTER_POLICY}


class AdmissionWarning(Struct, frozen=True, gc=False):
    """One line for the user, and a code that tools can count.

    Of the merge: ``policy-invalid``, ``policy-annotation``, ``policy-scheduler-name``,
    ``affinity-too-large``, ``affinity-conflict`` and ``daemonset-node-constraints``.
    """

    code: str
    text: str
