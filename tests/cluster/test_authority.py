"""An API server rejects certificates that our authority must not issue."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import msgspec
import pytest

from harbourmaster.certs.authority import create_authority
from harbourmaster.certs.store import write_files
from helpers.certificates import own_files
from helpers.cluster import eventually, keep_registered, selecting, webhook_configuration, workload
from helpers.objects import cluster_policy
from helpers.server import Server

pytestmark = [pytest.mark.gate, pytest.mark.cluster, pytest.mark.slow]

POLICY = cluster_policy(nodeSelector={"limited": "yes"})
SERVICE = "harbourmaster-webhook.harbourmaster-system.svc"


@pytest.mark.claim("W12")
@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (("127.0.0.1",), '"limited": "yes"'),
        ((SERVICE,), "x509: .*(excluded|permitted)"),
        ((SERVICE, "127.0.0.2"), "x509: .*permitted"),
    ],
)
def test_an_api_server_trusts_an_authority_for_its_names_only(
    kubectl, tmp_path, namespace, limits, says
):
    now = datetime.now(UTC)
    files = own_files(now, ("127.0.0.1",), create_authority(now, limits))
    # Without its key the directory belongs to another issuer, with a certificate for our name.
    write_files(tmp_path / "certificates", msgspec.structs.replace(files, ca_key=None))
    with Server(tmp_path, policies=[POLICY]) as server:
        configuration = webhook_configuration(
            "Mutating",
            server.url,
            server.bundle,
            name=namespace,
            namespaceSelector=selecting(namespace),
        )
        pod = json.dumps(workload("Pod", namespace))
        with keep_registered(kubectl, configuration):

            def tried():
                done = kubectl(
                    "create", "--dry-run=server", "-o=json", "-f=-", stdin=pod, check=False
                )
                return done.stdout + done.stderr

            assert eventually(tried, is_right=lambda text: re.search(says, text))
