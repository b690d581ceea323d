"""Writes of reservations: each against what was just read, again where another was faster (6.3)."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import NODES
from harbourmaster.kube.errors import ConflictError, InvalidError, NotFoundError
from harbourmaster.rescheduling.reservation import decode_held

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.kube.client import Client
    from harbourmaster.rescheduling.reservation import Held

TRIES: Final = 5
FIRST_PAUSE: Final = 0.1
"""Seconds before the second try; each further pause is twice as long."""


class WriteResult(Enum):
    """The result of a write."""

    DONE = "done"
    NOTHING = "nothing to do"
    GONE = "the node is gone"
    REFUSED = "the API server refuses the taint or the annotation"
    DECLINED = "the node is not as it was planned"
    BUSY = "others keep changing the node"


class NodeWriter:
    """Writes on nodes."""

    def __init__(
        self, client: Client, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._client = client
        self._sleep = sleep

    async def write(
        self,
        name: str,
        change: Callable[[Held], list[dict[str, Any]]],
        *,
        accept: Callable[[bytes], bool] = lambda _raw: True,
    ) -> WriteResult:
        """Apply the JSON Patch that ``change`` makes of the node as it is.

        ``accept`` gets the node's JSON and may decline to write. Raises ApiError if it is unknown
        what is stored now.
        """
        for attempt in range(TRIES):
            if attempt:
                await self._sleep(FIRST_PAUSE * 2 ** (attempt - 1))
            written = await self._try(name, change, accept)
            if written is not None:
                return written
        return WriteResult.BUSY

    async def _try(
        self,
        name: str,
        change: Callable[[Held], list[dict[str, Any]]],
        accept: Callable[[bytes], bool],
    ) -> WriteResult | None:
        """One attempt; None where another was faster."""
        try:
            raw = await self._client.get(NODES, name)
            if not accept(raw):
                return WriteResult.DECLINED
            operations = change(decode_held(raw))
            if not operations:
                return WriteResult.NOTHING
            await self._client.patch(NODES, name, JsonPatch(operations))
        except NotFoundError:
            return WriteResult.GONE
        except InvalidError as error:
            # A test that failed has no causes; what is invalid has.
            return WriteResult.REFUSED if error.causes else None
        except ConflictError:
            return None
        return WriteResult.DONE
