"""Holds a node: makes its cgroups and namespaces, and removes them when it ends.

``keeper MACHINE LISTENER PROGRESS``: the last two are file descriptors, of a socket that listens
on the host, and of a pipe to who started this, for what the node says until it is ready.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec

from harbourmaster.playground.node import cgroups
from harbourmaster.playground.node.machine import READY, Machine
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
    """Hold the node until it ends or SIGTERM comes; return 0 when it was ready."""
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
    fork = ["--fork", "--kill-child", "--mount-proc"]
    command = groups.enter(["unshare", *NAMESPACES, *fork, *inside])
    attached = [sys.executable, "-IS", str(ATTACHED), str(os.getpid())]
    child = subprocess.Popen(  # noqa: S603 -- our own
        [*attached, "/usr/bin/env", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[listener],
    )
    if child.stdin is None or child.stdout is None:
        raise AssertionError
    try:
        found = Record("namespaces", child.pid, identity(child.pid) or "")
        write_records(machine.path / "namespaces.json", [found])
        os.close(listener)
        if not _relay(child.stdout.fileno(), progress):
            return 1
        os.close(progress)
        return child.wait()
    finally:
        # The first process in there ends by this, and everything with it.
        child.stdin.close()
        child.wait()


def _relay(source: int, progress: int) -> bool:
    """Pass on what the node says until it is ready or ends; return whether somebody listened."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    poll.register(progress, 0)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if progress in ready:
            return False
        content = os.read(source, 65536)
        os.write(progress, content)
        if not content or content.endswith(f"{READY}\n".encode()):
            return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
