"""Validation of metrics providers (krake-spec 1.4): pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.field_errors import check_name, forbidden, invalid, required, unsupported
from harbourmaster.api.urls import http_url
from harbourmaster.placement.model import MetricsProvider, ProviderSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.api.field_errors import FieldError
    from harbourmaster.placement.model import StaticValues

PROMETHEUS: Final = "prometheus"
KAFKA: Final = "kafka"
STATIC: Final = "static"
TYPES: Final = (PROMETHEUS, KAFKA, STATIC)
MAX_VALUES: Final = 1000
_SHOWN: Final = 128
"""Characters of a URL in a message."""


class KeyReference(Struct, frozen=True, gc=False):
    """A key of a Secret; unlike Keptn's, it cannot be optional."""

    name: str = ""
    key: str = ""


class Server(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The URL and credentials of a provider."""

    url: str = ""
    secret_key_ref: KeyReference | None = None


class KafkaServer(Server, frozen=True, gc=False, rename="camel", kw_only=True):
    """A KSQL server, and which table of it has the values."""

    table: str = ""
    comparison_column: str = ""
    value_column: str = ""


class SubmittedProviderSpec(ProviderSpec, frozen=True, kw_only=True):
    """With who is asked."""

    prometheus: Server | None = None
    kafka: KafkaServer | None = None


class SubmittedProvider(MetricsProvider, frozen=True, kw_only=True):
    """A MetricsProvider or a GlobalMetricsProvider as its user wrote it."""

    spec: SubmittedProviderSpec = SubmittedProviderSpec()


def provider_faults(spec: SubmittedProviderSpec) -> Iterator[FieldError]:
    """Every fault of a spec, in the order of its fields."""
    kind, prometheus, kafka, static = spec.type, spec.prometheus, spec.kafka, spec.static
    if kind not in TYPES:
        yield unsupported("spec.type", kind, TYPES)
    else:
        for name, given in ((PROMETHEUS, prometheus), (KAFKA, kafka), (STATIC, static)):
            if name == kind and given is None:
                yield required(f"spec.{name}", f"the type is {name}")
            elif name != kind and given is not None:
                yield forbidden(f"spec.{name}", f"the type is {kind}")
    if prometheus is not None:
        yield from _server("spec.prometheus", prometheus)
    if kafka is not None:
        yield from _server("spec.kafka", kafka)
        for field, value in (
            ("table", kafka.table),
            ("comparisonColumn", kafka.comparison_column),
            ("valueColumn", kafka.value_column),
        ):
            if not value:
                yield required(f"spec.kafka.{field}", "required to find the values")
    if static is not None:
        yield from _static("spec.static.metrics", static)


def _static(at: str, static: StaticValues) -> Iterator[FieldError]:
    if len(static.metrics) > MAX_VALUES:
        yield invalid(at, len(static.metrics), f"must have at most {MAX_VALUES} values")
        return
    for name, value in static.metrics.items():
        if not math.isfinite(value):
            yield invalid(f"{at}[{name}]", value, "must be a finite number")


def _server(at: str, server: Server) -> Iterator[FieldError]:
    field = f"{at}.url"
    if not server.url:
        yield required(field, "give the URL, for example https://prometheus.example.com")
    elif "@" in server.url:
        # Not shown: messages are stored and widely readable.
        text = "must not contain credentials: put them into a Secret, named by secretKeyRef"
        yield forbidden(field, text)
    elif http_url(server.url) is None:
        text = "is not an http or https URL: write for example https://prometheus.example.com"
        yield invalid(field, server.url[:_SHOWN], text)
    elif "?" in server.url or "#" in server.url:
        text = "must not have a query or a fragment"
        yield invalid(field, server.url[:_SHOWN], text)
    secret = server.secret_key_ref
    if secret is not None:
        at = f"{at}.secretKeyRef"
        if not secret.name:
            yield required(f"{at}.name", "name a Secret")
        yield from check_name(f"{at}.name", secret.name, same_namespace=False)
        if not secret.key:
            yield required(f"{at}.key", "name a key of the Secret")
