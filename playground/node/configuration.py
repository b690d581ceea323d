"""The files of one node: templates beside this module, and a kubeconfig that works on each node."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final, NamedTuple

import yaml

from harbourmaster.playground.node import cgroups
from harbourmaster.playground.pki import write_private

FILES: Final = Path(__file__).parent
# Of the first node, where the control plane runs; the others are behind it.
HOST_IP: Final = "10.77.0.1"
SOCKET: Final = "/run/containerd/containerd.sock"
# Debian's, then where other distributions have them.
PLUGINS: Final = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
TEMPLATES: Final = ("containerd.toml", "kubelet.yaml", "kube-proxy.yaml", "cni/network.conflist")


class Worker(NamedTuple):
    """One node of the cluster; the first has the number 1."""

    number: int
    directory: Path

    @property
    def name(self) -> str:
        """The name of the node."""
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        """The address of the node for the others."""
        return f"10.77.0.{self.number}"

    @property
    def state(self) -> Path:
        """The folder of this node alone."""
        return self.directory / self.name

    def write(self, kubeconfig: str, port: int, root: Path = cgroups.ROOT) -> None:
        """Write all files; ``kubeconfig`` is one that works on the first node."""
        values = {
            "number": self.number,
            "directory": self.directory,
            "state": self.state,
            "plugins": next((folder for folder in PLUGINS if folder.is_dir()), PLUGINS[0]),
            "fail": str(cgroups.is_unified(root)).lower(),
        }
        for folder in ("cni", "pods"):
            (self.state / folder).mkdir(parents=True, exist_ok=True)
        for name in TEMPLATES:
            template = Template((FILES / Path(name).name).read_text())
            (self.state / name).write_text(template.substitute(values))
        content = yaml.safe_load(kubeconfig)
        content["clusters"][0]["cluster"] |= {
            "server": f"https://{HOST_IP}:{port}",
            "tls-server-name": "kubernetes",
        }
        write_private(self.state / "kubeconfig", yaml.safe_dump(content).encode())
