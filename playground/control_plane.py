"""A running control plane: started, waited for, disturbed on purpose, and stopped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from harbourmaster.playground import api
from harbourmaster.playground.build import ensure_binaries, find_kubectl
from harbourmaster.playground.commands import (
    OPTIONAL,
    REQUIRED,
    SCHEDULER,
    SERVICE_IP,
    Layout,
    Ports,
    components,
    further_scheduler,
    write_configurations,
)
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.group import Group, Started, lives, living
from harbourmaster.playground.pki import write_kubeconfig, write_pki
from harbourmaster.playground.ports import free_ports
from harbourmaster.playground.processes import read_records, run_captured, write_records

if TYPE_CHECKING:
    import ssl
    import subprocess
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from harbourmaster.playground.commands import Component

READY_SECONDS = 120.0
GRACE_SECONDS = 5.0
NODES_SECONDS = 60.0


class ControlPlane(Started):
    """One control plane below one folder; every method blocks until its effect is observed.

    ``optional`` names what runs beside etcd and kube-apiserver; ``flags`` are further flags of
    kube-apiserver. The processes end with this one, however it ends, unless ``detached``. Data in
    the folder survives stop and start; keys, certificates and ports, except a given ``api_port``,
    are new at each start.
    """

    def __init__(  # noqa: PLR0913 -- what a test may vary
        self,
        directory: Path,
        *,
        binaries: Path | None = None,
        optional: tuple[str, ...] = OPTIONAL,
        audit: bool = False,
        flags: tuple[str, ...] = (),
        api_port: int | None = None,
        detached: bool = False,
    ) -> None:
        self.layout = Layout(directory.absolute())
        self._binaries = binaries
        self._optional = optional
        self._audit = audit
        self._flags = flags
        self._api_port = api_port
        self._components: dict[str, Component] = {}
        self._group = Group(self.layout.records, self.layout.logs, detached=detached)
        self._context: ssl.SSLContext | None = None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.kubeconfig

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """The port of the API server."""
        return self._components["kube-apiserver"].port

    @property
    def admin(self) -> ssl.SSLContext:
        """The TLS context of the administrator."""
        if self._context is None:
            raise PlaygroundError(f"{self.layout.directory}: the control plane is not started")
        return self._context

    def start(self) -> None:
        """Start every component and wait until each is ready; on failure nothing stays."""
        if self._group.names:
            raise PlaygroundError(f"{self.layout.directory}: the control plane runs already")
        if self._binaries is None:
            self._binaries = ensure_binaries((*REQUIRED, *self._optional))
        self._prepare()
        try:
            for name in REQUIRED:
                self._spawn(name)
                self._await_ready(name)
            for name in self._optional:
                self._spawn(name)
            for name in self._optional:
                self._await_ready(name)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process: SIGTERM, and SIGKILL to what outlives the grace period."""
        _end_in_order(self._group)

    def restart(self, component: str) -> None:
        """Start one component again on its old port, after ending it if it runs."""
        self._group.end([component], GRACE_SECONDS)
        self._spawn(component)
        self._await_ready(component)

    def add_scheduler(self, name: str, configuration: Mapping[str, Any]) -> None:
        """Start one more kube-scheduler with this KubeSchedulerConfiguration, until ``stop``.

        Its place in the folder is by its ``name``; it is killed and started again like the others.
        """
        if self._context is None:
            raise PlaygroundError(f"{self.layout.directory}: the control plane is not started")
        if name in self._group.names:
            raise PlaygroundError(f"{name} runs already: {self.layout.directory}")
        (port,) = free_ports(1)
        kubeconfig = self.layout.client_kubeconfig(SCHEDULER)
        write_kubeconfig(kubeconfig, self.server, self.layout.pki, SCHEDULER)
        self._components[name] = further_scheduler(self.layout, name, port, configuration)
        self._spawn(name)
        self._await_ready(name)

    def end(self, component: str) -> None:
        """End one component by SIGTERM, and SIGKILL when it outlives the grace period."""
        self._group.end([component], GRACE_SECONDS)

    def add_nodes(self, count: int, labels: Mapping[str, str] | None = None) -> list[str]:
        """Add kwok nodes (32 CPUs, 128 GiB, 110 pods each), wait for ready, return their names."""
        names = self.create_nodes(count, labels)
        self.await_nodes(names)
        return names

    def create_nodes(self, count: int, labels: Mapping[str, str] | None = None) -> list[str]:
        """Add nodes without waiting for them."""
        if "kwok" not in self._optional:
            raise PlaygroundError("nodes need kwok: start the control plane with it")
        return api.create_nodes(self.port, self.admin, count, labels or {})

    def await_nodes(self, names: Sequence[str]) -> None:
        """Wait until pods can be scheduled on the nodes."""
        api.await_ready_nodes(self.port, self.admin, names, NODES_SECONDS)

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; unless ``check`` is off, a failure raises its stderr."""
        if self._binaries is None:
            raise PlaygroundError(f"{self.layout.directory}: the control plane is not started")
        command = [
            str(find_kubectl(self._binaries)),
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.layout.directory / 'kubectl-cache'}",
            *arguments,
        ]
        result = run_captured(command, input=stdin)
        if check and result.returncode != 0:
            raise PlaygroundError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result

    def _prepare(self) -> None:
        layout = self.layout
        claim(layout)
        layout.logs.mkdir(exist_ok=True)
        ports = Ports(*free_ports(len(Ports._fields)))
        if self._api_port is not None:
            ports = ports._replace(api=self._api_port)
        self._components = components(layout, ports, self._optional, audit=self._audit)
        self._components["kube-apiserver"].arguments.extend(self._flags)
        write_pki(layout.pki, SERVICE_IP)
        self._context = api.client_context(layout.pki, "admin")
        write_kubeconfig(layout.kubeconfig, self.server, layout.pki, "admin")
        for client in self._optional:
            write_kubeconfig(layout.client_kubeconfig(client), self.server, layout.pki, client)
        write_configurations(layout)

    def _spawn(self, name: str) -> None:
        if self._binaries is None or name not in self._components:
            raise PlaygroundError(f"{name} is not a component of {self.layout.directory}")
        component = self._components[name]
        binary = self._binaries / (component.binary or name)
        if not os.access(binary, os.X_OK):
            raise PlaygroundError(f"{name} cannot run: {binary} is missing or not executable")
        command = [str(binary), *component.arguments]
        ports = {"https" if component.tls else "http": component.port}
        environment = self._environment()
        self._group.start(name, command, environment, ready=component.ready, ports=ports)

    def _environment(self) -> dict[str, str]:
        # etcd takes every flag from there too, and kwok a configuration from its work folder.
        passed = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ETCD_", "KWOK_"))
        }
        return {**passed, "KWOK_WORKDIR": str(self.layout.directory / "kwok")}

    def _await_ready(self, name: str) -> None:
        ready = self._components[name].ready
        self._group.wait_until(name, lambda: api.why_not_ready(ready, self.admin), READY_SECONDS)


def claim(layout: Layout) -> None:
    """Make the folder a playground; refuse one with other people's files or a running one."""
    records = read_records(layout.records)
    if records is None and layout.directory.is_dir() and any(layout.directory.iterdir()):
        raise PlaygroundError(f"{layout.directory} is not empty and no playground: name another")
    alive = living(layout.records)
    if alive:
        raise PlaygroundError(
            f"{layout.directory}: {', '.join(alive)} of an earlier start still running: "
            f"python -m harbourmaster.playground down --dir {layout.directory}"
        )
    layout.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_records(layout.records, [])


def survey(directory: Path) -> dict[str, bool] | None:
    """Return for each recorded component whether it lives; None where there is no playground."""
    records = read_records(Layout(directory).records)
    return None if records is None else {record.name: lives(record) for record in records}


def shut_down(directory: Path) -> list[str]:
    """End what an earlier process started in the folder; return the names of what it ended."""
    layout = Layout(directory)
    if not layout.records.exists():
        return []
    group = Group.find(layout.records, layout.logs)
    ended = group.names
    _end_in_order(group)
    group.write()
    return ended


def _end_in_order(group: Group) -> None:
    """End the clients of the API server together, then it, then etcd."""
    group.end([name for name in group.names if name not in REQUIRED], GRACE_SECONDS)
    for name in reversed(REQUIRED):
        group.end([name], GRACE_SECONDS)
