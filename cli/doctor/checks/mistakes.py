"""What was meant for gates and evaluations and has no effect, so that checks are skipped (D19)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.json import Decoder

from harbourmaster.api.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
    METRICS_PROVIDERS,
    PODS,
    ROLLOUTS,
    STATEFUL_SETS,
)
from harbourmaster.api.suggestions import VERY_NEAR, did_you_mean
from harbourmaster.cli.diagnosis import mistake
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.evaluation.model import Metric
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.mistakes import key_mistakes, owner_mistakes
from harbourmaster.lifecycle.evaluations import target_errors
from harbourmaster.lifecycle.model import EvaluationDefinition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation

_WORKLOADS: Final = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, ROLLOUTS)


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Each mistake with its object; pods of one owner count once."""
    async for subject, text in _found(live):
        yield mistake(subject, text)


async def _found(live: Installation) -> AsyncIterator[tuple[str, str]]:
    """Subject and text of each mistake."""
    settings = await live.known_settings()
    excluded = {*settings.webhook.excluded_namespaces, live.namespace}
    for space in await live.namespaces():
        if space.name in excluded or space.deletion_timestamp:
            continue
        if space.annotations.get(OPT_IN_KEY) == OPT_IN:
            async for subject, text in _keys(live, space.name):
                yield subject, text
    for definition in await live.items(
        EVALUATION_DEFINITIONS, Decoder(EvaluationDefinition).decode
    ):
        for error in target_errors(definition):
            yield f"KeptnEvaluationDefinition {definition.metadata.key}", str(error)
    async for lost in _lost_metrics(live):
        yield lost


async def _keys(live: Installation, namespace: str) -> AsyncIterator[tuple[str, str]]:
    """On workloads, and on the first pod of each owner."""
    for resource in _WORKLOADS:
        for own in await live.items(resource, metadata_in, namespace, metadata_only=True):
            for each in key_mistakes(own.annotations, own.labels):
                yield f"{resource.kind} {own.key}", each.text
    seen: set[tuple[str, str]] = set()
    for own in await live.items(PODS, metadata_in, namespace, metadata_only=True):
        owner = own.controller.uid if own.controller else own.uid
        for each in (
            *key_mistakes(own.annotations, own.labels),
            *owner_mistakes(own.annotations, own.labels, own.owner_references),
        ):
            if (owner, each.text) not in seen:
                seen.add((owner, each.text))
                yield f"pod {own.key}", each.text


async def _lost_metrics(live: Installation) -> AsyncIterator[tuple[str, str]]:
    """Metrics whose provider does not exist."""
    known: dict[str, list[str]] = {}
    for each in await live.items(METRICS_PROVIDERS, metadata_in, metadata_only=True):
        known.setdefault(each.namespace, []).append(each.name)
    for metric in await live.items(KEPTN_METRICS, Decoder(Metric).decode):
        name, names = metric.spec.provider.name, known.get(metric.metadata.namespace, [])
        if name not in names:
            to_do = did_you_mean(name, names, VERY_NEAR) or "create it, or correct the name"
            text = f'KeptnMetricsProvider "{name}" not found: spec.provider.name: {to_do}'
            yield f"KeptnMetric {metric.metadata.key}", text
