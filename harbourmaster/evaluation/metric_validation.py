"""Validation of KeptnMetric and KeptnMetricsProvider: pure.

See keptn-spec 4.6.

The schema accepts much that no provider could answer; admission rejects it, or warns of it where
Keptn accepts it.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.field_errors import (
    forbidden,
    invalid,
    quoted,
    required,
    unsupported,
    warned_name,
)
from harbourmaster.api.quantities import parse_quantity
from harbourmaster.api.urls import http_url, with_scheme
from harbourmaster.evaluation.targets import shorten
from harbourmaster.evaluation.templates import LONGEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.api.field_errors import FieldError
    from harbourmaster.evaluation.model import Metric, MetricRange, Provider, ProviderSpec

AGGREGATIONS: Final = ("p90", "p95", "p99", "max", "min", "avg", "median")
KAFKA: Final = "kafka"
STATIC: Final = "static"
PROVIDER_TYPES: Final = (
    "cortex",
    "datadog",
    "dql",
    "dynatrace",
    "elastic",
    KAFKA,
    "prometheus",
    STATIC,
    "thanos",
)
MAX_SAMPLES: Final = 10_000
"""Of one answer; a range with more steps could never be fetched."""
MAX_ITEMS: Final = 1_000
"""Items of a list or a map, to bound the time of a review."""
_MAX_STORED: Final = 255
_LONGEST_DURATION: Final = 64
"""Characters of a duration."""
_HOST: Final = re.compile(r"[\w.:-]+", re.ASCII)
"""Looser than the check before a query: the placeholders of examples are no host."""
_NEEDS_SECRET: Final = frozenset(("datadog", "dql", "dynatrace"))


def validate_metric(metric: Metric) -> list[FieldError]:
    """Every fault, in the order of the fields; none where a provider can be asked."""
    return list(_metric(metric))


def validate_provider(provider: Provider) -> list[FieldError]:
    """Every fault, in the order of the fields; none where it can be spoken to."""
    return list(_provider(provider))


def bad_duration(field: str, text: str) -> Iterator[FieldError]:
    """A fault where the text is not a duration above zero."""
    if len(text) > _LONGEST_DURATION:
        why = "is not a duration: write for example 30s, 5m or 1h30m"
        yield invalid(field, shorten(text), why)
        return
    try:
        if parse_duration(text) <= 0:
            yield invalid(field, text, "must be longer than 0s")
    except ValueError as error:
        yield invalid(field, text, str(error))


def bad_query(field: str, text: str) -> Iterator[FieldError]:
    """A fault where there is nothing to ask, or far too much."""
    if not text.strip():
        yield required(field, "must not be empty").as_warning()
    if len(text) > LONGEST:
        yield invalid(field, shorten(text), f"has more than {LONGEST} characters")


def _metric(metric: Metric) -> Iterator[FieldError]:
    spec = metric.spec
    at = "spec.provider.name"
    if not spec.provider.name:
        yield required(at, "name the KeptnMetricsProvider that is asked").as_warning()
    yield from warned_name(at, spec.provider.name)
    yield from bad_query("spec.query", spec.query)
    at = "spec.fetchIntervalSeconds"
    if spec.fetch_interval_seconds < 0:
        yield invalid(at, spec.fetch_interval_seconds, "must be one second or more")
    elif spec.fetch_interval_seconds == 0:
        text = f"means {spec.interval} seconds, as in Keptn: write the seconds between two queries"
        yield invalid(at, 0, text).as_warning()
    if spec.range is not None:
        yield from _range(spec.range)


def _range(found: MetricRange) -> Iterator[FieldError]:
    at = "spec.range"
    faults = list(bad_duration(f"{at}.interval", found.interval))
    if found.step:
        faults += bad_duration(f"{at}.step", found.step)
    yield from faults
    if found.step and not found.aggregation:
        yield required(f"{at}.aggregation", "needed with step, to combine its values")
    if found.aggregation and not found.step:
        yield required(f"{at}.step", "needed with aggregation: the time between values")
    if found.aggregation and found.aggregation not in AGGREGATIONS:
        yield unsupported(f"{at}.aggregation", found.aggregation, AGGREGATIONS)
    if found.step and not faults:
        steps = parse_duration(found.interval) / parse_duration(found.step)
        if steps > MAX_SAMPLES:
            text = f"gives {steps:.0f} values in {found.interval}, more than {MAX_SAMPLES}"
            yield invalid(f"{at}.step", found.step, text)
    if not 0 <= found.stored_results <= _MAX_STORED:
        yield invalid(f"{at}.storedResults", found.stored_results, f"must be 0 to {_MAX_STORED}")


def _provider(provider: Provider) -> Iterator[FieldError]:
    spec = provider.spec
    kind = provider.type
    if kind not in PROVIDER_TYPES:
        yield _unknown_type(provider).as_warning()
    if spec.target_server or kind != STATIC:
        yield from _server(spec.target_server)
    yield from (each.as_warning() for each in _secret(spec, kind))
    if spec.secret_key_ref is not None:
        yield from warned_name("spec.secretKeyRef.name", spec.secret_key_ref.name)
    yield from _kafka(spec, kind)
    yield from _static(spec, kind)


def _unknown_type(provider: Provider) -> FieldError:
    if provider.spec.type:
        return unsupported("spec.type", provider.spec.type, PROVIDER_TYPES)
    # As in v1alpha2, which had no types.
    listed = ", ".join(map(quoted, PROVIDER_TYPES))
    name = quoted(provider.metadata.name)
    return required("spec.type", f"the name {name} is not a provider type: give one of {listed}")


def _server(server: str) -> Iterator[FieldError]:
    at = "spec.targetServer"
    url = http_url(with_scheme(server, "http"))
    is_whole = url is not None and "://" in server
    if (url and (url.username, url.password) != (None, None)) or ("@" in server and not is_whole):
        # Stored, they would be readable for everybody who can read the object.
        text = "must not contain credentials: put them into a Secret, named by secretKeyRef"
        yield invalid(at, _shown(server), text)
    elif not server:
        text = "the URL of the provider, for example https://prometheus.example.com"
        yield required(at, text).as_warning()
    elif url is None or not _HOST.fullmatch(url.hostname or ""):
        text = "is not an http or https URL: write for example https://prometheus.example.com:9090"
        yield invalid(at, _shown(server), text).as_warning()
    elif "?" in server or "#" in server:
        text = "must not have a query or a fragment"
        yield invalid(at, _shown(server), text).as_warning()
    elif "://" not in server:
        text = "has no scheme: https is used with secretKeyRef, http without: write it before ://"
        yield invalid(at, shorten(server), text).as_warning()


def _shown(server: str) -> str:
    """The URL without a possible password or token: messages are stored and widely readable."""
    server, mark, _ = server.partition("?")
    server += f"{mark}..." if mark else ""
    _, at, tail = server.rpartition("@")
    if not at:
        return shorten(server)
    scheme, colon, _ = server.partition("://")
    return shorten(f"{scheme}://...@{tail}" if colon and scheme.isalpha() else f"...@{tail}")


def _secret(spec: ProviderSpec, kind: str) -> Iterator[FieldError]:
    at = "spec.secretKeyRef"
    secret = spec.secret_key_ref
    if secret is None:
        if kind in _NEEDS_SECRET:
            yield required(at, f"{kind} requires credentials: name a Secret")
        return
    if not secret.name:
        yield required(f"{at}.name", "name a Secret of the same namespace")
    if not secret.key:
        yield required(f"{at}.key", "name a key of the Secret")


def _kafka(spec: ProviderSpec, kind: str) -> Iterator[FieldError]:
    at = "spec.kafka"
    if spec.kafka is None:
        if kind == KAFKA:
            yield required(at, "name the table that has the values")
    elif kind != KAFKA:
        yield forbidden(at, f"it belongs to the type {KAFKA}")
    else:
        for name, value, text in (
            ("table", spec.kafka.table, "the table that has the values"),
            ("comparisonColumn", spec.kafka.comparison_column, "the column that has the query"),
            ("valueColumn", spec.kafka.value_column, "the column that has the value"),
        ):
            if not value:
                yield required(f"{at}.{name}", f"name {text}")


def _static(spec: ProviderSpec, kind: str) -> Iterator[FieldError]:
    at = "spec.static"
    if spec.static is None:
        if kind == STATIC:
            yield required(at, "give the values")
    elif kind != STATIC:
        yield forbidden(at, f"it belongs to the type {STATIC}")
    elif len(spec.static.metrics) > MAX_ITEMS:
        text = f"must have at most {MAX_ITEMS} values"
        yield invalid(f"{at}.metrics", len(spec.static.metrics), text)
    else:
        for query, value in spec.static.metrics.items():
            yield from _static_value(f"{at}.metrics[{query}]", value)


def _static_value(field: str, value: str | float) -> Iterator[FieldError]:
    if isinstance(value, str):
        try:
            parse_quantity(value)
        except ValueError as error:
            yield invalid(field, value, str(error))
    elif not math.isfinite(value):
        yield invalid(field, value, "must be a finite number")
