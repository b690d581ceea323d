"""One event, one line, whatever is logged."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import pty
import warnings
from datetime import datetime, timedelta

import pytest
import structlog

from harbourmaster.telemetry.logging import MAX_ITEMS, configure_logging, get_logger
from harbourmaster.telemetry.text import MAX_TEXT

HOSTILE = "a\r\n2026-01-01 [info] forged\x1b[2J\x9b31m\u2028\x00\x7f\ud800"


@pytest.fixture(autouse=True)
def _restore_logging():
    root = logging.getLogger()
    handlers, level, show = root.handlers, root.level, warnings.showwarning
    yield
    logging.captureWarnings(capture=False)
    root.handlers, warnings.showwarning = handlers, show
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def stream():
    return io.BytesIO()


def lines(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_level_component_and_utc_time(stream):
    configure_logging(stream=stream)
    get_logger("serving").info("listening", port=9443)
    (line,) = lines(stream)
    stamp = datetime.fromisoformat(line.pop("timestamp"))
    assert stamp.utcoffset() == timedelta(0)
    assert line == {"event": "listening", "level": "info", "component": "serving", "port": 9443}


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_nothing_logged_can_begin_a_line_or_talk_to_the_terminal(stream, log_format):
    configure_logging(log_format=log_format, stream=stream)
    log = get_logger("x")
    log.info(HOSTILE, key=HOSTILE, many=[HOSTILE, {HOSTILE: (HOSTILE,)}], other=OSError(HOSTILE))
    text = stream.getvalue().decode()
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert text[:-1].isprintable()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_an_exception_s_text_can_t_begin_a_line_either(stream, log_format):
    configure_logging(log_format=log_format, stream=stream)
    get_logger("x").error("failed", exc_info=ValueError(HOSTILE))
    first, *rest = stream.getvalue().decode().splitlines()
    assert "failed" in first
    assert all(line.startswith("    | ") and line.isprintable() for line in rest)


def test_an_exception_is_in_the_line_with_its_traceback(stream):
    configure_logging(stream=stream)
    try:
        int("reason")
    except ValueError:
        get_logger("x").exception("failed")
    (line,) = lines(stream)
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("with base 10: 'reason'")


def test_long_values_and_lists_are_cut(stream):
    configure_logging(stream=stream)
    get_logger("x").info("cut", text="a" * 5000, many=list(range(1000)))
    (line,) = lines(stream)
    assert line["text"] == "a" * MAX_TEXT + "… (5000 characters)"
    assert line["many"] == list(range(MAX_ITEMS))


def test_levels_below_the_chosen_one_are_not_written(stream):
    configure_logging("warning", stream=stream)
    log = get_logger("x")
    log.info("no")
    log.warning("yes")
    assert [line["event"] for line in lines(stream)] == ["yes"]


def test_the_standard_library_writes_the_same_lines(stream):
    configure_logging(stream=stream)
    logging.getLogger("aiohttp.server").error("oh %s", "no\n")
    (line,) = lines(stream)
    assert (line["component"], line["level"], line["event"]) == (
        "aiohttp.server",
        "error",
        r"oh no\n",
    )


@pytest.mark.parametrize(
    ("message", "error", "is_logged"),
    [
        ("Future exception was never retrieved", ConnectionResetError(), False),
        ("Fatal error on SSL protocol", RuntimeError("the handler is closed"), False),
        ("Future exception was never retrieved", RuntimeError("the handler is closed"), True),
    ],
)
def test_a_connection_that_a_peer_closes_while_nobody_waits_for_it_is_no_error(
    stream, message, error, is_logged
):
    configure_logging(stream=stream)
    context = {"message": message, "exception": error}
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.call_exception_handler(context)
    assert [line["level"] for line in lines(stream)] == ["error"] * is_logged


def test_python_s_warnings_are_lines_too(stream):
    configure_logging(stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    (line,) = lines(stream)
    assert line["component"] == "py.warnings"
    assert "old" in line["event"]


def test_a_terminal_gets_text_and_a_file_json(tmp_path):
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb", 0) as screen, os.fdopen(follower, "wb", 0) as terminal:
        configure_logging(stream=terminal)
        get_logger("x").info("on screen")
        assert not screen.read(1000).startswith(b"{")
    with (tmp_path / "log").open("wb", buffering=0) as file:
        configure_logging(stream=file)
        get_logger("x").info("in a file")
    assert (tmp_path / "log").read_bytes().startswith(b"{")


def test_colours_are_for_terminals_only(stream):
    configure_logging(log_format="console", stream=stream)
    get_logger("x").info("plain", key="value")
    assert b"\x1b" not in stream.getvalue()
    assert b"key=value" in stream.getvalue()
