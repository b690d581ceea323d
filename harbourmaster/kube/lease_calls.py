"""The API calls of the election: one attempt each, with its own time-out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harbourmaster.api.resources import LEASES
from harbourmaster.kube.errors import BadAnswerError, NotFoundError
from harbourmaster.kube.lease import decode_lease, encode_lease

if TYPE_CHECKING:
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.lease import Lease, LeaseSpec


class LeaseCalls:
    """One Lease at the API server. What can go wrong is an ApiError, TimeoutError, DecodeError."""

    def __init__(self, client: Client, *, name: str, namespace: str, seconds: float) -> None:
        """``seconds`` are for one call."""
        self._client = client
        self._seconds = seconds
        self._all = LEASES.path(namespace)
        self._one = LEASES.path(namespace, name)

    async def read(self) -> Lease | None:
        """The Lease, or None where there is none."""
        try:
            return decode_lease(await self._call("GET", self._one))
        except NotFoundError:
            return None

    async def store(self, base: Lease, spec: LeaseSpec) -> Lease:
        """Put ``spec`` in place of that of ``base``, which is created if it was never stored.

        Raises ConflictError or NotFoundError where ``base`` is not what is stored now.
        """
        body = encode_lease(replace(base, spec=spec))
        if base.version:
            stored = decode_lease(await self._call("PUT", self._one, body))
        else:
            stored = decode_lease(await self._call("POST", self._all, body))
        if (stored.holder, stored.spec.renew_time) != (spec.holder_identity, spec.renew_time):
            raise BadAnswerError("the API server stored a different Lease")
        return stored

    async def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        # No repetition by the client: the election decides when, by its deadline.
        async with asyncio.timeout(self._seconds):
            return await self._client.request(
                method,
                path,
                body=body,
                content_type=None if body is None else "application/json",
                timeout=self._seconds,
                retries=0,
            )
