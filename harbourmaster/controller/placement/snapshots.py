"""The snapshots that decisions are made on, and the recent moves of applications.

Constraints and ranking of one pass see the same values. A pass lasts until something that it shows
has changed, and a moment at most; who moves where by choice counts for as long as the values that
all of them follow.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.placement.decisions import Herd
from harbourmaster.placement.passes import Pass
from harbourmaster.placement.snapshot import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from harbourmaster.controller.placement.caches import PlacementCaches
    from harbourmaster.controller.placement.samples import Samples
    from harbourmaster.controller.placement.settings import PlacementSettings
    from harbourmaster.placement.model import Object
    from harbourmaster.placement.snapshot import Snapshot

LASTS: Final = 0.25
"""Seconds for which a pass has the right time."""


class TimedPass(NamedTuple):
    """One pass, begun ``at`` some second; ``waits`` are until when namespaces wait for metrics."""

    seen: Pass
    herd: Herd
    waits: dict[str, float]
    at: float

    def requeue_after(self, namespace: str, now: float) -> float | None:
        """Seconds until decisions of a namespace need wait no more; None where they need not."""
        waits = (self.waits.get(namespace, 0.0), self.waits.get("", 0.0))
        left = max(waits) - now
        return left if left > 0 else None


class Snapshots:
    """Gives out passes. ``now`` tells the time of day, ``clock`` seconds."""

    def __init__(
        self,
        caches: PlacementCaches,
        samples: Samples,
        settings: PlacementSettings,
        *,
        now: Callable[[], datetime],
        clock: Callable[[], float],
    ) -> None:
        self._caches = caches
        self._samples = samples
        self._settings = settings
        self._now = now
        self._clock = clock
        self._world: Snapshot | None = None
        self._waits: dict[str, float] = {}
        self._snapshot: TimedPass | None = None
        self._herd = Herd(settings)
        self._herded = -float("inf")
        self._begun: datetime | None = None

    def begin(self) -> None:
        """A term begins: what statuses say is of an earlier one."""
        self._begun = self._now()
        self.outdate()

    def outdate(self) -> None:
        """Something has changed that decisions see."""
        self._world = self._snapshot = None

    def current(self) -> TimedPass:
        """The world as it is now."""
        at = self._clock()
        snapshot = self._snapshot
        if snapshot is not None and at - snapshot.at < LASTS:
            return snapshot
        if at - self._herded >= self._settings.sample_interval_seconds:
            seconds = self._settings.sample_interval_seconds
            ends = self._now() + timedelta(seconds=seconds)
            self._herd, self._herded = Herd(self._settings, ends), at
        if self._world is None:
            self._world, self._waits = self._build()
        seen = Pass(self._world, self._now(), self._settings, self._begun)
        self._snapshot = TimedPass(seen, self._herd, self._waits, at)
        return self._snapshot

    def _build(self) -> tuple[Snapshot, dict[str, float]]:
        caches = self._caches
        readings, waits = self._samples.readings()
        objects: tuple[Iterable[Object], ...] = (
            caches.clusters.store.values(),
            caches.clouds.store.values(),
            caches.global_clouds.store.values(),
            caches.projects.store.values(),
            caches.metrics.store.values(),
            caches.global_metrics.store.values(),
            caches.providers.store.values(),
            caches.global_providers.store.values(),
        )
        return snapshot_of(chain.from_iterable(objects), readings), waits
