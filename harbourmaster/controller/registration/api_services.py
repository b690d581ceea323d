"""The APIServices by which the API server finds our custom metrics API: they carry our authorities.

Keptn's have the same names and no authority: they trust any server that answers.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import API_SERVICES
from harbourmaster.controller.registration.carried import BundleField, Carrier, ServiceReference

SERVED: Final = tuple(f"{version}.custom.metrics.k8s.io" for version in ("v1beta1", "v1beta2"))
PLACE: Final = BundleField(API_SERVICES, "/spec", "caBundle", "caBundle of the APIService")


class _Spec(Struct, frozen=True, rename="camel"):
    service: ServiceReference | None = None
    ca_bundle: Any = None
    insecure: bool = msgspec.field(default=False, name="insecureSkipTLSVerify")


class _ApiService(Struct, frozen=True):
    metadata: Metadata
    spec: _Spec = _Spec()


_decode: Final = msgspec.json.Decoder(_ApiService).decode


def decode_api_service(raw: msgspec.Raw | bytes) -> Carrier:
    """An APIService; one without a Service is served by the API server itself."""
    found = _decode(raw)
    spec = found.spec
    return Carrier(found.metadata, spec.service, spec.ca_bundle, is_unverified=spec.insecure)
