"""Member API servers, a namespace of each, and leaving a namespace of the managing one."""

from __future__ import annotations

import contextlib
import uuid

from harbourmaster.api.resources import NAMESPACES
from harbourmaster.playground.control_plane import ControlPlane
from helpers.cluster import delete_namespace
from helpers.controller import connected
from helpers.placed import Member


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
    """The same new namespace on all of them."""
    namespace = f"shop-{uuid.uuid4().hex[:8]}"
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for plane in planes:
            client = await stack.enter_async_context(connected(plane.kubeconfig))
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await client.create(NAMESPACES, body)
            found.append(Member(client, namespace))
        yield found


def leave(kubectl, namespace):
    """Delete the namespace, though nobody may be there to take our finalizers away."""
    for kind in ("applications", "clusters"):
        plural = f"{kind}.placement.harbourmaster.dev"
        for each in kubectl("get", plural, f"-n={namespace}", "-o=name").stdout.split():
            patch = '--patch={"metadata":{"finalizers":null}}'
            kubectl("patch", each, f"-n={namespace}", "--type=merge", patch)
    delete_namespace(kubectl, namespace)
