"""Many objects at once, by our own client with the administrator's rights."""

from __future__ import annotations

import asyncio

from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import connect

AT_ONCE = 32


async def create_all(kubeconfig, objects):
    """Create every ``(resource, object)``."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def create(client, resource, document):
        async with turn:
            namespace = document["metadata"].get("namespace")
            await client.create(resource, document, namespace)

    async with Client(connect(str(kubeconfig))) as client, asyncio.TaskGroup() as group:
        for resource, document in objects:
            group.create_task(create(client, resource, document))
