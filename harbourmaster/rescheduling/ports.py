"""Ports of the node that pods take for themselves (rescheduler-spec 4.2, item 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.rescheduling.model import HostPort

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.rescheduling.requests import Container

_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - compared, not listened on
"""The address that means all addresses; the scheduler takes ``::`` for a single one."""
_PROTOCOL: Final = "TCP"


def host_ports(
    containers: Iterable[Container], inits: Iterable[Container], *, is_on_host: bool = False
) -> tuple[HostPort, ...]:
    """Return the host ports of containers; in the node's network all ports are host ports."""
    ports = []
    for container in (*(init for init in inits if init.is_sidecar), *containers):
        for port in container.ports or ():
            # The API server fills it in where the node's network is shared.
            number = port.host_port or (port.container_port if is_on_host else 0) or 0
            if number > 0:
                address = "" if port.host_ip in {None, _EVERYWHERE} else str(port.host_ip)
                ports.append(HostPort(port.protocol or _PROTOCOL, address, number))
    return tuple(ports)


def conflicts(wanted: Iterable[HostPort], taken: tuple[HostPort, ...]) -> Iterable[HostPort]:
    """Those that can't be had beside the ones that are taken."""
    return (port for port in wanted if any(_is_same(port, taken_port) for taken_port in taken))


def _is_same(first: HostPort, second: HostPort) -> bool:
    return (
        first.number == second.number
        and first.protocol == second.protocol
        and (first.ip == second.ip or not first.ip or not second.ip)
    )
