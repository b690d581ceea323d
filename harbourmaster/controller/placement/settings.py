"""Settings of placement: the rules of decisions, how metrics are sampled, and the members."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from harbourmaster.api.settings import DescribedSettings, Percent, Seconds
from harbourmaster.placement.rules import Rules
from harbourmaster.providers.addresses import check_networks


class MemberSettings(DescribedSettings, frozen=True, kw_only=True):
    """Settings of the connections to member clusters."""

    request_timeout_seconds: Annotated[
        float, Meta(gt=0, le=60), "time limit of one read from a member cluster in seconds"
    ] = 5.0
    write_timeout_seconds: Annotated[
        float,
        Meta(gt=0, le=600),
        "time limit of one write to a member cluster in seconds; admission webhooks there delay "
        "writes, one after another",
    ] = 60.0
    probe_interval_seconds: Annotated[
        float, Meta(gt=0, le=600), "seconds between two health checks of a member cluster"
    ] = 10.0
    kubeconfig_interval_seconds: Annotated[
        float,
        Meta(gt=0, le=3600),
        "seconds between two checks whether the Secret of a kubeconfig or a copied one has changed",
    ] = 60.0
    allowed_addresses: Annotated[
        tuple[str, ...],
        "addresses and networks (CIDR) of member clusters that are allowed although they are "
        "refused by default: loopback, link-local and cloud metadata addresses",
    ] = ()
    failures_until_offline: Annotated[
        int, Meta(ge=1, le=100), "failed health checks after which a member cluster is offline"
    ] = 2
    min_ready_nodes_percent: Annotated[
        Percent,
        "share of ready nodes, and at least one, for new applications; 100 is Krake's behaviour",
    ] = 50
    concurrency: Annotated[
        int,
        Meta(ge=1, le=64),
        "applications that are reconciled concurrently in one member cluster; a namespace alone "
        "gets three quarters",
    ] = 8
    workers: Annotated[
        int,
        Meta(ge=1, le=512),
        "applications that are reconciled concurrently, besides those that wait for a member "
        "cluster",
    ] = 64
    delete_timeout_seconds: Annotated[
        Seconds,
        "seconds after which a migration continues although objects are left on the old cluster; "
        "they are deleted later",
    ] = 60.0
    ready_timeout_seconds: Annotated[
        Seconds,
        "seconds within which the application must be ready on the new cluster (CreateFirst); "
        "each failed migration delays the next one by this much longer",
    ] = 180.0

    def __post_init__(self) -> None:
        """Raise ValueError for an address that is none."""
        check_networks("allowedAddresses", self.allowed_addresses)


class PlacementSettings(Rules, frozen=True, kw_only=True):
    """Settings of placement. Off by default: it reads Secrets with kubeconfigs."""

    enabled: Annotated[bool, "select member clusters for Applications and deploy them there"] = (
        False
    )
    sample_interval_seconds: Annotated[
        float,
        Meta(ge=0.1, le=3600),
        "seconds between two queries for the same metric; also the duration of a pass, to which "
        "limits on moves apply",
    ] = 15.0
    sample_max_age_seconds: Annotated[
        float, Meta(ge=0, le=86400), "maximum age of a value in seconds; 0 means three intervals"
    ] = 0.0
    members: MemberSettings = MemberSettings()

    def __post_init__(self) -> None:
        """Raise ValueError where every value would be too old before the next one comes."""
        if 0 < self.sample_max_age_seconds <= self.sample_interval_seconds:
            raise ValueError("sampleMaxAgeSeconds: must be longer than sampleIntervalSeconds, or 0")

    @property
    def max_age(self) -> float:
        """Seconds for which a value counts."""
        return self.sample_max_age_seconds or 3 * self.sample_interval_seconds
