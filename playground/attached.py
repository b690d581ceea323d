"""Runs a program that dies with its starter: ``attached.py STARTER_PID PROGRAM ARGUMENT...``.

A file to be run by path, not imported: the request for the signal must be made in the child,
and Python's own hook for that (preexec_fn) is unsafe where threads run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(starter: int, program: list[str]) -> None:
    """Become ``program``, unless the process ``starter`` is gone already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:
        # The starter died before the request was made, so no signal would ever come.
        sys.exit(1)
    os.execv(program[0], program)  # noqa: S606 -- the command is the caller's own


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
