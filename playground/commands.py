"""The command line of each component."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from harbourmaster.playground.pki import FRONT_PROXY

if TYPE_CHECKING:
    from collections.abc import Mapping

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
SCHEDULER = "kube-scheduler"
REQUIRED = COMPONENTS[:2]
OPTIONAL = COMPONENTS[2:]


class Ports(NamedTuple):
    """The ports of one control plane, all on 127.0.0.1."""

    etcd: int
    etcd_peer: int
    api: int
    controller_manager: int
    scheduler: int
    kwok: int


class Layout(NamedTuple):
    """The files and folders of one control plane."""

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
    """A program to run, and the port and path that answer 200 when it is ready.

    ``binary`` is the name of the program, by default that of the component.
    """

    arguments: list[str]
    port: int
    ready_path: str
    tls: bool = True
    binary: str = ""

    @property
    def ready(self) -> str:
        """The URL to ask."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}{self.ready_path}"


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
        "kube-scheduler": _scheduler(layout, ports.scheduler),
        "kwok": _kwok(layout, ports),
    }
    return {name: every[name] for name in COMPONENTS if name in (*REQUIRED, *optional)}


def further_scheduler(
    layout: Layout, name: str, port: int, configuration: Mapping[str, Any]
) -> Component:
    """Return one more kube-scheduler, and write its KubeSchedulerConfiguration.

    What every scheduler here has is added: one replica, and a client without the usual limits.
    """
    _write(layout.directory / f"{name}.yaml", _of_scheduler(layout, configuration))
    return _scheduler(layout, port, name)


def write_configurations(layout: Layout) -> None:
    """Write the files that command lines name: the scheduler's and kwok's, and an audit policy."""
    files: dict[str, object] = {
        f"{SCHEDULER}.yaml": _of_scheduler(
            layout,
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
            },
        ),
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
        _write(layout.directory / name, content)


def _write(path: Path, content: object) -> None:
    # JSON is YAML.
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content)))


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
        # A single member need not wait for others before an election.
        "--heartbeat-interval=100",
        "--election-timeout=500",
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
        # Endpoints must not contain a loopback address, the only one of this server.
        "--endpoint-reconciler-type=none",
        # A stop would otherwise wait a minute for the watches of clients that go on.
        "--shutdown-watch-termination-grace-period=1s",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'service-account.key'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        # Aggregation: other API servers identify this one by its client certificate.
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / f'{FRONT_PROXY}.crt'}",
        f"--proxy-client-key-file={pki / f'{FRONT_PROXY}.key'}",
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
        # By default HPAs look at their metrics four times a minute.
        "--horizontal-pod-autoscaler-sync-period=2s",
    ]
    return Component(arguments, ports.controller_manager, "/healthz")


def _scheduler(layout: Layout, port: int, name: str = SCHEDULER) -> Component:
    arguments = [*_serving(layout, port), f"--config={layout.directory / f'{name}.yaml'}"]
    return Component(arguments, port, "/readyz", binary=SCHEDULER)


def _of_scheduler(layout: Layout, given: Mapping[str, Any]) -> dict[str, Any]:
    """A KubeSchedulerConfiguration with what every scheduler here has."""
    kubeconfig = {"kubeconfig": str(layout.client_kubeconfig(SCHEDULER))}
    limits = {"qps": CLIENT_QPS, "burst": CLIENT_BURST}
    return {
        **given,
        "leaderElection": {"leaderElect": False},
        "clientConnection": {**kubeconfig, **given.get("clientConnection", {}), **limits},
    }


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
