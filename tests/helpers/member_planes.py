"""Member API servers, and a namespace of each."""

from __future__ import annotations

import contextlib
import uuid

from harbourmaster.api.resources import NAMESPACES
from harbourmaster.playground.control_plane import ControlPlane
from helpers.placed import Member
from helpers.processes import connected


@contextlib.contextmanager
def two_planes(tmp_path_factory):
    """Two API servers without any controllers; what they don't do, the tests do."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(ControlPlane(tmp_path_factory.mktemp(name), optional=()))
            for name in ("one", "two")
        ]


@contextlib.asynccontextmanager
async def members_of(planes):
    """Create the same new namespace on all of them."""
    namespace = f"shop-{uuid.uuid4().hex[:8]}"
    async with contextlib.AsyncExitStack() as stack:
        members = []
        for plane in planes:
            client = await stack.enter_async_context(connected(plane.kubeconfig))
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await client.create(NAMESPACES, body)
            members.append(Member(client, namespace))
        yield members
