"""Lifecycle reconcilers at work in this process, on any API server.

``async with running(client, GATES, WORKLOADS) as world`` runs those of ``RECONCILERS`` by the names
of ``harbourmaster.controller.lifecycle.watches``; a mapping of names to classes gives others.
"""

from __future__ import annotations

import asyncio
import contextlib
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
    """Running reconcilers: their context, their jobs by name, and the reports."""

    def __init__(self, context, jobs):
        self.context = context
        self.jobs = jobs
        self.changes = Changes()
        self.until = self.changes.until
        for mirror in context.caches.reflectors:
            mirror.subscribe(self.changes.tell)
        context.signals.on_told = self.changes.tell

    @property
    def caches(self):
        return self.context.caches

    @property
    def signals(self):
        return self.context.signals


async def told(world, reason):
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
):
    """A context for reconcilers; options of the settings and the configuration as dicts.

    With ``scheduler`` pods may wait in one; those are options of its settings.
    """
    in_scheduler = SchedulerSettings(enabled=scheduler is not None, **(scheduler or {}))
    return Context(
        client=client,
        caches=caches or LifecycleCaches(client, scheduler=in_scheduler),
        settings=structs.replace(LifecycleSettings(), **(settings or {})),
        configuration=Held(structs.replace(LifecycleConfiguration(), **(configuration or {}))),
        signals=signals or RecordedSignals(),
        now=now or (lambda: datetime.now(UTC)),
        namespace=OWN_NAMESPACE,
        scheduler=in_scheduler,
        has_gates=has_gates,
    )


def reconciler_of(name):
    """The class that reconciles what the job of that name does."""
    return RECONCILERS[name]


def jobs_of(context, names, *, workers=8):
    """The jobs by name, connected with the caches of the context."""
    classes = (
        dict(names) if isinstance(names, dict) else {name: reconciler_of(name) for name in names}
    )
    metrics = create_controller_metrics("0", list(classes))

    def job(name, kind):
        def start(queue):
            return kind(context, queue.add) if name == watches.GATES else kind(context)

        controller = Controller(name, start, metrics, workers=workers)
        controller.reflectors = context.caches.reflectors
        return controller

    jobs = {name: job(name, kind) for name, kind in classes.items()}
    watches.Watches(context.caches, jobs).connect()
    return jobs


@contextlib.asynccontextmanager
async def running(client, *names, reconcilers=None, workers=8, **options):
    """Run the jobs of those names; in the block all their caches are filled."""
    context = context_of(client, **options)
    jobs = jobs_of(context, reconcilers or names, workers=workers)
    world = Reconcilers(context, jobs)
    running_caches = (*context.caches.reflectors, context.caches.wait_watches)
    tasks = [asyncio.create_task(cache.run()) for cache in running_caches]
    try:
        for reflector in context.caches.reflectors:
            await reflector.synced.wait()
        tasks += [asyncio.create_task(job.lead()) for job in jobs.values()]
        yield world
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
