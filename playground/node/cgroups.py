"""The cgroups of one node: a folder in each hierarchy (version 1), or a delegated one (version 2).

The node's processes are in the leaf ``PROCESSES``: in version 2, only a leaf may have any.
"""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.playground.errors import PlaygroundError

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")
PROCESSES: Final = "processes"
CONTROLLERS: Final = "cgroup.controllers"
# What the kubelet cannot do without, in both versions.
NEEDED: Final = ("cpu", "cpuset", "memory", "pids")
# The kernel counts an ended process for a moment.
REMOVE_SECONDS: Final = 5.0


class Groups(NamedTuple):
    """The node's folder in each hierarchy, by the hierarchy's controllers; version 2 has one."""

    unified: bool
    folders: dict[str, Path]

    def make(self) -> None:
        """Make the folders. Raises OSError where they cannot be written."""
        for controllers, folder in self.folders.items():
            if self.unified:
                available = (folder.parent / CONTROLLERS).read_text().split()
                wanted = " ".join(f"+{controller}" for controller in available)
                (folder.parent / "cgroup.subtree_control").write_text(wanted)
            folder.mkdir(exist_ok=True)
            if "cpuset" in controllers.split(","):
                for name in ("cpuset.mems", "cpuset.cpus"):
                    (folder / name).write_text((folder.parent / name).read_text())
                (folder / "cgroup.clone_children").write_text("1")
            (folder / PROCESSES).mkdir(exist_ok=True)

    def enter(self, command: list[str]) -> list[str]:
        """The command in the leaves, and in a cgroup namespace of what is above them."""
        folders = self.folders.values()
        command = _in_groups((folder / PROCESSES for folder in folders), command)
        return _in_groups(folders, ["unshare", "--cgroup", *command])

    def remove(self) -> None:
        """Remove the folders once their last process has ended. Raises OSError."""
        deadline = time.monotonic() + REMOVE_SECONDS
        for folder in self.folders.values():
            for path, _, _ in os.walk(folder, topdown=False):
                while Path(path).exists():
                    try:
                        Path(path).rmdir()
                    except OSError:
                        if time.monotonic() > deadline:
                            raise
                        time.sleep(0.05)


def find(name: str, root: Path = ROOT, own: Path = OWN) -> Groups:
    """Return where cgroups of this name belong: in version 1, below those of this process.

    Raises PlaygroundError where a controller is missing.
    """
    if is_unified(root):
        _check((root / CONTROLLERS).read_text().split(), root / CONTROLLERS)
        return Groups(unified=True, folders={"": root / name})
    folders = {}
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        place = root / controllers.removeprefix("name=")
        if controllers and place.is_dir():
            below = place / path.lstrip("/")
            # In a container, the path may be one of the host that is not shown here.
            folders[controllers] = (below if below.is_dir() else place) / name
    _check([word for controllers in folders for word in controllers.split(",")], root)
    return Groups(unified=False, folders=folders)


def is_unified(root: Path = ROOT) -> bool:
    """Whether this is version 2 alone; with both versions, version 1 has the controllers."""
    return (root / CONTROLLERS).exists()


def _check(controllers: Iterable[str], place: Path) -> None:
    missing = sorted({*NEEDED} - {*controllers})
    if missing:
        raise PlaygroundError(
            f"cgroup controllers {', '.join(missing)} not found: {place}: "
            "a real node needs them: enable them for this machine"
        )


def _in_groups(folders: Iterable[Path], command: list[str]) -> list[str]:
    files = [shlex.quote(f"{folder}/cgroup.procs") for folder in folders]
    script = "".join(f"echo $$ > {file} && " for file in files)
    return ["sh", "-c", f'{script}exec "$@"', "sh", *command]
