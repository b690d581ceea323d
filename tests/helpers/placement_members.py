"""The deploying reconcilers before member clusters of one authority that fail on demand."""

from __future__ import annotations

import base64
import ssl

import yaml

from helpers.placement_flow import Placed, reason_of


class DeploymentEnvironment(Placed):
    """The deploying reconcilers, which reach members by kubeconfigs of one authority."""

    def __init__(self, api, client, authority):
        super().__init__(client, "team")
        self.api = api
        self._authority = authority

    def kubeconfig_of(self, member, **user):
        trust = base64.b64encode(self._authority.cert_pem.bytes()).decode()
        cluster = {"server": member.url, "certificate-authority-data": trust}
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

    async def until_offline(self, reason="InvalidCredentials", name="one"):
        """Wait until the cluster is offline for that reason; return the message."""
        status = await self.until_cluster(lambda status: status.state == "Offline", name)
        assert reason_of(status, "Reachable") == reason
        return next(
            condition.message for condition in status.conditions if condition.type == "Reachable"
        )


def server_context(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context
