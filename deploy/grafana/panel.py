"""Panels, and the few forms of queries in them."""

from __future__ import annotations

from typing import NamedTuple


class Panel(NamedTuple):
    """``queries`` are pairs of PromQL and legend. ``warn`` and ``bad`` colour a stat from there on.

    Where ``bad`` is below ``warn``, low values are the bad ones.
    """

    title: str
    text: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    warn: float | None = None
    bad: float | None = None


def rate(metric: str, by: str = "", where: str = "") -> str:
    """How often a second, summed over all processes."""
    return f"sum{_by(by)} (rate({selected(metric, where)}[$__rate_interval]))"


def increased(metric: str, by: str = "", within: str = "1h") -> str:
    """How many more there are than so long ago."""
    return f"sum{_by(by)} (increase({selected(metric)}[{within}]))"


def ours(query: str) -> str:
    """Of a metric that every process has, the series of ours."""
    return f"{query} and on (instance) harbourmaster_build_info"


def latest(metric: str, by: str = "", how: str = "sum", where: str = "") -> str:
    """The value of now."""
    return f"{how}{_by(by)} ({selected(metric, where)})"


def quantile(share: float, metric: str, by: str = "") -> str:
    """A quantile of a histogram."""
    labels = ", ".join(filter(None, ("le", by)))
    buckets = f"sum by ({labels}) (rate({selected(f'{metric}_bucket')}[$__rate_interval]))"
    return f"histogram_quantile({share}, {buckets})"


def quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    """Median and tail."""
    return tuple((quantile(share, metric), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99))


def series(metric: str, by: str) -> tuple[tuple[str, str], ...]:
    """One rate for each value of the label."""
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
    return ((rate(metric, by), legend),)


def gauge(metric: str, by: str, how: str = "sum") -> tuple[tuple[str, str], ...]:
    """One value for each value of the label."""
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
    return ((latest(metric, by, how), legend),)


def selected(metric: str, where: str = "") -> str:
    """The series of the chosen installation."""
    return metric + "{" + ", ".join(filter(None, ('namespace=~"$namespace"', where))) + "}"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


def stat(title: str, text: str, unit: str, query: str, **limits: float) -> Panel:
    """One number, coloured from a limit on."""
    return Panel(title, text, unit, ((query, ""),), "stat", **limits)
