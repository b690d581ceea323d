"""The definitions whose versions our webhook converts (keptn-spec 1.4) carry our authorities."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import APP_VERSIONS, APPS, DEFINITIONS
from harbourmaster.controller.registration.carried import BundleField, Carrier, ServiceReference

CONVERTED: Final = tuple(each.name for each in (APPS, APP_VERSIONS))
"""The definitions with versions that differ by more than their names."""
PLACE: Final = BundleField(
    DEFINITIONS,
    "/spec/conversion/webhook/clientConfig",
    "conversion.caBundle",
    "caBundle of the conversion",
)


class _ClientConfig(Struct, frozen=True, rename="camel"):
    service: ServiceReference | None = None
    ca_bundle: Any = None


class _Webhook(Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig = _ClientConfig()


class _Conversion(Struct, frozen=True):
    strategy: str = "None"
    webhook: _Webhook | None = None


class _Spec(Struct, frozen=True):
    conversion: _Conversion = _Conversion()


class _Definition(Struct, frozen=True):
    metadata: Metadata
    spec: _Spec = _Spec()


_decode: Final = msgspec.json.Decoder(_Definition).decode


def decode_converted(raw: msgspec.Raw | bytes) -> Carrier:
    """A definition, without its schemas; it leads to a Service where that converts it."""
    found = _decode(raw)
    conversion = found.spec.conversion
    client = conversion.webhook.client_config if conversion.webhook else _ClientConfig()
    service = client.service if conversion.strategy == "Webhook" else None
    return Carrier(found.metadata, service, client.ca_bundle)
