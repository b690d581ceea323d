"""``harbourmaster preview --cluster``: what is read, and what rights do not allow."""

from __future__ import annotations

import json

import pytest
import yaml

from harbourmaster.api.resources import CLUSTER_POLICIES, DEPLOYMENTS, NODES, PODS, POLICIES
from harbourmaster.cli.preview.inputs import FIRST, THEN
from helpers.objects import cluster_policy
from helpers.preview_cluster import CLUSTER, NOWHERE, SSD, names


@pytest.fixture
def api(api):
    for resource in (*FIRST, *THEN):
        api.define(resource)
    return api


@pytest.fixture
def live(command, tmp_path):
    """Return a function that previews policies on the fake API server."""

    async def start(policies, *arguments):
        file = tmp_path / "policies.yaml"
        file.write_text(yaml.safe_dump_all(policies))
        return await command("preview", "-f", str(file), "--cluster", "-o", "json", *arguments)

    return start


def put(api, items):
    resources = {resource.kind: resource for resource in (*FIRST, *THEN)}
    uids = {}
    for item in items:
        meta = dict(item["metadata"])
        owners = meta.get("ownerReferences", ())
        meta["ownerReferences"] = [{**owner, "uid": uids[owner["uid"]]} for owner in owners]
        stored = api.put(resources[item["kind"]], {**item, "metadata": meta})
        uids[meta.get("uid")] = stored["metadata"]["uid"]


async def test_a_live_cluster_is_read_and_nothing_is_written(api, live):
    put(api, [*CLUSTER, SSD])
    code, out, err = await live([NOWHERE])
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert names(result) == ["Deployment shop/web"]
    assert result["totals"]["unschedulable"] == 2
    assert result["policies"]["changed"] == ["ClusterPodSchedulingPolicy ssd"]
    assert {request.method for request in api.requests} == {"GET"}


async def test_a_cluster_without_our_kinds_has_no_policies(api, live):
    put(api, CLUSTER)
    for resource in (CLUSTER_POLICIES, POLICIES):
        api.undefine(resource)
    code, out, _ = await live([SSD])
    assert code == 0
    result = json.loads(out)
    assert "the cluster has no podschedulingpolicies" in result["notes"]
    assert names(result) == ["Deployment shop/web"]


@pytest.mark.parametrize("demand", ["changed", "unschedulable"])
async def test_missing_permissions_fail_on_demand(api, live, demand):
    put(api, CLUSTER)
    foreign = cluster_policy("ssd", pods={"app": "nobody"}, nodeSelector={"disk": "ssd"})
    assert (await live([foreign], "--fail-on", demand))[0] == 0
    api.forbid("GET", DEPLOYMENTS)
    code, out, err = await live([foreign], "--fail-on", demand)
    assert code == 1
    assert err == f"harbourmaster: deployments could not be read (--fail-on {demand})\n"
    assert any(
        note.startswith("deployments could not be read: ") for note in json.loads(out)["notes"]
    )


async def test_missing_permissions_are_not_a_failure_without_demand(api, live):
    put(api, CLUSTER)
    api.forbid("GET", PODS)
    code, out, _ = await live([NOWHERE])
    assert code == 0
    assert "no pods found: every node counts as empty" in json.loads(out)["notes"]


async def test_missing_permission_on_nodes_does_not_fail_changed(api, live):
    put(api, CLUSTER)
    foreign = cluster_policy("ssd", pods={"app": "nobody"}, nodeSelector={"disk": "ssd"})
    api.forbid("GET", NODES)
    assert (await live([foreign], "--fail-on", "changed"))[0] == 0
