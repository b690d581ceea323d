"""The command line of each component."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

STAGES = Path(__file__).with_name("stages")
SERVICE_RANGE = "10.96.0.0/16"
SERVICE_IP = "10.96.0.1"
# Addresses that kwok reports; nothing listens there.
POD_RANGE = "10.244.0.0/16"
NODE_IP = "10.243.0.1"
# The defaults (20 and 50 requests a second) would be what a test measures.
CLIENT_QPS = 1000
CLIENT_BURST = 2000

# Stopped in reverse order, which is why etcd stands first.
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
REQUIRED = COMPONENTS[:2]
OPTIONAL = COMPONENTS[2:]

# Below 32768, where Linux takes the ports of outgoing connections from: a port that is free now
# is still free when its component binds it, and when it binds it again after a restart.
_PORTS = range(20000, 30000)


class Ports(NamedTuple):
    """The ports of one control plane, all on 127.0.0.1."""

    etcd: int
    etcd_peer: int
    api: int
    controller_manager: int
    scheduler: int
    kwok: int


class Layout(NamedTuple):
    """Where everything of one control plane stands."""

    directory: Path

    @property
    def pki(self) -> Path:
        """Keys, certificates and the components' kubeconfigs."""
        return self.directory / "pki"

    @property
    def logs(self) -> Path:
        """One log for each component, and the audit log."""
        return self.directory / "logs"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.directory / "kubeconfig"

    @property
    def records(self) -> Path:
        """The processes; also the mark by which a folder is known as a playground."""
        return self.directory / "pids.json"

    def client_kubeconfig(self, client: str) -> Path:
        """Return the kubeconfig of a component."""
        return self.pki / f"{client}.kubeconfig"

    def log(self, component: str) -> Path:
        """Return the log of a component."""
        return self.logs / f"{component}.log"


class Component(NamedTuple):
    """What to run, and the port and path that answer 200 when it is ready."""

    arguments: list[str]
    port: int
    ready_path: str
    tls: bool = True


def free_ports() -> Ports:
    """Choose ports that nobody listens on."""
    chosen: list[int] = []
    with ExitStack() as stack:
        candidates = iter(random.SystemRandom().sample(_PORTS, len(_PORTS)))
        while len(chosen) < len(Ports._fields):
            port = next(candidates)
            listener = stack.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            chosen.append(port)
    return Ports(*chosen)


def components(
    layout: Layout, ports: Ports, optional: tuple[str, ...], *, audit: bool
) -> dict[str, Component]:
    """Return the required and the given optional components, in starting order."""
    every = {
        "etcd": _etcd(layout, ports),
        "kube-apiserver": _api_server(
            layout, ports, audit=audit, controllers="kube-controller-manager" in optional
        ),
        "kube-controller-manager": _controller_manager(layout, ports),
        "kube-scheduler": _scheduler(layout, ports),
        "kwok": _kwok(layout, ports),
    }
    return {name: every[name] for name in COMPONENTS if name in (*REQUIRED, *optional)}


def write_configurations(layout: Layout) -> None:
    """Write the files that command lines name: the scheduler's and kwok's, and an audit policy."""
    files: dict[str, object] = {
        "kube-scheduler.yaml": {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {
                "kubeconfig": str(layout.client_kubeconfig("kube-scheduler")),
                "qps": CLIENT_QPS,
                "burst": CLIENT_BURST,
            },
        },
        # kwok has no client limit to raise: it limits itself by these numbers of workers.
        "kwok.yaml": {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokConfiguration",
            "options": {
                "manageNodesWithAnnotationSelector": "kwok.x-k8s.io/node=fake",
                "nodeIP": NODE_IP,
                "cidr": POD_RANGE,
                "nodeLeaseDurationSeconds": 40,
                "podPlayStageParallelism": 16,
                "nodePlayStageParallelism": 16,
                "nodeLeaseParallelism": 16,
                "enableDebuggingHandlers": False,
            },
        },
        "audit-policy.yaml": {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        },
    }
    for name, content in files.items():
        # JSON is YAML.
        (layout.directory / name).write_bytes(msgspec.json.format(msgspec.json.encode(content)))


def _etcd(layout: Layout, ports: Ports) -> Component:
    pki = layout.pki
    client, peer = (f"https://127.0.0.1:{port}" for port in (ports.etcd, ports.etcd_peer))
    arguments = [
        "--name=playground",
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=playground={peer}",
        "--client-cert-auth",
        f"--trusted-ca-file={pki / 'ca.crt'}",
        f"--cert-file={pki / 'serving.crt'}",
        f"--key-file={pki / 'serving.key'}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={pki / 'ca.crt'}",
        f"--peer-cert-file={pki / 'serving.crt'}",
        f"--peer-key-file={pki / 'serving.key'}",
        # What a killed process has written outlives it; only a crash of the machine loses it.
        "--unsafe-no-fsync",
        # There is no second member to wait for before an election.
        "--heartbeat-interval=20",
        "--election-timeout=200",
    ]
    return Component(arguments, ports.etcd, "/health")


def _api_server(layout: Layout, ports: Ports, *, audit: bool, controllers: bool) -> Component:
    pki = layout.pki
    arguments = [
        *_serving(layout, ports.api),
        f"--etcd-servers=https://127.0.0.1:{ports.etcd}",
        f"--etcd-cafile={pki / 'ca.crt'}",
        f"--etcd-certfile={pki / 'etcd-client.crt'}",
        f"--etcd-keyfile={pki / 'etcd-client.key'}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        "--advertise-address=127.0.0.1",
        # Endpoints may not hold a loopback address, which is all this server has.
        "--endpoint-reconciler-type=none",
        # A stop would otherwise wait a minute for the watches of clients that go on.
        "--shutdown-watch-termination-grace-period=1s",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'service-account.key'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
    ]
    if not controllers:
        # One refuses pods until a controller has made the service account, the other taints
        # nodes until a controller sees them ready.
        arguments.append("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
    if audit:
        arguments += [
            f"--audit-policy-file={layout.directory / 'audit-policy.yaml'}",
            f"--audit-log-path={layout.logs / 'audit.log'}",
        ]
    return Component(arguments, ports.api, "/readyz")


def _controller_manager(layout: Layout, ports: Ports) -> Component:
    arguments = [
        *_serving(layout, ports.controller_manager),
        f"--kubeconfig={layout.client_kubeconfig('kube-controller-manager')}",
        f"--kube-api-qps={CLIENT_QPS}",
        f"--kube-api-burst={CLIENT_BURST}",
        "--leader-elect=false",
        # The built-in roles are one for each controller, given to its service account.
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={layout.pki / 'service-account.key'}",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
    ]
    return Component(arguments, ports.controller_manager, "/healthz")


def _scheduler(layout: Layout, ports: Ports) -> Component:
    arguments = [
        *_serving(layout, ports.scheduler),
        f"--config={layout.directory / 'kube-scheduler.yaml'}",
    ]
    return Component(arguments, ports.scheduler, "/readyz")


def _kwok(layout: Layout, ports: Ports) -> Component:
    files = [layout.directory / "kwok.yaml", *sorted(STAGES.glob("*.yaml"))]
    arguments = [
        f"--kubeconfig={layout.client_kubeconfig('kwok')}",
        f"--server-address=127.0.0.1:{ports.kwok}",
        *(f"--config={path}" for path in files),
    ]
    return Component(arguments, ports.kwok, "/healthz", tls=False)


def _serving(layout: Layout, port: int) -> list[str]:
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.pki / 'serving.crt'}",
        f"--tls-private-key-file={layout.pki / 'serving.key'}",
        f"--client-ca-file={layout.pki / 'ca.crt'}",
    ]
