"""Keeps what a server holds in step with its directory: woken by changes and by renewal times."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from watchfiles import awatch

from certs.errors import CertificateError
from certs.rotation import leaf_renewal_time, renewal_time
from certs.store import ensure, is_foreign, load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection
    from pathlib import Path

    from certs.bundle import Bundle
    from certs.reload import CertificateHolder

RESYNC: Final = 60.0
"""Seconds between looks that nothing asked for: file systems without events, clocks that jump."""
_DEBOUNCE_MS: Final = 200
_RETRY: Final = 10.0


def utc_now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


async def keep_current(  # noqa: PLR0913 - two callbacks and two knobs for tests
    holder: CertificateHolder,
    directory: Path,
    names: Collection[str],
    *,
    on_change: Callable[[Bundle], None],
    on_error: Callable[[str], None],
    resync: float = RESYNC,
    clock: Callable[[], datetime] = utc_now,
) -> None:
    """Serve what the directory holds, until cancelled; make or renew it where it is ours.

    ``on_change`` is called after each swap. ``on_error`` gets one line when a new pair can't be
    used and the old one stays, once for each kind of fault until there is a good pair again.
    """
    # Who issues is settled at the start: a mount that is empty for a moment is not ours to fill.
    foreign = is_foreign(holder.bundle.files)
    fault = ""
    async for _ in _occasions(holder, directory, resync, clock):
        try:
            now = clock()
            bundle = load(directory, now) if foreign else ensure(directory, names, now)
            changed = holder.offer(bundle)
        except CertificateError as error:
            if str(error) != fault:
                fault = str(error)
                on_error(f"{error}; the certificate of before is still served")
            continue
        fault = ""
        if changed:
            on_change(bundle)


def next_renewal(bundle: Bundle) -> datetime | None:
    """When our own bundle must be looked at again; None for a foreign one."""
    if is_foreign(bundle.files):
        return None
    due = leaf_renewal_time(bundle)
    if bundle.authority_not_before is not None and bundle.authority_not_after is not None:
        due = min(due, renewal_time(bundle.authority_not_before, bundle.authority_not_after))
    return due


async def _occasions(
    holder: CertificateHolder,
    directory: Path,
    resync: float,
    clock: Callable[[], datetime],
) -> AsyncIterator[None]:
    """Yield when a look is due: at once, on a change, at the renewal time and every ``resync``."""
    changes = asyncio.Event()
    watcher = asyncio.create_task(_watch(directory, changes))
    try:
        while True:
            yield
            wait = resync
            due = next_renewal(holder.bundle)
            if due is not None:
                wait = min(resync, max((due - clock()).total_seconds(), 0.0))
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
        try:
            # The directory and not the files: a mounted Secret changes by a swap of symlinks.
            async for _ in awatch(directory, recursive=False, debounce=_DEBOUNCE_MS):
                changes.set()
        except (OSError, RuntimeError):
            # The directory went away, or the system is out of watches (watchfiles raises a
            # RuntimeError for that); resync goes on meanwhile.
            await asyncio.sleep(_RETRY)
