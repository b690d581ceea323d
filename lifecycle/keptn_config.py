"""Which KeptnConfig counts, and what it says (keptn-spec 3.11).

Keptn takes whichever it has read last, from any namespace. Here one counts, always the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from harbourmaster.api.durations import format_duration, parse_duration
from harbourmaster.lifecycle.configuration import LifecycleConfiguration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harbourmaster.lifecycle.model import Config

IN_FORCE: Final = "in force"
_DEFAULTS: Final = LifecycleConfiguration()
_LONGEST: Final = 10**9
"""Seconds, some thirty years: more would overflow a time."""


def chosen(configs: Iterable[Config], namespaces: Sequence[str]) -> Config | None:
    """That of ``namespaces`` which counts: the first namespace's, then the oldest, then by name."""
    return min(
        (each for each in configs if each.metadata.namespace in namespaces),
        key=lambda each: (
            each.metadata.namespace != namespaces[0],
            each.metadata.creation_timestamp,
            each.metadata.namespace,
            each.metadata.name,
        ),
        default=None,
    )


def configured(config: Config | None) -> tuple[LifecycleConfiguration, tuple[str, ...]]:
    """What it sets, and what is wrong with it: those fields have their defaults."""
    if config is None:
        return _DEFAULTS, ()
    spec, problems = config.spec, []
    request = _DEFAULTS.creation_request_timeout
    if 0 <= spec.creation_request_timeout <= _LONGEST:
        request = float(spec.creation_request_timeout)
    else:
        problems.append(
            f"keptnAppCreationRequestTimeoutSeconds {spec.creation_request_timeout} "
            f"is not between 0 and {_LONGEST}; {request:.0f} is used instead"
        )
    try:
        observability = _positive(spec.observability_timeout)
    except ValueError as error:
        observability = _DEFAULTS.observability_timeout
        problems.append(
            f"observabilityTimeout: {error}; {format_duration(observability)} is used instead"
        )
    endpoint = spec.cloud_events_endpoint
    if endpoint and not _is_url(endpoint):
        endpoint = ""
        problems.append("cloudEventsEndpoint is not an http or https URL; no CloudEvents are sent")
    configuration = LifecycleConfiguration(
        block_deployment=spec.block_deployment,
        creation_request_timeout=request,
        observability_timeout=observability,
        cloud_events_endpoint=endpoint,
        collector_url=spec.otel_collector_url,
    )
    return configuration, tuple(problems)


def standing(config: Config, counts: Config | None, namespaces: Sequence[str]) -> str:
    """The status of ``config``, given the one that counts."""
    if config.metadata.namespace not in namespaces:
        return f"not in force: only a KeptnConfig in {' or '.join(namespaces)} counts"
    if counts is not None and counts.metadata.key != config.metadata.key:
        return f"not in force: {counts.metadata.key} comes first"
    _, problems = configured(config)
    return f"{IN_FORCE}, but {'; '.join(problems)}" if problems else IN_FORCE


def _positive(text: str) -> float:
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError(f'"{text}" is not above zero')
    return seconds


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        # Reading the port checks it.
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
