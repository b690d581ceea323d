"""A real Prometheus that fetches what a test sets, for tests of whoever asks it."""

from __future__ import annotations

import contextlib
import math
import threading
import time

import prometheus_client
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import CollectorRegistry

from harbourmaster.playground.prometheus import Prometheus
from helpers.patience import PATIENCE

# The server fetches so often, so a value is there in half of it on average.
INTERVAL = "200ms"
PROBE_SECONDS = 0.02
# What the server adds to each series.
OWN_LABELS = {"job", "instance"}


class Scraped:
    """A server and the gauges that it fetches; ``set`` and ``remove`` return when it knows.

    Tests share it, so each takes names of its own. All block: an async test calls them by
    ``asyncio.to_thread``.
    """

    def __init__(self, server, gauges):
        self.server = server
        self.url = server.url
        self._gauges = gauges

    def set(self, name, value, **labels):
        """Give a series a value, which the server answers from now on."""
        self._gauges.put(name, labels, value)
        self._until(name, labels, lambda obj: obj is not None and same(obj, value))

    def remove(self, name, **labels):
        """Take a series away; the server answers nothing for it from now on."""
        self._gauges.drop(name, labels)
        self._until(name, labels, lambda obj: obj is None)

    def value(self, name, **labels):
        """The newest value of a series, or None without one."""
        wanted = {"__name__": name, **labels}
        for series in self.server.query(name):
            own_labels = {key: text for key, text in series.metric.items() if key not in OWN_LABELS}
            if own_labels == wanted:
                return float(series.value[1])
        return None

    def _until(self, name, labels, good):
        deadline = time.monotonic() + PATIENCE
        while not good(value := self.value(name, **labels)):
            assert time.monotonic() < deadline, f"{name}{labels} is {value} after {PATIENCE:.0f} s"
            time.sleep(PROBE_SECONDS)


class Gauges:
    """The series that an endpoint shows, as a collector of prometheus_client."""

    def __init__(self):
        self._values = {}
        self._lock = threading.Lock()

    def put(self, name, labels, value):
        with self._lock:
            self._values.setdefault(name, {})[tuple(sorted(labels.items()))] = value

    def drop(self, name, labels):
        with self._lock:
            del self._values[name][tuple(sorted(labels.items()))]

    def collect(self):
        with self._lock:
            values = {name: dict(series) for name, series in self._values.items()}
        for name, series in values.items():
            family = GaugeMetricFamily(name, "Set by a test.")
            for labels, value in series.items():
                family.add_sample(name, dict(labels), value)
            yield family


@contextlib.contextmanager
def run_prometheus(directory):
    """Yield a server, with its data in ``directory``, and the gauges that it fetches."""
    with endpoint() as (url, gauges), Prometheus(directory, {"test": url}, interval=INTERVAL) as it:
        it.await_targets()
        yield Scraped(it, gauges)


@contextlib.contextmanager
def endpoint():
    """Yield the URL of metrics on a port of its own, and what it shows."""
    gauges = Gauges()
    registry = CollectorRegistry()
    registry.register(gauges)
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics", gauges
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def same(first, second):
    """Whether two values are equal, NaN and NaN too."""
    return first == second or (math.isnan(first) and math.isnan(second))
