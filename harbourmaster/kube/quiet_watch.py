"""A watch of several kinds that also reports when nothing has changed for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.reflector import Reflector

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import msgspec

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics

    State = Literal["unknown", "unsupported", "changing", "quiet"]

Item = TypeVar("Item")
Summary = TypeVar("Summary")


class QuietWatch(Generic[Item, Summary]):
    """Keeps ``summary`` of the objects that ``selectors`` select, and reports each change.

    ``summarize`` gets the state and, in the order of ``selectors``, the objects of each kind. The
    state is ``unknown`` while a kind is not listed or a watch has failed, ``unsupported`` if the
    API server lacks a kind, ``changing`` after a change, and ``quiet`` ``quiet_seconds`` later.
    """

    def __init__(  # noqa: PLR0913 - what to follow, and how
        self,
        client: Client,
        selectors: Mapping[Resource, str],
        decode: Callable[[msgspec.Raw], Item],
        summarize: Callable[[State, Sequence[Collection[Item]]], Summary],
        on_change: Callable[[], None],
        *,
        quiet_seconds: float,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        metrics: WatchMetrics | None = None,
    ) -> None:
        self.summary = summarize("unknown", ())
        self._summarize = summarize
        self._on_change = on_change
        self._quiet_seconds = quiet_seconds
        self._timer: asyncio.TimerHandle | None = None
        self.reflectors = tuple(
            Reflector(
                client,
                resource,
                decode,
                label_selector=selector,
                on_change=lambda _keys: self._note_change(),
                on_state=self._note_change,
                backoff=backoff,
                metrics=metrics,
            )
            for resource, selector in selectors.items()
        )

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())

    def _note_change(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if any(
            not reflector.synced.is_set() or reflector.error is not None
            for reflector in self.reflectors
        ):
            self._report("unknown")
        elif any(reflector.absent for reflector in self.reflectors):
            self._report("unsupported")
        else:
            self._report("changing")
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._quiet_seconds, self._report, "quiet")

    def _report(self, state: State) -> None:
        objects = [reflector.store.values() for reflector in self.reflectors]
        self.summary = self._summarize(state, objects)
        self._on_change()
