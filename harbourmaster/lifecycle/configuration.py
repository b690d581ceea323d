"""What a KeptnConfig sets while the controller runs (keptn-spec 3.11)."""

from __future__ import annotations

from msgspec import Struct


class LifecycleConfiguration(Struct, frozen=True, gc=False):
    """The values in force; the defaults are those of the kind. Durations in seconds."""

    block_deployment: bool = True
    """False: a failed check is a Warning, and the flow goes on."""
    creation_request_timeout: float = 30.0
    """How long an app of several workloads is waited for."""
    observability_timeout: float = 300.0
    """How long a workload may take until it is ready."""
    cloud_events_endpoint: str = ""
    collector_url: str = ""
    """``host:port`` for OTLP over gRPC, or a URL for OTLP over HTTP."""
