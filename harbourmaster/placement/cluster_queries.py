"""Queries with the name, the namespace or a label of the cluster whose value they ask for."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from harbourmaster.api.names import dns_subdomain, label_value, qualified_name
from harbourmaster.evaluation.targets import shorten
from harbourmaster.evaluation.templates import Placeholder, Template, render
from harbourmaster.placement.provider_validation import PROMETHEUS
from harbourmaster.placement.snapshot import MetricFault

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.placement.model import MetricSource, MetricsProvider

_NAMES: Final = ("cluster.name", "cluster.namespace")
_LABEL: Final = "cluster.labels."
_PLACEHOLDER: Final = re.compile(r"\$\(([^)]*)(\)?)")
_KNOWN: Final = "$(cluster.name), $(cluster.namespace) or $(cluster.labels.KEY)"


@lru_cache(maxsize=4096)
def parse_query(text: str) -> Template:
    """Read the placeholders of a query. Raises ValueError with one line that names the position."""
    parts: list[str | Placeholder] = []
    at = 0
    for match in _PLACEHOLDER.finditer(text):
        name = match[1]
        is_label = name.startswith(_LABEL) and not qualified_name(name.removeprefix(_LABEL))
        if not match[2] or not (is_label or name in _NAMES):
            where = f"'{shorten(match[0])}' at character {match.start() + 1}"
            raise ValueError(f"unknown placeholder {where}: use {_KNOWN}")
        parts += [text[at : match.start()], Placeholder(name)]
        at = match.end()
    return Template((*parts, text[at:]))


def cluster_query(
    name: str, source: MetricSource, provider: MetricsProvider | None, cluster: Metadata
) -> str | MetricFault:
    """The query of the metric ``name`` for a cluster, in its provider's language.

    A ``cluster`` without a name stands for another target, which has no value.
    """
    kind = PROMETHEUS if provider is None else provider.spec.type
    try:
        return _query(source, kind, cluster)
    except ValueError as error:
        return MetricFault("InvalidMetric", f"'{name}' cannot be asked for: {error}")


def _query(source: MetricSource, kind: str, cluster: Metadata) -> str:
    if not cluster.name:
        raise ValueError("clusters have a value each, but clouds and projects have none")
    if source.by_label and kind != PROMETHEUS:
        raise ValueError(f"byLabel needs a provider of type {PROMETHEUS}: use $(cluster.name)")
    parts = parse_query(source.metric).parts
    names = [part.argument for part in parts if isinstance(part, Placeholder)]
    return _render(source.metric, kind, tuple((name, _value(name, cluster)) for name in names))


def _value(name: str, cluster: Metadata) -> str:
    known = dict(zip(_NAMES, (cluster.name, cluster.namespace), strict=True))
    return known.get(name) or cluster.labels.get(name.removeprefix(_LABEL), "")


@lru_cache(maxsize=65536)
def _render(text: str, kind: str, values: tuple[tuple[str, str], ...]) -> str:
    for name, value in values:
        # What Kubernetes allows in names and labels cannot end a string of any query language.
        if not value or (dns_subdomain(value) and label_value(value)):
            raise ValueError(f"the cluster has no valid $({name}): add the label to the Cluster")
    return render(parse_query(text), dict(values), kind)
