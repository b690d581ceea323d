"""The end of a command: its exit code, and its error in one line."""

from __future__ import annotations

import errno

import pytest
from prometheus_client import CollectorRegistry

from harbourmaster.serving.process import exit_code, start_tracing
from harbourmaster.serving.settings import StartError, TracingSettings
from harbourmaster.telemetry.metrics import span_counter
from helpers.tracing import Collector


def raises(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "no answer in time: check that"),
        (ConnectionResetError(), "the connection was closed: check that"),
        (OSError(), "OSError: check that"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a"), "a: No such file"),
        (OSError("the disk is full"), "the disk is full\n"),
    ],
)
def test_an_error_of_the_system_says_what_failed(capsys, error, said):
    assert exit_code("harbourmaster", raises(error)) == 2
    text = capsys.readouterr().err
    assert text.startswith(f"harbourmaster: {said}")
    assert text.count("\n") == 1


@pytest.fixture
def registry():
    return CollectorRegistry()


def start(registry, **settings):
    counter = span_counter(registry)
    return start_tracing(TracingSettings(**settings), "harbourmaster-x", "1.2", counter)


def test_nothing_is_traced_unless_an_endpoint_is_given(registry):
    assert start(registry, sample_ratio=1.0) is None


def test_what_keeps_it_from_tracing_keeps_it_from_starting(registry):
    with pytest.raises(StartError, match=r"^--tracing-endpoint: "):
        start(registry, endpoint="collector")


@pytest.mark.parametrize(("pod", "instance"), [("pod-1", "pod-1"), ("", "machine")])
async def test_spans_say_who_sent_them_and_are_counted(registry, monkeypatch, pod, instance):
    monkeypatch.setenv("POD_NAME", pod)
    monkeypatch.setattr("socket.gethostname", lambda: "machine")
    async with Collector() as collector:
        tracer = start(registry, endpoint=collector.url, sample_ratio=1.0)
        tracer.record(tracer.sample(), "x", (1.0, 2.0), {})
        await tracer.close()
        ((_, resource),) = collector.spans()
    assert resource.items() >= {
        ("service.name", "harbourmaster-x"),
        ("service.version", "1.2"),
        ("service.instance.id", instance),
    }
    assert registry.get_sample_value("harbourmaster_spans_total", {"outcome": "exported"}) == 1
    assert registry.get_sample_value("harbourmaster_spans_total", {"outcome": "failed"}) == 0
