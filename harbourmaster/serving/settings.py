"""The settings that both processes have: one YAML file, every key also a flag.

Each key's description gives its unit and reason; ``--help`` and the manual print it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from harbourmaster.api.settings import (
    Count,
    DescribedSettings,
    Port,
    Seconds,
    SecondsFromZero,
    check_host,
)


class StartError(Exception):
    """A reason why a command cannot start; the text is one line for the user."""


class HealthSettings(DescribedSettings, frozen=True, kw_only=True):
    """The addresses on which a process listens."""

    host: Annotated[
        str,
        "listen address of both ports; set :: in a pod, for all addresses of IPv6 and IPv4, or of "
        "IPv4 alone without IPv6",
    ] = "127.0.0.1"
    health_port: Annotated[
        Port, "port without TLS for /healthz, /readyz and /metrics; 0 selects a free port"
    ] = 8080

    def __post_init__(self) -> None:
        check_host("host", self.host)


class ServerSettings(HealthSettings, frozen=True, kw_only=True):
    """The address, TLS and limits of the server of reviews."""

    port: Annotated[Port, "TLS port for admission reviews; 0 selects a free port"] = 9443
    cert_dir: Annotated[
        str | None,
        "directory with tls.crt and tls.key, or for self-signed ones; by default in the user's "
        "state directory",
    ] = None
    tls_min_version: Annotated[Literal["1.2", "1.3"], "minimum TLS version"] = "1.2"
    client_ca: Annotated[
        str | None,
        "file of the CA that signs client certificates; clients without such a certificate are "
        "refused",
    ] = None
    client_cn: Annotated[
        str | None, "required common name of client certificates; needs client-ca"
    ] = None
    max_connections: Annotated[
        Count,
        "open connections of the TLS port; above it, idle ones of the address with most of them "
        "are closed",
    ] = 1000
    max_in_flight: Annotated[Count, "concurrent requests; more get 429"] = 1024
    max_in_flight_bytes: Annotated[
        Count,
        "total bytes that connections buffer: requests, and answers not read yet; above it, "
        "connections of the address that holds most are closed, or it gets 429",
    ] = 32 * 1024 * 1024
    body_timeout_seconds: Annotated[
        Seconds, "seconds within which a body must arrive; a slower one gets 408"
    ] = 10.0
    drain_seconds: Annotated[
        SecondsFromZero,
        "seconds to keep serving after SIGTERM, until no endpoint points to this process",
    ] = 5.0


class LogSettings(DescribedSettings, frozen=True, kw_only=True):
    """The level and the format of logs."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        "minimum level; info writes one line for each mutated review",
    ] = "info"
    format: Annotated[
        Literal["auto", "json", "console"],
        "log format; auto is console on a terminal and json otherwise",
    ] = "auto"


class TracingSettings(DescribedSettings, frozen=True, kw_only=True):
    """The collector of spans, and the share of work that is traced."""

    endpoint: Annotated[
        str | None,
        "URL of an OTLP/HTTP collector, such as http://collector:4318/v1/traces; without it "
        "nothing is traced",
    ] = None
    sample_ratio: Annotated[
        float,
        Meta(ge=0, le=1),
        "share, 0 to 1, of the work without a caller's trace that is traced; with one, the "
        "caller's sampling decides",
    ] = 0.0
