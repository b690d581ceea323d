"""Starts the controller of rescheduling: its caches, events and work queue."""

from __future__ import annotations

import asyncio
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.controller.controller import Controller
from harbourmaster.controller.names import RESCHEDULING
from harbourmaster.controller.rescheduling.caches import ReschedulingCaches
from harbourmaster.controller.rescheduling.context import History, ReschedulingContext
from harbourmaster.controller.rescheduling.notices import Notices, ReschedulingMetrics
from harbourmaster.controller.rescheduling.reconciler import (
    NODE,
    POD,
    SWITCH,
    ReschedulingReconciler,
    key_of,
)
from harbourmaster.controller.rescheduling.settings import criteria_of, planner_settings
from harbourmaster.controller.runtime import Runnables
from harbourmaster.kube.deadline import read_boottime
from harbourmaster.kube.event_series import Allowance
from harbourmaster.kube.events import EventRecorder

if TYPE_CHECKING:
    from harbourmaster.controller.runtime import Runtime

REPORTER: Final = "rescheduler"
"""Ends the name of who tells events, and begins theirs."""
_WORKERS: Final = 4
"""Pods and nodes at a time; a call that hangs must not keep the others waiting."""
_QUEUE: Final = 1024
_OVERALL: Final = Allowance(burst=500, period=0.1)
"""The rate of all events; high, because each eviction of a user's pod must be reported."""
_LANES: Final = 4


def start(runtime: Runtime) -> Runnables:
    """Start the controller."""
    settings, client, metrics = runtime.settings.rescheduling, runtime.client, runtime.metrics
    events = EventRecorder(
        client,
        controller=REPORTER,
        instance=runtime.identity,
        namespace=runtime.namespace,
        queue_size=_QUEUE,
        overall=_OVERALL,
        lanes=_LANES,
        on_outcome=lambda outcome: metrics.events.labels(outcome).inc(),
    )
    criteria = criteria_of(settings)
    caches = ReschedulingCaches(
        client,
        criteria,
        metrics.watches,
        namespace=runtime.namespace,
        switch=settings.kill_switch,
    )
    notices = Notices(
        events, ReschedulingMetrics(metrics.registry), read_boottime, dry_run=settings.dry_run
    )
    context = ReschedulingContext(
        client=client,
        lease=(runtime.settings.leader_election.lease_name, runtime.namespace),
        settings=settings,
        caches=caches,
        criteria=criteria,
        planning=planner_settings(settings, runtime.namespace),
        notices=notices,
        history=History(settings),
        clock=read_boottime,
        now=time.time,
        chance=random.random,
        sleep=asyncio.sleep,
    )
    stopping = asyncio.Event()
    controller = Controller(
        RESCHEDULING,
        lambda queue: ReschedulingReconciler(context, queue, stopping.is_set),
        metrics,
        workers=_WORKERS,
        reflectors=caches.reflectors,
    )
    for cache, kind in ((caches.pods, POD), (caches.nodes, NODE), (caches.switch, SWITCH)):
        cache.subscribe(partial(_enqueue, controller, kind))
    return Runnables(
        controllers=(controller,),
        background=(events.run,),
        on_leading=(notices.set_leading,),
        on_stopping=(stopping.set,),
        shared_caches={"nodes": caches.nodes},
    )


def _enqueue(controller: Controller, kind: str, keys: frozenset[str]) -> None:
    controller.enqueue(key_of(kind, key) for key in keys)
