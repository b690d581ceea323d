"""The first process of the namespaces: ``inside MACHINE LISTENER`` starts everything in them.

Progress goes to stdout, with ``READY`` as its last line; stdin ends with the keeper.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from harbourmaster.playground import manifests
from harbourmaster.playground.control_plane import ControlPlane
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.group import Group
from harbourmaster.playground.installation import ROLES, step
from harbourmaster.playground.node import cgroups, dns
from harbourmaster.playground.node.configuration import (
    BRIDGE,
    HOST_IP,
    SOCKET,
    Worker,
)
from harbourmaster.playground.node.machine import READY, WORKERS, Machine, archives
from harbourmaster.playground.pki import write_private
from harbourmaster.playground.workloads import NAMESPACE
from harbourmaster.serving.process import failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

READY_SECONDS: Final = 60.0
ROLLOUT_SECONDS: Final = 180
# The kubelet sets these, of the whole machine: let it find what it wants to see.
KERNEL: Final = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


class Node:
    """Everything in the namespaces."""

    def __init__(self, machine: Machine, port: int) -> None:
        self._machine = machine
        directory = machine.path
        self._groups = cgroups.find(machine.cgroup)
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
        self.workers = [Worker(number, directory) for number in range(1, machine.nodes + 1)]
        self._prefixes: dict[str, list[str]] = {}
        self._group = Group(directory / WORKERS, directory / "logs", detached=True)

    def start(self) -> None:
        """Start everything, in order. Raises PlaygroundError."""
        with step("control plane: etcd, API server, controllers, scheduler", _say):
            self._isolate()
            self.plane.start()
            self._forget()
            self._resolve()
        for worker in self.workers:
            with step(f"{worker.name}: containerd, images, kubelet, kube-proxy", _say):
                self._prepare(worker)
                self._launch(worker, "containerd")
                self._import(worker)
                self._launch(worker, "kubelet")
                self._launch(worker, "kube-proxy")
        with step("nodes ready", _say):
            self.plane.await_nodes([worker.name for worker in self.workers])
        if self._machine.install:
            with step("Harbourmaster: manifests, and pods ready", _say):
                self._install()

    def revive(self) -> None:
        """Start what has ended of containerd, kubelets and kube-proxies."""
        for worker in self.workers:
            for program in ("containerd", "kubelet", "kube-proxy"):
                if f"{program}-{worker.number}" not in self._group.running():
                    self._launch(worker, program)

    def _isolate(self) -> None:
        """Give the namespaces their mounts, cgroups and network."""
        _run("mount", "--make-rshared", "/")
        _run("umount", "--recursive", "--lazy", str(cgroups.ROOT))
        for command in self._groups.mounts():
            _run(*command)
        if self._groups.unified:
            cgroups.enable(cgroups.ROOT)
        for place in ("/run", "/var/log"):
            _run("mount", "-t", "tmpfs", "tmpfs", place)
        covers = Path("/run/sys")
        covers.mkdir()
        for name, value in KERNEL.items():
            if (Path("/proc/sys") / name).exists():
                cover = covers / name.replace("/", "_")
                cover.write_text(f"{value}\n")
                _run("mount", "--bind", str(cover), f"/proc/sys/{name}")
        # No question of a pod leaves these namespaces. A link may lead to the old /run.
        resolver = Path("/run/resolv.conf")
        resolver.write_text(f"nameserver {HOST_IP}\n")
        known = Path("/etc/resolv.conf").resolve()
        known.parent.mkdir(parents=True, exist_ok=True)
        known.touch()
        _run("mount", "--bind", str(resolver), str(known))
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{HOST_IP}/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        # kubelet and API server look for an address at the default route.
        _run("ip", "route", "add", "default", "via", HOST_IP, "dev", BRIDGE)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _forget(self) -> None:
        """Have the nodes of an earlier start not ready until their kubelets say so."""
        names = self.plane.kubectl("get", "nodes", "--output=name").stdout.split()
        if names:
            condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
            content = json.dumps({"status": {"conditions": [condition]}})
            self.plane.kubectl("patch", *names, "--subresource=status", f"--patch={content}")

    def _resolve(self) -> None:
        """Start dnsmasq as the cluster's DNS, and follow the Services."""
        directory = self._machine.path
        hosts = directory / "hosts"
        hosts.touch()
        command = [
            *("dnsmasq", "--keep-in-foreground", "--user=root", "--pid-file"),
            *("--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--local=/cluster.local/"),
            *(f"--addn-hosts={hosts}", f"--listen-address={HOST_IP}", "--bind-interfaces"),
        ]
        self._group.start("dnsmasq", command, os.environ)
        self._apply(dns.SERVICE, dns.ENDPOINTS)
        pid = self._group.record("dnsmasq").pid
        names = dns.Names(self.plane, hosts, lambda: os.kill(pid, signal.SIGHUP))
        names.list()
        threading.Thread(target=names.follow, daemon=True).start()

    def _prepare(self, worker: Worker) -> None:
        """Write the files of a node, and give all but the first a network of its own."""
        worker.write(unified=self._groups.unified)
        kubeconfig = yaml.safe_load(self.plane.kubeconfig.read_text())
        cluster = kubeconfig["clusters"][0]["cluster"]
        cluster["server"] = f"https://{HOST_IP}:{self.plane.port}"
        cluster["tls-server-name"] = "kubernetes"
        write_private(worker.kubeconfig, yaml.safe_dump(kubeconfig).encode())
        for controllers in self._groups.folders:
            folder = cgroups.ROOT / controllers.removeprefix("name=") / worker.name
            folder.mkdir(exist_ok=True)
            if self._groups.unified:
                cgroups.enable(folder)
        self._prefixes[worker.name] = [] if worker.number == 1 else self._separate(worker)
        prefix = self._prefixes[worker.name]
        for command in (
            ("hostname", worker.name),
            # Its device plugins are there, wherever the rest is.
            ("mkdir", "-p", "/var/lib/kubelet"),
            ("mount", "-t", "tmpfs", "tmpfs", "/var/lib/kubelet"),
        ):
            _run(*prefix, *command)

    def _separate(self, worker: Worker) -> list[str]:
        """Make namespaces for a further node; return the command that enters them."""
        holder = f"namespaces-{worker.number}"
        unshare = ["unshare", "--net", "--mount", "--uts", "--propagation", "slave"]
        self._group.start(holder, [*unshare, "sleep", "infinity"], os.environ)
        pid = str(self._group.record(holder).pid)
        own = Path("/proc/self/ns/net").readlink()

        def why_not() -> str | None:
            link = Path(f"/proc/{pid}/ns/net").readlink()
            return "no network namespace" if link == own else None

        self._group.wait_until(holder, why_not, READY_SECONDS)
        prefix = ["nsenter", "--target", pid, "--net", "--mount", "--uts"]
        outer = f"harbour{worker.number}"
        peer = ("peer", "name", "eth0", "netns", pid)
        _run("ip", "link", "add", outer, "type", "veth", *peer)
        _run("ip", "link", "set", outer, "master", BRIDGE, "up")
        _run("ip", "route", "add", worker.pods, "via", worker.address)
        for command in (
            # Shared in there, as the kubelet wants it, and not with the first node.
            ("mount", "--make-rshared", "/"),
            ("mount", "-t", "tmpfs", "tmpfs", "/run"),
            ("ip", "link", "set", "lo", "up"),
            ("ip", "address", "add", f"{worker.address}/24", "dev", "eth0"),
            ("ip", "link", "set", "eth0", "up"),
            ("ip", "route", "add", "default", "via", HOST_IP),
            ("sysctl", "-qw", "net.ipv4.ip_forward=1"),
        ):
            _run(*prefix, *command)
        return prefix

    def _launch(self, worker: Worker, program: str) -> None:
        binaries, state = self._machine.node_binaries, worker.state
        command = {
            "containerd": ["containerd", f"--config={state}/containerd.toml"],
            "kubelet": [
                f"{binaries}/kubelet",
                f"--config={state}/kubelet.yaml",
                f"--kubeconfig={worker.kubeconfig}",
                f"--root-dir={state}/kubelet",
                f"--hostname-override={worker.name}",
                f"--node-ip={worker.address}",
            ],
            "kube-proxy": [
                f"{binaries}/kube-proxy",
                f"--config={state}/kube-proxy.yaml",
                f"--hostname-override={worker.name}",
            ],
        }[program]
        name = f"{program}-{worker.number}"
        prefix = self._prefixes[worker.name]
        self._group.start(name, [*prefix, *command], os.environ)
        if program == "containerd":
            asked = [*prefix, "ctr", f"--address={SOCKET}", "version"]
            self._group.wait_until(name, lambda: _why_not(asked), READY_SECONDS)

    def _import(self, worker: Worker) -> None:
        for archive in archives(Path(self._machine.images)):
            self._ctr(worker, "import", str(archive))

    def _ctr(self, worker: Worker, *arguments: str) -> str:
        prefix = self._prefixes[worker.name]
        return _run(*prefix, "ctr", "--namespace=k8s.io", "images", *arguments)

    def _install(self) -> None:
        """Install ``deploy/default`` with the images that were imported."""
        names = self._ctr(self.workers[0], "list", "--quiet").split()
        images = {name.rpartition("/")[2].partition(":")[0]: name for name in names}
        if "harbourmaster" not in images:
            raise PlaygroundError(
                f"image harbourmaster not found: {self._machine.images}: make node-images"
            )
        runners = {"python": "harbourmaster-python", "deno": "harbourmaster-deno"}
        flags = [
            f"--lifecycle-{runtime}-image={images[name]}"
            for runtime, name in runners.items()
            if name in images
        ]
        items = manifests.render(self.plane.kubectl, manifests.DEFAULT)
        for role, container in _containers(items):
            container["image"] = images["harbourmaster"]
            container["args"] += flags if role == "controller" else []
            container["args"] += self._machine.arguments.get(role, [])
        manifests.apply(self.plane.kubectl, items)
        for role in ROLES:
            self.plane.kubectl(
                *("rollout", "status", f"--namespace={NAMESPACE}"),
                *(f"--timeout={ROLLOUT_SECONDS}s", f"deployment/harbourmaster-{role}"),
            )

    def _apply(self, *items: object) -> None:
        content = {"apiVersion": "v1", "kind": "List", "items": items}
        self.plane.kubectl("apply", "--filename=-", stdin=json.dumps(content))

    async def forward(self, listener: socket.socket) -> None:
        """Lead connections to the host's loopback to the API server, for ever."""
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


def _containers(items: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in items:
        if item["kind"] == manifests.DEPLOYMENT:
            role = item["metadata"]["name"].removeprefix("harbourmaster-")
            yield role, item["spec"]["template"]["spec"]["containers"][0]


def _why_not(command: list[str]) -> str | None:
    try:
        _run(*command)
    except PlaygroundError as error:
        return str(error)
    return None


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
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
        _say(str(error) if isinstance(error, PlaygroundError) else failure(error))
        return 1
    _say(READY)
    while True:
        signal.sigwait([signal.SIGUSR1])
        node.revive()


def _watch_keeper() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def run(arguments: Sequence[str]) -> int:
    """Be the first process: end with the keeper, and reap what others leave behind."""
    child = os.fork()
    if not child:
        listener = socket.socket(fileno=int(arguments[1]))
        return main(msgspec.json.decode(arguments[0], type=Machine), listener)
    threading.Thread(target=_watch_keeper, daemon=True).start()
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status) % 256


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
