"""Errors of the tracing settings are one line; disabled tracing costs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harbourmaster.telemetry.tracing import TracingError, create_tracer

URL = "http://collector.example.com:4318/v1/traces"


def create(endpoint):
    return create_tracer(endpoint, 1.0, {}, lambda *_: None)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "collector:4318",
        "collector.example.com",
        "grpc://collector:4317",
        "file:///etc/passwd",
        "http://",
        "http:///v1/traces",
        "http://collector:port/",
        "http://collector:99999/",
        "http://collector:0/",
        "http://[::1/",
        "http://collector/v1/ traces",
        "http://collector/\r\nX:y",
    ],
)
def test_an_invalid_url_is_an_error(endpoint):
    with pytest.raises(TracingError, match=r"^--tracing-endpoint: invalid URL, expected "):
        create(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://user:secret@collector/v1/traces",
        "http://secret@collector/v1/traces",
        f"{URL}?token=secret",
        f"{URL}#secret",
    ],
)
def test_credentials_in_the_url_are_rejected_and_not_repeated(endpoint):
    with pytest.raises(TracingError, match="OTEL_EXPORTER_OTLP_HEADERS") as raised:
        create(endpoint)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "missing", ["opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"]
)
def test_without_the_packages_the_extra_is_named(monkeypatch, missing):
    for module in ("spans",):
        monkeypatch.delitem(sys.modules, f"harbourmaster.telemetry.{module}", raising=False)
    for name in [name for name in sys.modules if name.startswith(missing)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(TracingError, match=r"pip install 'harbourmaster\[tracing\]'$") as raised:
        create(URL)
    assert missing in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_with_the_packages_there_is_a_tracer():
    tracer = create(URL)
    assert type(tracer).__name__ == "Tracer"
    await tracer.close()


@pytest.mark.slow
def test_without_tracing_the_packages_are_not_imported():
    code = (
        "import sys, harbourmaster.controller.process\n"
        "from harbourmaster.webhook import process, standalone\n"
        "print(*(name for name in sys.modules if name.startswith(('opentelemetry', 'requests'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "\n"
