"""A hardened installation on a real control plane: it works, and reads no Secret unasked."""

from __future__ import annotations

import base64

import pytest

from harbourmaster.api.resources import JOBS, KEPTN_METRICS
from harbourmaster.cli.doctor.checks.environment import GUARDS
from helpers.command import harbourmaster
from helpers.flow.manifests import container_task, deployment, keptn, of_kind
from helpers.rights import kubeconfig
from helpers.scripted_prometheus import ScriptedPrometheus, vector

pytestmark = pytest.mark.gate

CONTROLLER = "ServiceAccount harbourmaster-system/harbourmaster-controller"
ROLE = "harbourmaster-secrets"


@pytest.fixture(scope="module")
def harbour(guarded):
    """The installation of ``flow``."""
    return guarded


async def test_a_gated_flow_runs_with_every_guard_in_force(flow, harbour):
    result = harbour.plane.kubectl("get", "validatingadmissionpolicybindings", "-o=name").stdout
    bound = {line.partition("/")[2] for line in result.splitlines()}
    assert {name for guard in GUARDS for name in guard.policies} <= bound
    await flow.create(
        container_task("check"), deployment("cart", keptn("cart", pre_deployment_tasks="check"))
    )
    await flow.until_released("cart")
    # Its result is recorded, so it gets its time to live.
    await flow.until_all(JOBS, {"spec": {"ttlSecondsAfterFinished": 300}})


def secret(name):
    data = {key: base64.b64encode(b"x").decode() for key in ("user", "password")}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def provider(name, url):
    reference = {"name": name, "key": "user"}
    spec = {"type": "prometheus", "targetServer": url, "secretKeyRef": reference}
    return of_kind("KeptnMetricsProvider", name, spec)


def metric(name):
    spec = {"provider": {"name": name}, "query": "cpus", "fetchIntervalSeconds": 3600}
    return of_kind("KeptnMetric", name, spec)


@pytest.fixture
def users(flow, harbour, tmp_path):
    """Kubeconfigs of an administrator of the namespace, and of a user that reads no Secrets."""
    kubectl, where = harbour.plane.kubectl, f"--namespace={flow.namespace}"
    files = {}
    for role in ("admin", "view"):
        kubectl("create", "serviceaccount", role, where)
        account = f"--serviceaccount={flow.namespace}:{role}"
        kubectl("create", "rolebinding", role, f"--clusterrole={role}", account, where)
        token = kubectl("create", "token", role, where).stdout.strip()
        files[role] = tmp_path / role
        files[role].write_text(kubeconfig(harbour.plane.kubeconfig, token=token))
    return files


@pytest.mark.claim("R12")
async def test_secrets_are_read_only_where_a_user_that_can_read_them_allows_it(
    flow, harbour, users
):
    async with ScriptedPrometheus() as server:
        server.say["cpus"] = vector("0.25")
        await flow.create(secret("before"), provider("before", server.url), metric("before"))
        command = f"harbourmaster grant secrets -n {flow.namespace}"
        text = f"missing permission to read Secret {flow.namespace}/before: run {command}"

        def has_command(status):
            return text in (status or {}).get("errMsg", "")

        await flow.until_like(KEPTN_METRICS, "before", {"status": has_command})

        def grant(user, *more):
            words = ("grant", "secrets", "-n", flow.namespace, *more)
            return harbourmaster(*words, kubeconfig=users[user])

        refused = grant("view")
        assert refused.returncode == 1
        assert "missing permission" in refused.stderr
        tried = grant("admin", "--dry-run")
        assert (tried.returncode, tried.stderr) == (0, "")
        assert not roles(harbour, flow)
        done = grant("admin")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            f"Role {flow.namespace}/{ROLE}: applied",
            f"RoleBinding {flow.namespace}/{ROLE}: applied",
            f"{CONTROLLER} can read in namespace {flow.namespace}: all Secrets",
        ]
        await flow.create(secret("after"), provider("after", server.url), metric("after"))
        await flow.until_like(KEPTN_METRICS, "after", {"status": {"value": "0.25"}})
    assert may_read(harbour, flow.namespace)
    assert not may_read(harbour, "default")
    revoked = grant("admin", "--revoke")
    assert revoked.returncode == 0
    assert not roles(harbour, flow)
    assert not may_read(harbour, flow.namespace)


def roles(hardened, flow):
    result = hardened.plane.kubectl(
        "get", "roles,rolebindings", "-o=name", f"--namespace={flow.namespace}"
    )
    return [line for line in result.stdout.splitlines() if line.endswith(f"/{ROLE}")]


def may_read(hardened, namespace):
    account = "system:serviceaccount:harbourmaster-system:harbourmaster-controller"
    question = ("auth", "can-i", "get", "secrets", f"--as={account}", f"--namespace={namespace}")
    return hardened.plane.kubectl(*question, check=False).stdout.strip() == "yes"
