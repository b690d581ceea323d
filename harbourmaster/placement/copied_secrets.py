"""Secrets of an application's namespace that are applied to its member cluster like manifests.

Who can write Applications must not be able to read every Secret by this, so each Secret has to name
the applications that may copy it. Kubeconfigs of member clusters are never copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.placement.model import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.placement.deployed import SecretCopy

ALLOW_COPY: Final = f"{GROUP}/allow-copy"
"""The annotation of a Secret: the names of applications, separated by commas, or ``*`` for all."""


class Secret(Struct, frozen=True):
    """A Secret as the API gives it; the values are base64."""

    metadata: Metadata
    type: str = "Opaque"
    data: dict[str, str] | None = None


class Copies(Struct, frozen=True):
    """The manifests of the copies, or why there are none, in one line."""

    manifests: tuple[dict[str, Any], ...] = ()
    fault: str = ""
    generation: int = 0
    """The generation of the application."""
    until: float = 0.0
    """The time to read the Secrets again."""


def refusal(application: Metadata, secret: Secret, clusters: Sequence[str]) -> str:
    """Why an application is not allowed to copy a Secret; empty if it is.

    ``clusters`` are the names of the Clusters whose kubeconfig is in it.
    """
    name, namespace = secret.metadata.name, secret.metadata.namespace
    if clusters:
        text = f"has the kubeconfig of Cluster {clusters[0]}, which is never copied"
        return f"Secret {namespace}/{name} {text}: use another Secret"
    allowed = secret.metadata.annotations.get(ALLOW_COPY, "")
    if not {"*", application.name}.isdisjoint(word.strip() for word in allowed.split(",")):
        return ""
    names = f"{allowed},{application.name}" if allowed else application.name
    command = f"kubectl annotate --overwrite secret {name} -n {namespace} {ALLOW_COPY}={names}"
    return f"Secret {namespace}/{name} does not allow this application to copy it: run {command}"


def copy_of(wanted: SecretCopy, secret: Secret) -> dict[str, Any]:
    """The manifest of a copy."""
    metadata = {"name": wanted.target_name or wanted.name}
    if wanted.target_namespace:
        metadata["namespace"] = wanted.target_namespace
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": secret.type,
        "data": secret.data or {},
    }
