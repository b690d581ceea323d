"""Settings of the webhook configurations and of their certificates."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field

from harbourmaster.api.settings import CountFromZero, DescribedSettings

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
"""The resources that are registered by default: pods, and the templates of both kinds of kupid.

See decision D5.
"""
MORE_KINDS: Final = ("replicasets",)
"""Further resources that may be registered; a mutated ReplicaSet differs from its Deployment."""
OPERATIONS: Final = ("CREATE", "UPDATE")
EXCLUDED_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease")

FailurePolicy = Literal["Ignore", "Fail"]
Selector = dict[str, Any]
Texts = dict[str, str]


class RegistrationSettings(DescribedSettings, frozen=True, kw_only=True):
    """The content of the webhook configurations; drift is repaired to this."""

    service_name: Annotated[
        str, "Service that the API server calls; its name is in the certificate"
    ] = "harbourmaster-webhook"
    service_namespace: Annotated[str | None, "namespace of the Service; by default our own"] = None
    service_port: Annotated[int, Meta(ge=1, le=65535), "port of the Service"] = 443
    failure_policy: Annotated[
        FailurePolicy,
        "what the API server does with pod templates, pods and policies if no webhook answers",
    ] = "Ignore"
    gated_failure_policy: Annotated[
        FailurePolicy,
        "the same for task definitions, and for pods of namespaces with gates; Fail prevents that "
        "pods skip their checks",
    ] = "Fail"
    api_server_gate: Annotated[
        bool,
        "let pods of namespaces with gates that the API server has gated itself be created if no "
        "webhook answers, unless failurePolicy is Fail; the component api-server-gate sets it",
    ] = False
    timeout_seconds: Annotated[
        int,
        Meta(ge=1, le=30),
        "seconds that the API server waits for an answer; while the webhook hangs, this delays "
        "every pod",
    ] = 3
    shadow: Annotated[
        bool, "register only webhooks that compare; needs shadow in the webhook's settings"
    ] = False
    kinds: Annotated[
        tuple[str, ...], f"resources whose pods get policies; also possible: {MORE_KINDS[0]}"
    ] = KINDS
    templates: Annotated[
        bool, "register pod templates as well as pods; false leaves templates as they are in Git"
    ] = True
    template_operations: Annotated[
        tuple[str, ...],
        "operations on pod templates that are reviewed; for jobs and pods only CREATE",
    ] = OPERATIONS
    excluded_namespaces: Annotated[
        tuple[str, ...], "namespaces whose workloads are never reviewed; ours is always included"
    ] = EXCLUDED_NAMESPACES
    namespace_selector: Annotated[
        Selector | None, "label selector that namespaces must also match"
    ] = None
    object_selector: Annotated[
        Selector | None, "label selector that pods and pod templates must match"
    ] = None
    match_conditions: Annotated[
        Texts,
        "CEL expressions by name that requests for pods and pod templates must also match; needs "
        "Kubernetes 1.28",
    ] = field(default_factory=dict)
    annotations: Annotated[
        Texts, "annotations of both configurations; those of other clients stay"
    ] = field(default_factory=dict)
    reinvocation_policy: Annotated[
        Literal["IfNeeded", "Never"],
        "whether the API server calls the webhook again after a later webhook changed the pod",
    ] = "IfNeeded"


class CertificateSettings(DescribedSettings, frozen=True, kw_only=True):
    """The webhook's certificates; both kinds are renewed after two thirds of their life."""

    secret_name: Annotated[
        str, "Secret in our namespace for the certificates; the controller writes it"
    ] = "harbourmaster-webhook-cert"  # noqa: S105 - the name of an object
    ca_lifetime_seconds: Annotated[
        int, Meta(ge=60), "lifetime of a certificate authority in seconds"
    ] = 365 * 24 * 3600
    leaf_lifetime_seconds: Annotated[
        int, Meta(ge=10), "lifetime of a serving certificate in seconds"
    ] = 7 * 24 * 3600
    publish_seconds: Annotated[
        CountFromZero,
        "seconds between adding a new authority to every configuration and serving its first "
        "certificate, so that all API servers trust it",
    ] = 30
    adopt_secret: Annotated[
        str | None,
        "Secret in our namespace whose certificates are adopted if ours does not exist; kupid's "
        "is gardener-extension-webhook-cert",
    ] = None
