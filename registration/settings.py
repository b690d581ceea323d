"""Settings of the webhook configurations and of their certificates."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

PODS: Final = "pods"
KINDS: Final = (
    PODS,
    "daemonsets",
    "deployments",
    "statefulsets",
    "replicationcontrollers",
    "jobs",
    "cronjobs",
)
"""What is registered by default: pods, and the templates of both flavours of kupid.

See decision D5.
"""
MORE_KINDS: Final = ("replicasets",)
"""What may be registered besides: ReplicaSets differ from their Deployment once mutated."""
OPERATIONS: Final = ("CREATE", "UPDATE")
EXCLUDED_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease")

FailurePolicy = Literal["Ignore", "Fail"]
Selector = dict[str, Any]


class RegistrationSettings(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """What the webhook configurations say; drift is repaired to this."""

    service_name: Annotated[
        str, Meta(description="Service that the API server calls, and name in the certificate")
    ] = "harbourmaster-webhook"
    service_namespace: Annotated[
        str | None, Meta(description="namespace of the Service; by default our own")
    ] = None
    service_port: Annotated[int, Meta(ge=1, le=65535, description="port of the Service")] = 443
    failure_policy: Annotated[
        FailurePolicy,
        Meta(
            description="what the API server does with templates, pods and policies while no "
            "webhook answers"
        ),
    ] = "Ignore"
    gated_failure_policy: Annotated[
        FailurePolicy,
        Meta(
            description="the same for task definitions, and for pods of namespaces with gates "
            "enabled, whose checks a pod must not pass unseen"
        ),
    ] = "Fail"
    timeout_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=30,
            description="seconds that the API server waits for an answer; each is paid by every "
            "pod while the webhook hangs",
        ),
    ] = 3
    kinds: Annotated[
        tuple[str, ...],
        Meta(description=f"resources whose pods get policies; also possible: {MORE_KINDS[0]}"),
    ] = KINDS
    templates: Annotated[
        bool,
        Meta(
            description="register templates as well as pods; false leaves what stands in Git "
            "as it is"
        ),
    ] = True
    template_operations: Annotated[
        tuple[str, ...],
        Meta(description="operations on templates that are reviewed; jobs and pods: CREATE only"),
    ] = OPERATIONS
    excluded_namespaces: Annotated[
        tuple[str, ...],
        Meta(description="namespaces whose workloads are never reviewed; our own always is one"),
    ] = EXCLUDED_NAMESPACES
    namespace_selector: Annotated[
        Selector | None,
        Meta(description="label selector that namespaces must match besides"),
    ] = None
    object_selector: Annotated[
        Selector | None,
        Meta(description="label selector that pods and templates must match"),
    ] = None
    reinvocation_policy: Annotated[
        Literal["IfNeeded", "Never"],
        Meta(description="whether we are asked again after a later webhook changed the pod"),
    ] = "IfNeeded"


class CertificateSettings(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """The webhook's certificates; both kinds are renewed after two thirds of their life."""

    secret_name: Annotated[
        str, Meta(description="Secret in our namespace that holds them; it is ours to write")
    ] = "harbourmaster-webhook-cert"  # noqa: S105 - the name of an object
    ca_lifetime_seconds: Annotated[
        int, Meta(ge=60, description="seconds that a certificate authority lives")
    ] = 365 * 24 * 3600
    leaf_lifetime_seconds: Annotated[
        int, Meta(ge=10, description="seconds that a server certificate lives")
    ] = 7 * 24 * 3600
    publish_seconds: Annotated[
        int,
        Meta(
            ge=0,
            description="seconds between the moment at which every configuration carries a new "
            "authority and its first certificate: API servers learn of it meanwhile",
        ),
    ] = 30
    adopt_secret: Annotated[
        str | None,
        Meta(
            description="Secret in our namespace whose certificates are taken over while ours is "
            "absent; kupid's is gardener-extension-webhook-cert"
        ),
    ] = None
