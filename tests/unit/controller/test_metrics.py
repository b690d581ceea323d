from __future__ import annotations

from prometheus_client import generate_latest

from harbourmaster.telemetry.controller_metrics import create_controller_metrics


def text_of(metrics):
    return generate_latest(metrics.registry).decode()


def test_counters_of_controllers_begin_at_zero(metrics):
    text = text_of(metrics)
    for name in ("registration", "namespaces"):
        assert f'harbourmaster_controller_restarts_total{{controller="{name}"}} 0.0' in text
    assert 'harbourmaster_build_info{version="0"} 1.0' in text
    assert "harbourmaster_leader 0.0" in text


def test_what_was_told_is_counted(metrics):
    queues = metrics.queues
    queues.set_depth("q", 3)
    queues.count_retry("q")
    queues.observe_wait("q", 0.02)
    queues.observe_work("q", 2)
    metrics.registration.repairs.labels("Kind", "rules").inc()
    metrics.events.labels("created").inc()
    text = text_of(metrics)
    for line in (
        'harbourmaster_workqueue_depth{queue="q"} 3.0',
        'harbourmaster_workqueue_retries_total{queue="q"} 1.0',
        'harbourmaster_workqueue_wait_seconds_bucket{le="0.01",queue="q"} 0.0',
        'harbourmaster_workqueue_wait_seconds_bucket{le="0.05",queue="q"} 1.0',
        'harbourmaster_workqueue_work_seconds_sum{queue="q"} 2.0',
        'harbourmaster_registration_repairs_total{field="rules",kind="Kind"} 1.0',
        'harbourmaster_events_total{outcome="created"} 1.0',
    ):
        assert line in text


def test_each_process_has_a_registry_of_its_own(metrics):
    assert create_controller_metrics("0", ()).registry is not metrics.registry
