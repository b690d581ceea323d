"""``harbourmaster local up|down|status``: a control plane and Harbourmaster on it, one command.

Progress goes to stderr and the export line to stdout, as with the playground's own command.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from harbourmaster.playground import api
from harbourmaster.playground.build import NODE, ensure, ensure_binaries
from harbourmaster.playground.commands import Layout
from harbourmaster.playground.control_plane import ControlPlane, shut_down
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.group import Group, lives, living
from harbourmaster.playground.installation import ROLES, Installation, end_in_order, step
from harbourmaster.playground.manifests import DEPLOY
from harbourmaster.playground.node import host
from harbourmaster.playground.node.machine import WORKERS, Machine, check
from harbourmaster.playground.processes import interrupt_on, read_records
from harbourmaster.playground.workloads import KUBELET, Files
from harbourmaster.serving.process import failure

if TYPE_CHECKING:
    import ssl
    from argparse import Namespace as Arguments
    from pathlib import Path

    from harbourmaster.playground.processes import Record

# Nodes, where the command line does not say how many.
SIMULATED = 2


def run(arguments: Arguments) -> int:
    """Return 0 when what was asked for is so; 1 when not, and for ``status`` of a stopped one."""
    directory = arguments.dir.absolute()
    try:
        match arguments.action:
            case "up":
                return up(directory, arguments)
            case "down":
                return down(directory)
            case _:
                return status(directory)
    except PlaygroundError as error:
        _say(f"harbourmaster local: {error}")
        return 1
    except OSError as error:
        _say(f"harbourmaster local: {failure(error)}")
        return 1


def up(directory: Path, arguments: Arguments) -> int:
    """Start everything and leave it running; what fails leaves nothing running."""
    if arguments.node:
        return _up_node(directory, arguments)
    records = _records(directory)
    alive = [record.name for record in records if lives(record)]
    if len(alive) == len(records) and {KUBELET, *ROLES} <= set(alive):
        _say(f"harbourmaster in {directory} is running already")
        _print_export(directory)
        return 0
    if alive:
        raise PlaygroundError(
            f"{directory}: {', '.join(alive)} of an earlier start still running: "
            f"harbourmaster local down --dir {directory}"
        )
    binaries = ensure_binaries(progress=_say)
    interrupt_on(signal.SIGTERM)
    start = time.monotonic()
    plane = ControlPlane(directory, binaries=binaries, audit=arguments.audit, detached=True)
    installation = Installation(
        plane,
        arguments={
            "controller": arguments.controller_args,
            "webhook": arguments.webhook_args,
        },
        detached=True,
        progress=_say,
    )
    try:
        with step("control plane: etcd, API server, controllers, scheduler, kwok", _say):
            plane.start()
        nodes = plane.create_nodes(SIMULATED if arguments.nodes is None else arguments.nodes)
        installation.start()
        with step(f"{len(nodes)} nodes ready", _say):
            plane.await_nodes(nodes)
    except BaseException:
        installation.stop()
        plane.stop()
        raise
    _say(
        f"ready after {time.monotonic() - start:.1f} s at {plane.server}, logs in {directory}/logs"
    )
    _print_export(directory)
    for line in _suggestions(directory):
        _say(line)
    return 0


def _up_node(directory: Path, arguments: Arguments) -> int:
    """Start real nodes, with Harbourmaster in pods."""
    if living(host.records(directory)):
        _say(f"a real node in {directory} is running already")
        _print_export(directory)
        return 0
    images = arguments.images.absolute()
    check(directory, images)
    machine = Machine(
        directory=str(directory),
        binaries=str(ensure_binaries(progress=_say)),
        node_binaries=str(ensure(NODE, progress=_say)),
        images=str(images),
        nodes=1 if arguments.nodes is None else arguments.nodes,
        audit=arguments.audit,
        arguments={"controller": arguments.controller_args, "webhook": arguments.webhook_args},
    )
    interrupt_on(signal.SIGTERM)
    start = time.monotonic()
    host.Node(machine, _say, detached=True).start()
    _say(f"ready after {time.monotonic() - start:.1f} s, logs in {directory}/logs")
    _print_export(directory)
    for line in _suggestions(directory, "registry.example.com/busybox:1", " -- sleep 1000"):
        _say(line)
    return 0


def down(directory: Path) -> int:
    """End all, in the reverse of the order in which it was started; data stays."""
    files = Files(directory)
    ended = host.end(directory)
    ended += end_in_order(Group.find(files.records, files.logs))
    files.records.unlink(missing_ok=True)
    ended += shut_down(directory)
    _say(f"ended {', '.join(ended)}" if ended else f"nothing is running in {directory}")
    return 0


def status(directory: Path) -> int:
    """Print a line for each process; return 1 unless all of them run and are ready."""
    if living(host.records(directory)):
        # Their ids and ports are those of their namespaces.
        again = (sys.executable, "-P", "-m", "harbourmaster.cli.main", "local", "status")
        command = host.enter(directory, *again, f"--dir={directory}")
        return subprocess.run(command, check=False).returncode  # noqa: S603 -- our own
    records = _records(directory)
    files = (Files(directory).records, directory / WORKERS)
    if not records or not any(file.exists() for file in files):
        _say(f"harbourmaster is not running in {directory}")
        return 1
    context = api.client_context(Layout(directory).pki, "admin")
    good = True
    for record in records:
        fine, what = _state(record, context)
        if not fine:
            what = f"{what}: see {Files(directory).logs / record.name}.log"
        ports = ", ".join(f"{name} {port}" for name, port in record.ports.items())
        print(f"{record.name:24} {what}{f'; ports {ports}' if ports else ''}")
        good &= fine
    return 0 if good else 1


def _state(record: Record, context: ssl.SSLContext) -> tuple[bool, str]:
    if not lives(record):
        return False, "ended"
    reason = api.why_not_ready(record.ready, context) if record.ready else None
    if reason is not None:
        return False, f"running, not ready ({reason})"
    return True, "running, ready" if record.ready else "running"


def _records(directory: Path) -> list[Record]:
    files = (Layout(directory).records, Files(directory).records, directory / WORKERS)
    return [record for file in files for record in read_records(file) or []]


def _suggestions(
    directory: Path, image: str = "example.com/ledger", command: str = ""
) -> tuple[str, ...]:
    sample = DEPLOY / "samples" / "cluster-toleration.yaml"
    labels = "example.com/app=ledger,example.com/role=main"
    return (
        "with that export line in your shell, apply a policy, create a pod, stop everything:",
        f"  kubectl apply -f {sample}",
        f"  kubectl run ledger --image={image} --labels={labels} -o yaml{command}",
        f"  harbourmaster local down --dir {directory}",
    )


def _print_export(directory: Path) -> None:
    print(f"export KUBECONFIG={Layout(directory).kubeconfig}", flush=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
