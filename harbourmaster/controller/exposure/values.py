"""Selects the values of metrics that are shown to others, as quantities.

A metric without a value, or with one that is old or not a number, is not shown. Keptn shows 0,
which readers take for a measurement.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from harbourmaster.api.quantities import parse_quantity
from harbourmaster.evaluation.metric_status import is_fresh, newest_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from aiohttp import web

    from harbourmaster.api.quantities import Quantity
    from harbourmaster.evaluation.model import Metric
    from harbourmaster.kube.store import Store


_MAX_FIELDS: Final = 32


def parts_of(request: web.BaseRequest) -> tuple[str, ...]:
    """Return the parts of the path, without a trailing slash."""
    path = request.raw_path.partition("?")[0]
    if not path.startswith("/"):
        return ("",)
    return tuple(map(unquote, path[1:].removesuffix("/").split("/")))


def parameters_of(request: web.BaseRequest) -> dict[str, str]:
    """Return the query parameters, the first of each name. Raises ValueError for too many."""
    query = request.raw_path.partition("?")[2]
    parameters: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS):
        parameters.setdefault(key, value)
    return parameters


class ExposedValue(NamedTuple):
    """A valid value, with the provider's ``text`` and the ``time`` of the status."""

    metric: Metric
    text: str
    quantity: Quantity
    time: str


def expose(metric: Metric, intervals: float, now: datetime) -> ExposedValue | None:
    """Return the value of a metric, or None if it has none of the last ``intervals`` fetches."""
    if not is_fresh(metric, intervals, now):
        return None
    newest = newest_value(metric)
    try:
        quantity = parse_quantity(newest.text)
    except ValueError:
        return None
    # Clients cannot represent a larger number.
    if not math.isfinite(float(quantity)):
        return None
    return ExposedValue(metric, newest.text, quantity, newest.time)


class ExposedValues:
    """The current values of the metrics in a store."""

    def __init__(self, store: Store[Metric], intervals: float, now: Callable[[], datetime]) -> None:
        self._store = store
        self._intervals = intervals
        self._now = now

    def get(self, namespace: str, name: str) -> ExposedValue | None:
        """Return the value of one metric, or None."""
        metric = self._store.get(f"{namespace}/{name}")
        return None if metric is None else expose(metric, self._intervals, self._now())

    def all(self) -> Iterator[tuple[Metric, ExposedValue | None]]:
        """Yield each metric with its value, or with None."""
        now = self._now()
        for metric in self._store.values():
            yield metric, expose(metric, self._intervals, now)

    def within(self, namespace: str) -> Iterator[ExposedValue]:
        """Yield the values of a namespace in the order of their names."""
        now = self._now()
        for metric in sorted(self._store.values(), key=lambda metric: metric.metadata.name):
            if metric.metadata.namespace == namespace:
                value = expose(metric, self._intervals, now)
                if value is not None:
                    yield value
