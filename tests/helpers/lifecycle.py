"""Lifecycle reconcilers at work in this process, on any API server.

``async with running(client, GATES, WORKLOADS) as world`` runs those of ``RECONCILERS`` by the names
of ``harbourmaster.controller.lifecycle.watches``; a mapping of names to classes gives others.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from msgspec import structs

from harbourmaster.controller.controller import Controller
from harbourmaster.controller.extender.settings import SchedulerSettings
from harbourmaster.controller.lifecycle import controller, watches
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.context import Context
from harbourmaster.controller.lifecycle.pods import GatedPodReconciler
from harbourmaster.controller.lifecycle.settings import LifecycleSettings
from harbourmaster.lifecycle.keptn_config import LifecycleConfiguration
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.patience import PATIENCE, Changes
from helpers.signals import RecordedSignals

RECONCILERS = {watches.GATES: GatedPodReconciler, **controller.RECONCILERS}
OWN_NAMESPACE = "harbourmaster-system"


class Held:
    """The configuration in force, for a test to change."""

    def __init__(self, current=None):
        self.current = current or LifecycleConfiguration()


class Reconcilers:
    """Reconcilers of a context by the names of their controllers, and what they report.

    ``async with`` fills all caches and leads; ``stop`` and ``start`` are a change of leaders.
    """

    def __init__(self, context, names, *, workers=8):
        classes = names if isinstance(names, dict) else {name: RECONCILERS[name] for name in names}
        self.context = context
        self.caches = context.caches
        self.signals = context.signals
        self.metrics = create_controller_metrics("0", list(classes))
        self.jobs = {
            name: Controller(
                name,
                self._start_of(name, kind),
                self.metrics,
                workers=workers,
                reflectors=self.caches.reflectors,
            )
            for name, kind in classes.items()
        }
        self.changes = Changes()
        self.until = self.changes.until
        self._mirroring = []
        self._leading = []
        watches.Watches(self.caches, self.jobs).connect()
        for mirror in self.caches.reflectors:
            mirror.subscribe(self.changes.tell)
        self.signals.on_told = self.changes.tell

    def _start_of(self, name, kind):
        if name == watches.GATES:
            return lambda queue: kind(self.context, queue.add)
        return lambda _queue: kind(self.context)

    async def __aenter__(self):
        caches = (*self.caches.reflectors, self.caches.wait_watches)
        self._mirroring = [asyncio.create_task(cache.run()) for cache in caches]
        for reflector in self.caches.reflectors:
            await reflector.synced.wait()
        self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()
        await _end(self._mirroring)

    def start(self):
        """Lead."""
        self._leading = [asyncio.create_task(job.lead()) for job in self.jobs.values()]

    async def stop(self):
        """Lead no more, with the caches going on."""
        await _end(self._leading)


async def _end(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def await_signal(world, reason):
    """Wait for a signal with that reason; signals wake nothing themselves."""
    async with asyncio.timeout(PATIENCE):
        while reason not in world.signals.reasons:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)


def context_of(  # noqa: PLR0913 - the parts of a context
    client,
    *,
    caches=None,
    settings=None,
    configuration=None,
    now=None,
    signals=None,
    scheduler=None,
    has_gates=bool,
    namespace=OWN_NAMESPACE,
):
    """A context for reconcilers; options of the settings and the configuration as dicts.

    With ``scheduler`` pods may wait in one; those are options of its settings.
    """
    in_scheduler = SchedulerSettings(enabled=scheduler is not None, **(scheduler or {}))
    return Context(
        client=client,
        caches=caches or LifecycleCaches(client, scheduler=in_scheduler),
        settings=structs.replace(
            LifecycleSettings(), **{"app_context_delay_seconds": 0.0, **(settings or {})}
        ),
        configuration=Held(structs.replace(LifecycleConfiguration(), **(configuration or {}))),
        signals=signals or RecordedSignals(),
        now=now or (lambda: datetime.now(UTC)),
        namespace=namespace,
        scheduler=in_scheduler,
        has_gates=has_gates,
    )


def running(client, *names, reconcilers=None, workers=8, **options):
    """Return reconcilers by name, for ``async with``; ``options`` are those of the context."""
    return Reconcilers(context_of(client, **options), reconcilers or names, workers=workers)
