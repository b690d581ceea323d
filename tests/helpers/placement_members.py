"""The deploying reconcilers before member clusters of one authority that fail on demand."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shlex
import ssl

import yaml

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import CLUSTERS
from helpers.placement_flow import Placed, reason_of


class DeploymentEnvironment(Placed):
    """The deploying reconcilers, which reach members by kubeconfigs of one authority."""

    def __init__(self, api, client, authority):
        super().__init__(client, "team")
        self.api = api
        self._authority = authority

    def kubeconfig_of(self, member, *, authorities=(), fields=(), **user):
        """A kubeconfig; ``authorities`` in place of the usual one, ``fields`` of its cluster."""
        pems = [authority.cert_pem.bytes() for authority in authorities or (self._authority,)]
        trust = base64.b64encode(b"".join(pems)).decode()
        cluster = {"server": member.url, "certificate-authority-data": trust, **dict(fields)}
        return yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user or {"token": "mine"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            }
        )

    async def add_member(self, member, name="one", **user):
        await self.cluster(name, text=self.kubeconfig_of(member, **user))

    async def deploy(self, member, *manifests, **spec):
        """Add the cluster ``one``, and wait until the manifests run there."""
        await self.add_member(member)
        await self.application(*manifests, to="one", **spec)
        await self.until_running("one")

    async def until_bound(self, reason="Bound", text="", name="one"):
        """Wait until ServerBound has that reason, and a message with the text; return that."""

        def bound(status):
            states = [state for state in status.conditions if state.type == "ServerBound"]
            return [state for state in states if state.reason == reason and text in state.message]

        (state,) = bound(await self.until_cluster(bound, name))
        assert (state.status == "True") == (reason == "Bound")
        return state.message

    async def accept(self, message):
        """Do what the command in a message of ServerBound does."""
        command = shlex.split(message.partition("to accept it: ")[2])
        assert command[:3] == ["kubectl", "-n", self.namespace]
        assert command[4] == "clusters.placement.harbourmaster.dev"
        if command[3] == "annotate":
            assert command[6] == "--overwrite"
            key, _, value = command[7].partition("=")
            patch = {"metadata": {"annotations": {key: value}}}
        else:
            assert command[3] == "patch"
            assert command[6:9] == ["--type", "merge", "-p"]
            patch = json.loads(command[9])
        await self.client.patch(CLUSTERS, command[5], MergePatch(patch), self.namespace)

    async def until_offline(self, reason="InvalidCredentials", name="one"):
        """Wait until the cluster is offline for that reason; return the message."""
        status = await self.until_cluster(lambda status: status.state == "Offline", name)
        assert reason_of(status, "Reachable") == reason
        return next(
            condition.message for condition in status.conditions if condition.type == "Reachable"
        )


class Listener:
    """A server that counts who connects, and answers nothing."""

    def __init__(self):
        self.connections = 0
        self.url = ""

    def count(self, _reader, writer):
        self.connections += 1
        writer.close()


@contextlib.asynccontextmanager
async def listening():
    listener = Listener()
    server = await asyncio.start_server(listener.count, "127.0.0.1", 0)
    async with server:
        listener.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield listener


def server_context(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context
