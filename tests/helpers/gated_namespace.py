"""A namespace on a real API server with pods that have our gate by their template."""

from __future__ import annotations

import asyncio

import msgspec

from harbourmaster.api.patches import JsonPatch, MergePatch
from harbourmaster.api.resources import DEPLOYMENTS, PODS, STATEFUL_SETS
from harbourmaster.kube.reflector import Reflector
from helpers.gated import GATE
from helpers.patience import PATIENCE


def annotations(workload="waiter", version="1.0", app="shop", **more):
    found = {"workload": workload, "version": version, **({"app": app} if app else {}), **more}
    return {f"keptn.sh/{key.replace('_', '-')}": value for key, value in found.items()}


class GatedNamespace:
    """A namespace, and what a test does there."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self._moved = asyncio.Event()
        self._pods = Reflector(
            client,
            PODS,
            msgspec.json.decode,
            namespace=namespace,
            on_change=lambda _keys: self._moved.set(),
        )

    async def __aenter__(self):
        self._watch = asyncio.create_task(self._pods.run())
        return self

    async def __aexit__(self, *_):
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)

    async def until_free(self, count=1, version=None):
        """Wait until so many pods of the version have lost our gate; return them."""
        async with asyncio.timeout(PATIENCE):
            while len(found := self._free(version)) < count:
                self._moved.clear()
                await self._moved.wait()
        return found

    async def until_gated(self, count=1):
        """Wait until so many pods wait at our gate; return them."""
        async with asyncio.timeout(PATIENCE):
            while len(found := self._at_gate()) < count:
                self._moved.clear()
                await self._moved.wait()
        return found

    def _at_gate(self):
        return [pod for pod in self._pods.store.values() if GATE in gates(pod)]

    def _free(self, version):
        return [
            pod
            for pod in self._pods.store.values()
            if GATE not in gates(pod) and version in {None, _version(pod)}
        ]

    def told(self, world, *reasons):
        """What was told about objects of this place."""
        return [
            one
            for one in world.signals.kept
            if one.obj.metadata.namespace == self.namespace
            and (not reasons or one.reason in reasons)
        ]

    def all(self, mirror):
        """The objects of a mirror that are of this place, by name."""
        return {
            key.partition("/")[2]: mirror.store.get(key)
            for key in mirror.store
            if key.startswith(f"{self.namespace}/")
        }

    def key(self, name):
        return f"{self.namespace}/{name}"

    async def create(self, resource, name, spec, **metadata):
        obj = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": self.namespace, **metadata},
            "spec": spec,
        }
        return msgspec.json.decode(await self.client.create(resource, obj, self.namespace))

    def template(self, given, gates=(GATE,), labels=None, **spec):
        return {
            "metadata": {"labels": {"app": "waiter", **(labels or {})}, "annotations": given},
            "spec": {
                "containers": [{"name": "main", "image": "registry.example.com/main:1"}],
                "schedulingGates": [{"name": each} for each in gates],
                **spec,
            },
        }

    async def deploy(self, name="waiter", given=None, *, replicas=1, resource=DEPLOYMENTS, **more):
        """A Deployment or StatefulSet whose pods have the annotations."""
        labels = {"app": "waiter", "part": name}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": self.template(
                annotations() if given is None else given, labels=labels, **more
            ),
        }
        if resource is STATEFUL_SETS:
            spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
        return await self.create(resource, name, spec)

    async def patch(self, resource, name, value, subresource=None):
        answer = await self.client.patch(
            resource, name, MergePatch(value), self.namespace, subresource=subresource
        )
        return msgspec.json.decode(answer)

    async def template_is(self, name, given, *, resource=DEPLOYMENTS, image="main:1"):
        """Roll out a template with other annotations, or another image."""
        container = {"name": "main", "image": f"registry.example.com/{image}"}
        template = {"metadata": {"annotations": given}, "spec": {"containers": [container]}}
        await self.patch(resource, name, {"spec": {"template": template}})

    async def status(self, resource, name, **status):
        """Write a status as phases would."""
        operation = {"op": "add", "path": "/status", "value": status}
        await self.client.patch(
            resource, name, JsonPatch([operation]), self.namespace, subresource="status"
        )

    async def get(self, resource, name):
        return msgspec.json.decode(await self.client.get(resource, name, self.namespace))

    async def pods(self, version=None):
        page = await self.client.list(PODS, self.namespace)
        found = [msgspec.json.decode(each) for each in page.items]
        if version is None:
            return found
        return [one for one in found if _version(one) == version]

    def gated(self, world, version=None):
        """The gated pods in the caches."""
        return [
            pod
            for pod in world.caches.pods.store.values()
            if pod.is_gated
            and pod.namespace == self.namespace
            and version in {None, pod.annotations.get("keptn.sh/version")}
        ]

    async def until_version(self, world, name):
        return await world.until(lambda: world.caches.workload_versions.store.get(self.key(name)))


def _version(pod):
    return pod["metadata"].get("annotations", {}).get("keptn.sh/version")


def gates(pod):
    return [each["name"] for each in pod["spec"].get("schedulingGates", ())]
