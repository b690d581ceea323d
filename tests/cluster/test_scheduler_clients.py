"""An extender that requires a client certificate, and a real kube-scheduler."""

from __future__ import annotations

import pytest
import trustme

from helpers.flow.manifests import deployment, keptn
from helpers.scheduler import account, authority_of, configuration, second_scheduler

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

CLIENT = "harbourmaster-scheduler"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The authority of clients, and a certificate and key of the scheduler."""
    folder = tmp_path_factory.mktemp("clients")
    authority = trustme.CA()
    issued = authority.issue_cert("scheduler.example", common_name=CLIENT)
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
    issued.private_key_pem.write_to_path(str(folder / "tls.key"))
    return folder


@pytest.fixture
def controller_flags(folder):
    return (
        "--scheduler-enabled=true",
        f"--scheduler-client-ca={folder / 'ca.crt'}",
        f"--scheduler-client-cn={CLIENT}",
    )


@pytest.fixture(scope="module")
def kubeconfig(harbour):
    harbour.installation.restart("webhook", ("--gating=schedulerName",))
    yield account(harbour.plane)
    harbour.installation.restart("webhook", ())


@pytest.mark.claim("W13")
async def test_pods_are_placed_by_a_scheduler_with_a_certificate_only(
    harbour, flow, kubeconfig, folder
):
    settings = configuration(
        harbour.installation.workloads["controller"].extender_port, authority_of(harbour.plane)
    )

    def pods():
        return flow.pods("ledger")

    def messages():
        conditions = [
            condition for pod in pods() for condition in pod["status"].get("conditions", ())
        ]
        return [condition.get("message", "") for condition in conditions]

    with second_scheduler(harbour.plane, settings, kubeconfig):
        await flow.create(deployment("ledger", keptn("ledger")))
        await flow.until(
            lambda: any("/scheduler/filter" in message for message in messages()), why=messages
        )
        assert not any("nodeName" in pod["spec"] for pod in pods())
    pair = {"certFile": str(folder / "tls.crt"), "keyFile": str(folder / "tls.key")}
    settings["extenders"][0]["tlsConfig"] |= pair
    with second_scheduler(harbour.plane, settings, kubeconfig):
        await flow.until(lambda: any("nodeName" in pod["spec"] for pod in pods()), why=messages)
