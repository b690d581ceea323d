"""The client against the real API server: streams, identities and refusals.

The verbs are in the script of ``test_api_script``."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import aclosing

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from msgspec.json import decode

from harbourmaster.api.patches import ApplyPatch, MergePatch
from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    CONFIG_MAPS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    Resource,
)
from harbourmaster.controller.rescheduling.eviction_client import EvictionClient
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.rescheduling.plans import Victim
from helpers import rights
from helpers.cluster import bare_pod

pytestmark = pytest.mark.gate

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
# As the kubelet asks for one.
TOKEN_SECONDS = 3600


@pytest.fixture
async def token(admin, namespace):
    """A token of a ServiceAccount without any rights."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app"}}
    await admin.create(SERVICE_ACCOUNTS, account, namespace)
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    path = SERVICE_ACCOUNTS.path(namespace, "app", "token")
    body = json.dumps(request).encode()
    answer = await admin.request("POST", path, body=body, content_type="application/json")
    return decode(answer)["status"]["token"]


@pytest.fixture
def login(control_plane, tmp_path):
    """Write a kubeconfig for a user: ``login(token=...)``."""

    def write(**user):
        path = tmp_path / "kubeconfig"
        path.write_text(rights.kubeconfig(control_plane.kubeconfig, **user))
        return str(path)

    return write


def expire_token(token, key):
    """An expired copy of the token, signed by the API server's key."""
    header, payload, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    past = int(time.time()) - 2 * TOKEN_SECONDS
    claims |= {"iat": past, "nbf": past, "exp": past + TOKEN_SECONDS}
    signed = f"{header}.{base64url(json.dumps(claims).encode())}"
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    r, s = utils.decode_dss_signature(private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def base64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def config_map(name, **data):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"example.com/kept": "yes"}},
        "data": data,
    }


async def asked_as(kubeconfig, namespace):
    """Ask for something as a user without rights; the error."""
    async with Client(connect(kubeconfig)) as client:
        with pytest.raises(ApiError) as caught:
            await client.list(CONFIG_MAPS, namespace)
    return caught.value


async def test_a_dry_run_changes_nothing(admin, namespace):
    await admin.create(CONFIG_MAPS, config_map("a"), namespace, dry_run=True)
    with pytest.raises(NotFoundError):
        await admin.get(CONFIG_MAPS, "a", namespace)


async def test_a_status_is_patched_by_its_subresource_only(admin, namespace):
    condition = {"type": "Tried", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z"}
    patch = MergePatch({"status": {"conditions": [condition]}})
    obj = decode(await admin.patch(NAMESPACES, namespace, patch))
    assert obj["status"] == {"phase": "Active"}
    obj = decode(await admin.patch(NAMESPACES, namespace, patch, subresource="status"))
    assert obj["status"]["conditions"][0]["type"] == "Tried"


async def test_a_victim_that_is_marked_keeps_its_other_conditions(admin, namespace):
    pod = bare_pod("v", schedulingGates=[{"name": "example.com/held"}])
    uid = decode(await admin.create(PODS, pod, namespace))["metadata"]["uid"]
    mine = MergePatch({"status": {"conditions": [{"type": "example.com/mine", "status": "True"}]}})
    await admin.patch(PODS, "v", mine, namespace, subresource="status")
    victim = Victim(uid=uid, namespace=namespace, name="v", node="")
    assert await EvictionClient(admin).mark(victim, "why") is None
    conditions = decode(await admin.get(PODS, "v", namespace))["status"]["conditions"]
    assert {"example.com/mine", "DisruptionTarget"} <= {
        condition["type"] for condition in conditions
    }


async def test_an_apply_patch_creates_and_keeps_to_its_own_fields(admin, namespace):
    ours = ApplyPatch(config_map("a", x="1"), "harbourmaster")
    await admin.patch(CONFIG_MAPS, "a", ours, namespace)
    theirs = {**config_map("a", x="2"), "metadata": {"name": "a"}}
    with pytest.raises(ConflictError, match='conflict with "harbourmaster"'):
        await admin.patch(CONFIG_MAPS, "a", ApplyPatch(theirs, "other"), namespace)
    await admin.patch(CONFIG_MAPS, "a", ApplyPatch(theirs, "other", force=True), namespace)
    stored = decode(await admin.get(CONFIG_MAPS, "a", namespace))
    assert stored["data"] == {"x": "2"}
    assert {field["manager"] for field in stored["metadata"]["managedFields"]} == {
        "harbourmaster",
        "other",
    }


async def test_an_invalid_object_says_which_field(admin):
    wrong = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "UPPER"}}
    with pytest.raises(InvalidError, match=r"metadata\.name: Invalid value"):
        await admin.create(NAMESPACES, wrong)


async def test_a_list_in_pages(admin, namespace):
    names = [f"n{number}" for number in range(7)]
    for name in names:
        await admin.create(CONFIG_MAPS, config_map(name), namespace)
    listed, versions, continued = [], set(), ""
    options = {"limit": 3, "label_selector": "example.com/kept=yes"}
    while True:
        page = await admin.list(CONFIG_MAPS, namespace, continue_token=continued, **options)
        listed += [decode(item)["metadata"]["name"] for item in page.items]
        versions.add(page.resource_version)
        continued = page.continue_token
        if not continued:
            break
        await admin.delete(CONFIG_MAPS, names[-1], namespace, missing_ok=True)
    assert (listed, len(versions)) == (names, 1)
    page = await admin.list(CONFIG_MAPS, namespace, field_selector="metadata.name=n2")
    assert len(page.items) == 1


async def test_metadata_alone(admin, namespace):
    await admin.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    page = await admin.list(
        CONFIG_MAPS, namespace, metadata_only=True, field_selector="metadata.name=a"
    )
    (obj,) = (decode(item) for item in page.items)
    assert (obj["metadata"]["name"], "data" in obj) == ("a", False)
    watched = admin.watch(
        CONFIG_MAPS,
        namespace,
        resource_version="0",
        timeout_seconds=10,
        idle_timeout=10,
        metadata_only=True,
    )
    async with aclosing(watched):
        event = decode((await anext(watched)).object)
    assert (event["kind"], "data" in event) == ("PartialObjectMetadata", False)


async def test_a_watch_tells_every_change_then_a_bookmark_and_ends(admin, namespace):
    page = await admin.list(CONFIG_MAPS, namespace)
    watched = admin.watch(
        CONFIG_MAPS,
        namespace,
        resource_version=page.resource_version,
        timeout_seconds=4,
        idle_timeout=10,
        label_selector="example.com/kept",
    )
    events = asyncio.create_task(collect_events(watched))
    await admin.create(CONFIG_MAPS, config_map("a"), namespace)
    await admin.patch(CONFIG_MAPS, "a", MergePatch({"data": {"x": "é" * 1000}}), namespace)
    await admin.delete(CONFIG_MAPS, "a", namespace)
    last = decode(await admin.create(CONFIG_MAPS, config_map("b"), namespace))
    seen = await events
    assert [event.type for event in seen if event.type != "BOOKMARK"] == [
        "ADDED", "MODIFIED", "DELETED", "ADDED"
    ]  # fmt: skip
    # The last word before the end, so that the next watch misses nothing and repeats nothing.
    assert seen[-1].type == "BOOKMARK"
    bookmark = decode(seen[-1].object)["metadata"]["resourceVersion"]
    assert int(bookmark) >= int(last["metadata"]["resourceVersion"])


async def collect_events(watched):
    return [event async for event in watched]


async def test_the_initial_objects_as_events(admin, namespace):
    await admin.create(CONFIG_MAPS, config_map("a"), namespace)
    watched = admin.watch(
        CONFIG_MAPS,
        namespace,
        resource_version="",
        timeout_seconds=10,
        idle_timeout=10,
        send_initial_events=True,
    )
    names = []
    async with aclosing(watched):
        async for event in watched:
            if event.type == "BOOKMARK":
                break
            names.append(decode(event.object)["metadata"]["name"])
    annotations = decode(event.object)["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}
    assert "a" in names


async def test_a_kind_that_is_not_defined_is_not_found(admin):
    with pytest.raises(NotFoundError, match=r"/v1/widgets: 404: 404 page not found$"):
        await admin.list(WIDGETS)


async def test_a_refusal_names_verb_resource_and_account(login, token, namespace):
    async with Client(connect(login(token=token))) as client:
        with pytest.raises(ForbiddenError) as caught:
            await client.list(CLUSTER_POLICIES)
    account = f"system:serviceaccount:{namespace}:app"
    assert str(caught.value) == (
        "list /apis/kupid.gardener.cloud/v1alpha1/clusterpodschedulingpolicies: 403 Forbidden: "
        f'clusterpodschedulingpolicies.kupid.gardener.cloud is forbidden: User "{account}" cannot '
        'list resource "clusterpodschedulingpolicies" in API group "kupid.gardener.cloud" at the '
        "cluster scope"
    )


async def test_a_pod_knows_itself(control_plane, token, namespace, monkeypatch, tmp_path):
    (tmp_path / "token").write_text(token)
    (tmp_path / "ca.crt").write_bytes((control_plane.layout.pki / "ca.crt").read_bytes())
    host, port = control_plane.server.removeprefix("https://").split(":")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    connection = connect(service_account_dir=tmp_path)
    assert connection.user == f"system:serviceaccount:{namespace}:app"
    async with Client(connection) as client:
        await client.request("GET", "/version")
        with pytest.raises(ForbiddenError, match=connection.user):
            await client.list(CONFIG_MAPS)


async def test_a_token_file_that_expired_is_read_again(
    control_plane, login, token, namespace, tmp_path
):
    old = expire_token(token, control_plane.layout.pki / "service-account.key")
    file = tmp_path / "token"
    file.write_text(old)
    kubeconfig = login(tokenFile=str(file))
    assert isinstance(await asked_as(kubeconfig, namespace), UnauthorizedError)
    async with Client(connect(kubeconfig)) as client:
        file.write_text(token)
        with pytest.raises(ForbiddenError, match=f"system:serviceaccount:{namespace}:app"):
            await client.list(CONFIG_MAPS)


async def test_the_expired_token_is_but_for_its_time_a_good_one(
    control_plane, login, token, namespace, monkeypatch
):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 2 * TOKEN_SECONDS)
    remade = expire_token(token, control_plane.layout.pki / "service-account.key")
    assert isinstance(await asked_as(login(token=remade), namespace), ForbiddenError)


async def test_an_exec_plugin_logs_in(login, token, namespace, tmp_path):
    version = "client.authentication.k8s.io/v1"
    script = tmp_path / "plugin"
    (tmp_path / "token").write_text(token)
    script.write_text(
        "#!/bin/sh\necho run >> runs\n"
        f'echo "{{\\"apiVersion\\": \\"{version}\\", \\"kind\\": \\"ExecCredential\\",'
        f' \\"status\\": {{\\"token\\": \\"$(cat {tmp_path}/token)\\"}}}}"\n'.replace(
            "runs", f"{tmp_path}/runs"
        )
    )
    script.chmod(0o755)
    kubeconfig = login(exec={"apiVersion": version, "command": "./plugin"})
    error = await asked_as(kubeconfig, namespace)
    assert isinstance(error, ForbiddenError)
    assert f"system:serviceaccount:{namespace}:app" in str(error)
    (tmp_path / "token").write_text("nobody")
    assert isinstance(await asked_as(kubeconfig, namespace), UnauthorizedError)
    # Once for the first question; twice for the second, as the first token was refused.
    assert runs(tmp_path) == 3


def runs(directory):
    return (directory / "runs").read_text().count("run")


async def test_a_kubeconfig_that_points_nowhere_is_one_line(control_plane, tmp_path):
    path = tmp_path / "kubeconfig"
    text = control_plane.kubeconfig.read_text()
    path.write_text(text.replace(control_plane.server, "https://127.0.0.1:1"))
    async with Client(connect(str(path))) as client:
        with pytest.raises(UnreachableError) as caught:
            await client.list(NAMESPACES)
    assert str(caught.value) == (
        "list /api/v1/namespaces: cannot connect to https://127.0.0.1:1 "
        f"(kubeconfig {path}, context playground): Connection refused"
    )


async def test_a_stranger_is_not_let_in(login, namespace):
    error = await asked_as(login(token="nobody"), namespace)  # noqa: S106
    assert str(error) == (
        f"list /api/v1/namespaces/{namespace}/configmaps: 401 Unauthorized: Unauthorized"
    )
