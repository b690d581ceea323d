"""The metrics of the controller process, in a registry of their own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from harbourmaster.telemetry.api_metrics import RequestCounters, WatchCollector
from harbourmaster.telemetry.metrics import (
    certificate_expiry,
    create_registry,
    event_loop_lag,
    span_counter,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
"""Seconds: from a reconcile without work up to one that waits for the API server."""


class RegistrationMetrics(Struct, frozen=True):
    """The metrics of the registration. Labels: ``kind`` of the object, ``field`` of its webhook."""

    repairs: Counter
    fights: Counter
    break_glass: Gauge
    """Label ``kind``."""


class QueueCounters:
    """Counts for all work queues of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        label = ("queue",)
        histogram = partial(Histogram, buckets=_BUCKETS, registry=registry)
        self._depth = Gauge(
            "harbourmaster_workqueue_depth",
            "Keys that wait in the queue.",
            label,
            registry=registry,
        )
        text = "Keys that are retried after an error."
        self._retries = Counter(
            "harbourmaster_workqueue_retries_total", text, label, registry=registry
        )
        self._wait = histogram(
            "harbourmaster_workqueue_wait_seconds", "Time that keys waited in the queue.", label
        )
        self._work = histogram(
            "harbourmaster_workqueue_work_seconds", "Duration of a reconcile.", label
        )

    def set_depth(self, queue: str, keys: int) -> None:
        """Set the number of waiting keys."""
        self._depth.labels(queue).set(keys)

    def count_retry(self, queue: str) -> None:
        """Count a key that is retried after an error."""
        self._retries.labels(queue).inc()

    def observe_wait(self, queue: str, seconds: float) -> None:
        """Observe the time that a key waited, in seconds."""
        self._wait.labels(queue).observe(seconds)

    def observe_work(self, queue: str, seconds: float) -> None:
        """Observe the duration of a reconcile, in seconds."""
        self._work.labels(queue).observe(seconds)


class ControllerMetrics(Struct, frozen=True):
    """The metrics of one controller process."""

    registry: CollectorRegistry
    leader: Gauge
    certificate_expiry: Gauge
    """Label ``role``."""
    reconcile_errors: Counter
    """Labels ``controller`` and ``error``, the error's class."""
    restarts: Counter
    """Label ``controller``."""
    events: Counter
    """Label ``outcome``: created, updated, aggregated, or the reason for dropping an event."""
    event_loop_lag: Gauge
    spans: Counter
    """Label ``outcome``, see SPAN_OUTCOMES."""
    registration: RegistrationMetrics
    queues: QueueCounters
    watches: WatchCollector
    api_calls: RequestCounters


def create_controller_metrics(version: str, controllers: Sequence[str]) -> ControllerMetrics:
    """Create a registry with all metrics, counters at 0."""
    registry = create_registry(version)
    counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
    repaired = ("kind", "field")
    restarts = counter(
        "harbourmaster_controller_restarts_total",
        "Restarts of controllers after a crash.",
        ("controller",),
    )
    for name in controllers:
        restarts.labels(name)
    return ControllerMetrics(
        registry=registry,
        leader=gauge("harbourmaster_leader", "1 if this process is the leader."),
        certificate_expiry=certificate_expiry(registry),
        reconcile_errors=counter(
            "harbourmaster_reconcile_errors_total",
            "Failed reconciles.",
            ("controller", "error"),
        ),
        restarts=restarts,
        events=counter("harbourmaster_events_total", "Events on objects by outcome.", ("outcome",)),
        registration=RegistrationMetrics(
            repairs=counter(
                "harbourmaster_registration_repairs_total",
                "Reverted changes of webhook configurations by others.",
                repaired,
            ),
            fights=counter(
                "harbourmaster_field_fights_total",
                "Fields that another writer changes repeatedly.",
                repaired,
            ),
            break_glass=gauge(
                "harbourmaster_break_glass",
                "1 if webhooks fail open in break-glass mode.",
                ("kind",),
            ),
        ),
        event_loop_lag=event_loop_lag(registry),
        spans=span_counter(registry),
        queues=QueueCounters(registry),
        watches=WatchCollector(registry),
        api_calls=RequestCounters(registry),
    )
