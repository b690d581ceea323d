"""The processes of Harbourmaster on this machine: command lines, volumes and files, as in pods."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from harbourmaster.playground.kubelet import SecretVolume, TokenVolume

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Role: TypeAlias = Literal["controller", "webhook"]

NAMESPACE = "harbourmaster-system"
WEBHOOK = "harbourmaster-webhook"
METRICS = "harbourmaster-metrics"
CERTIFICATE = "harbourmaster-webhook-cert"
CERTIFICATE_KEYS = ["ca.crt", "tls.crt", "tls.key"]
# The name of both webhook configurations.
REGISTRATION = "harbourmaster"
KUBELET = "kubelet"
LOOPBACK = "127.0.0.1"


class Files(NamedTuple):
    """The files and folders of one installation; the folder can be the control plane's."""

    directory: Path

    @property
    def logs(self) -> Path:
        """One log for each process."""
        return self.directory / "logs"

    @property
    def records(self) -> Path:
        """The processes."""
        return self.directory / "harbourmaster.json"

    @property
    def pods(self) -> Path:
        """A folder for each process, with its volumes."""
        return self.directory / "pods"

    @property
    def duties(self) -> Path:
        """The file with the volumes that the kubelet mounts."""
        return self.directory / "kubelet.json"


class Workload(NamedTuple):
    """One process in the place of a pod. ``port`` is that of reviews, 0 for a controller.

    The last three are a controller's: of metric values, of the custom metrics API, and for a
    scheduler's questions.
    """

    name: str
    role: Role
    folder: Path
    port: int
    health_port: int
    values_port: int = 0
    metrics_api_port: int = 0
    extender_port: int = 0

    @property
    def identity(self) -> Path:
        """The volume with the service account's token."""
        return self.folder / "serviceaccount"

    @property
    def certificates(self) -> Path:
        """The volume with the serving certificate."""
        return self.folder / "certs"

    @property
    def health(self) -> str:
        """The URL below which it answers about itself."""
        return f"http://{LOOPBACK}:{self.health_port}"

    @property
    def ports(self) -> dict[str, int]:
        """The ports by their names in the pod."""
        ports = {
            "webhook": self.port,
            "health": self.health_port,
            "values": self.values_port,
            "metrics-api": self.metrics_api_port,
            "scheduling": self.extender_port,
        }
        return {name: port for name, port in ports.items() if port}

    def volumes(self) -> list[TokenVolume | SecretVolume]:
        """Return the volumes that the kubelet mounts."""
        token = TokenVolume(str(self.identity), NAMESPACE, f"harbourmaster-{self.role}")
        if self.role == "controller":
            return [token]
        folder = str(self.certificates)
        return [token, SecretVolume(folder, NAMESPACE, CERTIFICATE, CERTIFICATE_KEYS)]

    def command(self, flags: Sequence[str], service_port: int) -> list[str]:
        """The command line, ``flags`` before our own; of two equal flags the later one counts."""
        # -P: a folder named webhook may lie where the user stands.
        command = [
            *(sys.executable, "-P", "-m", f"harbourmaster.{self.role}"),
            *flags,
            f"--host={LOOPBACK}",
            f"--health-port={self.health_port}",
            f"--service-account-dir={self.identity}",
            "--log-format=json",
        ]
        if self.role == "controller":
            return [
                *command,
                f"--webhook-service-port={service_port}",
                f"--metrics-expose-port={self.values_port}",
                f"--metrics-custom-metrics-port={self.metrics_api_port}",
                f"--scheduler-extender-port={self.extender_port}",
            ]
        # Nobody waits here for a balancer to turn away.
        own = (f"--port={self.port}", f"--cert-dir={self.certificates}", "--drain-seconds=0")
        return [*command, *own]

    def environment(self, starter: Mapping[str, str], api_port: int) -> dict[str, str]:
        """The environment that a pod has, and what else the starter's has."""
        # A kubeconfig would win over the service account.
        passed = {name: value for name, value in starter.items() if name != "KUBECONFIG"}
        return {
            **passed,
            "KUBERNETES_SERVICE_HOST": LOOPBACK,
            "KUBERNETES_SERVICE_PORT": str(api_port),
            "POD_NAME": f"harbourmaster-{self.name}",
            "POD_NAMESPACE": NAMESPACE,
        }


def workload_name(role: Role, number: int) -> str:
    """``webhook``, then ``webhook-2`` and so on."""
    return role if number == 1 else f"{role}-{number}"
