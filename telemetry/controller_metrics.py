"""The metrics of the controller process, in a registry of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from harbourmaster.telemetry.api_calls import ApiCalls
from harbourmaster.telemetry.metrics import (
    BUILD_INFO,
    CERTIFICATE_EXPIRY,
    event_loop_lag,
    span_counter,
)
from harbourmaster.telemetry.watches import WatchTallies

if TYPE_CHECKING:
    from collections.abc import Sequence

LEADER: Final = "harbourmaster_leader"
REGISTRATION_REPAIRS: Final = "harbourmaster_registration_repairs_total"
BREAK_GLASS: Final = "harbourmaster_break_glass"
FIELD_FIGHTS: Final = "harbourmaster_field_fights_total"
RECONCILE_ERRORS: Final = "harbourmaster_reconcile_errors_total"
EVENTS: Final = "harbourmaster_events_total"
CONTROLLER_RESTARTS: Final = "harbourmaster_controller_restarts_total"
QUEUE_DEPTH: Final = "harbourmaster_workqueue_depth"
QUEUE_RETRIES: Final = "harbourmaster_workqueue_retries_total"
QUEUE_WAIT: Final = "harbourmaster_workqueue_wait_seconds"
QUEUE_WORK: Final = "harbourmaster_workqueue_work_seconds"

_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
"""Seconds: from a look that finds nothing to do up to one that an API server lets wait."""


class RegistrationMetrics(Struct, frozen=True):
    """What the registration tells. Labels: ``kind`` of the object and ``field`` of its webhook."""

    repairs: Counter
    fights: Counter
    break_glass: Gauge
    """Label ``kind``."""


class QueueTallies:
    """Counts for all work queues of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        label = ("queue",)
        self._depth = Gauge(QUEUE_DEPTH, "Keys that wait in the queue.", label, registry=registry)
        self._retries = Counter(
            QUEUE_RETRIES, "Keys that are retried after an error.", label, registry=registry
        )
        self._wait = Histogram(
            QUEUE_WAIT,
            "Time that keys waited in the queue.",
            label,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._work = Histogram(
            QUEUE_WORK, "Duration of a reconcile.", label, buckets=_BUCKETS, registry=registry
        )

    def depth(self, queue: str, keys: int) -> None:
        """Set the number of waiting keys."""
        self._depth.labels(queue).set(keys)

    def retried(self, queue: str) -> None:
        """Count a key that is to be tried again."""
        self._retries.labels(queue).inc()

    def waited(self, queue: str, seconds: float) -> None:
        """Count the wait of a key."""
        self._wait.labels(queue).observe(seconds)

    def worked(self, queue: str, seconds: float) -> None:
        """Count the work on a key."""
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
    """Label ``outcome``: created, updated, aggregated, or why one was dropped."""
    event_loop_lag: Gauge
    spans: Counter
    """Label ``outcome``, see SPAN_OUTCOMES."""
    registration: RegistrationMetrics
    queues: QueueTallies
    watches: WatchTallies
    api_calls: ApiCalls


def create_controller_metrics(version: str, controllers: Sequence[str]) -> ControllerMetrics:
    """A new registry with all metrics, counters at 0."""
    # No *_created series, which double the output.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    Gauge(BUILD_INFO, "Always 1.", ("version",), registry=registry).labels(version).set(1)
    repaired = ("kind", "field")
    restarts = Counter(
        CONTROLLER_RESTARTS,
        "Restarts of controllers after a crash.",
        ("controller",),
        registry=registry,
    )
    for name in controllers:
        restarts.labels(name)
    return ControllerMetrics(
        registry=registry,
        leader=Gauge(LEADER, "1 if this process is the leader.", registry=registry),
        certificate_expiry=Gauge(
            CERTIFICATE_EXPIRY,
            "Time until the certificate expires, negative afterwards.",
            ("role",),
            registry=registry,
        ),
        reconcile_errors=Counter(
            RECONCILE_ERRORS,
            "Failed reconciles.",
            ("controller", "error"),
            registry=registry,
        ),
        restarts=restarts,
        events=Counter(EVENTS, "Events on objects by outcome.", ("outcome",), registry=registry),
        registration=RegistrationMetrics(
            repairs=Counter(
                REGISTRATION_REPAIRS,
                "Reverted changes of webhook configurations by others.",
                repaired,
                registry=registry,
            ),
            fights=Counter(
                FIELD_FIGHTS,
                "Fields that another writer changes repeatedly.",
                repaired,
                registry=registry,
            ),
            break_glass=Gauge(
                BREAK_GLASS,
                "1 if webhooks fail open in break-glass mode.",
                ("kind",),
                registry=registry,
            ),
        ),
        event_loop_lag=event_loop_lag(registry),
        spans=span_counter(registry),
        queues=QueueTallies(registry),
        watches=WatchTallies(registry),
        api_calls=ApiCalls(registry),
    )
