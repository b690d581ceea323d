"""The names of Services for dnsmasq, from a watch; it reads them again at each change."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.metadata import Metadata
from harbourmaster.playground import api
from harbourmaster.playground.errors import PlaygroundError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harbourmaster.playground.control_plane import ControlPlane

_WATCH_SECONDS: Final = 300
_RETRY_SECONDS: Final = 1.0


class _Spec(msgspec.Struct, frozen=True):
    # Some Services have none, or the word None.
    cluster_ip: str = msgspec.field(name="clusterIP", default="None")


class _Service(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _Spec = _Spec()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Service


class Names:
    """Keeps the file of hosts; ``reload`` is called after each change of it."""

    def __init__(self, plane: ControlPlane, hosts: Path, reload: Callable[[], None]) -> None:
        self._plane = plane
        self._hosts = hosts
        self._reload = reload
        self._lines: dict[str, str] = {}

    def follow(self) -> None:
        """Watch without end; without the API server, the last names stay."""
        # Each watch starts with an event for each Service that exists.
        path = f"/api/v1/services?watch=true&timeoutSeconds={_WATCH_SECONDS}"
        while True:
            self._lines = {}
            try:
                for line in api.watch(
                    self._plane.port, self._plane.admin, path, 2 * _WATCH_SECONDS
                ):
                    self.take(line)
            except PlaygroundError:
                time.sleep(_RETRY_SECONDS)

    def take(self, line: bytes) -> None:
        """Take one event of a watch."""
        event = msgspec.json.decode(line, type=_Event)
        name = f"{event.object.metadata.name}.{event.object.metadata.namespace}.svc.cluster.local"
        address = event.object.spec.cluster_ip
        self._lines[name] = f"{address} {name}\n"
        if event.type == "DELETED" or address == "None":
            del self._lines[name]
        self._hosts.write_text("".join(self._lines.values()))
        self._reload()
