"""Reads the Secrets that an application takes along, each by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.resources import SECRETS
from harbourmaster.kube.errors import ForbiddenError, NotFoundError
from harbourmaster.placement.copied_secrets import Copies, Secret, copy_of, refusal

if TYPE_CHECKING:
    from harbourmaster.controller.placement.context import DeploymentContext
    from harbourmaster.placement.deployed import DeployedApplication, SecretCopy

_decode: Final = msgspec.json.Decoder(Secret).decode


async def read_copies(context: DeploymentContext, application: DeployedApplication) -> Copies:
    """Return the Secrets that an application copies. Raises ApiError of the management cluster."""
    manifests, faults = [], []
    for number, wanted in enumerate(application.spec.secrets):
        secret = await _read(context, application, wanted)
        if isinstance(secret, str):
            faults.append(f"secrets[{number}]: {secret}")
        else:
            manifests.append(copy_of(wanted, secret))
    until = context.now().timestamp() + context.settings.kubeconfig_interval_seconds
    generation = application.metadata.generation
    return Copies(() if faults else tuple(manifests), "; ".join(faults), generation, until)


async def _read(
    context: DeploymentContext, application: DeployedApplication, wanted: SecretCopy
) -> Secret | str:
    """The Secret, or why it is not copied."""
    namespace = application.metadata.namespace
    place = f"Secret {namespace}/{wanted.name}"
    try:
        secret = _decode(await context.client.get(SECRETS, wanted.name, namespace))
    except (NotFoundError, ValueError):
        # Some texts, such as "..", cannot be the name of an object.
        return f"{place} does not exist: create it, or remove it from spec.secrets"
    except ForbiddenError:
        todo = f"run harbourmaster grant secrets -n {namespace}"
        return f"{place}: missing permission to read it: {todo}"
    clusters = context.caches.clusters.store.values()
    here = [cluster for cluster in clusters if cluster.metadata.namespace == namespace]
    names = {cluster.metadata.name: cluster.spec.kubeconfig_secret_ref for cluster in here}
    users = [
        name for name, reference in names.items() if reference and reference.name == wanted.name
    ]
    return refusal(application.metadata, secret, users) or secret
