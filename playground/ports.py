"""Ports of 127.0.0.1 for components that are started later, none of them given out twice."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import Final

# Below 32768, where Linux takes the ports of outgoing connections from: a port that is free now
# is still free when its component binds it, and when it binds it again after a restart.
_PORTS: Final = range(20000, 30000)
_held: Final[dict[int, int]] = {}
"""The file that locks each port given out here; the process's end opens it."""


def free_ports(count: int) -> list[int]:
    """Choose ports on which no process listens, and that no other call of this has returned."""
    chosen: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(chosen) == count:
            break
        if _claim(port):
            chosen.append(port)
    return chosen


def _claim(port: int) -> bool:
    if port in _held:
        return False
    folder = Path(tempfile.gettempdir()) / f"harbourmaster-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder / str(port), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
    except OSError:
        os.close(lock)
        return False
    _held[port] = lock
    return True
