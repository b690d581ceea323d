"""The definitions whose versions our webhook converts (keptn-spec 1.4) carry our authorities."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import APP_VERSIONS, APPS, DEFINITIONS
from harbourmaster.controller.registration.carried import BundleField, Metadata, ServiceReference

CONVERTED: Final = tuple(f"{each.plural}.{each.group}" for each in (APPS, APP_VERSIONS))
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


class Converted(Struct, frozen=True):
    """A definition, without its schemas."""

    metadata: Metadata
    spec: _Spec = _Spec()

    @property
    def service(self) -> tuple[str, str] | None:
        """Namespace and name of the Service that converts; None where none does."""
        conversion = self.spec.conversion
        if conversion.strategy != "Webhook" or conversion.webhook is None:
            return None
        service = conversion.webhook.client_config.service
        return service.place if service else None

    @property
    def ca_bundle(self) -> object:
        """As it is stored, in base64."""
        webhook = self.spec.conversion.webhook
        return webhook.client_config.ca_bundle if webhook else None

    @property
    def is_unverified(self) -> bool:
        """A converter is always verified."""
        return False


decode_converted: Final = msgspec.json.Decoder(Converted).decode
