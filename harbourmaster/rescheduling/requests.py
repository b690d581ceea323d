"""Computes the requests of a pod as the scheduler does (rescheduler-spec 4.1).

Quantities are summed in thousandths, to which the API server rounds each of them up; all but CPU
become whole numbers once per pod. Requests of more than 64 bits, which overflow in the scheduler
and pass for small ones, fit nowhere here. Host ports (4.2, item 5) and the arithmetic of rooms are
here, too.
"""

from __future__ import annotations

import math
from decimal import ROUND_UP, Context
from functools import lru_cache
from operator import sub
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct, field

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.quantities import parse_quantity
from harbourmaster.rescheduling.model import HostPort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harbourmaster.rescheduling.model import Node, Requests

CPU: Final = "cpu"
PODS: Final = "pods"
_NATIVE: Final = frozenset((CPU, "memory", "ephemeral-storage"))
_HUGE_PAGES: Final = "hugepages-"
_ATTACHABLE: Final = "attachable-volumes-"
_OF_WHOLE_PODS: Final = frozenset((CPU, "memory"))
_THOUSAND: Final = 1000
_TOO_MUCH: Final = 2**63
_EXACT: Final = Context(prec=1000)
_REMEMBERED: Final = 4096

Quantities: TypeAlias = dict[str, str | int | float]
"""Quantities by resource, as they stand in JSON."""
_Amounts: TypeAlias = dict[str, int]
"""Amounts by resource, in thousandths."""
_NONE: Final[_Amounts] = {}


class Resources(Struct, frozen=True, gc=False):
    """The requests and limits of a container, or of a pod as a whole."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Port(Struct, frozen=True, gc=False, rename="camel"):
    """A port of a container."""

    host_ip: str | None = field(default=None, name="hostIP")
    host_port: int | None = None
    container_port: int | None = None
    protocol: str | None = None


class Container(Struct, frozen=True, gc=False, rename="camel"):
    """A container as far as it matters to a node."""

    name: str | None = None
    resources: Resources | None = None
    ports: tuple[Port, ...] | None = None
    restart_policy: str | None = None

    @property
    def is_sidecar(self) -> bool:
        """Whether it runs on, for an init container."""
        return self.restart_policy == "Always"


class ResourceStatus(Struct, frozen=True, gc=False, rename="camel"):
    """The resources in the status of a container or a pod, during or after a resize."""

    name: str | None = None
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class Asking(Struct, frozen=True, gc=False):
    """The parts of a pod with its requests; ``held`` is empty for a pod without a node.

    ``is_infeasible`` says that the node refused the requests of the spec.
    """

    containers: tuple[Container, ...] = ()
    inits: tuple[Container, ...] = ()
    whole: Resources | None = None
    overhead: Quantities | None = None
    held: tuple[ResourceStatus, ...] = ()
    held_whole: ResourceStatus | None = None
    is_infeasible: bool = False


def effective(asking: Asking) -> Requests:
    """Return the requests that the scheduler counts for a pod. Raises MalformedError."""
    held = {status.name: status for status in asking.held}
    total = _of_containers(asking, held)
    _take_whole(total, asking)
    _add(total, _amounts(asking.overhead, "spec.overhead"))
    return tuple(
        (name, amount if name == CPU else _whole(amount))
        for name, amount in sorted(total.items())
        if amount and _is_counted(name)
    )


def allocatable(given: Quantities | None) -> dict[str, int]:
    """Return the resources of a node, in the units of the model. Raises MalformedError.

    An amount of more than 64 bits counts as 0, as in the scheduler.
    """
    amounts = {}
    for name, quantity in (given or {}).items():
        try:
            amount = _thousandths(quantity)
        except ValueError as error:
            raise MalformedError(f"status.allocatable.{name}: {error}") from None
        counted = amount if name == CPU else _whole(amount)
        amounts[name] = counted if counted < _TOO_MUCH else 0
    return amounts


def _of_containers(asking: Asking, held: Mapping[str | None, ResourceStatus]) -> _Amounts:
    running: _Amounts = {}
    for index, container in enumerate(asking.containers):
        at = f"spec.containers[{index}]"
        _add(running, _of_container(container, at, asking, held.get(container.name)))
    if not asking.inits:
        return running
    sidecars: _Amounts = {}
    starting: _Amounts = {}
    for index, container in enumerate(asking.inits):
        status = held.get(container.name) if container.is_sidecar else None
        own = _of_container(container, f"spec.initContainers[{index}]", asking, status)
        if container.is_sidecar:
            _add(running, own)
            _add(sidecars, own)
            _raise(starting, (sidecars,))
        else:
            together = dict(own)
            _add(together, sidecars)
            _raise(starting, (together,))
    _raise(running, (starting,))
    return running


def _of_container(
    container: Container, at: str, asking: Asking, held: ResourceStatus | None
) -> _Amounts:
    resources = container.resources
    spec = _with_defaults(resources, f"{at}.resources") if resources else _NONE
    if held is None or held.resources is None:
        return spec
    return _largest(spec, held, asking, "status.containerStatuses")


def _take_whole(total: _Amounts, asking: Asking) -> None:
    """Let what the pod asks for as a whole replace the sums of its containers."""
    if asking.whole is None:
        return
    at = "spec.resources"
    spec = dict(_amounts(asking.whole.requests, f"{at}.requests"))
    for name, amount in _amounts(asking.whole.limits, f"{at}.limits").items():
        # The API server's own defaults: huge pages can't be promised twice.
        if name not in spec and (name not in total or name.startswith(_HUGE_PAGES)):
            spec[name] = amount
    counted = spec
    held = asking.held_whole
    if held is not None and held.resources is not None:
        counted = _largest(spec, held, asking, "status")
    for name in spec:
        if name in _OF_WHOLE_PODS or name.startswith(_HUGE_PAGES):
            total[name] = counted.get(name, 0)


def _largest(spec: _Amounts, held: ResourceStatus, asking: Asking, at: str) -> _Amounts:
    """The most of what is asked for, granted and in use, while a pod is resized in place."""
    amounts: _Amounts = {} if asking.is_infeasible else dict(spec)
    in_use = held.resources.requests if held.resources else None
    granted = _amounts(held.allocated_resources, f"{at}.allocatedResources")
    _raise(amounts, (granted, _amounts(in_use, f"{at}.resources.requests")))
    return amounts


def _with_defaults(resources: Resources, at: str) -> _Amounts:
    """Return the requests of a container; without requests, its limits count."""
    requests = _amounts(resources.requests, f"{at}.requests")
    if not resources.limits:
        return requests
    return {**_amounts(resources.limits, f"{at}.limits"), **requests}


def _amounts(given: Quantities | None, at: str) -> _Amounts:
    if not given:
        return _NONE
    amounts = {}
    for name, quantity in given.items():
        try:
            amount = _thousandths(quantity)
        except ValueError as error:
            raise MalformedError(f"{at}.{name}: {error}") from None
        if amount < 0:
            raise MalformedError(f"{at}.{name}: must not be negative")
        amounts[name] = amount
    return amounts


@lru_cache(maxsize=_REMEMBERED)
def _thousandths(quantity: str | float) -> int:
    """The quantity, away from zero. Raises ValueError with one line."""
    value = parse_quantity(quantity).value
    return int(_EXACT.scaleb(value, 3).to_integral_value(ROUND_UP, _EXACT))


def _whole(thousandths: int) -> int:
    return -(-thousandths // _THOUSAND)


def _add(total: _Amounts, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: _Amounts, several: Iterable[Mapping[str, int]]) -> None:
    for amounts in several:
        for name, amount in amounts.items():
            if amount > total.get(name, -1):
                total[name] = amount


def _is_counted(name: str) -> bool:
    """Whether the scheduler looks at such a resource at all."""
    return name in _NATIVE or "/" in name or name.startswith((_HUGE_PAGES, _ATTACHABLE))


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


def find_port_conflicts(
    wanted: Iterable[HostPort], taken: tuple[HostPort, ...]
) -> Iterable[HostPort]:
    """Those that can't be had beside the ones that are taken."""
    return (port for port in wanted if any(_is_same(port, taken_port) for taken_port in taken))


def _is_same(first: HostPort, second: HostPort) -> bool:
    return (
        first.number == second.number
        and first.protocol == second.protocol
        and (first.ip == second.ip or not first.ip or not second.ip)
    )


Amounts: TypeAlias = tuple[int, ...]

_ALWAYS_COUNTED: Final = ("cpu", "memory")
_MILLION: Final = 1_000_000


class Scale:
    """Turns requests into amounts of the resources ``names``."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._counted = (*_ALWAYS_COUNTED, *(name for name in self.names if "/" in name))
        self._amounts: dict[Requests, Amounts] = {}

    def of(self, requests: Requests) -> Amounts:
        """Return the amounts that one pod with these requests uses."""
        amounts = self._amounts.get(requests)
        if amounts is None:
            by_name = dict(requests)
            amounts = (1, *(by_name.get(name, 0) for name in self.names))
            self._amounts[requests] = amounts
        return amounts

    def allocatable(self, node: Node) -> Amounts:
        """Return the amounts of the node."""
        return tuple([node.allocatable.get(name, 0) for name in (PODS, *self.names)])

    def free_amounts(self, node: Node, present: Iterable[Requests]) -> Amounts:
        """Return the amounts left beside pods with these requests; negative if overcommitted."""
        used = [self.of(requests) for requests in present]
        return without(self.allocatable(node), used)

    def share(self, requests: Requests, node: Node) -> int:
        """The pod's part of the node in millionths, summed over its resources, each rounded up.

        CPU, memory and the extended resources among ``names`` are counted.
        """
        by_name = dict(requests)
        return sum(
            -(-by_name.get(name, 0) * _MILLION // (node.allocatable.get(name, 0) or 1))
            for name in self._counted
        )


def minus(first: Amounts, second: Amounts) -> Amounts:
    """The difference, resource by resource."""
    return tuple(map(sub, first, second))


def without(amounts: Amounts, used: Sequence[Amounts]) -> Amounts:
    """Return ``amounts`` minus all of these."""
    return tuple(map(sub, amounts, map(sum, zip(*used, strict=True)))) if used else amounts


def is_enough(amounts: Amounts) -> bool:
    """Whether no amount is negative."""
    return min(amounts) >= 0


def largest_part(amounts: Amounts, whole: Amounts) -> float:
    """The largest part of a node's resources, pods not counted; infinite of one it lacks."""
    return max(
        [
            (amount / total if total > 0 else math.inf)
            for amount, total in zip(amounts[1:], whole[1:], strict=True)
            if amount > 0
        ],
        default=0.0,
    )
