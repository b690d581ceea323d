"""Writes reservations to nodes (6.3), and releases them while rescheduling is switched off.

Each write is against what was just read, and is repeated where another client was faster. The
release watches nothing. Without the permissions there can be no reservations either.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import NODES, SELF_ACCESS_REVIEWS
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.names import RESCHEDULING
from harbourmaster.controller.runtime import Runnables
from harbourmaster.kube.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from harbourmaster.kube.reading import log_skipped, read_all
from harbourmaster.rescheduling.reservation import arrange, decode_held
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from harbourmaster.controller.rescheduling.settings import ReschedulingSettings
    from harbourmaster.controller.runtime import Runtime
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


_ALL: Final = "all nodes"
_VERBS: Final = ("list", "get", "patch")


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status = _Status()


_decode_review: Final = msgspec.json.Decoder(_Review).decode


def start(runtime: Runtime) -> Runnables:
    """Start a controller that only releases what rescheduling may have reserved."""
    off = ReservationReleaseReconciler(runtime.client, runtime.settings.rescheduling)
    return Runnables(controllers=(Controller(RESCHEDULING, lambda _queue: off, runtime.metrics),))


class ReservationReleaseReconciler:
    """One look at all nodes at the beginning of each term."""

    def __init__(self, client: Client, settings: ReschedulingSettings) -> None:
        self._client = client
        self._key = settings.taint_key
        self._node_writer = NodeWriter(client)
        self._log = get_logger(RESCHEDULING)

    def map_changes(self, keys: Iterable[str] | None) -> tuple[str, ...]:
        """All nodes, once."""
        return (_ALL,) if keys is None else ()

    async def reconcile(self, _key: str) -> float | None:
        """Give back whatever is kept. Raises ApiError."""
        if not await self._may():
            return None
        for name in await self._find_reserved():
            written = await self._node_writer.write(name, self._clear)
            if written is WriteResult.DONE:
                self._log.info("released node", node=name)
        return None

    def _clear(self, held: Held) -> list[dict[str, Any]]:
        return arrange(held, [], self._key)

    async def _find_reserved(self) -> list[str]:
        skip = partial(log_skipped, self._log)
        held = await read_all(self._client, NODES, decode_held, skip)
        return [node.name for node in held if node.has_ours(self._key)]

    async def _may(self) -> bool:
        """Whether we have the rights that reserving nodes takes. Raises ApiError."""
        for verb in _VERBS:
            spec = {"resourceAttributes": {"verb": verb, "resource": NODES.plural}}
            review = {**SELF_ACCESS_REVIEWS.type_fields, "spec": spec}
            try:
                answer = _decode_review(await self._client.create(SELF_ACCESS_REVIEWS, review))
            except ForbiddenError:
                return False
            if not answer.status.allowed:
                return False
        return True
