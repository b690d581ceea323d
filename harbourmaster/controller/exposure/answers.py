"""What the custom metrics API answers: lists of values, and Status where there is none."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import hdrs

from harbourmaster.api.resources import KEPTN_METRICS
from harbourmaster.api.times import format_rfc3339, parse_rfc3339
from harbourmaster.controller.exposure.documents import GROUP
from harbourmaster.serving.responses import NamelessResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from harbourmaster.controller.exposure.values import ExposedValue

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
    """An answer that is a Status; the text is one line."""

    def __init__(self, code: HTTPStatus, text: str, *, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.retry_after = retry_after

    def response(self) -> web.Response:
        """The answer."""
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
    """A MetricValueList in JSON."""
    found = {
        "kind": "MetricValueList",
        "apiVersion": f"{GROUP}/{version}",
        "metadata": {},
        "items": [_item(version, value) for value in values],
    }
    return msgspec.json.encode(found)


def _item(version: str, found: ExposedValue) -> dict[str, Any]:
    metadata = found.metric.metadata
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
        "timestamp": format_rfc3339(parse_rfc3339(found.time)),
        "value": found.quantity.text,
        **last,
    }
