"""Whether the pods of a workload are there and ready, by what their owner says (keptn-spec 3.5)."""

from __future__ import annotations

from msgspec import Struct


class Rollout(Struct, frozen=True, gc=False, kw_only=True):
    """How far the owner of a workload's pods has come: a number of pods for each."""

    generation: int
    observed_generation: int | str | None
    """Argo writes text."""
    wanted: int
    ready: int
    updated: int
    """Those of the newest template."""
    is_healthy: bool = True
    """What an owner says that judges by itself."""
    is_superseded: bool = False
    """Its pods make room for those of another version."""


def is_deployed(rollout: Rollout) -> bool:
    """Whether all pods are ready, counted after the owner's controller saw its newest template."""
    return (
        has_observed(rollout.generation, rollout.observed_generation)
        and not rollout.is_superseded
        and rollout.is_healthy
        and rollout.ready == rollout.wanted
        and rollout.updated >= rollout.wanted
    )


def has_observed(generation: int, observed: int | str | None) -> bool:
    """Whether a status is of the current spec. Other text is a hash of former Argo versions."""
    if observed is None or observed == "":
        return False
    if isinstance(observed, str):
        return not observed.isdecimal() or int(observed) >= generation
    return observed >= generation
