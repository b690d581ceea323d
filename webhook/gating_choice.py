"""The choice of ``gating: auto`` by the version of the API server, read when it may differ.

An older API server drops the gates of a pod silently, so nothing is chosen before the version
is known. Once chosen, a fault changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Final

from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.errors import ApiError
from harbourmaster.kube.server_version import server_version
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.webhook.settings import gating_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.kube.client import Client
    from harbourmaster.kube.server_version import ServerVersion
    from harbourmaster.webhook.engine import EngineHolder

_BACKOFF: Final = Backoff(limit=10.0)


class GatingChoice:
    """Keeps the engine in ``holder`` at what the API server can do, while ``run`` runs."""

    def __init__(
        self,
        client: Client,
        holder: EngineHolder,
        *,
        on_wait: Callable[[str | None], None],
        backoff: Backoff = _BACKOFF,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``on_wait`` gets why nothing is chosen yet, and None when something is."""
        self._client = client
        self._holder = holder
        self._on_wait = on_wait
        self._backoff = backoff
        self._chance = chance
        self._due = asyncio.Event()
        self._due.set()
        self._chosen = asyncio.Event()
        self._version: ServerVersion | None = None
        self._told = ""
        self._log = get_logger("gating")

    def look_again(self) -> None:
        """Ask now: the API server may be another one."""
        self._due.set()

    async def wait_until_chosen(self) -> None:
        """Wait for the first choice."""
        await self._chosen.wait()

    async def run(self) -> None:
        """Ask when it is due, until cancelled."""
        attempt = 0
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                version = await server_version(self._client)
            except ApiError as error:
                self._note_fault(error)
                delay = self._backoff.delay(attempt, self._chance())
                attempt += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(delay, error.retry_after or 0.0)):
                        await self._due.wait()
                self._due.set()
                continue
            attempt = 0
            self._take(version)

    def _take(self, version: ServerVersion) -> None:
        self._told = ""
        if version != self._version:
            self._version = version
            gating = gating_of(version)
            engine = self._holder.current.with_gating(gating)
            if engine.gates.rules != self._holder.current.gates.rules:
                self._holder.current = engine
            self._log.info("chosen where pods wait", gating=gating, server_version=str(version))
        self._chosen.set()
        self._on_wait(None)

    def _note_fault(self, error: ApiError) -> None:
        if not self._chosen.is_set():
            self._on_wait(f"gating: auto needs the API server's version, or set gating: {error}")
        text = str(error)
        if text != self._told:
            self._told = text
            self._log.warning("version of the API server is not known", error=text)
