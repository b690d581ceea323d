"""The text of an exception in one line, whatever it contains."""

from __future__ import annotations

import asyncio
import errno

import aiohttp
import pytest

from harbourmaster.telemetry.text import reason


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a"), "No such file or"),
        (TimeoutError(), "no answer in time"),
        (TimeoutError("the read timed out"), "the read timed out"),
        (ConnectionResetError(), "the connection was closed"),
        (ConnectionResetError("Connection lost"), "Connection lost"),
        (OSError(), "OSError"),
        (aiohttp.ClientError(), "ClientError"),
        (aiohttp.ServerTimeoutError(), "no answer in time"),
        (asyncio.IncompleteReadError(b"", 5), "0 bytes read on a total of 5 expected bytes"),
        (asyncio.CancelledError(), "CancelledError"),
        (ValueError("  \n"), "ValueError"),
    ],
)
def test_an_exception_is_never_without_words(error, said):
    assert reason(error).startswith(said)
