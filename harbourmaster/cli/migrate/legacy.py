"""Recognises kupid's and Keptn's objects.

See kupid-spec 6.6-6.8, 9; keptn-spec 2.1, 6-8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import KUPID_GROUP
from harbourmaster.cli.installed import NAME, NAME_LABEL
from harbourmaster.cli.migrate.model import KEPTN, KUPID

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.cli.live.webhooks import Configuration
    from harbourmaster.cli.migrate.model import System

SCHEDULER: Final = "keptn-scheduler"
INJECTED: Final = "keptn.sh/inject-cert"
"""The label of what Keptn's certificate manager writes its CA into."""
KUPID_EXTENSION: Final = "gardener-extension-kupid"
KUPID_EXCLUDED: Final = ("role", "kube-system")
"""The label of namespaces that kupid left alone."""
KEPTN_GROUPS: Final = frozenset(("lifecycle.keptn.sh", "metrics.keptn.sh", "options.keptn.sh"))
NAMESPACES: Final[dict[str, System]] = {KUPID_EXTENSION: KUPID, "keptn-system": KEPTN}
"""Namespaces that their manifests make."""
_KUPID_NAMESPACE: Final = "extension-kupid-"
"""The prefix of Gardener's namespaces for kupid."""

RELEASE_NAME: Final = "meta.helm.sh/release-name"
RELEASE_NAMESPACE: Final = "meta.helm.sh/release-namespace"
OF_GARDENER: Final = "resources.gardener.cloud/managed-by"
OF_CERTMANAGER: Final = "cert-manager.io/inject-ca-from"

_OUR_WEBHOOKS: Final = ".harbourmaster.dev"
_KEPTN_WEBHOOKS: Final = frozenset(
    (
        "vkeptntaskdefinition.kb.io",
        "vkeptnmetric.kb.io",
        "vanalysis.kb.io",
        "vanalysisdefinition.kb.io",
    )
)
_KEPTN_SERVICES: Final = frozenset(
    (
        "lifecycle-webhook-service",
        "lifecycle-operator-metrics-service",
        "metrics-operator-service",
        "metrics-webhook-service",
    )
)
_KEPTN_ROLES: Final = {
    "lifecycle-operator": "lifecycle",
    "metrics-operator": "metrics",
    "certificate-operator": "certificates",
    "keptn-cert-manager": "certificates",
    "scheduler": "scheduler",
    SCHEDULER: "scheduler",
}
_KEPTN_NAMES: Final = _KEPTN_SERVICES | {
    "keptn-certs",
    "6b866dd9.keptn.sh",
    "3f8532ca.keptn.sh",
    "f9d59293.keptn.sh",
    "lifecycle-operator",
    "metrics-operator",
    "certificate-operator",
    "scheduler-config",
    SCHEDULER,
}
_KUPID_NAMES: Final = frozenset(
    (KUPID_EXTENSION, "gardener-extension-webhook-cert", "kupid-leader-election")
)
_PART_OF: Final = "app.kubernetes.io/part-of"
_CONTROL_PLANE: Final = "control-plane"


def system_of_webhooks(configuration: Configuration) -> System | None:
    """The system of a webhook configuration, by its name and those of its entries and Services.

    On a Gardener seed our own Service has kupid's name, so that our own entries don't count.
    """
    name = configuration.metadata.name
    entries = [entry.name for entry in configuration.entries]
    services = {service for _, service in configuration.services}
    if any(entry.endswith(_OUR_WEBHOOKS) for entry in entries):
        return None
    if (
        name.startswith(KUPID_EXTENSION)
        or any(entry.endswith(f".{KUPID_GROUP}") for entry in entries)
        or KUPID_EXTENSION in services
    ):
        return KUPID
    if (
        any(entry in _KEPTN_WEBHOOKS or entry.endswith(".keptn.sh") for entry in entries)
        or _KEPTN_SERVICES & services
    ):
        return KEPTN
    return None


def system_of_group(group: str) -> System | None:
    """The system that an API group belongs to."""
    if group == KUPID_GROUP:
        return KUPID
    return KEPTN if group in KEPTN_GROUPS else None


def role_of(metadata: Metadata) -> tuple[System, str] | None:
    """The system that a Deployment belongs to, and its role there."""
    if _is_our_own(metadata):
        return None
    name = metadata.name
    if name == KUPID_EXTENSION or metadata.labels.get("app", "") == KUPID:
        return KUPID, KUPID
    role = _KEPTN_ROLES.get(metadata.labels.get(_CONTROL_PLANE, "")) or _KEPTN_ROLES.get(name)
    if role is None:
        return None
    # A "scheduler" or a "metrics-operator" may be anybody's.
    return (KEPTN, role) if name == SCHEDULER or _is_labelled_keptn(metadata) else None


def system_of(metadata: Metadata) -> System | None:
    """Return the system of any other object in a namespace of kupid or Keptn."""
    if _is_our_own(metadata):
        return None
    if (
        metadata.name in _KUPID_NAMES
        or metadata.name.startswith(f"{KUPID_EXTENSION}-")
        or metadata.labels.get("app") == KUPID
        or metadata.labels.get(NAME_LABEL) == KUPID_EXTENSION
    ):
        return KUPID
    if metadata.name in _KEPTN_NAMES or _is_labelled_keptn(metadata):
        return KEPTN
    return None


def system_of_namespace(name: str) -> System | None:
    """The system that a namespace was made for."""
    if name.startswith(_KUPID_NAMESPACE):
        return KUPID
    return NAMESPACES.get(name)


def release_of(metadata: Metadata) -> str:
    """The Helm release that made an object, as ``namespace/name``; empty for none."""
    name = metadata.annotations.get(RELEASE_NAME, "")
    return f"{metadata.annotations.get(RELEASE_NAMESPACE, '')}/{name}" if name else ""


def is_of_gardener(metadata: Metadata) -> bool:
    """Whether a ManagedResource of Gardener's made the object, and restores it."""
    return metadata.labels.get(OF_GARDENER, "") == "gardener"


def _is_our_own(metadata: Metadata) -> bool:
    """Whether it is Harbourmaster's, which has kupid's labels too on a Gardener seed."""
    return metadata.labels.get(NAME_LABEL) == NAME


def _is_labelled_keptn(metadata: Metadata) -> bool:
    return (
        metadata.labels.get(_PART_OF, "").startswith("keptn")
        or metadata.labels.get(_CONTROL_PLANE, "") in {"lifecycle-operator", "certificate-operator"}
        or metadata.labels.get(INJECTED, "") == "true"
    )
