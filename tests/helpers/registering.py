"""A registration of webhooks at work, beside others who write the same objects."""

from __future__ import annotations

import asyncio
import contextlib
import copy

from harbourmaster.controller.registration import certificates
from helpers.registered import (
    CONFIGURATIONS,
    NAME,
    Observer,
    Registration,
    bundles_of,
    served_leaf,
    trusts,
)

NAMES = {
    f"harbourmaster-{service}{end}"
    for service in ("metrics", "webhook")
    for end in ("", ".harbour", ".harbour.svc", ".harbour.svc.cluster.local")
}
SECRETS_PATH = "/secrets"
CONFIGURATIONS_PATH = "webhookconfigurations"


class Setting(Registration):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.controllers = []
        self.theirs = set()

    def start(self, **values):
        tasks = super().start(**values)
        self.controllers.append(self.controller)
        return tasks

    async def stop(self, tasks):
        for task in reversed(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.controllers.clear()

    def look(self):
        """Ask for a look, as a timer would."""
        for controller in self.controllers:
            controller.enqueue(())

    def get(self, resource):
        with contextlib.suppress(KeyError):
            return self.api.get(resource, NAME)
        return None

    def put(self, resource, obj):
        """Write as another client would."""
        stored = self.api.put(resource, copy.deepcopy(obj))
        self.theirs.add(int(stored["metadata"]["resourceVersion"]))
        return stored

    def ours(self, version):
        return version not in self.theirs

    async def settled(self):
        """Wait until everything is registered and agrees with the Secret."""
        await self.until(self.is_settled)
        return {configuration: self.get(configuration) for configuration in CONFIGURATIONS}

    def is_settled(self):
        secret = self.secret()
        if secret is None or not all(self.get(configuration) for configuration in CONFIGURATIONS):
            return False
        leaf = served_leaf(secret, NAMES)
        return leaf is not None and self.trusts(leaf.serving_der)

    def bundles(self):
        """The caBundle of each webhook of both configurations."""
        return [
            bundle
            for configuration in CONFIGURATIONS
            for bundle in bundles_of(self.get(configuration))
        ]

    def trusts(self, serving_der):
        """Whether the API server would trust this certificate for each webhook."""
        return all(trusts(bundle, serving_der) for bundle in self.bundles())

    def published(self):
        """Since when the next authority is published; None if it is not."""
        return self.secret()["metadata"].get("annotations", {}).get(certificates.PUBLISHED)

    def observer(self):
        observer = Observer()
        observer.see_all(self.api.objects.history, self.ours)
        return observer
