"""Settings of placement: the rules of decisions, how metrics are sampled, and the members."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from harbourmaster.controller.placement_settings import MemberSettings
from harbourmaster.placement.rules import Rules


class PlacementSettings(Rules, frozen=True, kw_only=True):
    """How applications are placed. Off by default: it reads Secrets with kubeconfigs."""

    enabled: Annotated[
        bool, Meta(description="choose clusters for Applications, and deploy them there")
    ] = False
    sample_interval_seconds: Annotated[
        float,
        Meta(
            ge=0.1,
            le=3600,
            description="seconds between two queries for the same metric; also the time over "
            "which placement.movesPerTarget counts",
        ),
    ] = 15.0
    sample_max_age_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=86400,
            description="seconds after which a value counts no more; 0 is three intervals",
        ),
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
