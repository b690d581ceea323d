"""The plain port: what Keptn answers on 9999, for Prometheus and for KEDA's ``metrics-api``.

Nobody is asked who they are, as with Keptn; a NetworkPolicy limits who gets here.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import hdrs

from harbourmaster.controller.exposure.exposition import CONTENT_TYPE, render
from harbourmaster.controller.exposure.paths import parts_of
from harbourmaster.serving.responses import NamelessResponse, Refusal, json_response

if TYPE_CHECKING:
    from aiohttp import web

    from harbourmaster.controller.exposure.values import Values

HELD: Final = 1.0
"""Seconds for which a rendered page is given again: nobody can keep the controller rendering."""


class PlainHandler:
    """Answers ``/metrics`` and ``/api/v1/metrics/{namespace}/{metric}``."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._page = b""
        self._rendered_at = -math.inf

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Raises Refusal: 404 for another path, 405 for a method."""
        match parts_of(request):
            case ("metrics",):
                _check_method(request)
                return self._metrics()
            case ("api", "v1", "metrics", namespace, metric):
                _check_method(request)
                return self._value(namespace, metric)
        raise Refusal(
            404, "404: nothing is here; GET /metrics or /api/v1/metrics/{namespace}/{metric}"
        )

    def _metrics(self) -> web.StreamResponse:
        now = asyncio.get_running_loop().time()
        if now - self._rendered_at >= HELD:
            self._page = render(self._values.all())
            self._rendered_at = asyncio.get_running_loop().time()
        return NamelessResponse(body=self._page, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})

    def _value(self, namespace: str, name: str) -> web.StreamResponse:
        found = self._values.get(namespace, name)
        if found is None:
            return NamelessResponse(status=404)
        body = {"metric": name, "namespace": namespace, "value": found.text}
        return json_response(msgspec.json.encode(body))


def _check_method(request: web.BaseRequest) -> None:
    if request.method != hdrs.METH_GET:
        raise Refusal(405, "405: only GET is answered here", allow=hdrs.METH_GET)
