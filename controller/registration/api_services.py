"""The APIServices by which the API server finds our custom metrics API: they carry our authorities.

Keptn's have the same names and no authority: they trust any server that answers.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import API_SERVICES
from harbourmaster.controller.registration.carried import BundleField, Metadata, ServiceReference

SERVED: Final = tuple(f"{version}.custom.metrics.k8s.io" for version in ("v1beta1", "v1beta2"))
PLACE: Final = BundleField(API_SERVICES, "/spec", "caBundle", "caBundle of the APIService")


class _Spec(Struct, frozen=True, rename="camel"):
    service: ServiceReference | None = None
    ca_bundle: Any = None
    insecure: bool = msgspec.field(default=False, name="insecureSkipTLSVerify")


class ApiService(Struct, frozen=True):
    """An APIService, as far as it matters here."""

    metadata: Metadata
    spec: _Spec = _Spec()

    @property
    def service(self) -> tuple[str, str] | None:
        """Namespace and name of the Service that serves it; None for the API server itself."""
        return self.spec.service.place if self.spec.service else None

    @property
    def ca_bundle(self) -> object:
        """As it is stored, in base64."""
        return self.spec.ca_bundle

    @property
    def is_unverified(self) -> bool:
        """Whether any server that answers is trusted."""
        return self.spec.insecure


decode_api_service: Final = msgspec.json.Decoder(ApiService).decode
