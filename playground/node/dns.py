"""The names of Services for dnsmasq, from a watch; it reads them again at each change."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.metadata import Metadata
from harbourmaster.playground import api
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.node.configuration import DNS_IP, DOMAIN, HOST_IP

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

    from harbourmaster.playground.control_plane import ControlPlane

_PATH: Final = "/api/v1/services"
_WATCH_SECONDS: Final = 300
_RETRY_SECONDS: Final = 1.0
_PORTS: Final = [
    {"name": protocol.lower(), "protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")
]
_NAMED: Final = {"name": "kube-dns", "namespace": "kube-system"}
SERVICE: Final = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": _NAMED,
    "spec": {"clusterIP": DNS_IP, "ports": _PORTS},
}
ENDPOINTS: Final = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {**_NAMED, "labels": {"kubernetes.io/service-name": "kube-dns"}},
    "addressType": "IPv4",
    "endpoints": [{"addresses": [HOST_IP]}],
    "ports": _PORTS,
}


class _Spec(msgspec.Struct, frozen=True):
    # Some Services have none, or the word None.
    cluster_ip: str = msgspec.field(name="clusterIP", default="None")


class _Service(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: _Spec = _Spec()

    @property
    def line(self) -> str:
        """A line of a file of hosts, or nothing for a Service without an address of its own."""
        name = f"{self.metadata.name}.{self.metadata.namespace}.svc.{DOMAIN}"
        return "" if self.spec.cluster_ip == "None" else f"{self.spec.cluster_ip} {name}\n"


class _List(msgspec.Struct, frozen=True):
    metadata: Metadata
    items: list[_Service]


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class Names:
    """Keeps the file of hosts; ``reload`` is called after each change of it."""

    def __init__(self, plane: ControlPlane, hosts: Path, reload: Callable[[], None]) -> None:
        self._port = plane.port
        self._context: ssl.SSLContext = plane.admin
        self._hosts = hosts
        self._reload = reload
        self._lines: dict[tuple[str, str], str] = {}

    def follow(self) -> None:
        """List and watch, for ever; without the API server, the last names stay."""
        while True:
            try:
                self._watch(self.list())
            except PlaygroundError:
                time.sleep(_RETRY_SECONDS)

    def list(self) -> str:
        """Take all Services of now; return their version. Raises PlaygroundError."""
        content = api.request(self._port, self._context, "GET", _PATH)
        found = msgspec.json.decode(content, type=_List)
        self._lines = {_key(service): service.line for service in found.items}
        self._write()
        return found.metadata.resource_version

    def _watch(self, version: str) -> None:
        path = f"{_PATH}?watch=true&resourceVersion={version}&timeoutSeconds={_WATCH_SECONDS}"
        for line in api.watch(self._port, self._context, path, 2 * _WATCH_SECONDS):
            event = msgspec.json.decode(line, type=_Event)
            if event.type == "ERROR":
                return
            service = msgspec.json.decode(event.object, type=_Service)
            self._lines[_key(service)] = "" if event.type == "DELETED" else service.line
            self._write()

    def _write(self) -> None:
        self._hosts.write_text("".join(sorted(self._lines.values())))
        self._reload()


def _key(service: _Service) -> tuple[str, str]:
    return service.metadata.namespace, service.metadata.name
