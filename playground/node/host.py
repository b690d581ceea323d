"""A real node as the host sees it: started, entered, ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import msgspec
import yaml

from harbourmaster.playground.commands import Layout
from harbourmaster.playground.control_plane import claim
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.group import Group, Started
from harbourmaster.playground.node import cgroups
from harbourmaster.playground.node.machine import READY, cgroup
from harbourmaster.playground.ports import free_ports
from harbourmaster.playground.processes import Process, read_records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harbourmaster.playground.node.machine import Machine

KEEPER: Final = "node"
GRACE_SECONDS: Final = 30.0
# In the namespaces: what the first process, which only waits, starts.
MANAGER: Final = "2"


def records(directory: Path) -> Path:
    """The file of the process that holds a folder's node."""
    return directory / "node.json"


class Node(Started):
    """One node, or several that share a control plane; it goes on when this process ends."""

    def __init__(self, machine: Machine, progress: Callable[[str], None]) -> None:
        self.machine = machine
        self.directory = machine.path
        self._progress = progress

    def start(self) -> None:
        """Start everything; what fails, or is interrupted, leaves nothing running."""
        layout = Layout(self.directory)
        claim(layout)
        layout.logs.mkdir(exist_ok=True)
        reader, writer = os.pipe()
        with socket.create_server(("127.0.0.1", port(self.directory))) as listener:
            group = Group(records(self.directory), layout.logs, detached=True)
            module = "harbourmaster.playground.node.keeper"
            content = msgspec.json.encode(self.machine).decode()
            passed = (listener.fileno(), writer)
            command = [sys.executable, "-P", "-m", module, content, *map(str, passed)]
            group.start(KEEPER, command, os.environ, pass_fds=passed)
        os.close(writer)
        last = ""
        try:
            with os.fdopen(reader) as lines:
                for line in lines:
                    last = line.rstrip("\n")
                    if last != READY:
                        self._progress(last)
        finally:
            if last != READY:
                self.stop()
        if last != READY:
            raise PlaygroundError(f"the node did not start: see {group.log(KEEPER)}")

    def stop(self) -> None:
        """End everything and remove the cgroups."""
        end(self.directory)

    def command(self, *command: str) -> list[str]:
        """A command line that runs a command in the namespaces."""
        return enter(self.directory, *command)

    def revive(self) -> None:
        """Have what has ended of containerd, kubelet and kube-proxy started again."""
        subprocess.run(self.command("kill", "-USR1", MANAGER), check=True)  # noqa: S603 -- our own


def port(directory: Path) -> int:
    """The API server's port, the same at each start: the Service kubernetes keeps it."""
    try:
        kubeconfig = yaml.safe_load(Layout(directory).kubeconfig.read_bytes())
    except FileNotFoundError:
        return free_ports(1)[0]
    return int(kubeconfig["clusters"][0]["cluster"]["server"].rpartition(":")[2])


def enter(directory: Path, *command: str) -> list[str]:
    """A command line that runs a command in the node's namespaces. Raises PlaygroundError."""
    for record in read_records(directory / "namespaces.json") or []:
        process = Process.find(record)
        if process is not None:
            process.close()
            namespaces = ("--net", "--mount", "--uts", "--ipc", "--cgroup")
            # The process itself is outside of the namespace for processes that it made.
            children = f"--pid=/proc/{record.pid}/ns/pid_for_children"
            return ["nsenter", f"--target={record.pid}", *namespaces, children, *command]
    raise PlaygroundError(f"no node is running: {directory}: harbourmaster local up --node")


def end(directory: Path) -> list[str]:
    """End a folder's node, if any, and remove its cgroups; return what ended."""
    file = records(directory)
    if not file.exists():
        return []
    ended = Group.find(file, directory / "logs").end([KEEPER], GRACE_SECONDS)
    # Of a node whose keeper was killed.
    cgroups.find(cgroup(directory)).remove()
    file.unlink()
    return ended
