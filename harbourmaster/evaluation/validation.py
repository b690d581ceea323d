"""Validation of the kinds of metrics.keptn.sh (keptn-spec 4.6).

The schema accepts much that no provider could answer. Admission rejects it, or warns of it if
Keptn accepts it.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.field_errors import (
    forbidden,
    invalid,
    quote,
    required,
    unsupported,
    warn_of_name,
)
from harbourmaster.api.quantities import parse_quantity
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.api.urls import http_url, with_scheme
from harbourmaster.evaluation.criteria import FIXED, HIGH, LOW, OPERATORS
from harbourmaster.evaluation.targets import shorten
from harbourmaster.evaluation.templates import LONGEST, parse_template

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from harbourmaster.api.field_errors import FieldError
    from harbourmaster.api.quantities import Quantity
    from harbourmaster.evaluation.model import (
        Analysis,
        AnalysisDefinition,
        AnalysisObjective,
        AnalysisValueTemplate,
        Metric,
        MetricRange,
        ObjectReference,
        Provider,
        ProviderSpec,
        Timeframe,
    )

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
"""Samples of one answer; a range with more steps could never be fetched."""
MAX_ITEMS: Final = 1_000
"""The limit of items in a list or a map, which bounds the time of a review."""
_MAX_STORED: Final = 255
_LONGEST_DURATION: Final = 64
"""Characters of a duration."""
_HOST: Final = re.compile(r"[\w.:-]+", re.ASCII)
"""Any host. Queries check it more strictly; this one rejects placeholders of examples."""
_NEEDS_SECRET: Final = frozenset(("datadog", "dql", "dynatrace"))


def validate_metric(metric: Metric) -> list[FieldError]:
    """Return all errors and warnings of a KeptnMetric, in the order of the fields."""
    return list(_check_metric(metric))


def validate_provider(provider: Provider) -> list[FieldError]:
    """Return all errors and warnings of a KeptnMetricsProvider, in the order of the fields."""
    return list(_check_provider(provider))


def _check_duration(field: str, text: str) -> Iterator[FieldError]:
    if len(text) > _LONGEST_DURATION:
        why = "is not a duration: write for example 30s, 5m or 1h30m"
        yield invalid(field, shorten(text), why)
        return
    try:
        if parse_duration(text) <= 0:
            yield invalid(field, text, "must be longer than 0s")
    except ValueError as error:
        yield invalid(field, text, str(error))


def _check_query(field: str, text: str) -> Iterator[FieldError]:
    if not text.strip():
        yield required(field, "must not be empty").as_warning()
    if len(text) > LONGEST:
        yield invalid(field, shorten(text), f"has more than {LONGEST} characters")


def _check_metric(metric: Metric) -> Iterator[FieldError]:
    spec = metric.spec
    at = "spec.provider.name"
    if not spec.provider.name:
        yield required(at, "name the KeptnMetricsProvider that is asked").as_warning()
    yield from warn_of_name(at, spec.provider.name)
    yield from _check_query("spec.query", spec.query)
    at = "spec.fetchIntervalSeconds"
    if spec.fetch_interval_seconds < 0:
        yield invalid(at, spec.fetch_interval_seconds, "must be one second or more")
    elif spec.fetch_interval_seconds == 0:
        text = f"means {spec.interval} seconds, as in Keptn: write the seconds between two queries"
        yield invalid(at, 0, text).as_warning()
    if spec.range is not None:
        yield from _check_range(spec.range)


def _check_range(span: MetricRange) -> Iterator[FieldError]:
    at = "spec.range"
    errors = list(_check_duration(f"{at}.interval", span.interval))
    if span.step:
        errors += _check_duration(f"{at}.step", span.step)
    yield from errors
    if span.step and not span.aggregation:
        yield required(f"{at}.aggregation", "needed with step, to combine its values")
    if span.aggregation and not span.step:
        yield required(f"{at}.step", "needed with aggregation: the time between values")
    if span.aggregation and span.aggregation not in AGGREGATIONS:
        yield unsupported(f"{at}.aggregation", span.aggregation, AGGREGATIONS)
    if span.step and not errors:
        steps = parse_duration(span.interval) / parse_duration(span.step)
        if steps > MAX_SAMPLES:
            text = f"gives {steps:.0f} values in {span.interval}, more than {MAX_SAMPLES}"
            yield invalid(f"{at}.step", span.step, text)
    if not 0 <= span.stored_results <= _MAX_STORED:
        yield invalid(f"{at}.storedResults", span.stored_results, f"must be 0 to {_MAX_STORED}")


def _check_provider(provider: Provider) -> Iterator[FieldError]:
    spec = provider.spec
    kind = provider.type
    if kind not in PROVIDER_TYPES:
        yield _unknown_type_error(provider).as_warning()
    if spec.target_server or kind != STATIC:
        yield from _check_server(spec.target_server)
    yield from (error.as_warning() for error in _check_secret(spec, kind))
    if spec.secret_key_ref is not None:
        yield from warn_of_name("spec.secretKeyRef.name", spec.secret_key_ref.name)
    yield from _check_kafka(spec, kind)
    yield from _check_static(spec, kind)


def _unknown_type_error(provider: Provider) -> FieldError:
    if provider.spec.type:
        return unsupported("spec.type", provider.spec.type, PROVIDER_TYPES)
    # v1alpha2 has no types.
    listed = ", ".join(map(quote, PROVIDER_TYPES))
    name = quote(provider.metadata.name)
    return required("spec.type", f"the name {name} is not a provider type: give one of {listed}")


def _check_server(server: str) -> Iterator[FieldError]:
    at = "spec.targetServer"
    url = http_url(with_scheme(server, "http"))
    is_whole = url is not None and "://" in server
    if (url and (url.username, url.password) != (None, None)) or ("@" in server and not is_whole):
        # All users who can read the object could read them.
        text = "must not contain credentials: put them into a Secret, named by secretKeyRef"
        yield invalid(at, _without_credentials(server), text)
    elif not server:
        text = "the URL of the provider, for example https://prometheus.example.com"
        yield required(at, text).as_warning()
    elif url is None or not _HOST.fullmatch(url.hostname or ""):
        text = "is not an http or https URL: write for example https://prometheus.example.com:9090"
        yield invalid(at, _without_credentials(server), text).as_warning()
    elif "?" in server or "#" in server:
        text = "must not have a query or a fragment"
        yield invalid(at, _without_credentials(server), text).as_warning()
    elif "://" not in server:
        text = "has no scheme: https is used with secretKeyRef, http without: write it before ://"
        yield invalid(at, shorten(server), text).as_warning()


def _without_credentials(server: str) -> str:
    """Return the URL without a possible password or token: many users can read messages."""
    server, mark, _ = server.partition("?")
    server += f"{mark}..." if mark else ""
    _, at, tail = server.rpartition("@")
    if not at:
        return shorten(server)
    scheme, colon, _ = server.partition("://")
    return shorten(f"{scheme}://...@{tail}" if colon and scheme.isalpha() else f"...@{tail}")


def _check_secret(spec: ProviderSpec, kind: str) -> Iterator[FieldError]:
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


def _check_kafka(spec: ProviderSpec, kind: str) -> Iterator[FieldError]:
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


def _check_static(spec: ProviderSpec, kind: str) -> Iterator[FieldError]:
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
            yield from _check_static_value(f"{at}.metrics[{query}]", value)


def _check_static_value(field: str, value: str | float) -> Iterator[FieldError]:
    if isinstance(value, str):
        try:
            parse_quantity(value)
        except ValueError as error:
            yield invalid(field, value, str(error))
    elif not math.isfinite(value):
        yield invalid(field, value, "must be a finite number")


def validate_analysis(analysis: Analysis) -> list[FieldError]:
    """Return all errors and warnings, in the order of the fields."""
    spec = analysis.spec
    return [
        *_check_timeframe(spec.timeframe),
        *_check_reference("spec.analysisDefinition", spec.analysis_definition),
    ]


def validate_definition(definition: AnalysisDefinition) -> list[FieldError]:
    """Return all errors and warnings, in the order of the fields."""
    return list(_check_definition(definition))


def validate_template(template: AnalysisValueTemplate) -> list[FieldError]:
    """Return all errors and warnings, in the order of the fields."""
    return [
        *_check_reference("spec.provider", template.spec.provider),
        *_check_template(template.spec.query),
    ]


def _check_timeframe(timeframe: Timeframe) -> Iterator[FieldError]:
    at = "spec.timeframe"
    if _is_set(timeframe.recent):
        yield from _check_duration(f"{at}.recent", timeframe.recent)
        for name, value in (("from", timeframe.from_), ("to", timeframe.to)):
            if value:
                yield forbidden(f"{at}.{name}", "give either recent, or both from and to")
        return
    moments: list[datetime] = []
    for name, value in (("from", timeframe.from_), ("to", timeframe.to)):
        if not value:
            yield required(f"{at}.{name}", "give both from and to, or recent")
            continue
        try:
            moments.append(parse_rfc3339(value))
        except ValueError:
            text = "is not a time: write for example 2026-01-31T12:00:00Z"
            yield invalid(f"{at}.{name}", value, text)
    match moments:
        case [begin, end] if end <= begin:
            yield invalid(
                f"{at}.to", timeframe.to, f"must be after from, which is {timeframe.from_}"
            )


def _is_set(recent: str) -> bool:
    # Go programs write an unset duration as 0s.
    try:
        return bool(recent) and parse_duration(recent) != 0
    except ValueError:
        return True


def _check_definition(definition: AnalysisDefinition) -> Iterator[FieldError]:
    spec = definition.spec
    if len(spec.objectives) > MAX_ITEMS:
        text = f"must have at most {MAX_ITEMS} objectives"
        yield invalid("spec.objectives", len(spec.objectives), text)
        return
    for index, objective in enumerate(spec.objectives):
        yield from _check_objective(f"spec.objectives[{index}]", objective)
    at = "spec.totalScore"
    percentages = (
        ("passPercentage", spec.total_score.pass_percentage),
        ("warningPercentage", spec.total_score.warning_percentage),
    )
    for name, value in percentages:
        if not 0 <= value <= 100:  # noqa: PLR2004 - percent
            yield invalid(f"{at}.{name}", value, "must be 0 to 100")
    passing, warning = (value for _, value in percentages)
    if warning >= passing:
        text = f"must be below passPercentage, which is {passing}"
        yield invalid(f"{at}.warningPercentage", warning, text)


def _check_objective(at: str, objective: AnalysisObjective) -> Iterator[FieldError]:
    yield from _check_reference(
        f"{at}.analysisValueTemplateRef", objective.analysis_value_template_ref
    )
    target = objective.target
    if isinstance(target, dict):
        for name in ("failure", "warning"):
            if target.get(name) is not None:
                yield from _check_criterion(f"{at}.target.{name}", target[name])
    elif target is not None:
        yield _not_an_object_error(f"{at}.target", target)
    if objective.weight < 0:
        yield invalid(f"{at}.weight", objective.weight, "must not be negative")


def _check_criterion(at: str, criterion: Any) -> Iterator[FieldError]:  # noqa: ANN401 - as it was sent
    if not isinstance(criterion, dict):
        yield _not_an_object_error(at, criterion)
        return
    given = [name for name in OPERATORS if criterion.get(name) is not None]
    if not given:
        yield required(at, f"leave it out, or give one of {', '.join(OPERATORS)}")
    elif len(given) > 1:
        yield invalid(at, ", ".join(given), "only one operator can be given")
    for name in given:
        yield from _check_operator(f"{at}.{name}", criterion[name], is_range=name.endswith("Range"))


def _check_operator(at: str, operator: Any, *, is_range: bool) -> Iterator[FieldError]:  # noqa: ANN401
    if not isinstance(operator, dict):
        yield _not_an_object_error(at, operator)
        return
    bounds: list[Quantity] = []
    for name in (LOW, HIGH) if is_range else (FIXED,):
        value = operator.get(name)
        if value is None:
            yield required(f"{at}.{name}", "give a number or a quantity, for example 5 or 500m")
            continue
        try:
            bounds.append(parse_quantity(value))
        except ValueError as error:
            yield invalid(f"{at}.{name}", str(value), str(error))
    match bounds:
        case [low, high] if low.value >= high.value:
            text = f"must be above {LOW}, which is {low.text}"
            yield invalid(f"{at}.{HIGH}", high.text, text)


def _check_template(query: str) -> Iterator[FieldError]:
    at = "spec.query"
    errors = list(_check_query(at, query))
    yield from errors
    if not errors:
        try:
            parse_template(query)
        except ValueError as error:
            yield invalid(at, shorten(query), str(error)).as_warning()


def _check_reference(at: str, reference: ObjectReference) -> Iterator[FieldError]:
    if not reference.name:
        yield required(f"{at}.name", "name an object").as_warning()
    yield from warn_of_name(f"{at}.name", reference.name, same_namespace=False)
    yield from warn_of_name(f"{at}.namespace", reference.namespace, same_namespace=False)


def _not_an_object_error(at: str, value: Any) -> FieldError:  # noqa: ANN401 - as it was sent
    return invalid(at, str(value), "must be an object")
