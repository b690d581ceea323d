"""Holds a node: makes its cgroups and namespaces, and removes them when it ends.

``keeper MACHINE LISTENER PROGRESS``: the last two are file descriptors, of a socket that listens
on the host, and of a pipe to who started this, for what the node says until it is ready.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from harbourmaster.playground.node import cgroups
from harbourmaster.playground.node.configuration import FILES
from harbourmaster.playground.node.machine import Machine
from harbourmaster.playground.processes import (
    ATTACHED,
    Record,
    identity,
    interrupt_on,
    write_records,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")


def main(arguments: Sequence[str]) -> int:
    """Hold the node until it ends or SIGTERM comes; return its exit code, or 0."""
    machine = msgspec.json.decode(arguments[0], type=Machine)
    listener, progress = map(int, arguments[1:])
    interrupt_on(signal.SIGTERM, signal.SIGINT)
    groups = cgroups.find(machine.cgroup)
    try:
        groups.make()
        return _hold(machine, groups, listener, progress)
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        groups.remove()


def _hold(machine: Machine, groups: cgroups.Groups, listener: int, progress: int) -> int:
    module = "harbourmaster.playground.node.inside"
    content = msgspec.json.encode(machine).decode()
    inside = [sys.executable, "-P", "-m", module, content, str(listener)]
    inside = ["sh", str(FILES / "namespaces.sh"), "1", f"{machine.path}/node-1", *inside]
    fork = ["--fork", "--kill-child", "--mount-proc"]
    command = groups.enter(["unshare", *NAMESPACES, *fork, *inside])
    attached = [sys.executable, "-IS", str(ATTACHED), str(os.getpid())]
    child = subprocess.Popen(  # noqa: S603 -- our own
        [*attached, "/usr/bin/env", *command],
        stdin=subprocess.PIPE,
        # If the starter is gone, the node ends when it writes its next line.
        stdout=progress,
        pass_fds=[listener],
    )
    if child.stdin is None:
        raise AssertionError
    try:
        os.close(listener)
        os.close(progress)
        record = Record("namespaces", child.pid, identity(child.pid) or "")
        write_records(machine.path / "namespaces.json", [record])
        return child.wait()
    finally:
        # The first process in there ends by this, and everything with it.
        child.stdin.close()
        child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
