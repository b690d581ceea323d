"""Wakes reflectors when the definitions of their custom resources appear (decision D13)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Condition
from harbourmaster.api.resources import DEFINITIONS
from harbourmaster.kube.reflector import Reflector

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

_LOOKS: Final = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between looks: a resource is served a moment after its definition says so."""


class _Status(Struct, frozen=True, gc=False):
    conditions: tuple[Condition, ...] | None = None


class _Definition(Struct, frozen=True, gc=False):
    status: _Status | None = None

    @property
    def is_served(self) -> bool:
        conditions = (self.status.conditions if self.status else None) or ()
        return any(
            condition.type == "Established" and condition.status == "True"
            for condition in conditions
        )


_decode: Final = msgspec.json.Decoder(_Definition).decode


class DefinitionWatch:
    """Follows CustomResourceDefinitions by one watch: all, or the one of the resource ``only``."""

    def __init__(
        self,
        client: Client,
        reflectors: Iterable[tuple[Resource, Reflector[Any]]],
        *,
        only: Resource | None = None,
    ) -> None:
        self._reflectors: defaultdict[str, list[Reflector[Any]]] = defaultdict(list)
        for resource, reflector in reflectors:
            self._reflectors[resource.name].append(reflector)
        self._served: asyncio.Queue[str] = asyncio.Queue()
        self._definitions = Reflector(
            client,
            DEFINITIONS,
            _is_served,
            field_selector="" if only is None else f"metadata.name={only.name}",
            on_change=self._changed,
            name="definitions" if only is None else f"definition of {only.plural}",
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._definitions.run())
            while True:
                for reflector in self._reflectors[await self._served.get()]:
                    group.create_task(_look(reflector))

    def _changed(self, keys: frozenset[str]) -> None:
        for key in keys & self._reflectors.keys():
            if self._definitions.store.get(key):
                self._served.put_nowait(key)


async def _look(reflector: Reflector[Any]) -> None:
    for wait in _LOOKS:
        await asyncio.sleep(wait)
        if not reflector.absent:
            break
        reflector.wake()


def _is_served(raw: msgspec.Raw) -> bool:
    return _decode(raw).is_served
