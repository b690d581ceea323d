"""Settings: one YAML file, every key also a flag, unknown keys are errors."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from policies.merge import MergeOptions

Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]


class StartError(Exception):
    """What keeps a command from starting; the text is one line for the user."""


class AdmissionSettings(
    Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """How admission decides."""

    treat_default_scheduler_as_unset: bool = True
    """``default-scheduler`` counts as unset for policies with a schedulerName. On, because the API
    server writes it into every pod before admission; off is what kupid does."""
    on_required_affinity_conflict: Literal["and", "skip"] = "and"
    """What to do with required node affinity that the pod excludes: AND both sides, so that no
    platform rule is lost, or skip the policy's. Both give a warning."""

    def merge_options(self, *, node_name_as_field: bool) -> MergeOptions:
        """The same settings as the merge takes them."""
        return MergeOptions(
            treat_default_scheduler_as_unset=self.treat_default_scheduler_as_unset,
            skip_conflicts=self.on_required_affinity_conflict == "skip",
            node_name_as_field=node_name_as_field,
        )


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Where and how the server listens."""

    host: str = "127.0.0.1"
    """Address of both ports. In a pod it is 0.0.0.0; elsewhere nobody else should reach it."""
    port: Port = 9443
    """TLS port of the review paths; 0 picks a free one."""
    health_port: Port = 8080
    """Plain port of /healthz, /readyz and /metrics; 0 picks a free one."""
    cert_dir: str | None = None
    """Directory with tls.crt and tls.key; ca.crt and ca.key too where they are ours to renew. By
    default one below the user's state directory, with self-signed certificates made there."""
    tls_min_version: Literal["1.2", "1.3"] = "1.2"
    """Lowest TLS version accepted."""
    client_ca: str | None = None
    """File of the CA that must have signed a client's certificate; without it none is asked for."""
    client_cn: str | None = None
    """Common name that a client's certificate must have; needs clientCa."""
    max_in_flight: Count = 256
    """Requests at one time; one more is answered 429."""
    max_in_flight_bytes: Count = 64 * 1024 * 1024
    """Bytes of request bodies at one time; more are answered 429."""
    body_timeout_seconds: Seconds = 10.0
    """Longest time for a request's body to arrive; a slower one is answered 408."""
    drain_seconds: Seconds = 5.0
    """Time, after SIGTERM, to go on serving while the endpoint is taken out of service."""


class LogSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What is logged and how."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level written; info has one line for each mutated review."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """``auto`` is console on a terminal and json elsewhere."""


class Settings(
    AdmissionSettings, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True
):
    """All settings of the admission process: admission's at the top, the rest by subject."""

    server: ServerSettings = ServerSettings()
    log: LogSettings = LogSettings()
