"""The settings that both processes have: one YAML file, every key also a flag.

Each key's description gives its unit and reason; ``--help`` and the manual print it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class StartError(Exception):
    """What keeps a command from starting; the text is one line for the user."""


class HealthSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Where a process listens."""

    host: Annotated[str, Meta(description="address of both ports; in a pod it is 0.0.0.0")] = (
        "127.0.0.1"
    )
    health_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="plain port of /healthz, /readyz and /metrics; 0 takes a free one",
        ),
    ] = 8080


class ServerSettings(
    HealthSettings, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """Where and how the server of reviews listens."""

    port: Annotated[
        int, Meta(ge=0, le=65535, description="TLS port of the review paths; 0 takes a free one")
    ] = 9443
    cert_dir: Annotated[
        str | None,
        Meta(
            description="directory with tls.crt and tls.key, or where self-signed ones are kept; "
            "by default below the user's state directory"
        ),
    ] = None
    tls_min_version: Annotated[
        Literal["1.2", "1.3"], Meta(description="lowest TLS version accepted")
    ] = "1.2"
    client_ca: Annotated[
        str | None,
        Meta(description="file of the CA that must have signed the client's certificate"),
    ] = None
    client_cn: Annotated[
        str | None,
        Meta(description="common name that the client's certificate must have; needs client-ca"),
    ] = None
    max_in_flight: Annotated[
        int, Meta(ge=1, description="requests at one time; one more is answered 429")
    ] = 1024
    max_in_flight_bytes: Annotated[
        int, Meta(ge=1, description="bytes of bodies at one time; more are answered 429")
    ] = 32 * 1024 * 1024
    body_timeout_seconds: Annotated[
        float, Meta(gt=0, description="time for a body to arrive; a slower one is answered 408")
    ] = 10.0
    drain_seconds: Annotated[
        float,
        Meta(ge=0, description="time after SIGTERM to serve on, until no endpoint leads here"),
    ] = 5.0


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What is logged and how."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="lowest level written; info has one line for each mutated review"),
    ] = "info"
    format: Annotated[
        Literal["auto", "json", "console"],
        Meta(description="auto is console on a terminal and json elsewhere"),
    ] = "auto"


class TracingSettings(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """Whether spans are sent, and of how much."""

    endpoint: Annotated[
        str | None,
        Meta(
            description="URL of a collector that takes OTLP over HTTP, such as "
            "http://collector:4318/v1/traces; without it nothing is traced"
        ),
    ] = None
    sample_ratio: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="share of the work traced that comes without a trace; with one, the "
            "caller's sampling decides",
        ),
    ] = 0.0
