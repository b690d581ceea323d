"""A running control plane: started, waited for, disturbed on purpose, and stopped."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING, Self

from playground import api
from playground.build import ensure_binaries, find_kubectl
from playground.commands import (
    OPTIONAL,
    REQUIRED,
    SERVICE_IP,
    Layout,
    components,
    free_ports,
    write_configurations,
)
from playground.errors import PlaygroundError
from playground.pki import write_kubeconfig, write_pki
from playground.processes import (
    Process,
    end_all,
    read_records,
    spawn,
    write_records,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from pathlib import Path

    from playground.commands import (
        Component,
    )
    from playground.processes import (
        Record,
    )

READY_SECONDS = 60.0
# The wait for a component also ends when its process does, so this only paces the questions.
PROBE_SECONDS = 0.05
GRACE_SECONDS = 5.0
NODES_SECONDS = 60.0
LOG_LINES = 10


class ControlPlane:
    """One control plane below one folder; every method blocks until what it asks for is so.

    ``optional`` names what runs beside etcd and kube-apiserver. The processes end with this one,
    however it ends, unless ``detached``. Data in the folder survives stop and start; keys,
    certificates and ports are new at each start.
    """

    def __init__(
        self,
        directory: Path,
        *,
        binaries: Path | None = None,
        optional: tuple[str, ...] = OPTIONAL,
        audit: bool = False,
        detached: bool = False,
    ) -> None:
        self.layout = Layout(directory.absolute())
        self._binaries = binaries
        self._optional = optional
        self._audit = audit
        self._detached = detached
        self._components: dict[str, Component] = {}
        self._processes: dict[str, Process] = {}
        self._context: ssl.SSLContext | None = None

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.layout.kubeconfig

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self._components['kube-apiserver'].port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start every component and wait until each is ready; on failure nothing stays."""
        if self._processes:
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
        if not self._processes:
            return
        _end_in_order(self._processes)
        self._processes = {}
        self._write_records()

    def kill(self, component: str) -> None:
        """End one component by SIGKILL, as a crash would."""
        process = self._processes.pop(component, None)
        if process is None:
            raise PlaygroundError(f"{component} is not running: {self.layout.directory}")
        process.finish(0)
        self._write_records()

    def restart(self, component: str) -> None:
        """Start one component again on its old port, after ending it if it runs."""
        process = self._processes.pop(component, None)
        if process is not None:
            end_all([process], GRACE_SECONDS)
        self._spawn(component)
        self._await_ready(component)

    def running(self) -> list[str]:
        """Return the names of the components whose processes live."""
        return [name for name, process in self._processes.items() if not process.wait(0)]

    def add_nodes(self, count: int, labels: Mapping[str, str] | None = None) -> list[str]:
        """Add kwok nodes (32 CPUs, 128 GiB, 110 pods each), wait for ready, return their names."""
        if "kwok" not in self._optional:
            raise PlaygroundError("nodes need kwok: start the control plane with it")
        port, context = self._components["kube-apiserver"].port, self._tls()
        names = api.create_nodes(port, context, count, labels or {})
        api.await_ready_nodes(port, context, names, NODES_SECONDS)
        return names

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; unless ``check`` is off, a failure raises its stderr."""
        if self._binaries is None:
            raise PlaygroundError(f"{self.layout.directory}: the control plane is not started")
        result = subprocess.run(  # noqa: S603 -- our own kubectl
            [
                str(find_kubectl(self._binaries)),
                f"--kubeconfig={self.kubeconfig}",
                f"--cache-dir={self.layout.directory / 'kubectl-cache'}",
                *arguments,
            ],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and result.returncode != 0:
            raise PlaygroundError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result

    def _prepare(self) -> None:
        layout = self.layout
        claim(layout)
        layout.logs.mkdir(exist_ok=True)
        ports = free_ports()
        self._components = components(layout, ports, self._optional, audit=self._audit)
        write_pki(layout.pki, SERVICE_IP)
        self._context = api.client_context(layout.pki, "admin")
        write_kubeconfig(layout.kubeconfig, self.server, layout.pki, "admin")
        for client in self._optional:
            write_kubeconfig(layout.client_kubeconfig(client), self.server, layout.pki, client)
        write_configurations(layout)

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            raise PlaygroundError(f"{self.layout.directory}: the control plane is not started")
        return self._context

    def _spawn(self, name: str) -> None:
        if self._binaries is None or name not in self._components:
            raise PlaygroundError(f"{name} is no component of {self.layout.directory}")
        binary = self._binaries / name
        if not os.access(binary, os.X_OK):
            raise PlaygroundError(f"{name} cannot run: {binary} is missing or not executable")
        self._processes[name] = spawn(
            name,
            [str(binary), *self._components[name].arguments],
            self.layout.log(name),
            self._environment(),
            attached=not self._detached,
        )
        self._write_records()

    def _environment(self) -> dict[str, str]:
        # etcd takes every flag from there too, and kwok a configuration from its work folder.
        passed = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ETCD_", "KWOK_"))
        }
        return {**passed, "KWOK_WORKDIR": str(self.layout.directory / "kwok")}

    def _await_ready(self, name: str) -> None:
        component, process = self._components[name], self._processes[name]
        context = self._tls() if component.tls else None
        deadline = time.monotonic() + READY_SECONDS
        while not api.answers(component.port, component.ready_path, context):
            if process.wait(PROBE_SECONDS):
                raise self._failure(name, f"ended with exit code {process.exit_code()}")
            if time.monotonic() > deadline:
                raise self._failure(name, f"is not ready after {READY_SECONDS:.0f} s")

    def _failure(self, name: str, what: str) -> PlaygroundError:
        log = self.layout.log(name)
        lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return PlaygroundError("\n".join([f"{name} {what}: see {log}", *lines]))

    def _write_records(self) -> None:
        write_records(self.layout.records, (process.record for process in self._processes.values()))


def claim(layout: Layout) -> None:
    """Make the folder a playground; refuse one with other people's files or a running one."""
    records = read_records(layout.records)
    if records is None and layout.directory.is_dir() and any(layout.directory.iterdir()):
        raise PlaygroundError(f"{layout.directory} is not empty and no playground: name another")
    living = [record.name for record in records or [] if _lives(record)]
    if living:
        raise PlaygroundError(
            f"{layout.directory}: {', '.join(living)} of an earlier start still running: "
            f"python -m playground down --dir {layout.directory}"
        )
    layout.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_records(layout.records, [])


def survey(directory: Path) -> dict[str, bool] | None:
    """Return for each recorded component whether it lives; None where there is no playground."""
    records = read_records(Layout(directory).records)
    return None if records is None else {record.name: _lives(record) for record in records}


def shut_down(directory: Path) -> list[str]:
    """End what an earlier process started in the folder; return the names of what it ended."""
    layout = Layout(directory)
    found = {record.name: Process.find(record) for record in read_records(layout.records) or []}
    living = {name: process for name, process in found.items() if process is not None}
    _end_in_order(living)
    if layout.records.exists():
        write_records(layout.records, [])
    return list(living)


def _end_in_order(processes: Mapping[str, Process]) -> None:
    """End the clients of the API server together, then it, then etcd."""
    clients = [process for name, process in processes.items() if name not in REQUIRED]
    end_all(clients, GRACE_SECONDS)
    for name in reversed(REQUIRED):
        end_all([processes[name]] if name in processes else [], GRACE_SECONDS)


def _lives(record: Record) -> bool:
    process = Process.find(record)
    if process is None:
        return False
    process.close()
    return True
