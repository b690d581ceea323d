"""The value of a KeptnMetric, why it has none that counts, and what uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from harbourmaster.api.resources import EVALUATION_DEFINITIONS, METRICS_PROVIDERS
from harbourmaster.api.times import moment
from harbourmaster.cli.batches import short_age, shorten
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.evaluation.metric_status import age_limit, newest_value, read_metric
from harbourmaster.evaluation.model import Metric, Provider
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle.model import EvaluationDefinition

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.why.model import State, WhyContext


class MetricDetail(Struct, frozen=True, rename="camel", kw_only=True):
    """The value and its origin, for programs; times are RFC 3339."""

    value: str
    updated: str
    provider: str
    query: str
    used_by: tuple[str, ...]


async def section(context: WhyContext) -> Section:
    """Explain the value of a metric."""
    live = context.live
    metric = msgspec.json.decode(context.subject.raw, type=Metric)
    own, spec, value = metric.metadata, metric.spec, newest_value(metric)
    provider = await live.read(
        METRICS_PROVIDERS, spec.provider.name, Decoder(Provider).decode, own.namespace
    )
    settings, _ = await live.assumed_settings(CONTROLLER, ControllerSettings)
    updated = moment(value.time)
    age = f", {short_age(int((context.now - updated).total_seconds()))} old" if updated else ""
    shown = f"{value.text}{age}, asked every {spec.interval} s" if value.text else "none yet"
    intervals = settings.lifecycle.stale_after_intervals
    code, state, text, step = _verdict(metric, provider, intervals, context.now)
    users, unread = await _users(live, metric, settings.lifecycle.definition_namespaces)
    server = f", {provider.spec.target_server}" if provider and provider.spec.target_server else ""
    kind = f" ({provider.type}{server})" if provider else ""
    return Section(
        name="metric",
        state=state,
        code=code,
        summary=text,
        step=step,
        lines=(
            Line(shown, label="value"),
            Line(f"{spec.provider.name}{kind}: {spec.query}", label="query"),
            Line(shorten(users) if users else "no KeptnEvaluationDefinition", label="used by"),
            *(Line(note, label="unknown", tone="dim") for note in unread),
        ),
        detail=MetricDetail(
            value=value.text,
            updated=value.time,
            provider=spec.provider.name,
            query=spec.query,
            used_by=tuple(users),
        ),
    )


def _verdict(
    metric: Metric, provider: Provider | None, intervals: float, now: datetime
) -> tuple[str, State, str, str]:
    """Return a code, its urgency, a text and a step."""
    own, fault, asked = metric.metadata, read_metric(metric, intervals, now).fault, metric.spec
    kubectl, created = f"kubectl -n {own.namespace}", moment(own.creation_timestamp)
    if provider is None:
        text = f"KeptnMetricsProvider {asked.provider.name} not found in namespace {own.namespace}"
        step = f"{kubectl} get keptnmetricsproviders lists those that exist"
        return "provider-missing", "fault", text, step
    if not fault:
        return "has-value", "fine", "has a value that counts", ""
    is_new = created is not None and (now - created).total_seconds() < age_limit(metric, intervals)
    if is_new and not metric.status.err_msg:
        return "value-pending", "waits", "its first value is due", f"{kubectl} get keptnmetrics"
    step = f"{kubectl} describe keptnmetricsprovider {provider.metadata.name}"
    secret = provider.spec.secret_key_ref
    if secret is not None and "secret" in fault.lower():
        step = f"{kubectl} get secret {secret.name}; spec.secretKeyRef of its provider names it"
    return "metric-failing", "fault", fault, step


async def _users(
    live: Installation, metric: Metric, shared: Collection[str]
) -> tuple[list[str], list[str]]:
    """Return the definitions that name the metric, and why some are not known."""
    own, decode, unread = metric.metadata, Decoder(EvaluationDefinition).decode, []
    try:
        definitions = await live.items(EVALUATION_DEFINITIONS, decode)
    except ApiError as error:
        unread = [read_error(error, "definitions of other namespaces")]
        definitions = await live.items(EVALUATION_DEFINITIONS, decode, own.namespace)
    is_shared = own.namespace in {live.namespace, *shared}
    users: dict[str, None] = {}
    for definition in definitions:
        references = [objective.keptn_metric_ref for objective in definition.spec.objectives]
        for reference in references:
            places = {reference.namespace or definition.metadata.namespace}
            if is_shared and not reference.namespace:
                places.add(own.namespace)
            if reference.name == own.name and own.namespace in places:
                users[definition.metadata.key] = None
    return list(users), unread
