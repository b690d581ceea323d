"""Who may read which value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import KEPTN_METRICS
from harbourmaster.kube.access import HELD, LIMIT, PATIENCE, Attributes, Decisions, User

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.kube.client import Client


GROUP: Final = "custom.metrics.k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")
"""The preferred one first."""
RESOURCE: Final = f"{KEPTN_METRICS.plural}.{KEPTN_METRICS.group}"
"""How the API names the kind that metrics are of."""

_INFO: Final = {"title": "Harbourmaster", "version": "1"}


def documents() -> dict[tuple[str, ...], bytes]:
    """Each document in JSON by the parts of its path."""
    found: dict[tuple[str, ...], Any] = {
        ("apis",): {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]},
        ("apis", GROUP): {"kind": "APIGroup", "apiVersion": "v1", **_group()},
        # Without schemas: a definition of ours could only spoil those of the whole cluster.
        ("openapi", "v2"): {"swagger": "2.0", "info": _INFO, "paths": {}},
        ("openapi", "v3"): {
            "paths": {
                f"apis/{GROUP}/{version}": {
                    "serverRelativeURL": f"/openapi/v3/apis/{GROUP}/{version}?hash=1"
                }
                for version in VERSIONS
            }
        },
    }
    for version in VERSIONS:
        found["apis", GROUP, version] = _resources(version)
        schema = {"openapi": "3.0.0", "info": _INFO, "paths": {}}
        found["openapi", "v3", "apis", GROUP, version] = schema
    return {path: msgspec.json.encode(document) for path, document in found.items()}


def _group() -> dict[str, Any]:
    versions = [{"groupVersion": f"{GROUP}/{each}", "version": each} for each in VERSIONS]
    return {"name": GROUP, "versions": versions, "preferredVersion": versions[0]}


def _resources(version: str) -> dict[str, Any]:
    # One entry for the metrics of all names: who has thousands wants no list of them here.
    every = {
        "name": f"{RESOURCE}/*",
        "singularName": "",
        "namespaced": True,
        "kind": "MetricValueList",
        "verbs": ["get"],
    }
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{version}",
        "resources": [every],
    }


__all__ = ["HELD", "LIMIT", "PATIENCE", "Access", "Wish"]


class Wish(Struct, frozen=True):
    """Who wants to read what; ``name`` and ``metric`` may be ``*``."""

    user: User
    version: str
    namespace: str
    name: str
    metric: str


class Access:
    """Asks for each wish once at a time; ``clock`` gives seconds that only go forward."""

    def __init__(
        self, client: Client, clock: Callable[[], float], *, patience: float = PATIENCE
    ) -> None:
        self._decisions = Decisions(client, clock, patience=patience)

    async def is_allowed(self, wish: Wish) -> bool:
        """What the API server decides. Raises ApiError, and TimeoutError."""
        attributes = Attributes(
            verb="get",
            group=GROUP,
            version=wish.version,
            resource=RESOURCE,
            namespace=wish.namespace,
            subresource=wish.metric,
            name=wish.name,
        )
        return await self._decisions.is_allowed(wish.user, attributes)
