"""Client certificates on a real API server: reviews that are answered, and refused conversions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl

import pytest
import trustme
import yaml

from harbourmaster.playground.installation import Installation
from helpers.cluster import bare_pod, eventually, plane_for
from helpers.flow.installation import FLAGS, Harbour
from helpers.objects import cluster_policy
from helpers.processes import client_of

NAME = "harbourmaster-api-server"
APP = {
    "apiVersion": "lifecycle.keptn.sh/v1",
    "kind": "KeptnApp",
    "metadata": {"name": "shop"},
    "spec": {"version": "1", "revision": 1, "workloads": []},
}


@pytest.fixture(scope="module")
def callers(tmp_path_factory):
    """The authority of the API server's client certificate, and its configuration."""
    folder = tmp_path_factory.mktemp("callers")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    leaf = authority.issue_cert(common_name=NAME)
    leaf.cert_chain_pems[0].write_to_path(folder / "client.crt")
    leaf.private_key_pem.write_to_path(folder / "client.key")
    user = {
        "client-certificate": str(folder / "client.crt"),
        "client-key": str(folder / "client.key"),
    }
    users = {
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": "*", "user": user}],
    }
    (folder / "users.yaml").write_text(yaml.safe_dump(users))
    configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(folder / "users.yaml"),
    }
    plugins = [
        {"name": name, "configuration": configuration}
        for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
    ]
    admission = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": plugins,
    }
    (folder / "admission.yaml").write_text(yaml.safe_dump(admission))
    return folder


@pytest.fixture(scope="module")
def harbour(request, tmp_path_factory, callers):
    flags = (f"--admission-control-config-file={callers / 'admission.yaml'}",)
    arguments = {
        "controller": FLAGS,
        "webhook": (f"--client-ca={callers / 'ca.crt'}", f"--client-cn={NAME}"),
    }
    with plane_for(request, tmp_path_factory, "callers", flags=flags) as plane:
        plane.add_nodes(1)
        with Installation(plane, arguments=arguments) as installation:
            yield Harbour(plane, installation)


@pytest.mark.claim("R14")
async def test_only_the_api_server_is_answered(harbour):
    kubectl, port = harbour.plane.kubectl, harbour.installation.service_port
    selector = {"podSelector": {}, "nodeSelector": {"example.com/pool": "callers"}}
    policy = cluster_policy("callers", namespaceSelector={}, **selector)
    kubectl("create", "-f=-", stdin=json.dumps(policy))
    pod = bare_pod("tried", {"namespace": "default"})

    def read_selector():
        command = ("create", "--dry-run=server", "-o=json", "-f=-")
        made = json.loads(kubectl(*command, stdin=json.dumps(pod)).stdout)
        return made["spec"].get("nodeSelector")

    eventually(read_selector)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    answer = b""
    # TLS 1.3 clients are told after the handshake, or the connection just ends.
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        answer = await reader.read()
    assert not answer
    writer.close()


@pytest.mark.claim("R14")
async def test_the_api_server_sends_no_certificate_for_conversion(harbour):
    kubectl = harbour.plane.kubectl
    kubectl("create", "-f=-", "--namespace=default", stdin=json.dumps(APP))
    async with client_of(harbour.plane.kubeconfig) as client:
        path = "/apis/lifecycle.keptn.sh/v1alpha2/namespaces/default/keptnapps/shop"
        with pytest.raises(Exception, match=r"conversion webhook .* failed"):
            await client.request("GET", path, retries=0)
