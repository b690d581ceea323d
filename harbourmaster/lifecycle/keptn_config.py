"""Chooses the KeptnConfig that counts, and reads it (keptn-spec 3.11).

Keptn uses the one that it has read last, from any namespace. Here one counts, always the same; one
of another namespace only if an administrator adopts it, because it configures the whole cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct

from harbourmaster.api.durations import format_duration, parse_duration
from harbourmaster.lifecycle.model import Config

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class LifecycleConfiguration(Struct, frozen=True, gc=False):
    """The values in force; the defaults are those of the kind. Durations in seconds."""

    block_deployment: bool = True
    """Whether a failed check stops the flow; if False, it is a Warning."""
    creation_request_timeout: float = 30.0
    """Seconds to wait for all workloads of an app."""
    observability_timeout: float = 300.0
    """Seconds until a workload must be ready."""
    cloud_events_endpoint: str = ""
    collector_url: str = ""
    """The collector: ``host:port`` for OTLP over gRPC, or a URL for OTLP over HTTP."""


ADOPTS: Final = "gates.harbourmaster.dev/adopts"
"""Annotation of a KeptnConfig in our namespace: NAMESPACE/NAME of the one that counts instead."""
IN_FORCE: Final = "in force"
_NOT: Final = "not in force"
_DEFAULTS: Final = LifecycleConfiguration()
_LONGEST: Final = 10**9
"""Seconds, some thirty years: more would overflow a time."""


class ChosenConfig(Struct, frozen=True):
    """The choice: ``first`` is the one of our namespaces, ``counts`` the one whose spec is used.

    They differ if ``first`` adopts the KeptnConfig of the key ``adopted``; if that does not exist,
    no KeptnConfig counts.
    """

    first: Config | None = None
    counts: Config | None = None
    adopted: str = ""


def choose_config(configs: Collection[Config], namespaces: Sequence[str]) -> ChosenConfig:
    """Choose the oldest KeptnConfig of the first namespace, or the one that it adopts.

    With equal ages the name decides. Only the first namespace is certainly ours, so an annotation
    elsewhere adopts nothing.
    """
    first = min(
        (config for config in configs if config.metadata.namespace in namespaces),
        key=lambda config: (
            config.metadata.namespace != namespaces[0],
            config.metadata.creation_timestamp,
            config.metadata.namespace,
            config.metadata.name,
        ),
        default=None,
    )
    if first is None or first.metadata.namespace != namespaces[0]:
        return ChosenConfig(first, first)
    if not (adopted := first.metadata.annotations.get(ADOPTS, "")):
        return ChosenConfig(first, first)
    counts = next((config for config in configs if config.metadata.key == adopted), None)
    return ChosenConfig(first, counts, adopted)


def read_configuration(config: Config | None) -> tuple[LifecycleConfiguration, tuple[str, ...]]:
    """Return the configuration and its problems; a field with a problem has its default."""
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


def status_text(config: Config, choice: ChosenConfig, namespaces: Sequence[str]) -> str:
    """Return the status of ``config``, given the one that counts."""
    key = config.metadata.key
    if choice.counts is not None and choice.counts.metadata.key == key:
        _, problems = read_configuration(config)
        return f"{IN_FORCE}, but {'; '.join(problems)}" if problems else IN_FORCE
    if choice.first is not None and choice.first.metadata.key == key:
        if choice.counts is None:
            return f"{_NOT}: it adopts {choice.adopted}, which does not exist; the defaults apply"
        return f"{IN_FORCE}: it adopts {choice.adopted}"
    if waits_for_adoption(config, choice, namespaces):
        places = " and ".join(namespaces)
        rule = f"outside {places} it counts only after an administrator runs"
        return f"{_NOT}: {rule} {adopting(config)}"
    return f"{_NOT}: {choice.first.metadata.key if choice.first else ''} comes first"


def waits_for_adoption(config: Config, choice: ChosenConfig, namespaces: Sequence[str]) -> bool:
    """Whether ``config`` has no effect because of its namespace."""
    own = config.metadata
    is_adopted = choice.counts is not None and choice.counts.metadata.key == own.key
    return own.namespace not in namespaces and not is_adopted


def is_in_force(status: str) -> bool:
    """Whether a text of ``status_text`` says that the whole object has effect."""
    return status == IN_FORCE or status.startswith(f"{IN_FORCE}:")


def adopting(config: Config) -> str:
    """Return the command that adopts ``config``."""
    return f"harbourmaster config adopt {config.metadata.key}"


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
