"""Whether metrics have fresh values, and which credentials of providers are wrong."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.json import Decoder

from harbourmaster.api.resources import KEPTN_METRICS, METRICS_PROVIDERS
from harbourmaster.api.times import moment
from harbourmaster.cli.batches import many, shown
from harbourmaster.cli.diagnosis import warning
from harbourmaster.evaluation.freshness import age_limit, read_metric
from harbourmaster.evaluation.model import Metric, Provider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Metrics without a fresh value; those that lack credentials count once for each provider."""
    intervals = (await live.known_settings()).lifecycle.stale_after_intervals
    now = (await live.caller()).now
    decode = Decoder(Provider).decode
    providers = {each.metadata.key: each for each in await live.items(METRICS_PROVIDERS, decode)}
    failing: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for metric in await live.items(KEPTN_METRICS, Decoder(Metric).decode):
        own, fault = metric.metadata, metric.status.err_msg
        created, limit = moment(own.creation_timestamp), timedelta(0, age_limit(metric, intervals))
        if not fault and (created is None or now - created > limit):
            fault = read_metric(metric, intervals, now).fault
        provider = providers.get(f"{own.namespace}/{metric.spec.provider.name}")
        # The check of references tells of those that have none.
        if provider is None or not fault:
            continue
        if provider.spec.secret_key_ref is not None and "secret" in fault.lower():
            failing[provider.metadata.key, fault].append(own.name)
            continue
        remedy = f"kubectl -n {own.namespace} describe keptnmetric {own.name}"
        yield warning(f"KeptnMetric {own.key}", fault, remedy)
    for (key, fault), names in failing.items():
        spec, place = providers[key].spec, providers[key].metadata.namespace
        secret = spec.secret_key_ref.name if spec.secret_key_ref is not None else ""
        whose = f"Secret {place}/{secret}"
        # Some errors name the Secret themselves.
        told = fault if fault.startswith(whose) else f"{whose}: {fault}"
        text = f"{told}: {many(len(names), 'metric fails', 'metrics fail')}: {shown(names)}"
        remedy = f"correct spec.secretKeyRef, or: kubectl -n {place} edit secret {secret}"
        yield warning(f"KeptnMetricsProvider {key}", text, remedy)
