"""Starts everything in the namespaces of the first node: ``inside MACHINE LISTENER``.

Progress goes to stdout, with ``READY`` or a reason at its end; stdin ends with the keeper.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import sys
import threading
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.playground import api, manifests
from harbourmaster.playground.control_plane import ControlPlane
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.group import Group
from harbourmaster.playground.installation import ROLES, step
from harbourmaster.playground.node.configuration import FILES, HOST_IP, SOCKET, Worker
from harbourmaster.playground.node.machine import FAILED, READY, WORKERS, Machine, archives
from harbourmaster.playground.processes import run_captured
from harbourmaster.playground.workloads import NAMESPACE
from harbourmaster.serving.process import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WATCH_SECONDS: Final = 300
_RETRY_SECONDS: Final = 1.0


class Names:
    """Keeps the file of hosts, the names of Services for dnsmasq, which reads it again at a change.

    ``reload`` is called after each change of it.
    """

    def __init__(self, plane: ControlPlane, hosts: Path, reload: Callable[[], None]) -> None:
        self._plane = plane
        self._hosts = hosts
        self._reload = reload
        self._lines: dict[str, str] = {}

    def follow(self) -> None:
        """Watch forever; while the API server does not answer, keep the last names."""
        # Each watch starts with an event for each Service that exists.
        path = f"/api/v1/services?watch=true&timeoutSeconds={_WATCH_SECONDS}"
        while True:
            self._lines = {}
            try:
                for line in api.watch(
                    self._plane.port, self._plane.admin, path, 2 * _WATCH_SECONDS
                ):
                    self.take(line)
            except PlaygroundError:
                time.sleep(_RETRY_SECONDS)

    def take(self, line: bytes) -> None:
        """Take one event of a watch."""
        event = json.loads(line)
        service = event["object"]
        name = "{name}.{namespace}.svc.cluster.local".format_map(service["metadata"])
        # Some Services have none, or the word None.
        address = service["spec"].get("clusterIP", "None")
        self._lines[name] = f"{address} {name}\n"
        if event["type"] == "DELETED" or address == "None":
            del self._lines[name]
        self._hosts.write_text("".join(self._lines.values()))
        self._reload()


READY_SECONDS: Final = 60.0
PROGRAMS: Final = ("containerd", "kubelet", "kube-proxy")


class Node:
    """Everything in the namespaces."""

    def __init__(self, machine: Machine, port: int) -> None:
        self._machine = machine
        directory = machine.path
        pki = directory / "pki"
        self.plane = ControlPlane(
            directory,
            binaries=Path(machine.binaries),
            optional=("kube-controller-manager", "kube-scheduler"),
            flags=(
                "--bind-address=0.0.0.0",
                f"--advertise-address={HOST_IP}",
                # Writes the endpoint of the Service kubernetes.
                "--endpoint-reconciler-type=lease",
                # For logs and exec.
                f"--kubelet-client-certificate={pki / 'admin.crt'}",
                f"--kubelet-client-key={pki / 'admin.key'}",
                "--kubelet-preferred-address-types=InternalIP",
            ),
            api_port=port,
            audit=machine.audit,
            detached=True,
        )
        self._workers = [Worker(number, directory) for number in range(1, machine.nodes + 1)]
        self._group = Group(directory / WORKERS, directory / "logs", detached=True)

    def start(self) -> None:
        """Start everything, in order. Raises PlaygroundError."""
        with step("control plane: etcd, API server, controllers, scheduler", _say):
            self.plane.start()
            self._forget()
            self._resolve()
        for worker in self._workers:
            with step(f"{worker.name}: containerd, images, kubelet, kube-proxy", _say):
                self._prepare(worker)
                self._launch(worker, "containerd")
                for archive in archives(Path(self._machine.images)):
                    self._images(worker, "import", str(archive))
                self._launch(worker, "kubelet")
                self._launch(worker, "kube-proxy")
        with step("nodes ready", _say):
            self.plane.await_nodes([worker.name for worker in self._workers])
        if self._machine.install:
            with step("Harbourmaster: manifests, and pods ready", _say):
                self._install()

    def revive(self) -> None:
        """Start what has ended of containerd, kubelets and kube-proxies."""
        for worker in self._workers:
            for program in PROGRAMS:
                if f"{program}-{worker.number}" not in self._group.running():
                    self._launch(worker, program)

    def _forget(self) -> None:
        """Have the nodes of an earlier start not ready until their kubelets say so."""
        names = self.plane.kubectl("get", "nodes", "--output=name").stdout.split()
        if names:
            condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
            content = json.dumps({"status": {"conditions": [condition]}})
            self.plane.kubectl("patch", *names, "--subresource=status", f"--patch={content}")

    def _resolve(self) -> None:
        """Start dnsmasq as the cluster's DNS, and follow the Services."""
        hosts = self._machine.path / "hosts"
        hosts.touch()
        command = [
            *("dnsmasq", "--keep-in-foreground", "--user=root", "--pid-file"),
            *("--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--local=/cluster.local/"),
            *(f"--addn-hosts={hosts}", f"--listen-address={HOST_IP}", "--bind-interfaces"),
        ]
        self._group.start("dnsmasq", command, os.environ)
        self.plane.kubectl("apply", f"--filename={FILES / 'dns.yaml'}")
        pid = self._group.record("dnsmasq").pid
        names = Names(self.plane, hosts, lambda: os.kill(pid, signal.SIGHUP))
        threading.Thread(target=names.follow, daemon=True).start()

    def _prepare(self, worker: Worker) -> None:
        """Write the files of a node, and give all but the first namespaces of their own."""
        worker.write(self.plane.kubeconfig.read_text(), self.plane.port)
        if worker.number > 1:
            ready = worker.state / "namespaces"
            ready.unlink(missing_ok=True)
            unshare = ["unshare", "--net", "--mount", "--uts", "--propagation=slave"]
            script = 'touch "$0" && exec sleep infinity'
            command = ["sh", "-c", script, str(ready)]
            holder = ["sh", f"{FILES}/namespaces.sh", f"{worker.number}", f"{worker.state}"]
            self._group.start(worker.name, [*unshare, *holder, *command], os.environ)
            self._group.wait_until(
                worker.name, lambda: None if ready.exists() else "no namespaces", READY_SECONDS
            )

    def _enter(self, worker: Worker, *command: str) -> list[str]:
        if worker.number == 1:
            return [*command]
        target = f"--target={self._group.record(worker.name).pid}"
        return ["nsenter", target, "--net", "--mount", "--uts", *command]

    def _launch(self, worker: Worker, program: str) -> None:
        name, state = f"{program}-{worker.number}", worker.state
        command = {
            "containerd": ["containerd", f"--config={state}/containerd.toml"],
            "kubelet": [
                f"{self._machine.node_binaries}/kubelet",
                f"--config={state}/kubelet.yaml",
                f"--kubeconfig={state}/kubeconfig",
                f"--hostname-override={worker.name}",
                f"--node-ip={worker.address}",
            ],
            "kube-proxy": [
                f"{self._machine.node_binaries}/kube-proxy",
                f"--config={state}/kube-proxy.yaml",
                f"--hostname-override={worker.name}",
            ],
        }[program]
        self._group.start(name, self._enter(worker, *command), os.environ)
        if program == "containerd":
            asked = self._enter(worker, "ctr", f"--address={SOCKET}", "version")
            self._group.wait_until(name, lambda: _why_not(asked), READY_SECONDS)

    def _images(self, worker: Worker, *arguments: str) -> str:
        return _run(self._enter(worker, "ctr", "--namespace=k8s.io", "images", *arguments))

    def _install(self) -> None:
        """Install ``deploy/default`` with the images that were imported."""
        names = self._images(self._workers[0], "list", "--quiet").split()
        # A release's archive names no registry, for which the kubelet reads Docker's.
        for worker, name in product(self._workers, names):
            if "/" not in name and not name.startswith("sha256:"):
                self._images(worker, "tag", "--force", name, f"docker.io/library/{name}")
        images = {name.rpartition("/")[2].partition(":")[0]: name for name in names}
        if "harbourmaster" not in images:
            raise PlaygroundError(
                f"image harbourmaster not found: {self._machine.images}: make node-images"
            )
        runners = [
            f"--lifecycle-{runtime}-image={images[name]}"
            for runtime in ("python", "deno")
            if (name := f"harbourmaster-{runtime}") in images
        ]
        items = manifests.render(self.plane.kubectl, manifests.DEFAULT)
        for item in items:
            role = item["metadata"]["name"].removeprefix("harbourmaster-")
            if item["kind"] == manifests.DEPLOYMENT:
                container = item["spec"]["template"]["spec"]["containers"][0]
                container["image"] = images["harbourmaster"]
                container["args"] += runners if role == "controller" else []
                container["args"] += self._machine.arguments.get(role, [])
        manifests.apply(self.plane.kubectl, items)
        deployments = [f"deployment/harbourmaster-{role}" for role in ROLES]
        waiting = (f"--namespace={NAMESPACE}", "--timeout=180s")
        self.plane.kubectl("rollout", "status", *waiting, *deployments)

    async def forward(self, listener: socket.socket) -> None:
        """Forward connections from the host's loopback to the API server, forever."""
        server = await asyncio.start_server(self._forward, sock=listener)
        await server.serve_forever()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner, outer = await asyncio.open_connection("127.0.0.1", self.plane.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, outer), _copy(inner, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while content := await reader.read(65536):
            writer.write(content)
            await writer.drain()
    except OSError:
        pass
    writer.close()


def _why_not(command: list[str]) -> str | None:
    try:
        _run(command)
    except PlaygroundError as error:
        return str(error)
    return None


def _run(command: list[str]) -> str:
    result = run_captured(command)
    if result.returncode != 0:
        said = (result.stderr.strip() or f"exit code {result.returncode}").splitlines()[-1]
        raise PlaygroundError(f"{shlex.join(command)} failed: {said}")
    return result.stdout


def _say(line: str) -> None:
    print(line, flush=True)


def main(machine: Machine, listener: socket.socket) -> int:
    """Start everything, and what has ended of it at each SIGUSR1; return when it does not start."""
    node = Node(machine, listener.getsockname()[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    threading.Thread(target=asyncio.run, args=[node.forward(listener)], daemon=True).start()
    try:
        node.start()
    except (PlaygroundError, OSError) as error:
        reason = str(error) if isinstance(error, PlaygroundError) else failure(error)
        _say(f"{FAILED}{reason}")
        return 1
    _say(READY)
    while True:
        signal.sigwait([signal.SIGUSR1])
        node.revive()


def _end_with_keeper() -> None:
    os.read(0, 1)
    os._exit(1)


def run(arguments: Sequence[str]) -> int:
    """Be the first process: end with the keeper, and reap what others leave behind."""
    child = os.fork()
    if not child:
        listener = socket.socket(fileno=int(arguments[1]))
        return main(msgspec.json.decode(arguments[0], type=Machine), listener)
    signal.signal(signal.SIGUSR1, lambda number, _: os.kill(child, number))
    threading.Thread(target=_end_with_keeper, daemon=True).start()
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status) % 256


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
