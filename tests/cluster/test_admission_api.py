from __future__ import annotations

import asyncio
import json

import pytest

from helpers.cluster import PATIENCE, pod_spec, required_terms, workload
from helpers.objects import policy, required
from helpers.oracles import as_sets

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

RULES = {
    "nodeSelector": {"example.com/disk": "ssd"},
    "affinity": required({"example.com/pool": "ledger"}),
}
REVISION = "deployment.kubernetes.io/revision"
JSON = "application/json"
APPLY = "application/apply-patch+yaml"
STRIPPED = {"spec": {"template": {"spec": {"nodeSelector": None, "affinity": None}}}}
STRIP = [
    {"op": "remove", "path": "/spec/template/spec/nodeSelector"},
    {"op": "remove", "path": "/spec/template/spec/affinity"},
]


@pytest.fixture
def deployments(server, served_namespace):
    """The path of Deployments in a namespace with RULES."""
    server.add_policies(policy("rules", served_namespace, **RULES))
    return f"/apis/apps/v1/namespaces/{served_namespace}/deployments"


@pytest.fixture
def manifest(served_namespace):
    return workload("Deployment", served_namespace)


def is_ruled(stored):
    spec = pod_spec(stored)
    return (
        spec.get("nodeSelector") == RULES["nodeSelector"]
        and len(required_terms(spec)) == 1
        and as_sets(spec["affinity"]) == as_sets(RULES["affinity"])
    )


async def send(api, method, path, content=None, content_type=JSON, **query):
    """Return the body of an answer that is no error."""
    headers = {"Content-Type": content_type}
    data = None if content is None else json.dumps(content)
    async with api.request(method, path, data=data, headers=headers, params=query) as answer:
        obj = await answer.json()
        assert answer.status < 300, obj
        return obj


async def until_annotated(api, path, key):
    """Return the object when a controller has given it the annotation."""
    async with asyncio.timeout(PATIENCE):
        while True:
            obj = await send(api, "GET", path)
            if key in obj["metadata"].get("annotations", {}):
                return obj
            await asyncio.sleep(0.05)


async def test_create_answers_with_what_is_stored(api, deployments, manifest):
    answer = await send(api, "POST", deployments, manifest)
    stored = await send(api, "GET", f"{deployments}/ledger")
    assert is_ruled(answer)
    assert stored["spec"] == answer["spec"]


async def test_a_replacement_without_the_rules_changes_nothing(api, deployments, manifest):
    await send(api, "POST", deployments, manifest)
    # A replacement without this annotation of the Deployment's controller is a new generation.
    stored = await until_annotated(api, f"{deployments}/ledger", REVISION)
    replaced = json.loads(json.dumps(stored))
    # A controller may have written the status meanwhile.
    del replaced["metadata"]["resourceVersion"]
    for field in ("nodeSelector", "affinity"):
        del pod_spec(replaced)[field]
    await send(api, "PUT", f"{deployments}/ledger", replaced)
    again = await send(api, "GET", f"{deployments}/ledger")
    assert again["spec"] == stored["spec"]
    assert again["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        ("application/merge-patch+json", STRIPPED),
        ("application/strategic-merge-patch+json", STRIPPED),
        ("application/json-patch+json", STRIP),
    ],
)
async def test_a_patch_that_takes_the_rules_away_changes_nothing(
    api, deployments, manifest, content_type, patch
):
    stored = await send(api, "POST", deployments, manifest)
    await send(api, "PATCH", f"{deployments}/ledger", patch, content_type)
    again = await send(api, "GET", f"{deployments}/ledger")
    assert again["spec"] == stored["spec"]
    assert again["metadata"]["generation"] == 1


async def test_server_side_apply_twice_is_one_generation(api, deployments, manifest):
    for _ in range(2):
        await send(api, "PATCH", f"{deployments}/ledger", manifest, APPLY, fieldManager="tests")
    stored = await send(api, "GET", f"{deployments}/ledger")
    assert is_ruled(stored)
    assert stored["metadata"]["generation"] == 1


async def test_another_manager_applies_its_own_field_without_conflict(
    api, deployments, manifest, served_namespace
):
    await send(api, "PATCH", f"{deployments}/ledger", manifest, APPLY, fieldManager="tests")
    scale = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "ledger", "namespace": served_namespace},
        "spec": {"minReadySeconds": 7},
    }
    await send(api, "PATCH", f"{deployments}/ledger", scale, APPLY, fieldManager="others")
    stored = await send(api, "GET", f"{deployments}/ledger")
    assert stored["spec"]["minReadySeconds"] == 7
    assert is_ruled(stored)


async def test_a_dry_run_is_changed_and_not_stored(api, deployments, manifest):
    answer = await send(api, "POST", deployments, manifest, dryRun="All")
    assert is_ruled(answer)
    assert (await send(api, "GET", deployments))["items"] == []
