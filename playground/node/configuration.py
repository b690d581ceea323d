"""Addresses and configuration files of containerd, CNI, kubelet and kube-proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

BRIDGE: Final = "harbour0"
# Of the first node, where the control plane runs; the others are behind it.
HOST_IP: Final = "10.77.0.1"
DNS_IP: Final = "10.96.0.10"
DOMAIN: Final = "cluster.local"
PAUSE: Final = "registry.example.com/pause:1"
SOCKET: Final = "/run/containerd/containerd.sock"
# Debian's, then where other distributions have them.
PLUGINS: Final = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))


class Worker(NamedTuple):
    """One node of the cluster. The first has the number 1."""

    number: int
    directory: Path

    @property
    def name(self) -> str:
        """The name of the node."""
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        """The address of the node on the bridge."""
        return f"10.77.0.{self.number}"

    @property
    def pods(self) -> str:
        """The range of the node's pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def state(self) -> Path:
        """Everything that is of this node alone."""
        return self.directory / self.name

    @property
    def kubeconfig(self) -> Path:
        """What kubelet and kube-proxy connect with, from any node."""
        return self.state / "kubeconfig"

    def write(self, *, unified: bool) -> None:
        """Write all configuration files."""
        for name in ("cni", "kubelet", "pods"):
            (self.state / name).mkdir(parents=True, exist_ok=True)
        (self.state / "containerd.toml").write_text(self._containerd())
        configurations = {
            "cni/10-bridge.conflist": self._network(),
            "kubelet.yaml": self._kubelet(unified=unified),
            "kube-proxy.yaml": self._proxy(),
        }
        for name, content in configurations.items():
            # JSON is YAML.
            (self.state / name).write_bytes(msgspec.json.format(msgspec.json.encode(content)))

    def _containerd(self) -> str:
        plugins = next((folder for folder in PLUGINS if folder.is_dir()), PLUGINS[0])
        # restrict_oom_score_adj: in a container or VM without CAP_SYS_RESOURCE, no other value
        # can be set. AppArmor's profiles are the machine's, not of these namespaces.
        return f"""version = 2
root = "{self.state}/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{self.state}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""

    def _network(self) -> dict[str, Any]:
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                # Addresses are given back by containers that end, and these end with the node.
                "dataDir": "/run/cni",
                "ranges": [[{"subnet": self.pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}

    def _kubelet(self, *, unified: bool) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            **({} if unified else {"failCgroupV1": False}),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.name}",
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": f"{self.directory}/pki/ca.crt"},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "failSwapOn": False,
            "resolvConf": "/etc/resolv.conf",
            "clusterDNS": [DNS_IP],
            "clusterDomain": DOMAIN,
            "podLogsDir": f"{self.state}/pods",
            "volumePluginDir": f"{self.state}/volume-plugins",
            # The disk and the images are the machine's.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
                "nodefs.inodesFree": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        }

    def _proxy(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(self.kubeconfig)},
            "clusterCIDR": "10.244.0.0/16",
            # Limits of the whole machine.
            "conntrack": {"maxPerCore": 0, "min": 0},
        }
