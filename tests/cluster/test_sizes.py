"""Limits on sizes and counts, tried by a tenant with the role edit on the real API server."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from helpers.cluster import eventually
from helpers.flow.manifests import of_kind, task_definition
from helpers.objects import policy
from helpers.oracles import NODE_REQUIRED

pytestmark = pytest.mark.gate

PAGE = Path(__file__).parents[2] / "docs/operations/limits.md"
TENANT = "size-tenant"


@pytest.fixture
def tenant(flow, harbour):
    """A function that runs kubectl as a user who may edit this namespace alone."""
    where = f"--namespace={flow.namespace}"
    kubectl = harbour.plane.kubectl
    kubectl("create", "rolebinding", "tenant", "--clusterrole=edit", f"--user={TENANT}", where)

    def run(*arguments, stdin=None):
        result = kubectl(*arguments, where, f"--as={TENANT}", stdin=stdin, check=False)
        return result.stderr if result.returncode else ""

    return run


def create(tenant, obj):
    return tenant("create", "-f=-", stdin=json.dumps(obj))


def of_terms(flow, name, count):
    affinity = {"nodeAffinity": {NODE_REQUIRED: {"nodeSelectorTerms": [{}] * count}}}
    return policy(name, flow.namespace, affinity=affinity)


def app(count):
    workloads = [{"name": f"w{number}", "version": "1"} for number in range(count)]
    return of_kind("KeptnApp", "wide", {"version": "1", "workloads": workloads})


@pytest.mark.claim("O10")
async def test_a_tenant_cannot_store_what_fills_the_memory(flow, tenant):
    code = {"inline": {"code": "x" * 1_000_000}}
    attacks = {
        "spec: Too long": task_definition("huge", deno=code),
        "nodeSelectorTerms: Too many: 20000: must have at most 256 items": of_terms(
            flow, "empty", 20_000
        ),
        "spec.workloads: Too many: 1500: must have at most 512 items": app(1500),
    }
    for text, obj in attacks.items():
        assert text in create(tenant, obj)
    assert create(tenant, of_terms(flow, "few", 256)) == ""
    larger = json.dumps(of_terms(flow, "few", 257))
    assert "Too many: 257" in tenant("replace", "-f=-", stdin=larger)
    assert tenant("label", "podschedulingpolicy/few", "team=a") == ""


@pytest.mark.claim("O12")
async def test_the_documented_quota_holds_the_counts(flow, harbour, tenant):
    quota = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
    kubectl, where = harbour.plane.kubectl, f"--namespace={flow.namespace}"
    kubectl("create", "-f=-", where, stdin=json.dumps(quota))

    def used_quota():
        result = json.loads(kubectl("get", "resourcequota", where, "-o=json").stdout)
        return result["items"][0].get("status", {}).get("used", {})

    # Each name in it is that of a kind: others would not be counted.
    eventually(lambda: used_quota().keys() == quota["spec"]["hard"].keys())
    most = int(quota["spec"]["hard"]["count/podschedulingpolicies.kupid.gardener.cloud"])
    many = {"apiVersion": "v1", "kind": "List"}
    many["items"] = [of_terms(flow, f"p-{number}", 1) for number in range(most)]
    assert create(tenant, many) == ""
    refused = create(tenant, of_terms(flow, "more", 1))
    assert "exceeded quota: harbourmaster-objects" in refused
    assert f"limited: count/podschedulingpolicies.kupid.gardener.cloud={most}" in refused
