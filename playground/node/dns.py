"""The names of Services for dnsmasq, from a watch; it reads them again at each change."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

from harbourmaster.playground import api
from harbourmaster.playground.errors import PlaygroundError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harbourmaster.playground.control_plane import ControlPlane

_WATCH_SECONDS: Final = 300
_RETRY_SECONDS: Final = 1.0


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
        event = json.loads(line)
        service = event["object"]
        name = "{name}.{namespace}.svc.cluster.local".format_map(service["metadata"])
        # Some Services have none, or the word None.
        address = service["spec"].get("clusterIP", "None")
        self._lines[name] = f"{address} {name}\n"
        if event["type"] == "DELETED" or address == "None":
            del self._lines[name]
        self._hosts.write_text("".join(self._lines.values()))
        self._reload()
