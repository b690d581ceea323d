"""Registrations of every kind on a real API server, and what its reviews become."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from datetime import UTC, datetime

import aiohttp
import msgspec
import pytest
from aiohttp import web

from harbourmaster.certs.authority import create_authority
from harbourmaster.certs.directory import write_files
from harbourmaster.cli.main import main
from helpers.admission import CANARY
from helpers.certificates import own_files
from helpers.cluster import (
    create,
    eventually,
    fresh_namespace,
    keep_registered,
    pod_spec,
    read,
    required_terms,
    selecting,
    tried_pod,
    webhook_configuration,
    workload,
    workloads,
)
from helpers.objects import RESOURCES, cluster_policy, policy, required
from helpers.oracles import as_sets
from helpers.patience import WAIT
from helpers.server import Server
from helpers.stand_in import allow, stand_in

pytestmark = pytest.mark.gate


RULES = {"nodeSelector": {"example.com/disk": "ssd"}}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
SIDECAR = {"name": "sidecar", "image": "registry.example.com/sidecar:1"}
MARK = "example.com/sidecar"


def configuration(namespace, url, bundle, *, kind="Mutating", **fields):
    """A registration for one namespace, after the shared one in the API server's order."""
    return webhook_configuration(
        kind,
        url,
        bundle,
        name=f"then-{kind.lower()}-{namespace}",
        namespaceSelector=selecting(namespace),
        **fields,
    )


def await_rules(kubectl, namespace):
    eventually(lambda: tried_pod(kubectl, namespace).get("nodeSelector"))


async def add_sidecar(request):
    """Add a container and a label to a pod that has them not."""
    review = await request.json()
    containers = review["request"]["object"]["spec"]["containers"]
    if any(container["name"] == "sidecar" for container in containers):
        return allow(review)
    return allow(
        review,
        {"op": "add", "path": "/spec/containers/-", "value": SIDECAR},
        {"op": "add", "path": "/metadata/labels/example.com~1sidecar", "value": "yes"},
    )


def test_a_later_webhook_calls_us_again_and_nothing_doubles(kubectl, server, served_namespace):
    toleration = {"key": "example.com/pool", "operator": "Exists"}
    server.add_policies(
        policy(
            "first",
            served_namespace,
            affinity=required({"example.com/pool": "a"}, {"example.com/pool": "b"}),
            tolerations=[toleration],
        ),
        policy("of-sidecars", served_namespace, pods={MARK: "yes"}, **RULES),
    )
    own = required({"example.com/zone": "1"}, {"example.com/zone": "2"})
    pod = workload("Pod", served_namespace, affinity=own)
    rules = [{**PODS, "operations": ["CREATE"]}]
    with stand_in(add_sidecar) as (url, bundle):
        later = configuration(served_namespace, url, bundle, rules=rules)
        with keep_registered(kubectl, later):
            eventually(lambda: len(tried_pod(kubectl, served_namespace)["containers"]) == 2)
            create(kubectl, pod)
    spec = read(kubectl, json.dumps(pod))["Pod"]["spec"]
    assert [container["name"] for container in spec["containers"]] == ["ledger", "sidecar"]
    # Only the later webhook's label makes this policy match.
    assert spec["nodeSelector"] == RULES["nodeSelector"]
    assert spec["tolerations"].count(toleration) == 1
    assert len(required_terms(spec)) == 4
    assert as_sets(spec["affinity"]) == as_sets(
        required(
            *(
                {"example.com/zone": zone, "example.com/pool": pool}
                for zone in ("1", "2")
                for pool in ("a", "b")
            )
        )
    )


def test_reviews_of_the_old_version_are_answered(kubectl, server, namespace):
    server.add_policies(policy("rules", namespace, **RULES))
    manifest = workloads(namespace)
    old = {"admissionReviewVersions": ["v1beta1"]}
    with keep_registered(kubectl, configuration(namespace, server.url, server.bundle, **old)):
        await_rules(kubectl, namespace)
        create(kubectl, *json.loads(manifest)["items"])
    stored = read(kubectl, manifest)
    assert {kind: pod_spec(obj)["nodeSelector"] for kind, obj in stored.items()} == dict.fromkeys(
        RESOURCES, RULES["nodeSelector"]
    )


def test_a_denial_of_the_old_version_names_the_field(kubectl, server, namespace):
    manifest = json.dumps(policy("tested", namespace, nodeName="No Name"))

    def try_object():
        return kubectl("create", "--dry-run=server", "-f=-", stdin=manifest, check=False).stderr

    old = configuration(
        namespace,
        server.url,
        server.bundle,
        kind="Validating",
        admissionReviewVersions=["v1beta1"],
    )
    with keep_registered(kubectl, old):
        assert "spec.nodeName: " in eventually(try_object)


@pytest.fixture(scope="module")
def deletion(control_plane, server):
    """kubectl's output for the deletion of each kind if we are called for it, and the rest."""
    kubectl = control_plane.kubectl
    namespace = fresh_namespace(kubectl, "deletion")
    server.add_policies(policy("rules", namespace, **RULES))
    manifest = workloads(namespace)
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "resources": [resource],
            "operations": ["*"],
        }
        for group, version, resource in RESOURCES.values()
    ]
    with keep_registered(kubectl, configuration(namespace, server.url, server.bundle, rules=rules)):
        await_rules(kubectl, namespace)
        create(kubectl, *json.loads(manifest)["items"])
        said = kubectl("delete", WAIT, "-f=-", stdin=manifest).stderr
    return said, read(kubectl, manifest)


def test_deletions_that_are_asked_about_are_not_blocked(deletion):
    assert deletion[1] == {}


def test_deletions_that_are_asked_about_give_no_warning(deletion):
    assert deletion[0] == ""


@pytest.fixture(scope="module")
def orphans(control_plane, tmp_path_factory):
    """Namespaces by the failure policy of their registrations, whose server is gone."""
    kubectl = control_plane.kubectl
    spaces = {
        policy_name: fresh_namespace(kubectl, f"abandoned-{policy_name}")
        for policy_name in ("Fail", "Ignore")
    }
    policies = [policy("rules", space, **RULES) for space in spaces.values()]
    with Server(tmp_path_factory.mktemp("abandoned"), policies=policies) as own:
        configurations = [
            configuration(namespace, own.url, own.bundle, failurePolicy=failure_policy)
            for failure_policy, namespace in spaces.items()
        ]
        with keep_registered(kubectl, *configurations):
            for namespace in spaces.values():
                await_rules(kubectl, namespace)
            own.kill()
            yield spaces


def test_without_the_server_fail_refuses_a_pod(kubectl, orphans):
    manifest = json.dumps(workload("Pod", orphans["Fail"]))
    created = kubectl("create", "-f=-", stdin=manifest, check=False)
    assert created.returncode == 1
    assert 'failed calling webhook "mutate.harbourmaster.example.com"' in created.stderr
    assert read(kubectl, manifest) == {}


def test_without_the_server_ignore_stores_a_pod_as_it_is(kubectl, orphans):
    (stored,) = create(kubectl, workload("Pod", orphans["Ignore"]))
    assert "nodeSelector" not in stored["spec"]


@pytest.mark.parametrize(
    ("status", "headers", "times"),
    [(429, {"Retry-After": "1"}, 2), (503, {"Retry-After": "1"}, 2), (429, {}, 1)],
)
def test_the_api_server_asks_again_where_it_is_told_when(
    kubectl, server, namespace, status, headers, times
):
    server.add_policies(policy("rules", namespace, **RULES))
    asked = []
    context = ssl.create_default_context(cadata=server.bundle.decode())

    async def busy_at_first(request):
        body = await request.read()
        if json.loads(body)["request"]["name"] == "ledger":
            asked.append(asyncio.get_running_loop().time())
            if len(asked) == 1:
                return web.Response(status=status, headers=headers)
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"{server.url}/mutate",
                data=body,
                headers={"Content-Type": "application/json"},
                ssl=context,
            ) as answer,
        ):
            return web.Response(body=await answer.read(), content_type="application/json")

    with stand_in(busy_at_first) as (url, bundle):
        busy = configuration(namespace, url, bundle, failurePolicy="Ignore")
        with keep_registered(kubectl, busy):
            await_rules(kubectl, namespace)
            (pod,) = create(kubectl, workload("Pod", namespace))
    stored = pod["spec"].get("nodeSelector")
    assert len(asked) == times
    assert stored == (RULES["nodeSelector"] if times == 2 else None)


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
    policies = [cluster_policy(nodeSelector={"limited": "yes"})]
    with Server(tmp_path, policies=policies) as server:
        pod = json.dumps(workload("Pod", namespace))
        with keep_registered(kubectl, configuration(namespace, server.url, server.bundle)):

            def try_object():
                done = kubectl(
                    "create", "--dry-run=server", "-o=json", "-f=-", stdin=pod, check=False
                )
                return done.stdout + done.stderr

            assert eventually(try_object, is_right=lambda text: re.search(says, text))


VARIABLES = [{"name": "TOKEN", "value": CANARY}]


def with_secrets(text):
    listed = json.loads(text)
    for item in listed["items"]:
        pod_spec(item)["containers"][0]["env"] = VARIABLES
    return json.dumps(listed)


def lines_in(folder):
    return [line for file in folder.glob("*.jsonl") for line in file.read_bytes().splitlines()]


@pytest.mark.full
def test_what_a_real_api_server_asked_is_answered_again(kubectl, namespace, tmp_path, capsysbinary):
    folder = tmp_path / "records"
    options = (f"--record={folder}", "--record-sample=1")
    policies = [cluster_policy(**RULES)]
    with Server(tmp_path / "server", *options, policies=policies) as own:
        manifest = with_secrets(workloads(namespace))
        with keep_registered(kubectl, configuration(namespace, own.url, own.bundle)):
            made = eventually(
                lambda: create(kubectl, *json.loads(manifest)["items"], is_tried=True),
                is_right=lambda value: all("nodeSelector" in pod_spec(obj) for obj in value),
            )
            # Applied, it carries what was applied, secrets and all, in an annotation.
            kubectl("apply", "-f=-", stdin=manifest)
            lines = eventually(
                lambda: lines_in(folder),
                is_right=lambda value: (
                    {
                        json.loads(line)["review"]["request"]["kind"]["kind"]
                        for line in value
                        if b"last-applied-configuration" in line
                    }
                    >= RESOURCES.keys()
                ),
            )
    assert [obj["kind"] for obj in made] == list(RESOURCES)
    assert not [line for line in lines if CANARY.encode() in line]
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(b"\n".join(lines))
    assert main(["replay", "--check", str(copy)]) == 0
    assert capsysbinary.readouterr().out == b""
    assert [line for line in lines if b'"patch"' in line]
