"""Our authority is renewed while a second kube-scheduler asks us, which has read the old one."""

from __future__ import annotations

import asyncio
import base64
import ssl

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import DEPLOYMENTS, PODS, SECRETS
from harbourmaster.certs.bundle import parse_certificates
from helpers.certificates import strict_client
from helpers.flow.manifests import IMAGE, of_kind
from helpers.scheduler import (
    HOME,
    NAME,
    PART,
    SECRET,
    account,
    authority_of,
    configuration,
    second_scheduler,
)

DEPLOYMENT = "harbourmaster-scheduler"
MARK = "certs.harbourmaster.dev/authority"
SERVICE = "harbourmaster-scheduling"


@pytest.fixture
def controller_flags():
    return ("--scheduler-enabled=true",)


@pytest.fixture(scope="module")
def kubeconfig(harbour):
    """The shipped scheduler as an object; the process that plays it is the tests'."""
    kubeconfig = account(harbour.plane)
    kubectl = harbour.plane.kubectl
    kubectl("apply", "--server-side", f"--filename={PART / 'deployment.yaml'}")
    yield kubeconfig
    kubectl("delete", f"--filename={PART / 'deployment.yaml'}")


class SchedulerDeployment:
    """The scheduler, its Deployment, and whom it trusts."""

    def __init__(self, harbour, client, flow, kubeconfig):
        self._harbour, self._client, self._flow = harbour, client, flow
        self._kubeconfig = kubeconfig
        self.port = harbour.installation.workloads["controller"].extender_port

    async def rolled_out(self, *, but=""):
        """Wait until all pods of the Deployment have a mark, not ``but``; return it."""
        async with asyncio.timeout(60):
            while True:
                stored = msgspec.json.decode(await self._client.get(DEPLOYMENTS, DEPLOYMENT, HOME))
                mark = stored["spec"]["template"]["metadata"]["annotations"].get(MARK, but)
                status = stored.get("status", {})
                seen = status.get("observedGeneration") == stored["metadata"]["generation"]
                counts = [
                    status.get(key) for key in ("replicas", "updatedReplicas", "readyReplicas")
                ]
                if mark != but and seen and counts == [2, 2, 2]:
                    return mark
                await asyncio.sleep(0.1)

    async def authorities(self):
        """Those that the Secret holds, the one that signs first."""
        secret = msgspec.json.decode(await self._client.get(SECRETS, SECRET, HOME))
        return parse_certificates(base64.b64decode(secret["data"]["ca.crt"]), "ca.crt")

    async def renew(self):
        """Have the controller make another authority, and wait until it signs."""
        before = (await self.authorities())[0]
        wish = MergePatch({"data": {"next-ca.key": ""}})
        await self._client.patch(SECRETS, SECRET, wish, HOME)
        async with asyncio.timeout(60):
            while (await self.authorities())[0] == before:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.05)

    async def is_believed(self, authority):
        """Whether a client that trusts this alone shakes hands with the extender."""
        context = strict_client(authority)
        try:
            _, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=context, server_hostname=SERVICE
            )
        except ssl.SSLCertVerificationError:
            return False
        writer.close()
        return True

    def scheduler(self, authority):
        """One that has read this file when it started."""
        settings = configuration(self.port, authority)
        return second_scheduler(self._harbour.plane, settings, self._kubeconfig)

    async def create(self, name):
        spec = {"schedulerName": NAME, "containers": [{"name": "ledger", "image": IMAGE}]}
        await self._flow.create(of_kind("Pod", name, spec))

    async def until_placed(self, name):
        """Have a pod placed, which has the scheduler ask us."""
        await self.create(name)
        await self._flow.until_like(PODS, name, {"spec": {"nodeName": bool}})

    async def until_refused(self, name):
        """The error about a pod for which the scheduler does not trust us."""
        await self.create(name)

        def certificate_errors():
            pod = self._flow.find(PODS, name) or {"status": {}}
            conditions = pod["status"].get("conditions", ())
            return [
                condition["message"]
                for condition in conditions
                if "x509" in condition.get("message", "")
            ]

        return await self._flow.until(certificate_errors)


@pytest.fixture
def place(kubeconfig, harbour, client, flow):
    return SchedulerDeployment(harbour, client, flow, kubeconfig)


async def test_a_new_authority_stops_no_scheduler(harbour, place, tmp_path):
    mark = await place.rolled_out()
    old = tmp_path / "old.crt"
    old.write_bytes(authority_of(harbour.plane).read_bytes())
    with place.scheduler(old):
        await place.until_placed("before")
        await place.renew()
        await place.until_placed("renewed")
    # Connections that were open tell nothing of certificates.
    with place.scheduler(old):
        await place.until_placed("held")
    signing = (await place.authorities())[0]
    pem = signing.public_bytes(Encoding.PEM)
    assert not await place.is_believed(pem)
    # Only the controller did that: the pods restart, and read the Secret as it is now.
    assert await place.rolled_out(but=mark) != mark
    new = authority_of(harbour.plane)
    with place.scheduler(new):
        await place.until_placed("rolled-out")
        # One that starts has the new leaf at once.
        await asyncio.to_thread(harbour.installation.restart, "controller")
        assert await place.is_believed(pem)
        await place.until_placed("restarted")
    with place.scheduler(old):
        assert await place.until_refused("left-behind")
