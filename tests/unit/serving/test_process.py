"""The end of a command: its exit code, and its error in one line."""

from __future__ import annotations

import errno

import pytest

from harbourmaster.serving.process import exit_code


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
