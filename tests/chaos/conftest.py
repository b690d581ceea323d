"""Three replicas behind a balancer, registered with a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
import resource
from contextlib import asynccontextmanager

import pytest
import uvloop

from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.reflector import Reflector
from harbourmaster.playground.installation import Installation
from helpers.load.reviews import Backend, Balancer, Load
from helpers.objects import body, cluster_policy, large_deployment

NAME = "harbourmaster-webhook.harbourmaster-system.svc"
POLICY = cluster_policy("etcd", pods={"app": "etcd"}, nodeSelector={"example.com/pool": "etcd"})
DRAIN = 2


class Harbour:
    """An installation whose webhooks stand behind a balancer."""

    def __init__(self, plane, installation, balancer):
        self.plane = plane
        self.installation = installation
        self.balancer = balancer
        self.backends = {
            webhook.name: Backend(webhook.port, int(webhook.health.rpartition(":")[2]))
            for webhook in installation.webhooks
        }

    async def all_ready(self):
        await self.balancer.await_ready(*self.backends.values())

    def authority(self):
        """The caBundle of the registration as it is now, as PEM text."""
        result = self.plane.kubectl("get", "mutatingwebhookconfiguration/harbourmaster", "-o=json")
        return _bundle(result.stdout.encode())

    def load(self, authority, **options):
        """Reviews of a Deployment that the policy changes."""
        review = body(large_deployment(), namespace="default")
        return Load(self.balancer.port, review, name=NAME, authority=authority, **options)

    @asynccontextmanager
    async def followed_authority(self):
        """Yield a function that gives the caBundle of the moment, learnt by a watch."""
        async with Client(connect(str(self.plane.kubeconfig))) as client:
            configurations = Reflector(client, MUTATING_WEBHOOKS, _bundle)
            task = asyncio.create_task(configurations.run())
            await configurations.synced.wait()
            yield lambda: configurations.store.get("harbourmaster")
            task.cancel()
            await asyncio.wait([task])


def _bundle(raw):
    (bundle,) = {
        webhook["clientConfig"]["caBundle"] for webhook in json.loads(bytes(raw))["webhooks"]
    }
    return base64.b64decode(bundle).decode()


@pytest.fixture(scope="session", autouse=True)
def many_files():
    """A moment without answers is a thousand connections, each with two more at the balancer."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def pytest_asyncio_loop_factories(config, item):
    # Load and balancer share two cores with all that they test.
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def harbour(throwaway_control_plane):
    """Return ``harbour(**arguments)``, a context with flags by role; it yields a Harbour."""

    @asynccontextmanager
    async def start(webhooks=3, **arguments):
        plane = await asyncio.to_thread(throwaway_control_plane, optional=(), audit=True)
        async with Balancer() as balancer:
            flags = {
                "webhook": [f"--drain-seconds={DRAIN}", *arguments.get("webhook", ())],
                "controller": arguments.get("controller", ()),
            }
            installation = Installation(
                plane, webhooks=webhooks, service_port=balancer.port, arguments=flags
            )
            installed = Harbour(plane, installation, balancer)
            balancer.backends += installed.backends.values()
            try:
                await asyncio.to_thread(installation.start)
                plane.kubectl("apply", "-f=-", stdin=json.dumps(POLICY))
                await installed.all_ready()
                yield installed
            finally:
                await asyncio.to_thread(installation.stop)

    return start
