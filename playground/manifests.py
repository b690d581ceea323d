"""The project's manifests, made to fit processes of this machine."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.workloads import METRICS, WEBHOOK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from subprocess import CompletedProcess

    Kubectl: TypeAlias = Callable[..., CompletedProcess[str]]


def _deploy(here: Path) -> Path:
    """The manifests: a link in the repository, the folder itself in a wheel.

    Where a copy of the repository has lost its links, they are where the link led.
    """
    linked = here.with_name("deploy")
    return linked if linked.is_dir() else here.parents[1] / "deploy"


DEPLOY = _deploy(Path(__file__))
DEFAULT = DEPLOY / "default"
DEPLOYMENT = "Deployment"
API_SERVICE = "APIService"
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def render(kubectl: Kubectl, folder: Path) -> list[dict[str, Any]]:
    """Return the objects of a kustomize folder."""
    if not (folder / "kustomization.yaml").is_file():
        raise PlaygroundError(f"{folder} holds no kustomization.yaml: install the project again")
    # The C parser takes a tenth of the time; a wheel of PyYAML has it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return list(filter(None, yaml.load_all(kubectl("kustomize", str(folder)).stdout, loader)))


def apply(kubectl: Kubectl, items: Sequence[dict[str, Any]]) -> None:
    """Apply objects."""
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    # Server-side apply knows every field anyway; validation would wait for all kinds' schemas.
    flags = ("--server-side", "--force-conflicts", "--validate=false", "--filename=-")
    kubectl("apply", *flags, stdin=manifest)


def served_paths(items: Iterable[dict[str, Any]]) -> list[str]:
    """The paths that the API server serves a moment after it got the definitions."""
    return [
        f"/apis/{item['spec']['group']}/{version['name']}/{item['spec']['names']['plural']}"
        for item in items
        if item["kind"] == "CustomResourceDefinition"
        for version in item["spec"]["versions"]
        if version["served"]
    ]


def container_flags(items: Iterable[dict[str, Any]], role: str) -> list[str]:
    """Return the flags that the Deployment of the role gives its process."""
    for item in items:
        if item["kind"] == DEPLOYMENT and item["metadata"]["name"] == f"harbourmaster-{role}":
            container = item["spec"]["template"]["spec"]["containers"][0]
            return [flag for flag in container.get("args", ()) if flag.startswith("--")]
    return []


def adapt(
    items: Iterable[dict[str, Any]], service_port: int, metrics_port: int = 0
) -> list[dict[str, Any]]:
    """Return the objects without Deployments, with Services that lead to this machine.

    The API server calls ``externalName`` at the port that a webhook configuration, a conversion or
    an APIService names, so what is shipped of them names ``service_port`` or ``metrics_port``;
    without the latter there are no APIServices.
    """
    left_out = {DEPLOYMENT} if metrics_port else {DEPLOYMENT, API_SERVICE}
    changed = [copy.deepcopy(item) for item in items if item["kind"] not in left_out]
    for item in changed:
        if item["kind"] == "Service" and item["metadata"]["name"] in {WEBHOOK, METRICS}:
            item["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        if item["kind"] == API_SERVICE:
            item["spec"]["service"]["port"] = metrics_port
        if item["kind"] in _WEBHOOKS:
            for webhook in item["webhooks"]:
                webhook["clientConfig"]["service"]["port"] = service_port
        if "conversion" in item.get("spec", ()):
            converter = item["spec"]["conversion"]["webhook"]
            converter["clientConfig"]["service"]["port"] = service_port
    return changed
