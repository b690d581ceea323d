"""Folders whose files change all at once, in the shape that the kubelet gives to its mounts.

``FOLDER/NAME`` leads to ``..data/NAME``, and ``..data`` to a folder named after the time; a change
fills a new folder and swaps the one link.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = "..data"
_NEXT = "..data_tmp"


def publish(volume: Path, files: Mapping[str, bytes]) -> bool:
    """Make ``files`` what the volume holds; return whether that is a change. Only we may read."""
    if _content(volume) == files:
        return False
    volume.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("..%Y_%m_%d_%H_%M_%S.")
    fresh = Path(tempfile.mkdtemp(prefix=stamp, dir=volume))
    for name, content in files.items():
        descriptor = os.open(fresh / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    following = volume / _NEXT
    following.unlink(missing_ok=True)
    following.symlink_to(fresh.name)
    following.replace(volume / DATA)
    _show(volume, files)
    for folder in volume.glob("..[0-9]*"):
        if folder != fresh:
            shutil.rmtree(folder)
    return True


def is_mounted(volume: Path) -> bool:
    """Whether the volume was ever filled, which a kubelet waits for before it starts a pod."""
    return (volume / DATA).exists()


def _content(volume: Path) -> dict[str, bytes] | None:
    if not is_mounted(volume):
        return None
    return {path.name: path.read_bytes() for path in (volume / DATA).iterdir()}


def _show(volume: Path, files: Mapping[str, bytes]) -> None:
    """Give each file its link, and take the links of files that are gone."""
    links = {path.name for path in volume.iterdir() if not path.name.startswith("..")}
    for name in files.keys() - links:
        (volume / name).symlink_to(f"{DATA}/{name}")
    for name in links - files.keys():
        (volume / name).unlink()
