"""The value of a KeptnMetric, why it has none that counts, and what uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
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

    from harbourmaster.cli.why.model import State, WhyContext


async def section(context: WhyContext) -> Section:
    """Explain the value of a metric."""
    live, unread = context.live, []
    metric = msgspec.json.decode(context.subject.raw, type=Metric)
    own, spec, value = metric.metadata, metric.spec, newest_value(metric)
    # One that cannot be read may exist.
    provider: Provider | None = Provider(metadata=own)
    try:
        provider = await live.read(
            METRICS_PROVIDERS, spec.provider.name, Decoder(Provider).decode, own.namespace
        )
    except ApiError as error:
        unread.append(read_error(error, "its provider"))
    settings, _ = await live.assumed_settings(CONTROLLER, ControllerSettings)
    lifecycle = settings.lifecycle
    definitions: list[EvaluationDefinition] = []
    for place in (None, own.namespace):
        reading = live.items(EVALUATION_DEFINITIONS, Decoder(EvaluationDefinition).decode, place)
        try:
            definitions = await reading
            break
        except ApiError as error:
            unread.append(read_error(error, f"definitions of {place or 'other namespaces'}"))
    shared = {live.namespace, *lifecycle.definition_namespaces}
    users = [item.metadata.key for item in definitions if _uses(item, metric, shared)]
    updated = moment(value.time)
    age = f", {short_age(int((context.now - updated).total_seconds()))} old" if updated else ""
    shown = f"{value.text}{age}, asked every {spec.interval} s" if value.text else "none yet"
    code, state, text, step = _verdict(
        metric, provider, lifecycle.stale_after_intervals, context.now
    )
    lines = (
        Line(shown, label="value"),
        Line(f"{spec.provider.name}: {spec.query}", label="query"),
        Line(shorten(users) if users else "no KeptnEvaluationDefinition", label="used by"),
        *(Line(note, label="unknown", tone="dim") for note in unread),
    )
    return Section(name="metric", state=state, code=code, summary=text, step=step, lines=lines)


def _verdict(
    metric: Metric, provider: Provider | None, intervals: float, now: datetime
) -> tuple[str, State, str, str]:
    """Return a code, its urgency, a text and a step."""
    own, fault = metric.metadata, read_metric(metric, intervals, now).fault
    kubectl, created = f"kubectl -n {own.namespace}", moment(own.creation_timestamp)
    name = metric.spec.provider.name
    if provider is None:
        text = f"KeptnMetricsProvider {name} not found in namespace {own.namespace}"
        step = f"{kubectl} get keptnmetricsproviders lists those that exist"
        return "provider-missing", "fault", text, step
    if not fault:
        return "has-value", "fine", "has a value that counts", ""
    is_new = created is not None and (now - created).total_seconds() < age_limit(metric, intervals)
    if is_new and not metric.status.err_msg:
        return "value-pending", "waits", "its first value is due", ""
    step = f"{kubectl} describe keptnmetricsprovider {name}"
    secret = provider.spec.secret_key_ref
    if secret is not None and "secret" in fault.lower():
        step = f"{kubectl} get secret {secret.name}; spec.secretKeyRef of its provider names it"
    return "metric-failing", "fault", fault, step


def _uses(definition: EvaluationDefinition, metric: Metric, shared: Collection[str]) -> bool:
    """Whether an objective names the metric; ``shared`` are namespaces that all may use."""
    places = {definition.metadata.namespace, *shared}
    references = [objective.keptn_metric_ref for objective in definition.spec.objectives]
    return any(
        reference.name == metric.metadata.name
        and metric.metadata.namespace in ({reference.namespace} if reference.namespace else places)
        for reference in references
    )
