"""The documents of the custom metrics API: discovery, lists of values, and Status."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import hdrs

from harbourmaster.api.resources import KEPTN_METRICS
from harbourmaster.api.times import format_rfc3339, parse_rfc3339
from harbourmaster.serving.responses import NamelessResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from harbourmaster.controller.exposure.values import ExposedValue

GROUP: Final = "custom.metrics.k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")
"""The versions of the API, the preferred one first."""
RESOURCE: Final = KEPTN_METRICS.name
"""The resource of the described objects."""
ALIAS: Final = "keptnmetrics.metrics.sh"
"""The resource in the paths of Keptn's documentation; it is served, but not listed."""

_INFO: Final = {"title": "Harbourmaster", "version": "1"}
_JSON: Final = "application/json"
_REASONS: Final = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
}


class StatusError(Exception):
    """An error that is answered with a Status; ``text`` is one line."""

    def __init__(self, code: HTTPStatus, text: str, *, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.retry_after = retry_after

    def response(self) -> web.Response:
        """Return the Status as a response."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.text,
            "reason": _REASONS[self.code],
            "code": self.code.value,
        }
        response = NamelessResponse(
            status=self.code, body=msgspec.json.encode(status), content_type=_JSON
        )
        if self.retry_after is not None:
            response.headers[hdrs.RETRY_AFTER] = str(self.retry_after)
        if self.code is HTTPStatus.METHOD_NOT_ALLOWED:
            response.headers[hdrs.ALLOW] = hdrs.METH_GET
        return response


def value_list(version: str, values: Iterable[ExposedValue]) -> bytes:
    """Encode a MetricValueList of ``version`` as JSON."""
    document = {
        "kind": "MetricValueList",
        "apiVersion": f"{GROUP}/{version}",
        "metadata": {},
        "items": [_item(version, value) for value in values],
    }
    return msgspec.json.encode(document)


def _item(version: str, value: ExposedValue) -> dict[str, Any]:
    metadata = value.metric.metadata
    described = {
        "kind": KEPTN_METRICS.kind,
        "namespace": metadata.namespace,
        "name": metadata.name,
        "apiVersion": KEPTN_METRICS.api_version,
    }
    name: dict[str, Any] = (
        {"metricName": metadata.name}
        if version == "v1beta1"
        else {"metric": {"name": metadata.name, "selector": None}}
    )
    last = {"selector": None} if version == "v1beta1" else {}
    return {
        "describedObject": described,
        **name,
        "timestamp": format_rfc3339(parse_rfc3339(value.time)),
        "value": value.quantity.text,
        **last,
    }


def documents() -> dict[tuple[str, ...], bytes]:
    """Return the documents of discovery and OpenAPI in JSON, by the parts of their paths."""
    by_path: dict[tuple[str, ...], Any] = {
        ("apis",): {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]},
        ("apis", GROUP): {"kind": "APIGroup", "apiVersion": "v1", **_group()},
        # Without schemas: an invalid one would break the OpenAPI document of the whole cluster.
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
        by_path["apis", GROUP, version] = _resources(version)
        schema = {"openapi": "3.0.0", "info": _INFO, "paths": {}}
        by_path["openapi", "v3", "apis", GROUP, version] = schema
    return {path: msgspec.json.encode(document) for path, document in by_path.items()}


def _group() -> dict[str, Any]:
    versions = [{"groupVersion": f"{GROUP}/{version}", "version": version} for version in VERSIONS]
    return {"name": GROUP, "versions": versions, "preferredVersion": versions[0]}


def _resources(version: str) -> dict[str, Any]:
    # One entry for the metrics of all names, of which there may be thousands.
    resource = {
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
        "resources": [resource],
    }
