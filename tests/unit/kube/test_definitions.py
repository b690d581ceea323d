"""One watch of all definitions wakes each reflector whose kind is served from now on.

See decision D13.
"""

from __future__ import annotations

import asyncio

import msgspec

from harbourmaster.api.resources import APPS, DEFINITIONS, TASKS
from harbourmaster.kube.definitions import DefinitionWatch
from harbourmaster.kube.reflector import Reflector
from harbourmaster.serving.background import running
from helpers.patience import PATIENCE


def definition(resource):
    return {
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    }


def an_object(resource, name):
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": "web"},
    }


async def test_a_kind_that_comes_is_mirrored_at_once(api, client):
    api.undefine(APPS)
    api.undefine(TASKS)
    woken = asyncio.Event()
    reflectors = {
        resource: Reflector(
            client, resource, msgspec.json.decode, on_change=lambda _keys: woken.set()
        )
        for resource in (APPS, TASKS)
    }
    watch = DefinitionWatch(client, reflectors.items())
    async with (
        asyncio.timeout(PATIENCE),
        running(watch.run(), *(resource.run() for resource in reflectors.values())),
    ):
        for reflector in reflectors.values():
            await reflector.synced.wait()
        assert all(resource.absent for resource in reflectors.values())
        api.put(DEFINITIONS, definition(TASKS) | {"status": {}})
        api.define(APPS)
        api.put(APPS, an_object(APPS, "shop"))
        api.put(DEFINITIONS, definition(APPS))
        # Not after the minute that an absent kind waits by itself.
        await woken.wait()
        assert set(reflectors[APPS].store) == {"web/shop"}
        assert reflectors[TASKS].absent
