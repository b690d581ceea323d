"""What the custom metrics API says of itself: its group, its versions and its one resource."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harbourmaster.api.resources import KEPTN_METRICS

GROUP: Final = "custom.metrics.k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")
"""The preferred one first."""
RESOURCE: Final = KEPTN_METRICS.name
"""How the API names the kind that metrics are of."""
ALIAS: Final = "keptnmetrics.metrics.sh"
"""The same in the paths of Keptn's documentation, whose server ignores the group; not listed."""

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
    versions = [{"groupVersion": f"{GROUP}/{version}", "version": version} for version in VERSIONS]
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
