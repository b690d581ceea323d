"""Serves what Keptn serves on port 9999, for Prometheus and for KEDA's ``metrics-api``.

As in Keptn, clients are not authenticated; a NetworkPolicy limits who can connect.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import hdrs
from prometheus_client import generate_latest

from harbourmaster.controller.evaluation.collectors import ANALYSIS_RESULT, OBJECTIVE_RESULT
from harbourmaster.controller.exposure.values import parts_of
from harbourmaster.serving.responses import NamelessResponse, Refusal, json_response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web
    from prometheus_client.registry import Collector

    from harbourmaster.controller.exposure.values import ExposedValue, ExposedValues
    from harbourmaster.evaluation.model import Metric


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_TAKEN: Final = frozenset((ANALYSIS_RESULT, OBJECTIVE_RESULT))
"""Gauges of analyses: a metric of the same name would make the page invalid."""
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_]")


def gauge_name(name: str) -> str:
    """Return the name of the gauge of a metric; it never begins with a digit."""
    gauge = _FOREIGN.sub("_", name)
    return f"_{gauge}" if gauge[:1].isdigit() else gauge


def render(metrics: Iterable[tuple[Metric, ExposedValue | None]]) -> bytes:
    """Render all values. Metrics without a value only decide whether a name is unique."""
    families: dict[str, list[tuple[Metric, ExposedValue | None]]] = defaultdict(list)
    for metric in metrics:
        families[gauge_name(metric[0].metadata.name)].append(metric)
    lines: list[str] = []
    for name in sorted(families.keys() - _TAKEN):
        lines += _family(name, families[name])
    return "".join(f"{line}\n" for line in lines).encode()


def _family(name: str, members: list[tuple[Metric, ExposedValue | None]]) -> list[str]:
    is_shared = len(members) > 1
    samples = sorted(
        f"{name}{_labels(metric) if is_shared else ''} {_format(float(value.quantity))}"
        for metric, value in members
        if value is not None
    )
    if not samples:
        return []
    originals = {metric.metadata.name for metric, _ in members}
    title = originals.pop() if len(originals) == 1 else name
    return [f"# HELP {name} {title}", f"# TYPE {name} gauge", *samples]


def _labels(metric: Metric) -> str:
    # Names of objects have no character that would have to be escaped.
    return f'{{namespace="{metric.metadata.namespace}",name="{metric.metadata.name}"}}'


def _format(number: float) -> str:
    return repr(number).removesuffix(".0")


HELD: Final = 1.0
"""Seconds for which a rendered page is reused, which limits the cost of many requests."""


class PlainHandler:
    """Answers ``/metrics`` and ``/api/v1/metrics/{namespace}/{metric}``."""

    def __init__(self, values: ExposedValues, results: Collector) -> None:
        """``results`` collects the metrics of analyses."""
        self._values = values
        self._results = results
        self._page = b""
        self._rendered_at = -math.inf

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Raises Refusal: 404 for another path, 405 for a method."""
        match parts_of(request):
            case ("metrics",):
                _check_method(request)
                return self._metrics_page()
            case ("api", "v1", "metrics", namespace, metric):
                _check_method(request)
                return self._value(namespace, metric)
        raise Refusal(404, "404: not found: GET /metrics or /api/v1/metrics/{namespace}/{metric}")

    def _metrics_page(self) -> web.StreamResponse:
        now = asyncio.get_running_loop().time()
        if now - self._rendered_at >= HELD:
            self._page = render(self._values.all()) + generate_latest(self._results)
            self._rendered_at = asyncio.get_running_loop().time()
        return NamelessResponse(body=self._page, headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})

    def _value(self, namespace: str, name: str) -> web.StreamResponse:
        value = self._values.get(namespace, name)
        if value is None:
            return NamelessResponse(status=404)
        body = {"metric": name, "namespace": namespace, "value": value.text}
        return json_response(msgspec.json.encode(body))


def _check_method(request: web.BaseRequest) -> None:
    if request.method != hdrs.METH_GET:
        raise Refusal(405, "405: only GET is allowed", allow=hdrs.METH_GET)
