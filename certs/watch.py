"""Reloads certificates from a directory, on file changes and at renewal times.

A mounted Secret may appear after the server starts: ``wait_for`` waits for it, then
``keep_current`` runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from watchfiles import awatch

from harbourmaster.api.times import utc_now
from harbourmaster.certs.child import ensure, load
from harbourmaster.certs.directory import is_foreign, read_files
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.model import verify_bundle
from harbourmaster.certs.reload import CertificateHolder
from harbourmaster.certs.rotation import renewal_time, serving_renewal_time

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection
    from datetime import datetime

    from watchfiles import Change

    from harbourmaster.certs.model import Bundle

RESYNC: Final = 60.0
"""Seconds between checks without a cause: some file systems have no events, and clocks jump."""
_DEBOUNCE_MS: Final = 200
_RETRY: Final = 10.0
_LOOK_MS: Final = 1000
"""Milliseconds between checks of files that cannot be watched."""


async def wait_for(
    directory: Path,
    *,
    on_error: Callable[[str], None],
    resync: float = RESYNC,
    clock: Callable[[], datetime] = utc_now,
) -> Bundle:
    """Wait for a foreign pair that can be served; the directory may be missing at first.

    ``on_error`` gets one line for each kind of fault.
    """
    reported: set[str] = set()
    async with contextlib.aclosing(_occasions(directory, resync, clock, lambda: None)) as occasions:
        while True:
            await anext(occasions)
            try:
                bundle = await load(directory, clock())
                # OpenSSL may reject what parsing accepts.
                CertificateHolder(bundle)
            except CertificateError as error:
                _report_once(reported, str(error), on_error)
            else:
                return bundle


async def keep_current(  # noqa: PLR0913 - two callbacks and two knobs for tests
    holder: CertificateHolder,
    directory: Path,
    names: Collection[str] | None,
    *,
    on_change: Callable[[Bundle], None],
    on_error: Callable[[str], None],
    resync: float = RESYNC,
    clock: Callable[[], datetime] = utc_now,
) -> None:
    """Serve the certificates of the directory until cancelled; create and renew our own.

    ``names`` None: the directory is foreign even if it has ca.key, and is only read.
    ``on_change`` is called after each swap. ``on_error`` gets one line if a new pair cannot be
    used and the old one is kept, once for each kind of fault until the next good pair.
    """
    # Determined once: a foreign mount that is empty for a moment must not be filled.
    wanted = None if is_foreign(holder.bundle.files) else names
    reported: set[str] = set()
    occasions = _occasions(directory, resync, clock, lambda: next_renewal(holder.bundle))
    async with contextlib.aclosing(occasions):
        async for _ in occasions:
            try:
                bundle = await _current(holder.bundle, directory, wanted, clock())
                changed = holder.offer(bundle)
            except CertificateError as error:
                _report_once(
                    reported, f"{error}; the previous certificate is still served", on_error
                )
                continue
            reported.clear()
            if changed:
                on_change(bundle)


def next_renewal(bundle: Bundle) -> datetime | None:
    """Return the time of the next check of our own bundle; None for a foreign one."""
    if is_foreign(bundle.files):
        return None
    due = serving_renewal_time(bundle)
    if bundle.authority_not_before is not None and bundle.authority_not_after is not None:
        due = min(due, renewal_time(bundle.authority_not_before, bundle.authority_not_after))
    return due


async def _current(
    served: Bundle, directory: Path, wanted: Collection[str] | None, now: datetime
) -> Bundle:
    due = None if wanted is None else next_renewal(served)
    with contextlib.suppress(CertificateError):
        # Most looks find nothing new, and a process for each would be too many.
        if read_files(directory) == served.files and (due is None or now < due):
            verify_bundle(served, now)
            return served
    return await (load(directory, now) if wanted is None else ensure(directory, wanted, now))


def _report_once(reported: set[str], text: str, on_error: Callable[[str], None]) -> None:
    if text not in reported:
        reported.add(text)
        on_error(text)


async def _occasions(
    directory: Path,
    resync: float,
    clock: Callable[[], datetime],
    renewal: Callable[[], datetime | None],
) -> AsyncGenerator[None]:
    """Yield when a check is due: at once, on a change, at the renewal time and every ``resync``."""
    changes = asyncio.Event()
    watcher = asyncio.create_task(_watch(directory, changes))
    try:
        while True:
            yield
            wait = resync
            due = renewal()
            if due is not None:
                left = (due - clock()).total_seconds()
                # The renewal that was due has failed.
                wait = min(resync, left if left > 0 else _RETRY)
            try:
                async with asyncio.timeout(wait):
                    await changes.wait()
            except TimeoutError:
                continue
            changes.clear()
    finally:
        watcher.cancel()
        await asyncio.wait([watcher])


async def _watch(directory: Path, changes: asyncio.Event) -> None:
    while True:
        # Changes from before the watch began are found by a check after that.
        asyncio.get_running_loop().call_soon(changes.set)
        try:
            watched = _nearest(directory)
            # The directory, not the files: a mounted Secret changes by a swap of symlinks.
            events = changes_in(watched.path, debounce=_DEBOUNCE_MS)
            async with contextlib.aclosing(events):
                async for _ in events:
                    if _nearest(directory) != watched:
                        break
                    changes.set()
        except (OSError, RuntimeError):
            # The directory is gone; resync continues meanwhile.
            await asyncio.sleep(_RETRY)


async def changes_in(
    *folders: Path, debounce: int, concerns: Callable[[Change, str], bool] | None = None
) -> AsyncGenerator[object]:
    """Yield when files of the folders have changed, ``debounce`` milliseconds after the last.

    If the system is out of watches (Linux gives all processes of a user 128 together), the files
    are checked every second.
    """
    for polls in (None, True):
        events = awatch(
            *folders,
            watch_filter=concerns,
            recursive=False,
            debounce=debounce,
            force_polling=polls,
            poll_delay_ms=_LOOK_MS,
        )
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    yield event
        except RuntimeError:
            if polls:
                raise
        else:
            return


class _Watched(Struct, frozen=True):
    path: Path
    inode: int


def _nearest(directory: Path) -> _Watched:
    """The directory, or the nearest folder above it that exists."""
    path = directory.absolute()
    while not path.is_dir():
        path = path.parent
    return _Watched(path, path.stat().st_ino)
