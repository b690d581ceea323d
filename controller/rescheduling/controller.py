"""The controller of rescheduling: its work queue, caches and events."""

from __future__ import annotations

import asyncio
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import CONFIG_MAPS, NODES, PODS
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.parts import Part
from harbourmaster.controller.registry import RESCHEDULING
from harbourmaster.controller.rescheduling.caches import Caches
from harbourmaster.controller.rescheduling.context import Context, History
from harbourmaster.controller.rescheduling.leader_term import NODE, POD, SWITCH, LeaderTerm, key_of
from harbourmaster.controller.rescheduling.metrics import ReschedulingMetrics
from harbourmaster.controller.rescheduling.notices import Notices
from harbourmaster.controller.rescheduling.rules import criteria_of, planner_settings
from harbourmaster.controller.rescheduling.switched_off import SwitchedOff
from harbourmaster.kube.caches import SharedCache
from harbourmaster.kube.deadline import elapsed
from harbourmaster.kube.event_series import Allowance
from harbourmaster.kube.events import EventRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.controller.parts import Process
    from harbourmaster.controller.rescheduling.settings import ReschedulingSettings
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.workqueue import WorkQueue
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics

REPORTER: Final = "rescheduler"
"""Ends the name of who tells events, and begins theirs."""
_WORKERS: Final = 4
"""Pods and nodes at a time; a call that hangs must not keep the others waiting."""
_QUEUE: Final = 1024
_OVERALL: Final = Allowance(burst=500, period=0.1)
"""Of events about all objects: what evicts other people's pods must not be silent about it."""
_LANES: Final = 4


def start(process: Process) -> Part:
    """Start the controller; if it is switched off, only release what it may have reserved."""
    settings = process.settings.rescheduling
    if not process.is_on(RESCHEDULING):
        return Part(controllers=(SwitchedOff(process.client, settings, process.metrics).job,))
    found = RescheduleController(
        process.client,
        settings,
        namespace=process.namespace,
        identity=process.identity,
        metrics=process.metrics,
    )
    return Part(
        controllers=found.jobs,
        background=(found.run,),
        on_leading=(found.note_leading,),
        on_stopping=(found.note_stopping,),
        shared_caches=tuple(found.shared_caches),
    )


class RescheduleController:
    """One per process, by its ``identity``. ``namespace`` is our own, with the kill switch."""

    def __init__(
        self,
        client: Client,
        settings: ReschedulingSettings,
        *,
        namespace: str,
        identity: str,
        metrics: ControllerMetrics,
    ) -> None:
        self._is_stopping = False
        planning = planner_settings(settings, namespace)
        criteria = criteria_of(settings)
        self._events = EventRecorder(
            client,
            controller=REPORTER,
            instance=identity,
            namespace=namespace,
            queue_size=_QUEUE,
            overall=_OVERALL,
            lanes=_LANES,
            on_outcome=lambda outcome: metrics.events.labels(outcome).inc(),
        )
        notices = Notices(
            self._events, ReschedulingMetrics(metrics.registry), elapsed, dry_run=settings.dry_run
        )
        self.caches = Caches(
            client,
            criteria,
            metrics.watches,
            namespace=namespace,
            switch=settings.kill_switch,
        )
        self._context = Context(
            client=client,
            settings=settings,
            caches=self.caches,
            criteria=criteria,
            planning=planning,
            notices=notices,
            history=History(settings),
            clock=elapsed,
            now=time.time,
            chance=random.random,
            sleep=asyncio.sleep,
        )
        self.job = Controller(RESCHEDULING, self._start, metrics, workers=_WORKERS)
        self.job.reflectors = self.caches.reflectors
        for resource, kind in ((PODS, POD), (NODES, NODE), (CONFIG_MAPS, SWITCH)):
            self.caches.subscribe(resource, self._listener(kind))

    @property
    def shared_caches(self) -> list[SharedCache]:
        """The caches that the dashboard reads."""
        caches = self.caches
        return [SharedCache("nodes", caches.nodes, partial(caches.subscribe, NODES))]

    @property
    def jobs(self) -> tuple[Controller, ...]:
        """What the leader does."""
        return (self.job,)

    async def run(self) -> None:
        """Tell what happens, until cancelled."""
        await self._events.run()

    def note_leading(self, *, leading: bool) -> None:
        """Show who leads."""
        self._context.notices.leading(leading=leading)

    def note_stopping(self) -> None:
        """The process is about to end."""
        self._is_stopping = True

    def _start(self, queue: WorkQueue) -> LeaderTerm:
        return LeaderTerm(self._context, queue, lambda: self._is_stopping)

    def _listener(self, kind: str) -> Callable[[frozenset[str]], None]:
        def changed(keys: frozenset[str]) -> None:
            self.job.changed(key_of(kind, each) for each in keys)

        return changed
