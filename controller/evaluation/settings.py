"""Settings of metrics and analyses: who may be asked, how patiently, and where values are shown."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from harbourmaster.api.settings import DescribedSettings
from harbourmaster.providers.addresses import check_networks


class MetricsSettings(DescribedSettings, frozen=True, kw_only=True):
    """How metric providers are asked."""

    query_timeout_seconds: Annotated[
        float, Meta(gt=0, le=300, description="seconds that one query may take, waiting included")
    ] = 20.0
    queries_per_provider: Annotated[
        int, Meta(ge=1, le=1000, description="queries to one provider at the same time")
    ] = 16
    max_answer_bytes: Annotated[
        int, Meta(ge=1024, description="largest answer in bytes; a larger one is an error")
    ] = 1024 * 1024
    allowed_addresses: Annotated[
        tuple[str, ...],
        Meta(
            description="addresses and networks (CIDR) that providers may have though they are "
            "refused by default: loopback, link-local and cloud metadata addresses"
        ),
    ] = ()
    denied_addresses: Annotated[
        tuple[str, ...],
        Meta(description="further addresses and networks (CIDR) that providers must not have"),
    ] = ()
    workers: Annotated[
        int, Meta(ge=1, le=64, description="objects of a kind that are worked on at the same time")
    ] = 32
    expose: Annotated[
        bool,
        Meta(
            description="serve metric values without TLS and without authentication, as Keptn "
            "does on port 9999"
        ),
    ] = False
    expose_host: Annotated[
        str | None,
        Meta(description="address of both ports of metric values; by default server.host"),
    ] = None
    expose_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="plain port of /metrics and /api/v1/metrics; 0 takes a free one",
        ),
    ] = 9999
    custom_metrics_api: Annotated[
        bool,
        Meta(
            description="serve custom.metrics.k8s.io, by which HPAs read metrics, and keep our "
            "authorities in its APIServices"
        ),
    ] = True
    custom_metrics_port: Annotated[
        int,
        Meta(ge=0, le=65535, description="TLS port of custom.metrics.k8s.io; 0 takes a free one"),
    ] = 6443
    custom_metrics_cert_dir: Annotated[
        str | None,
        Meta(
            description="directory with tls.crt and tls.key for it, for schedulers and for the "
            "dashboard; by default "
            "what certificates.secretName holds, and nothing is served where that is not ours to "
            "read"
        ),
    ] = None
    service_name: Annotated[
        str, Meta(description="Service of custom.metrics.k8s.io, and name in the certificate")
    ] = "harbourmaster-metrics"

    def __post_init__(self) -> None:
        """Raise ValueError for an address that is none."""
        check_networks("allowedAddresses", self.allowed_addresses)
        check_networks("deniedAddresses", self.denied_addresses)
