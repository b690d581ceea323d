"""Applications and clusters of one namespace: in this process, or placed by a real controller."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import uuid
from datetime import timedelta
from types import SimpleNamespace

import msgspec
import yaml

from harbourmaster.api.patches import ApplyPatch, MergePatch
from harbourmaster.api.resources import (
    APPLICATIONS,
    CLUSTERS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    GLOBAL_METRICS,
    GLOBAL_PROVIDERS,
    NAMESPACES,
    SECRETS,
)
from harbourmaster.api.times import utc_now
from harbourmaster.controller.controller import run_unguarded
from harbourmaster.controller.placement.context import DeploymentCaches
from harbourmaster.controller.placement.deployment import DeploymentControllers
from harbourmaster.controller.placement.settings import MemberSettings
from harbourmaster.kube.errors import ConflictError, NotFoundError
from harbourmaster.placement.manifests import DOMAIN
from harbourmaster.playground.control_plane import ControlPlane
from harbourmaster.serving.background import running
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.cluster import fresh_namespace
from helpers.namespaces import Namespaced
from helpers.patience import PATIENCE
from helpers.processes import Controller, client_of

QUICK = {
    "probe_interval_seconds": 0.3,
    "request_timeout_seconds": 2.0,
    "kubeconfig_interval_seconds": 1.0,
    "allowed_addresses": ("127.0.0.0/8", "::1"),
}


def config_map(name, namespace=None, **data):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def deployment(name, namespace=None, image="example.com/web:1", replicas=1):
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": image}]},
            },
        },
    }


class Placed(Namespaced):
    """A namespace; ``deploying`` runs the controllers, which may be done again."""

    def __init__(self, client, namespace):
        super().__init__(client, namespace)
        self.deployment = None

    @contextlib.asynccontextmanager
    async def deploying(self, since=str, guard=run_unguarded, **settings):
        """Run the controllers, as the leader; ``since`` tells when they were switched on."""
        # Virtual time would pass many times while the real time of a deadline does not come.
        loop, begun = asyncio.get_running_loop(), utc_now()
        start = loop.time()
        self.deployment = DeploymentControllers(
            self.client,
            MemberSettings(**{**QUICK, **settings}),
            events=self.events,
            metrics=create_controller_metrics("0", ["clusters", "deployer"]),
            since=since,
            now=lambda: begun + timedelta(seconds=loop.time() - start),
        )
        caches = self.deployment.caches
        for mirror in (caches.applications, caches.clusters):
            mirror.subscribe(self.changes.tell)
        mirrors = [reflector.run() for reflector in caches.reflectors]
        leading = [job.lead(guard) for job in self.deployment.controllers]
        async with running(*mirrors, *leading):
            yield self.deployment
        # TLS connections whose requests were cancelled end a moment after their clients.
        await asyncio.sleep(0.1)

    async def kubeconfig(self, name, text):
        """Create or replace the Secret of a cluster."""
        data = {"kubeconfig": base64.b64encode(text.encode()).decode()}
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
        try:
            await self.client.patch(SECRETS, name, MergePatch({"data": data}), self.namespace)
        except NotFoundError:
            await self.client.create(SECRETS, obj, self.namespace)

    async def cluster(self, name, plane=None, *, text="", **spec):
        """A Cluster with the administrator's kubeconfig of a plane, or with any other text."""
        await self.kubeconfig(name, text or plane.kubeconfig.read_text())
        spec = {"kubeconfigSecretRef": {"name": name, "key": "kubeconfig"}, **spec}
        await self._create(CLUSTERS, name, spec)

    async def application(self, *manifests, name="app", to="", **spec):
        """An Application, scheduled to a cluster if one is named."""
        await self._create(APPLICATIONS, name, {"manifests": manifests, **spec})
        if to:
            await self.schedule(to, name)

    async def schedule(self, cluster, name="app", **more):
        """Assign a cluster as the scheduler does; ``more`` are fields of the status."""
        while True:
            stored = await self.fetch(name)
            metadata = stored["metadata"]
            before = (stored.get("status") or {}).get("scheduledTo") or {}
            status = {**more, "scheduledGeneration": metadata["generation"]}
            if before.get("name") != cluster:
                status |= {"scheduledTo": {"name": cluster}, "awaitsReady": True}
            version = {"resourceVersion": metadata["resourceVersion"]}
            patch = MergePatch({"metadata": version, "status": status})
            with contextlib.suppress(ConflictError):
                await self.client.patch(
                    APPLICATIONS, name, patch, self.namespace, subresource="status"
                )
                return

    async def update(self, *manifests, name="app", approve=True, **spec):
        """A user's change, which the scheduler approves where the application is."""
        value = {"spec": {"manifests": manifests, **spec}}
        await self.client.patch(APPLICATIONS, name, MergePatch(value), self.namespace)
        if approve:
            stored = await self.fetch(name)
            await self.schedule(stored["status"]["scheduledTo"]["name"], name)

    async def delete(self, resource=APPLICATIONS, name="app"):
        await self.client.delete(resource, name, self.namespace)

    async def fetch(self, name="app", resource=APPLICATIONS):
        return await self.get(resource, name)

    async def until(self, condition, name="app"):
        """Wait until the status of an application is so, in the controllers' cache; return it."""
        return await self.until_status(self.deployment.caches.applications, name, condition)

    async def until_cluster(self, condition, name):
        """Wait until a cluster meets the condition."""
        return await self.until_status(self.deployment.caches.clusters, name, condition)

    async def until_running(self, cluster, name="app"):
        """Wait until what is wanted now is there."""
        generation = (await self.fetch(name))["metadata"]["generation"]
        return await self.until(
            lambda status: (
                is_true(status, "Deployed")
                and status.observed_generation == generation
                and status.running_on.name == status.scheduled_to.name == cluster
                and {entry.cluster for entry in status.inventory} == {cluster}
            ),
            name,
        )

    async def until_online(self, *names):
        for name in names:
            await self.until_cluster(lambda status: status.state == "Online", name)

    async def until_fault(self, reason, name="app"):
        """Wait until it is not deployed for that reason; the message."""
        value = await self.until(lambda status: reason_of(status, "Deployed") == reason, name)
        return next(
            condition.message for condition in value.conditions if condition.type == "Deployed"
        )

    async def until_gone(self, resource=APPLICATIONS, name="app"):
        caches = self.deployment.caches
        mirror = caches.applications if resource is APPLICATIONS else caches.clusters
        await self.until_found(lambda: f"{self.namespace}/{name}" not in mirror.store)

    def reasons_of(self, name="app"):
        """The reasons of the events of an object."""
        return super().reasons_of(name)


class Member:
    """Objects of a member cluster in one namespace; every version is kept, in order."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace

    async def get(self, resource, name, namespace=None):
        """An object; None where there is none."""
        place = (namespace or self.namespace) if resource.namespaced else None
        try:
            raw = await self.client.get(resource, name, place)
        except NotFoundError:
            return None
        return msgspec.json.decode(raw)

    async def names(self, resource=CONFIG_MAPS):
        page = await self.client.list(resource, self.namespace)
        obj = {msgspec.json.decode(item)["metadata"]["name"] for item in page.items}
        return obj - {"kube-root-ca.crt"}

    async def until(self, resource, name, condition):
        """Wait until an object is so; None for one that is not there."""
        async with asyncio.timeout(PATIENCE):
            # A look now and then: what it waits for is another process's.
            while not condition(obj := await self.get(resource, name)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return obj

    async def edit(self, resource, name, value, subresource=None):
        """Edit an object as another client there would."""
        await self.client.patch(
            resource, name, MergePatch(value), self.namespace, subresource=subresource
        )


def is_true(status, name):
    return any(
        condition.type == name and condition.status == "True" for condition in status.conditions
    )


async def ready(member, name):
    """Report an object ready, as the controllers of the member would."""
    obj = await member.until(DEPLOYMENTS, name, lambda obj: obj is not None)
    count = obj["spec"]["replicas"]
    status = {
        "observedGeneration": obj["metadata"]["generation"],
        "replicas": count,
        "updatedReplicas": count,
        "availableReplicas": count,
        "readyReplicas": count,
    }
    await member.edit(DEPLOYMENTS, name, {"status": status}, "status")


async def theirs(member, name="settings", **data):
    """An object of another team."""
    value = ApplyPatch(config_map(name, member.namespace, **data), "somebody")
    await member.client.patch(CONFIG_MAPS, name, value, member.namespace)


def is_released(obj):
    """Whether nothing of the object is ours any more."""
    metadata = obj["metadata"]
    marks = {**metadata.get("labels", {}), **metadata.get("annotations", {})}
    managers = {field["manager"] for field in metadata.get("managedFields", ())}
    return not any(DOMAIN in mark for mark in (*marks, *managers))


def reason_of(status, name):
    return next((condition.reason for condition in status.conditions if condition.type == name), "")


def changed_kubeconfig(plane, change):
    """The administrator's kubeconfig with ``change`` made to it."""
    config = yaml.safe_load(plane.kubeconfig.read_text())
    change(config)
    return yaml.safe_dump(config)


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
            client = await stack.enter_async_context(client_of(plane.kubeconfig))
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await client.create(NAMESPACES, body)
            members.append(Member(client, namespace))
        yield members


FLAGS = (
    "--controllers=metrics,placement",
    "--placement-enabled=true",
    "--metrics-allowed-addresses=127.0.0.0/8",
    "--placement-sample-interval-seconds=0.5",
    "--placement-reschedule-after=4",
    "--placement-members-probe-interval-seconds=0.5",
    "--placement-members-request-timeout-seconds=2",
    "--placement-members-allowed-addresses=127.0.0.0/8,::1",
    "--leader-election-lease-duration-seconds=3",
    "--leader-election-renew-deadline-seconds=2",
    "--leader-election-retry-period-seconds=1",
)
PLACING = {
    "enabled": True,
    "members": {
        "probeIntervalSeconds": 0.5,
        "requestTimeoutSeconds": 2,
        "allowedAddresses": ["127.0.0.0/8", "::1"],
    },
}
"""The settings of placement in a process that runs the controllers."""


@contextlib.asynccontextmanager
async def flow_in(plane, name):
    """A Flow in a fresh namespace of a name like this; nothing of it is left.

    Nobody may be there to take our finalizers away.
    """
    namespace = fresh_namespace(plane.kubectl, name)
    async with client_of(plane.kubeconfig) as client:
        flow = Flow(client, namespace, plane.kubeconfig)
        yield flow
        await flow.clear()
        unheld = MergePatch({"metadata": {"finalizers": None}})
        for resource in (APPLICATIONS, CLUSTERS):
            for raw in (await client.list(resource, namespace)).items:
                name = msgspec.json.decode(raw)["metadata"]["name"]
                await client.patch(resource, name, unheld, namespace)
        await client.delete(NAMESPACES, namespace)


class Flow(Placed):
    """``placing`` runs the controller; tests wait for what their own caches show."""

    def __init__(self, client, namespace, kubeconfig):
        super().__init__(client, namespace)
        self._kubeconfig = kubeconfig
        self._everywhere = []
        self.process = None

    @contextlib.asynccontextmanager
    async def watching(self):
        """Follow applications and clusters."""
        caches = DeploymentCaches(self.client)
        self.deployment = SimpleNamespace(caches=caches)
        for mirror in caches.reflectors:
            mirror.subscribe(self.changes.tell)
        async with running(*(reflector.run() for reflector in caches.reflectors)):
            yield self
        await asyncio.sleep(0.1)

    @contextlib.asynccontextmanager
    async def placing(self, *flags):
        """Run the controller, which leads: applications from now on need no confirmation."""
        self.process = await asyncio.to_thread(
            Controller, self._kubeconfig, self.namespace, *FLAGS, *flags
        )
        try:
            await asyncio.to_thread(self.process.await_event, "became leader")
            yield self.process
        except BaseException:
            # For who looks into a failure.
            print("".join(self.process.lines))  # noqa: T201
            raise
        finally:
            await asyncio.to_thread(self.process.stop)
        assert not self.process.errors, "".join(self.process.errors)

    async def make(self, resource, name, spec=None, *, labels=None):
        """Create an object of any kind; ``clear`` deletes one without a namespace."""
        metadata = {"name": name, "labels": labels or {}}
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        if resource.namespaced:
            metadata["namespace"] = self.namespace
        else:
            self._everywhere.append((resource, name))
        obj = {**kind, "metadata": metadata, "spec": spec or {}}
        await self.client.create(resource, obj, metadata.get("namespace"))

    async def change(self, resource, name, value):
        """Change an object of the namespace as a user would."""
        await self.client.patch(resource, name, MergePatch(value), self.namespace)

    async def clear(self):
        """Delete what is in no namespace."""
        for resource, name in self._everywhere:
            with contextlib.suppress(NotFoundError):
                await self.client.delete(resource, name)

    async def prometheus(self, scraped, **values):
        """A provider of everywhere, and metrics from 0 to 1 with these values."""
        name = f"{self.namespace}-prometheus"
        await self.make(
            GLOBAL_PROVIDERS, name, {"type": "prometheus", "prometheus": {"url": scraped.url}}
        )
        for metric, value in values.items():
            await asyncio.to_thread(scraped.set, self.query(metric), value)
            source = {"name": name, "metric": self.query(metric)}
            spec = {"min": 0, "max": 1, "provider": source}
            await self.make(GLOBAL_METRICS, self.metric_name(metric), spec)

    async def reasons(self):
        """Those of all events of the namespace."""
        page = await self.client.list(EVENTS, self.namespace)
        return {msgspec.json.decode(item)["reason"] for item in page.items}

    def why(self, name="app"):
        """The arguments by which people ask why it is where it is."""
        where = f"{self.namespace}/{name}"
        return ["why", "application", where, f"--kubeconfig={self._kubeconfig}"]

    def query(self, metric):
        """The query of Prometheus for a metric."""
        return f"{metric}_{self.namespace.replace('-', '_')}"

    def metric_name(self, metric):
        return f"{metric}-{self.namespace.rpartition('-')[2]}"

    def weights(self, **weights):
        """References to metrics of everywhere."""
        return [
            {"name": self.metric_name(name), "weight": weight, "scope": "Global"}
            for name, weight in weights.items()
        ]
