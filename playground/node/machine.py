"""The inputs of a node, and the check of this machine's prerequisites."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.node import cgroups
from harbourmaster.playground.node.configuration import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Mapping

# What the node says last while it starts, or before the reason why it does not.
READY: Final = "ready"
FAILED: Final = "failed: "
# The processes besides the control plane's, with their ids in the namespaces.
WORKERS: Final = "workers.json"
# Programs, and Debian's packages that have them.
PROGRAMS: Final = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "iptables": "iptables",
    "dnsmasq": "dnsmasq-base",
    "unshare": "util-linux",
}
_CNI: Final = ("bridge", "containernetworking-plugins")
# Where users other than root do not look.
SYSTEM: Final = ":/usr/sbin:/sbin"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a node; paths are absolute."""

    directory: str
    binaries: str
    node_binaries: str
    images: str
    nodes: int = 1
    audit: bool = False
    install: bool = True
    arguments: dict[str, list[str]] = {}

    @property
    def path(self) -> Path:
        """The folder of everything."""
        return Path(self.directory)

    @property
    def cgroup(self) -> str:
        """The name of the cgroups, which no other folder's node has."""
        return cgroup(self.path)


def cgroup(directory: Path) -> str:
    """The name of the cgroups of a folder's node."""
    return f"harbourmaster-{hashlib.sha256(bytes(directory)).hexdigest()[:8]}"


def archives(images: Path) -> list[Path]:
    """The archives of images in a folder."""
    return sorted(images.glob("*.tar"))


def version_of(archive: Path) -> str:
    """The version of Harbourmaster in an archive of Docker or OCI; "" for another image."""

    def blob(name: str) -> Any:  # noqa: ANN401 -- as json.load
        return json.load(blobs.extractfile(name))  # type: ignore[arg-type]

    with tarfile.open(archive) as blobs:
        if "manifest.json" in blobs.getnames():
            config = blob("manifest.json")[0]["Config"]
        else:
            content = blob("index.json")
            # An index of several platforms is one more step.
            while manifests := content.get("manifests"):
                content = blob(f"blobs/{manifests[0]['digest'].replace(':', '/')}")
            config = f"blobs/{content['config']['digest'].replace(':', '/')}"
        labels = blob(config)["config"].get("Labels") or {}
    ours = labels.get("org.opencontainers.image.title") == "harbourmaster"
    return labels.get("org.opencontainers.image.version", "unknown") if ours else ""


def check(directory: Path, images: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Raise PlaygroundError where this machine lacks something."""
    if os.geteuid() != 0:
        raise PlaygroundError("a real node needs root: --node: run the command with sudo")
    path = f"{environment.get('PATH', '')}{SYSTEM}"
    missing = {
        program: package
        for program, package in PROGRAMS.items()
        if shutil.which(program, path=path) is None
    }
    if not any((folder / _CNI[0]).is_file() for folder in PLUGINS):
        missing[f"CNI plugin {_CNI[0]}"] = _CNI[1]
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise PlaygroundError(
            f"{', '.join(missing)} not found: "
            f"apt-get install --yes --no-install-recommends {packages}"
        )
    groups = cgroups.find(cgroup(directory))
    try:
        groups.make()
        groups.remove()
    except OSError as error:
        raise PlaygroundError(
            f"cgroups cannot be written: {error.filename or cgroups.ROOT}: {error.strerror}: "
            "run on a machine, or in a privileged container, that may"
        ) from None
    if not archives(images):
        raise PlaygroundError(f"no image archives (*.tar) found: {images}: make node-images")
    for archive in archives(images):
        if (packed := version_of(archive)) not in {"", version("harbourmaster")}:
            raise PlaygroundError(
                f"image of version {packed}, but this command is {version('harbourmaster')}: "
                f"{archive}: make node-images, or use the image of its release"
            )
