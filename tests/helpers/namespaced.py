"""One namespace in which a test creates objects, and a part of the controller works."""

from __future__ import annotations

import msgspec

from helpers.changes import Changes


class Events:
    """Replaces the recorder: keeps what would be sent."""

    def __init__(self, on_event):
        self.sent = []
        self._on_event = on_event

    def emit(self, regarding, kind, reason, note, action="", **_options):
        self.sent.append((regarding.namespace, regarding.name, kind, reason, note))
        self._on_event()


class Namespaced:
    """The namespace on any API server; ``changes`` is for the caches of what works there."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self.changes = Changes()
        self.events = Events(self.changes.tell)
        self.until_found = self.changes.until

    async def get(self, resource, name):
        """An object as the API server has it."""
        return msgspec.json.decode(await self.client.get(resource, name, self.namespace))

    async def until_status(self, cache, name, condition):
        """Wait until the status of an object in a cache is so; return the status."""

        def status():
            cached = cache.store.get(f"{self.namespace}/{name}")
            return cached is not None and condition(cached.status) and cached.status

        return await self.until_found(status)

    def told(self, name):
        """The reasons of the events of an object."""
        sent = self.events.sent
        return [reason for *where, _, reason, _ in sent if where == [self.namespace, name]]

    async def _create(self, resource, name, spec):
        obj = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }
        await self.client.create(resource, obj, self.namespace)
