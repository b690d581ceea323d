"""``harbourmaster local up|down|status``: a control plane and Harbourmaster on it, one command.

Progress goes to stderr and the export line to stdout, as with the playground's own command.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harbourmaster.playground import api
from harbourmaster.playground.build import NODE, ensure, ensure_binaries, ensure_prometheus
from harbourmaster.playground.capabilities import (
    LIFETIME,
    MONITORING,
    SCHEDULER,
    SCHEDULER_NAME,
    controller_flags,
    dashboard_url,
    enabled_components,
    harbourmaster,
    overlay,
    scheduler_configuration,
    visitor_token,
)
from harbourmaster.playground.commands import Layout
from harbourmaster.playground.control_plane import ControlPlane, shut_down
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.group import Group, lives, living
from harbourmaster.playground.installation import ROLES, Installation, end_in_order, step
from harbourmaster.playground.manifests import DEPLOY, render
from harbourmaster.playground.node import host
from harbourmaster.playground.node.machine import WORKERS, Machine, check
from harbourmaster.playground.processes import interrupt_on, read_records
from harbourmaster.playground.prometheus import NAME as PROMETHEUS
from harbourmaster.playground.prometheus import RECORDS as PROMETHEUS_RECORDS
from harbourmaster.playground.prometheus import Prometheus
from harbourmaster.playground.workloads import KUBELET, LOOPBACK, Files
from harbourmaster.serving.process import failure

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.playground.manifests import Kubectl
    from harbourmaster.playground.processes import Record

# Nodes, where the command line does not say how many.
SIMULATED = 2
# Member clusters, where it does not say how many and placement is on.
MEMBERS = 2


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
        say(f"harbourmaster local: {error}")
        return 1
    except OSError as error:
        say(f"harbourmaster local: {failure(error)}")
        return 1


def up(directory: Path, arguments: Arguments) -> int:
    """Start everything, or what ended, and leave it running; a first start that fails ends it."""
    if arguments.node:
        if arguments.capabilities or arguments.members or arguments.gating == "schedulerName":
            needing = "--with, --members and --gating schedulerName"
            raise PlaygroundError(f"{needing} need simulated nodes: --node: leave it out")
        return _up_node(directory, arguments)
    wanted = {*arguments.capabilities, *(["placement"] if arguments.members else [])}
    wanted |= {SCHEDULER} if arguments.gating == "schedulerName" else set()
    if any(map(lives, _records(directory))):
        _revive(directory, wanted)
        return 0
    binaries = ensure_binaries(progress=say)
    program = ensure_prometheus(progress=say) if MONITORING in wanted else None
    interrupt_on(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    start = time.monotonic()
    plane = ControlPlane(directory, binaries=binaries, audit=arguments.audit, detached=True)
    with ExitStack() as stack:
        with step("control plane: etcd, API server, controllers, scheduler, kwok", say):
            stack.enter_context(plane)
        nodes = plane.create_nodes(SIMULATED if arguments.nodes is None else arguments.nodes)
        installation = Installation(
            plane,
            arguments={
                "controller": [*controller_flags(), *arguments.controller_args],
                "webhook": arguments.webhook_args,
            },
            folder=overlay(directory / "overlay", wanted),
            detached=True,
            progress=say,
        )
        stack.enter_context(installation)
        if SCHEDULER in wanted:
            with step(f"scheduler {SCHEDULER_NAME}, which asks the controller", say):
                port = installation.controllers[0].extender_port
                authority = installation.webhooks[0].certificates / "ca.crt"
                configuration = scheduler_configuration(port, authority)
                plane.add_scheduler(SCHEDULER_NAME, configuration)
        with step(f"{len(nodes)} nodes ready", say):
            plane.await_nodes(nodes)
        if "placement" in wanted:
            count = MEMBERS if arguments.members is None else arguments.members
            _start_members(stack, plane, binaries, count)
        if program is not None:
            _start_prometheus(stack, installation, plane.kubectl, program)
        # All of it runs on.
        stack.pop_all()
    say(f"ready after {time.monotonic() - start:.1f} s at {plane.server}, logs in {directory}/logs")
    _print_access(directory)
    for line in _suggestions(directory):
        say(line)
    return 0


def _revive(directory: Path, wanted: set[str]) -> None:
    """Start what ended since a start that had come to its end."""
    recorded = _records(directory)
    records = {record.name: record for record in recorded}
    # Before 0.3, records had no command.
    if not {KUBELET, *ROLES} <= records.keys() or not all(
        record.command or lives(record) for record in recorded
    ):
        alive = ", ".join(record.name for record in recorded if lives(record))
        raise PlaygroundError(
            f"{directory}: {alive} of an earlier start still running: "
            f"harbourmaster local down --dir {directory}"
        )
    missing = wanted - enabled_components(records["controller"].command)
    if PROMETHEUS in records:
        missing -= {MONITORING}
    if missing:
        raise PlaygroundError(
            f"running without {', '.join(sorted(missing))}: {directory}: "
            f"harbourmaster local down --dir {directory}, then up again"
        )
    interrupt_on(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    started = []
    for part in _parts(directory):
        group = Group.find(part.records, part.logs)
        started += [f"{part.prefix}{name}" for name in group.revive(part.why_not_ready)]
    what = f"started again: {', '.join(started)}" if started else "is running already"
    say(f"harbourmaster in {directory} {what}")
    _print_access(directory)


def _start_members(stack: ExitStack, plane: ControlPlane, binaries: Path, count: int) -> None:
    """Start member clusters with a node each, and let the controller know them."""
    for number in range(1, count + 1):
        name = f"member-{number}"
        with step(f"member cluster {name} with a node", say):
            member = ControlPlane(plane.layout.directory / name, binaries=binaries, detached=True)
            stack.enter_context(member)
            member.add_nodes(1)
            command = ("placement", "new", "cluster", name, "--namespace=default")
            made = harbourmaster(plane.kubeconfig, (*command, f"--kubeconfig={member.kubeconfig}"))
            plane.kubectl("apply", "--filename=-", stdin=made)


def _start_prometheus(
    stack: ExitStack, installation: Installation, kubectl: Kubectl, program: Path
) -> None:
    """Start what scrapes all processes, with the rules of the component ``monitoring``."""
    scrapes = installation.scrapes
    objects = render(kubectl, DEPLOY / "components/monitoring")
    (rules,) = (obj["spec"] for obj in objects if obj["kind"] == "PrometheusRule")
    folder = installation.files.directory / PROMETHEUS
    prometheus = Prometheus(folder, scrapes, rules=rules, program=program, detached=True)
    with step(f"Prometheus, which scrapes {', '.join(scrapes)}", say):
        stack.enter_context(prometheus)
        prometheus.await_targets()


def _up_node(directory: Path, arguments: Arguments) -> int:
    """Start real nodes, with Harbourmaster in pods."""
    if living(host.records(directory)):
        say(f"a real node in {directory} is running already")
        print_export(directory)
        return 0
    images = arguments.images.absolute()
    check(directory, images)
    machine = Machine(
        directory=str(directory),
        binaries=str(ensure_binaries(progress=say)),
        node_binaries=str(ensure(NODE, progress=say)),
        images=str(images),
        nodes=1 if arguments.nodes is None else arguments.nodes,
        audit=arguments.audit,
        arguments={"controller": arguments.controller_args, "webhook": arguments.webhook_args},
    )
    interrupt_on(signal.SIGTERM)
    start = time.monotonic()
    host.Node(machine, say, detached=True).start()
    say(f"ready after {time.monotonic() - start:.1f} s, logs in {directory}/logs")
    print_export(directory)
    for line in _suggestions(directory, "registry.example.com/busybox:1", " -- sleep 1000"):
        say(line)
    return 0


def down(directory: Path) -> int:
    """End all, in the reverse of the order in which it was started; data stays."""
    ended = host.end(directory)
    for part in reversed(_parts(directory)):
        if part.records == part.layout.records:
            names = shut_down(part.layout.directory)
        else:
            names = end_in_order(Group.find(part.records, part.logs))
            part.records.unlink(missing_ok=True)
        ended += [f"{part.prefix}{name}" for name in names]
    say(f"ended {', '.join(ended)}" if ended else f"nothing is running in {directory}")
    return 0


def status(directory: Path) -> int:
    """Print a line for each process; return 1 unless all of them run and are ready."""
    if living(host.records(directory)):
        # Their ids and ports are those of their namespaces.
        again = (sys.executable, "-P", "-m", "harbourmaster.cli.main", "local", "status")
        command = host.enter(directory, *again, f"--dir={directory}")
        return subprocess.run(command, check=False).returncode  # noqa: S603 -- our own
    layout = Layout(directory)
    parts = [*_parts(directory), _Part(layout, directory / WORKERS, layout.logs)]
    # The first is the control plane, which is one of the playground's own command too.
    processes = [(record, part) for part in parts for record in read_records(part.records) or []]
    if not processes or not any(part.records.exists() for part in parts[1:]):
        say(f"harbourmaster is not running in {directory}")
        return 1
    good = True
    for record, part in processes:
        fine, what = _state(record, part)
        if not fine:
            what = f"{what}: see {part.logs / record.name}.log"
        ports = ", ".join(f"{name} {port}" for name, port in record.ports.items())
        name = f"{part.prefix}{record.name}"
        print(f"{name:24} {what}{f'; ports {ports}' if ports else ''}")
        good &= fine
    return 0 if good else 1


def _state(record: Record, part: _Part) -> tuple[bool, str]:
    if not lives(record):
        return False, "ended"
    reason = part.why_not_ready(record.ready) if record.ready else None
    if reason is not None:
        return False, f"running, not ready ({reason})"
    return True, "running, ready" if record.ready else "running"


class _Part(NamedTuple):
    """Processes that are recorded together, and the control plane that they belong to."""

    layout: Layout
    records: Path
    logs: Path
    prefix: str = ""

    def why_not_ready(self, url: str) -> str | None:
        """Why what answers at a URL is not ready, or None."""
        return api.why_not_ready(url, api.client_context(self.layout.pki, "admin"))


def _parts(directory: Path) -> list[_Part]:
    """Return the parts in the order in which they are started."""
    layout, files, prometheus = Layout(directory), Files(directory), directory / PROMETHEUS
    members = map(Layout, sorted(directory.glob("member-*")))
    return [
        _Part(layout, layout.records, layout.logs),
        _Part(layout, files.records, files.logs),
        *(
            _Part(member, member.records, member.logs, f"{member.directory.name} ")
            for member in members
        ),
        _Part(layout, prometheus / PROMETHEUS_RECORDS, prometheus),
    ]


def _records(directory: Path) -> list[Record]:
    return [record for part in _parts(directory) for record in read_records(part.records) or []]


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


def _print_access(directory: Path) -> None:
    """Say where Prometheus and the dashboard are, and how to get in; the export line is last."""
    records = {record.name: record for record in _records(directory)}
    if PROMETHEUS in records:
        say(f"Prometheus: http://{LOOPBACK}:{records[PROMETHEUS].ports['http']}")
    command = records["controller"].command
    if "dashboard" in enabled_components(command):
        plane = ControlPlane(directory, binaries=Path(sys.executable).parent)
        say(f"dashboard: {dashboard_url(command)}")
        say(f"token, for {LIFETIME}: {visitor_token(plane.kubectl)}")
    print_export(directory)


def print_export(directory: Path) -> None:
    """Print the line that sets KUBECONFIG to stdout."""
    print(f"export KUBECONFIG={Layout(directory).kubeconfig}", flush=True)


def say(line: str) -> None:
    """Print a line to stderr, because stdout may be evaluated."""
    print(line, file=sys.stderr, flush=True)
