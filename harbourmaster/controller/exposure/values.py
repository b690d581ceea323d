"""The values of metrics that are shown: those that count, as quantities.

What has no value, an old one or one that is not a number is not shown at all. Keptn shows 0 in its
place, which readers take for a measurement.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from harbourmaster.api.quantities import parse_quantity
from harbourmaster.evaluation.freshness import is_fresh, newest_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from aiohttp import web

    from harbourmaster.api.quantities import Quantity
    from harbourmaster.evaluation.model import Metric
    from harbourmaster.kube.store import Store


_MAX_FIELDS: Final = 32


def parts_of(request: web.BaseRequest) -> tuple[str, ...]:
    """The parts of the path; a slash at its end makes no difference."""
    path = request.raw_path.partition("?")[0]
    if not path.startswith("/"):
        return ("",)
    return tuple(map(unquote, path[1:].removesuffix("/").split("/")))


def parameters_of(request: web.BaseRequest) -> dict[str, str]:
    """The parameters, of those given twice the first. Raises ValueError for too many of them."""
    query = request.raw_path.partition("?")[2]
    found: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS):
        found.setdefault(key, value)
    return found


class ExposedValue(NamedTuple):
    """A value that counts; ``text`` as the provider said it, ``time`` as the status has it."""

    metric: Metric
    text: str
    quantity: Quantity
    time: str


def measured(metric: Metric, intervals: float, now: datetime) -> ExposedValue | None:
    """The metric's value; None where it has none that counts for so many fetch intervals."""
    if not is_fresh(metric, intervals, now):
        return None
    found = newest_value(metric)
    try:
        quantity = parse_quantity(found.text)
    except ValueError:
        return None
    # A number that no client can hold is none.
    if not math.isfinite(float(quantity)):
        return None
    return ExposedValue(metric, found.text, quantity, found.time)


class ExposedValues:
    """The current values in the cache of metrics."""

    def __init__(self, store: Store[Metric], intervals: float, now: Callable[[], datetime]) -> None:
        self._store = store
        self._intervals = intervals
        self._now = now

    def get(self, namespace: str, name: str) -> ExposedValue | None:
        """One value; None for an unknown metric too."""
        found = self._store.get(f"{namespace}/{name}")
        return None if found is None else measured(found, self._intervals, self._now())

    def all(self) -> Iterator[tuple[Metric, ExposedValue | None]]:
        """Every metric, whether it has a value or not."""
        now = self._now()
        for metric in self._store.values():
            yield metric, measured(metric, self._intervals, now)

    def within(self, namespace: str) -> Iterator[ExposedValue]:
        """The values of a namespace, in the order of their names."""
        now = self._now()
        metrics = [each for each in self._store.values() if each.metadata.namespace == namespace]
        for metric in sorted(metrics, key=lambda each: each.metadata.name):
            found = measured(metric, self._intervals, now)
            if found is not None:
                yield found
