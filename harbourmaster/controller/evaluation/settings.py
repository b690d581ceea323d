"""Settings of metrics and analyses: limits of queries, addresses, and the ports of values."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from harbourmaster.api.settings import DescribedSettings, Port
from harbourmaster.providers.addresses import check_networks


class MetricsSettings(DescribedSettings, frozen=True, kw_only=True):
    """Settings of the queries to providers, and of the ports that serve values."""

    query_timeout_seconds: Annotated[
        float,
        Meta(gt=0, le=300),
        "time limit of one query in seconds, including the wait in the queue",
    ] = 20.0
    queries_per_provider: Annotated[
        int,
        Meta(ge=1, le=1000),
        "concurrent queries to one server; a namespace alone gets three quarters",
    ] = 16
    max_answer_bytes: Annotated[
        int, Meta(ge=1024), "maximum size of an answer in bytes; a larger one is an error"
    ] = 1024 * 1024
    allowed_addresses: Annotated[
        tuple[str, ...],
        "addresses and networks (CIDR) of providers that are allowed although they are refused by "
        "default: loopback, link-local and cloud metadata addresses",
    ] = ()
    denied_addresses: Annotated[
        tuple[str, ...], "more addresses and networks (CIDR) that are refused for providers"
    ] = ()
    workers: Annotated[
        int, Meta(ge=1, le=64), "objects of one kind that are reconciled concurrently"
    ] = 32
    expose: Annotated[
        bool,
        "serve metric values without TLS and without authentication, as Keptn does on port 9999",
    ] = False
    expose_host: Annotated[
        str | None, "address of both ports of metric values; by default server.host"
    ] = None
    expose_port: Annotated[
        Port, "port without TLS for /metrics and /api/v1/metrics; 0 selects a free port"
    ] = 9999
    custom_metrics_api: Annotated[
        bool,
        "serve custom.metrics.k8s.io, from which HPAs read metrics, and keep our certificate "
        "authorities in its APIServices",
    ] = True
    custom_metrics_port: Annotated[
        Port, "TLS port of custom.metrics.k8s.io; 0 selects a free port"
    ] = 6443
    custom_metrics_cert_dir: Annotated[
        str | None,
        "directory with tls.crt and tls.key for the custom metrics API, the extender and the "
        "dashboard; by default the certificate in certificates.secretName is used; with "
        "registerWebhooks false and no directory, none of them is served",
    ] = None
    service_name: Annotated[
        str, "Service of custom.metrics.k8s.io; its name is in the certificate"
    ] = "harbourmaster-metrics"

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid address."""
        check_networks("allowedAddresses", self.allowed_addresses)
        check_networks("deniedAddresses", self.denied_addresses)
