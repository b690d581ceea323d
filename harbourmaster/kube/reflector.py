"""Caches one resource in a store: a list in pages, then a watch, across all server faults.

The store has the state of the last event (platform-spec 1.2, 1.5). A watch resumes from the last
resource version; if that is too old, a new list finds what changed and what was deleted meanwhile.
Versions are opaque, so events are applied in the order of the stream; a repeated event changes
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from harbourmaster.kube import peer_bounds
from harbourmaster.kube.backoff import Backoff, Pace
from harbourmaster.kube.errors import (
    ApiError,
    BadAnswerError,
    ForbiddenError,
    NotFoundError,
    TooLargeError,
    UnreachableError,
)
from harbourmaster.kube.faults import NoWatchMetrics, after_fault
from harbourmaster.kube.peer_bounds import HeldObjects
from harbourmaster.kube.reading import Reader
from harbourmaster.kube.store import Store
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import msgspec

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client, ListPage
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.kube.peer_bounds import PeerBounds
    from harbourmaster.kube.streams import WatchEvent

T = TypeVar("T")

ABSENT_BACKOFF: Final = Backoff(first=1.0, limit=60.0)
STEADY: Final = 12.0
"""Seconds after which a silent watch is sound: a client waits less for its head."""
MAX_PAGE: Final = 8 * 1024 * 1024
"""Bytes of a page of several objects; it is in memory up to three times."""
_MAX_STARTS: Final = 2
"""Maximum number of requests in any second, except for further pages of a list."""
_SHORTEST_WATCH: Final = 300
_SMALLER: Final = 8
"""Divisor of the number of objects in pages that are too large."""


class Reflector(Generic[T]):
    """Keeps ``store`` as the API server has it, while ``run`` runs.

    ``decode`` must not keep the Raw, which holds a whole page. ``undecodable`` gets its exception
    and may return an object instead; without one, the store has nothing under that key and the log
    one line. ``indexes`` are those of the store, unless it is given. ``on_change`` is the first
    listener: it gets the keys that changed, those of a page or of a received chunk at once.
    ``on_state`` is called when ``error``, ``absent`` or ``synced`` changed. ``name`` is in logs and
    metrics, by default the plural of the resource. ``bounds`` are those of the client.
    """

    def __init__(  # noqa: PLR0913 - what to watch, whom to tell, and how patient to be
        self,
        client: Client,
        resource: Resource,
        decode: Callable[[msgspec.Raw], T],
        indexes: Mapping[str, Callable[[T], Iterable[Any]]] | None = None,
        *,
        store: Store[T] | None = None,
        undecodable: Callable[[str, msgspec.Raw, Exception], T | None] | None = None,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        on_change: Callable[[frozenset[str]], None] | None = None,
        on_state: Callable[[], None] | None = None,
        page_size: int = 500,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        absent_backoff: Backoff = ABSENT_BACKOFF,
        idle_timeout: float = 150.0,
        clock: Callable[[], float] | None = None,
        chance: Callable[[], float] = random.random,
        metrics: WatchMetrics | None = None,
        metadata_only: bool = False,
        name: str = "",
        bounds: PeerBounds | None = None,
    ) -> None:
        self.store: Store[T] = Store(indexes) if store is None else store
        self.resource = resource
        self.name = name or resource.plural
        self.synced = asyncio.Event()
        """Set after the first complete list, or when the resource was found absent; never
        cleared."""
        self.absent = False
        """The API server does not serve the resource: its definition is missing."""
        self.error: str | None = None
        """The last error, one line, while the watch is disconnected."""
        self.is_forbidden = False
        """Whether the last error was a missing permission."""
        self.last_contact = -math.inf
        """Time of the last page, event or bookmark, by the loop's clock."""
        self._client = client
        self._max_page = MAX_PAGE if bounds is None else peer_bounds.MAX_PAGE
        self._held = HeldObjects(bounds, f"list {resource.path(namespace)}")
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._listeners = [] if on_change is None else [on_change]
        self._on_state = on_state
        self._page_size = page_size
        self._backoff = backoff
        self._absent_backoff = absent_backoff
        self._idle_timeout = idle_timeout
        self._clock = clock or _loop_time
        self._chance = chance
        self._metrics = metrics or NoWatchMetrics()
        self._metadata_only = metadata_only
        self._log = get_logger("reflector").bind(resource=self.name)
        self._reader = Reader(self.name, decode, undecodable, self._metrics, self._log)
        self._pace = Pace(_MAX_STARTS, 1.0, self._clock)
        self._woken = asyncio.Event()
        # Where to watch from; empty for: list first.
        self._version = ""
        self._watched_from = ""
        self._failures = 0
        self._absences = 0
        self._relisted = False
        self._reported_kinds: set[str] = set()
        self._failed_listing = False
        self._changed: set[str] = set()
        self._events = 0
        self._flushing: asyncio.Handle | None = None
        self._state: tuple[str | None, bool, bool] = (None, False, False)

    def subscribe(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Call ``listener`` with the keys of each change; to be called before ``run``."""
        self._listeners.append(listener)

    def wake(self) -> None:
        """Retry now: ends a wait after a fault, or for a resource that is absent.

        A wait that the API server asked for (Retry-After) is not cut short.
        """
        self._woken.set()

    async def run(self) -> None:
        """Run until cancelled; a later run resumes where this one ended."""
        while True:
            await asyncio.sleep(self._pace.wait())
            # Whoever wakes us from here on may know more than the answer will.
            self._woken.clear()
            self._pace.start()
            await (self._watch_once() if self._version else self._list_once())

    async def _list_once(self) -> None:
        try:
            await self._list()
        except NotFoundError as error:
            if self.resource.is_built_in:
                # Such an answer is not from an API server, or it is still starting.
                await self._recover(error, listing=True)
                return
            self._note_absence(error)
            wait = self._absent_backoff.delay(self._absences, self._chance())
            self._absences += 1
            await self._pause(wait)
        except ApiError as error:
            await self._recover(error, listing=True)

    async def _list(self) -> None:
        try:
            await self._read_list()
        finally:
            self._held.end_list(self.store.values())

    async def _read_list(self) -> None:
        started = self._clock()
        # What was listed before and is not any more is removed at the end.
        gone = set(self.store)
        version = token = ""
        self._reader.start_list()
        while True:
            async with self._client.listing:
                try:
                    page = await self._page(token)
                except TooLargeError:
                    if self._page_size == 1:
                        raise
                    # A page has so many objects, however large people have made them.
                    self._page_size = max(self._page_size // _SMALLER, 1)
                    continue
                self.last_contact = self._clock()
                await self._held.count_page(page.items)
                self._collect(page.items, gone)
                # The first page's version: what happens while others come is then watched too.
                version = version or page.resource_version
                before, token = token, page.continue_token
                # Each item holds the page's whole text, and the next is about to come.
                del page
            if not token:
                break
            if token == before:
                raise BadAnswerError("the list continues where it was", call=self._call("list"))
        if not version:
            raise BadAnswerError("the list has no resourceVersion", call=self._call("list"))
        await self._remove_all(gone)
        self._version = version
        self._reader.end_list()
        self._absences = 0
        self._metrics.count_list(self.name, len(self.store), self._clock() - started)
        if self.absent:
            self.absent = False
            self._log.info("resource available")
        if self._failed_listing:
            self._note_contact()
        self.synced.set()
        self._notify_state()

    async def _remove_all(self, keys: Iterable[str]) -> None:
        for number, key in enumerate(keys):
            if number % self._page_size == 0:
                # No turn of the loop handles more objects than those of a page.
                self._notify_changes()
                await asyncio.sleep(0)
            self._remove(key)
        self._notify_changes()

    async def _page(self, token: str) -> ListPage:
        return await self._client.list(
            self.resource,
            self._namespace,
            limit=self._page_size,
            continue_token=token,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
            # The waits are ours; within a list the client's save the pages that came.
            retries=None if token else 0,
            # A single object may take more than a page.
            max_bytes=self._max_page if self._page_size > 1 else None,
        )

    def _collect(self, items: Iterable[msgspec.Raw], gone: set[str]) -> None:
        for raw in items:
            metadata = self._reader.metadata(raw)
            if metadata is None:
                continue
            obj = self._reader.read(metadata.key, raw)
            if obj is not None:
                self._put(metadata.key, obj)
                gone.discard(metadata.key)
        self._notify_changes()

    async def _watch_once(self) -> None:
        started = self._clock()
        self._watched_from = self._version
        fault: ApiError | None = None
        try:
            await self._watch()
        except ApiError as error:
            fault = error
        is_sound = self._version != self._watched_from or self._clock() - started >= STEADY
        if fault is None and not is_sound:
            fault = UnreachableError("the watch ended at once", call=self._call("watch"))
        if fault is not None:
            await self._recover(fault, listing=False)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        settling = loop.call_later(STEADY, self._note_contact)
        stream = self._client.watch(
            self.resource,
            self._namespace,
            resource_version=self._version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            # Watches that began together must not all end together.
            timeout_seconds=_SHORTEST_WATCH + int(_SHORTEST_WATCH * self._chance()),
            idle_timeout=self._idle_timeout,
            metadata_only=self._metadata_only,
        )
        try:
            async with contextlib.aclosing(stream):
                async for event in stream:
                    self._apply(event)
                    await self._held.count_event(event.object)
                    if self._flushing is None:
                        # The loop runs again when all of the chunk is applied.
                        self._flushing = loop.call_soon(self._flush)
        finally:
            settling.cancel()
            if self._flushing is not None:
                self._flushing.cancel()
                self._flush()

    def _apply(self, event: WatchEvent) -> None:
        self._events += 1
        metadata = self._reader.metadata(event.object)
        if metadata is None:
            return
        if event.type in {"ADDED", "MODIFIED"}:
            obj = self._reader.read(metadata.key, event.object)
            # An object that cannot be decoded is removed: the cached version is outdated.
            if obj is None:
                self._remove(metadata.key)
            else:
                self._put(metadata.key, obj)
        elif event.type == "DELETED":
            self._reader.forget(metadata.key)
            self._remove(metadata.key)
        if metadata.resource_version:
            self._version = metadata.resource_version

    def _put(self, key: str, obj: T) -> None:
        self._held.replace(self.store.get(key), obj)
        if self.store.put(key, obj):
            self._changed.add(key)

    def _remove(self, key: str) -> None:
        self._held.replace(self.store.get(key), None)
        if self.store.remove(key):
            self._changed.add(key)

    def _flush(self) -> None:
        """Notify the listeners of the changes since the last flush."""
        self._flushing = None
        self.last_contact = self._clock()
        self._metrics.count_events(self.name, self._events)
        self._events = 0
        # A stream that ends without an event counts as a fault.
        if self._version != self._watched_from:
            self._note_contact()
        self._notify_changes()

    def _notify_changes(self) -> None:
        changed, self._changed = self._changed, set()
        self.notify(frozenset(changed))

    async def _recover(self, error: ApiError, *, listing: bool) -> None:
        """Record a fault and wait until the next attempt is due."""
        plan = after_fault(error, listing=listing, failures=self._failures, relisted=self._relisted)
        self._relisted = self._relisted or plan.at_once
        self._failures += 1
        if plan.relist:
            self._version = ""
        self._metrics.count_failure(self.name, type(error).__name__)
        if not plan.quiet:
            self._failed_listing = listing
            self._note_fault(error)
        if not plan.at_once:
            # What the API server asks for comes first, and our own wait keeps clients apart.
            await asyncio.sleep(error.retry_after or 0.0)
            await self._pause(self._backoff.delay(self._failures - 1, self._chance()))

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _note_absence(self, error: NotFoundError) -> None:
        self.last_contact = self._clock()
        self._note_contact()
        if not self.absent:
            self.absent = True
            self._log.info("resource not served", answer=str(error))
        self._reader.start_list()
        self._reader.end_list()
        self.notify(frozenset(self.store.replace_all({})))
        self._held.end_list(())
        self.synced.set()
        self._notify_state()

    def _note_fault(self, error: ApiError) -> None:
        """Log the first fault of each kind since the watch was last connected."""
        kind = type(error).__name__
        if kind not in self._reported_kinds:
            self._reported_kinds.add(kind)
            self._log.warning("watch disconnected, serving from cache", error=str(error))
        self.error = str(error)
        self.is_forbidden = isinstance(error, ForbiddenError)
        self._notify_state()

    def _note_contact(self) -> None:
        self._failures = 0
        self._relisted = False
        self.last_contact = self._clock()
        self._failed_listing = False
        if self.error is not None:
            self.error = None
            self._reported_kinds.clear()
            self._log.info("watch reconnected")
            self._notify_state()

    def notify(self, keys: frozenset[str]) -> None:
        """Call all listeners, even if one of them fails."""
        for listener in self._listeners if keys else ():
            try:
                listener(keys)
            except Exception:  # noqa: BLE001 - a listener's fault must not end the watch
                self._log.exception("change handler failed", keys=len(keys))

    def _notify_state(self) -> None:
        before, self._state = self._state, (self.error, self.absent, self.synced.is_set())
        if before != self._state and self._on_state is not None:
            try:
                self._on_state()
            except Exception:  # noqa: BLE001 - as above
                self._log.exception("state handler failed")

    def _call(self, verb: str) -> str:
        return f"{verb} {self.resource.path(self._namespace)}"


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
