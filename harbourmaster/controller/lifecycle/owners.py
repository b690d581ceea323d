"""Owners of pods, with the fields that show whether a workload is deployed (keptn-spec 3.5)."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct, field

from harbourmaster.api.metadata import OwnerReference


class OwnerMetadata(Struct, frozen=True, gc=False, rename="camel"):
    """Without labels and annotations: there may be ten thousand ReplicaSets."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    owner_references: tuple[OwnerReference, ...] = ()


class RollingUpdate(Struct, frozen=True, gc=False):
    """Pods with a lower number than ``partition`` stay as they are."""

    partition: int | None = None


class UpdateStrategy(Struct, frozen=True, gc=False, rename="camel"):
    """How a StatefulSet or DaemonSet replaces its pods."""

    type: str = ""
    rolling_update: RollingUpdate | None = None


class Ordinals(Struct, frozen=True, gc=False):
    """The numbers of a StatefulSet's pods begin with ``start``."""

    start: int = 0


class OwnerSpec(Struct, frozen=True, gc=False, rename="camel"):
    """How many pods are wanted, and which of them are replaced at once."""

    replicas: int | None = None
    update_strategy: UpdateStrategy | None = None
    ordinals: Ordinals = Ordinals()

    @property
    def kept_pods(self) -> int | None:
        """How many pods of the former template may stay; None: all, until they are deleted."""
        strategy = self.update_strategy
        if strategy is None:
            return 0
        if strategy.type == "OnDelete":
            return None
        return (strategy.rolling_update.partition or 0) if strategy.rolling_update else 0


class OwnerStatus(Struct, frozen=True, gc=False, rename="camel"):
    """What its controller reports; each kind has some of the fields."""

    observed_generation: int | str | None = None
    replicas: int = 0
    available_replicas: int = 0
    updated_replicas: int = 0
    update_revision: str = ""
    desired_number_scheduled: int = 0
    number_ready: int = 0
    updated_number_scheduled: int = 0
    phase: str = ""


class Owner(Struct, frozen=True, gc=False):
    """A ReplicaSet, StatefulSet, DaemonSet or Rollout."""

    metadata: OwnerMetadata
    spec: OwnerSpec = field(default_factory=OwnerSpec)
    status: OwnerStatus = field(default_factory=OwnerStatus)


decode_owner: Final = msgspec.json.Decoder(Owner).decode
