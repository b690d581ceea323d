"""Nobody but the controller writes what its checks consist of, on the real API server: D18."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
import yaml

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPLICATIONS,
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    JOBS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.gates.owners import SUPPORTED
from harbourmaster.lifecycle.applications import DEPLOYED_KEY
from harbourmaster.lifecycle.conversion import UNCONVERTED
from helpers.cluster import STRICTLY, create, path_of, role_binding, role_of, why_refused
from helpers.flow.manifests import (
    IMAGE,
    OUTCOME,
    container_task,
    deployment,
    keptn,
    of_kind,
    task_definition,
)
from helpers.manifests import DEPLOY, ROOT
from helpers.patience import PATIENCE

pytestmark = pytest.mark.gate

LEDGER = "ledger-ledger"
VERSION = f"{LEDGER}-1.0"
KINDS = ("keptnappversions", "keptnworkloads", "keptnworkloadversions", "keptntasks")
MORE_RULES = [
    {"apiGroups": [group], "resources": [f"{kind}/status" for kind in kinds], "verbs": ["*"]}
    for group, kinds in (("lifecycle.keptn.sh", KINDS), ("batch", ("jobs",)))
] + [{"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": ["*"]}]
"""Rules that the role edit does not grant a tenant; another role may."""


class Tenant:
    """A user with the role edit in one namespace, and with MORE_RULES."""

    def __init__(self, kubectl, namespace):
        self._kubectl = kubectl
        self._namespace = namespace
        self.user = f"tenant-of-{namespace}"
        create(
            kubectl,
            role_of("Role", {"name": "statuses", "namespace": namespace}, *MORE_RULES),
            role_binding("edit", namespace, self.user, "edit"),
            role_binding("statuses", namespace, self.user, "statuses", "Role"),
        )

    def run(self, *arguments, stdin=None):
        """The refusal of a command; empty if it succeeds."""
        where = (f"--namespace={self._namespace}", f"--as={self.user}")
        result = self._kubectl(*arguments, *where, stdin=json.dumps(stdin), check=False)
        return result.stderr if result.returncode else ""

    def patch(self, resource, name, value, subresource=None):
        """The refusal of a patch; empty if it succeeds."""
        kind = "json-patch+json" if isinstance(value, list) else "merge-patch+json"
        path = resource.path(self._namespace, name, subresource)
        return why_refused(self._kubectl, self.user, "PATCH", path, value, kind)

    def create(self, manifest):
        """The refusal of an object; empty if it succeeds."""
        metadata = {**manifest["metadata"], "namespace": self._namespace}
        manifest = {**manifest, "metadata": metadata}
        path = path_of(manifest) + STRICTLY
        return why_refused(self._kubectl, self.user, "POST", path, manifest)

    def apply(self, resource, name, manifest):
        """The refusal of an object that a tool applies; empty if it succeeds."""
        path = f"{resource.path(self._namespace, name)}?fieldManager=gitops"
        return why_refused(self._kubectl, self.user, "PATCH", path, manifest, "apply-patch+yaml")


@pytest.fixture
def tenant(flow, harbour):
    return Tenant(harbour.plane.kubectl, flow.namespace)


def reference(owner, *, controller=True):
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **({"controller": True} if controller else {}),
    }


def with_owner(manifest, owner, **more):
    manifest["metadata"]["ownerReferences"] = [reference(owner, **more)]
    return manifest


def pod(name, labels=None):
    manifest = of_kind(
        "Pod", name, {"containers": [{"name": "task", "image": IMAGE}]}, labels=labels
    )
    return {**manifest, "spec": {**manifest["spec"], "restartPolicy": "Never"}}


@pytest.fixture
async def targets(flow):
    """A workload whose check hangs: its objects, by kind."""
    await flow.create(
        container_task("checking", "hang"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="checking")),
    )
    (job_pod,) = await flow.until_all(
        PODS, {"metadata": {"labels": {OUTCOME: "hang"}}, "status": {"phase": "Running"}}
    )
    (task,) = await flow.until_all(TASKS, {"status": {"status": "Progressing"}})
    (job,) = flow.all(JOBS)
    (held,) = await flow.until_gated("ledger")
    return {
        "pod": job_pod,
        "task": task,
        "job": job,
        "held": held,
        "workload": flow.find(WORKLOADS, LEDGER),
        "version": flow.find(WORKLOAD_VERSIONS, VERSION),
    }


STATUS = "status"
NO_TASKS = {"spec": {"preDeploymentTasks": []}}
DONE = {"status": {"status": "Succeeded"}}
CHECKED = {"status": {"preDeploymentStatus": "Succeeded"}}
UNOWNED = {"metadata": {"ownerReferences": None}}
OTHER_TASK = {"spec": {"taskDefinition": "passing"}}
KEPT_FIELDS = {"metadata": {"annotations": {UNCONVERTED: '{"spec": {"promotionTasks": []}}'}}}
TERMINATING = {"status": {"terminating": 1}}


@pytest.mark.claim("O17")
async def test_a_tenant_changes_nothing_that_the_controller_generated(flow, tenant, targets):
    names = {key: obj["metadata"]["name"] for key, obj in targets.items()}
    for refused in (
        tenant.patch(WORKLOADS, LEDGER, NO_TASKS),
        tenant.patch(WORKLOADS, LEDGER, {"status": {"currentVersion": "9"}}, STATUS),
        tenant.patch(WORKLOADS, LEDGER, UNOWNED),
        tenant.patch(WORKLOAD_VERSIONS, VERSION, NO_TASKS),
        tenant.patch(WORKLOAD_VERSIONS, VERSION, CHECKED, STATUS),
        tenant.patch(WORKLOAD_VERSIONS, VERSION, UNOWNED),
        tenant.patch(WORKLOAD_VERSIONS, VERSION, KEPT_FIELDS),
        tenant.patch(TASKS, names["task"], OTHER_TASK),
        tenant.patch(TASKS, names["task"], DONE, STATUS),
        tenant.patch(TASKS, names["task"], UNOWNED),
        tenant.patch(JOBS, names["job"], {"spec": {"parallelism": 0}}),
        tenant.patch(JOBS, names["job"], TERMINATING, STATUS),
        tenant.patch(JOBS, names["job"], UNOWNED),
        tenant.run("replace", "-f=-", stdin={**targets["task"], **OTHER_TASK}),
    ):
        assert "harbourmaster-generated-guard" in refused, refused
    for refused in (
        tenant.run("set", "image", f"pod/{names['pod']}", "task=true:1"),
        tenant.patch(PODS, names["pod"], UNOWNED),
        tenant.patch(PODS, names["pod"], {"metadata": {"labels": {UID_LABEL: None}}}),
    ):
        assert "harbourmaster-job-pod-guard" in refused, refused
    await flow.stay_gated("ledger")
    await flow.let_end()
    await flow.until_released("ledger")


@pytest.mark.claim("O17")
async def test_a_tenant_passes_no_check_of_an_application(flow, tenant):
    spec = {"manifests": [of_kind("ConfigMap", "a", data={})]}
    application = {
        "apiVersion": APPLICATIONS.api_version,
        "kind": "Application",
        "metadata": {"name": "shop"},
        "spec": spec,
    }
    application = await flow.create(application)
    version = {"appName": "application/shop", "version": "1", "preDeploymentTasks": ["missing"]}
    checks = with_owner(of_kind("KeptnAppVersion", "shop-1", version), application)
    revision = {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": "ControllerRevision",
        "metadata": {"name": "shop-1"},
        "revision": 1,
        "data": {"spec": ""},
    }
    revision = with_owner(revision, application)
    for forged in (checks, revision):
        assert "harbourmaster-generated-guard" in tenant.create(forged)
        await flow.create(forged)
    deployed = {"metadata": {"annotations": {DEPLOYED_KEY: "now"}}}
    for resource, change, subresource in (
        (APP_VERSIONS, NO_TASKS, None),
        (APP_VERSIONS, CHECKED, STATUS),
        (APP_VERSIONS, UNOWNED, None),
        (APP_VERSIONS, deployed, None),
        (CONTROLLER_REVISIONS, {"revision": 2}, None),
        (CONTROLLER_REVISIONS, UNOWNED, None),
    ):
        refused = tenant.patch(resource, "shop-1", change, subresource)
        assert "harbourmaster-generated-guard" in refused, (change, refused)
    # The revisions of a workload are its own.
    del revision["metadata"]["ownerReferences"]
    assert not tenant.create({**revision, "metadata": {"name": "mine"}})


UID_LABEL = "batch.kubernetes.io/controller-uid"


@pytest.mark.claim("O18")
async def test_a_tenant_creates_nothing_in_the_place_of_what_is_generated(flow, tenant, targets):
    task = {"taskDefinition": "checking"}
    version = {
        **targets["version"]["spec"],
        "preDeploymentTasks": [],
        "workloadName": LEDGER,
    }
    replica_set = flow.find(WORKLOADS, LEDGER)["metadata"]["ownerReferences"][0]
    workloads = []
    for kind in SUPPORTED:
        workload = of_kind("KeptnWorkload", "mine", targets["workload"]["spec"])
        workload["metadata"]["ownerReferences"] = [{**replica_set, "kind": kind}]
        workloads.append(workload)
    job = {"template": {"spec": pod("x")["spec"]}}
    uid = {UID_LABEL: targets["job"]["metadata"]["uid"]}
    analysis = {"timeframe": {"recent": "5m"}, "analysisDefinition": {"name": "mine"}}
    for forged in (
        with_owner(of_kind("KeptnTask", "mine", task), targets["version"]),
        with_owner(of_kind("Analysis", "mine", analysis), targets["version"]),
        with_owner(of_kind("KeptnWorkloadVersion", "mine", version), targets["workload"]),
        *workloads,
        with_owner(of_kind("Job", "mine", job), targets["task"]),
        with_owner(of_kind("ConfigMap", "mine", data={"code": ""}), targets["task"]),
        of_kind("ConfigMap", f"keptntask-{targets['task']['metadata']['name']}", data={}),
    ):
        refused = tenant.create(forged)
        assert "harbourmaster-generated-guard" in refused, (forged, refused)
    # Nor does it become generated afterwards.
    assert not tenant.create(of_kind("KeptnTask", "mine", task))
    owner = {"metadata": {"ownerReferences": [reference(targets["version"])]}}
    assert "harbourmaster-generated-guard" in tenant.patch(TASKS, "mine", owner)
    for forged in (with_owner(pod("mine"), targets["job"]), pod("mine", uid)):
        assert "harbourmaster-job-pod-guard" in tenant.create(forged)
    assert not tenant.create(pod("mine"))
    for change in ({"ownerReferences": [reference(targets["job"])]}, {"labels": uid}):
        assert "job-pod-guard" in tenant.patch(PODS, "mine", {"metadata": change})
    # An owner that does not control it only keeps it as long as the Job.
    assert not tenant.create(with_owner(pod("helper"), targets["job"], controller=False))
    await flow.stay_gated("ledger")


@pytest.mark.claim("O18")
async def test_a_job_of_a_tenant_makes_no_pods_for_the_job_of_a_task(flow, tenant, targets):
    # Orphaned, such a pod would be adopted, and count as the result.
    labels = {"mine": "yes", UID_LABEL: targets["job"]["metadata"]["uid"]}
    template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
    selector = {"matchLabels": {"mine": "yes"}}
    job = {"manualSelector": True, "selector": selector, "template": template}
    assert not tenant.create(of_kind("Job", "mine", job))
    told = await flow.until_told("FailedCreate", "mine")
    assert "harbourmaster-job-pod-guard" in told["note"]
    del template["metadata"]["labels"][UID_LABEL]
    assert not tenant.create(of_kind("Job", "other", job))
    await flow.until(lambda: flow.all(PODS, {"metadata": {"labels": {"mine": "yes"}}}))
    await flow.stay_gated("ledger")


@pytest.mark.claim("O19")
async def test_metadata_and_foreign_owners_of_generated_objects_are_anybodys(flow, tenant, targets):
    foreign = of_kind("ConfigMap", "foreign", data={})
    stored = await flow.create(foreign)
    for resource, key in (
        (WORKLOADS, "workload"),
        (WORKLOAD_VERSIONS, "version"),
        (TASKS, "task"),
        (JOBS, "job"),
        (PODS, "pod"),
    ):
        name = targets[key]["metadata"]["name"]
        labels = {"argocd.argoproj.io/instance": "ledger"}
        applied = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "labels": labels},
        }
        assert tenant.apply(resource, name, applied) == ""
        assert tenant.patch(resource, name, {"metadata": {"annotations": {"a": "b"}}}) == ""
        if resource is not PODS:
            for finalizers in (["example.com/f"], []):
                change = {"metadata": {"finalizers": finalizers}}
                assert tenant.patch(resource, name, change) == ""
        if resource is not WORKLOADS:
            add = {"op": "add", "path": "/metadata/ownerReferences/-"}
            change = [{**add, "value": reference(stored, controller=False)}]
            assert tenant.patch(resource, name, change) == ""
            change = [{"op": "remove", "path": "/metadata/ownerReferences/1"}]
            assert tenant.patch(resource, name, change) == ""
    await flow.let_end()
    await flow.until_released("ledger")


@pytest.mark.claim("O20")
async def test_objects_made_by_hand_work_and_belong_to_their_maker(flow, tenant):
    definition = container_task("by-hand")
    function = task_definition("function", python={"inline": {"code": "print(1)"}})
    for obj in (definition, function):
        assert tenant.create(obj) == ""
    for name in ("by-hand", "function"):
        context = {"appName": "a", "workloadName": "w", "workloadVersion": "1"}
        spec = {"taskDefinition": name, "context": context}
        labels = {OUTCOME: "hang"} if name == "by-hand" else {}
        assert tenant.create(of_kind("KeptnTask", name, spec, labels=labels)) == ""
    # Its Job is generated, and the task is not.
    (job,) = await flow.until_all(JOBS, {"metadata": {"labels": {OUTCOME: "hang"}}})
    assert tenant.patch(TASKS, "by-hand", {"spec": {"retries": 3}}) == ""
    refused = tenant.patch(JOBS, job["metadata"]["name"], {"spec": {"parallelism": 0}})
    assert "harbourmaster-generated-guard" in refused
    await flow.let_end()
    for name in ("by-hand", "function"):
        await flow.until_like(TASKS, name, {"status": {"status": "Succeeded"}})
    assert flow.all(CONFIG_MAPS, {"metadata": {"name": "keptnfn-function"}})
    spec = {
        "app": "hand",
        "version": "1",
        "resourceReference": {"uid": "1", "kind": "Pod", "name": "x"},
    }
    assert tenant.create(of_kind("KeptnWorkload", "hand-made", spec)) == ""
    assert tenant.patch(WORKLOADS, "hand-made", NO_TASKS) == ""


@pytest.mark.claim("O20")
async def test_a_tenant_may_apply_every_sample(flow, tenant):
    for path in sorted((DEPLOY / "samples/gates").glob("*.yaml")):
        for obj in yaml.safe_load_all(path.read_text()):
            if obj["kind"] != "Namespace":
                obj["metadata"].pop("namespace", None)
                assert tenant.create(obj) == "", path.relative_to(ROOT)
    await flow.until_ended(WORKLOAD_VERSIONS, "till-till-1.4")


@pytest.mark.claim("O20")
async def test_a_version_made_by_hand_opens_no_gate(flow, tenant):
    spec = {
        "app": "ledger",
        "version": "1.0",
        "workloadName": LEDGER,
        "resourceReference": {"uid": "1", "kind": "ReplicaSet", "name": "ledger"},
    }
    assert tenant.create(of_kind("KeptnWorkloadVersion", VERSION, spec)) == ""
    passed = {"preDeploymentStatus", "preDeploymentEvaluationStatus", "deploymentStatus", "status"}
    passed = {"status": dict.fromkeys(passed, "Succeeded")}
    assert tenant.patch(WORKLOAD_VERSIONS, VERSION, passed, STATUS) == ""
    await flow.create(deployment("ledger", keptn("ledger")))
    await flow.until_gated("ledger")
    # Also with the very owner of the pod, which a tenant may read.
    (replica_set,) = flow.all(REPLICA_SETS)
    reference = {"resourceReference": {**spec["resourceReference"], "uid": uid_of(replica_set)}}
    assert tenant.patch(WORKLOAD_VERSIONS, VERSION, {"spec": reference}) == ""
    told = await flow.until_told("CreateWorkloadVersionFailed", LEDGER)
    assert "not generated, so it decides on no pod: delete it" in told["note"]
    await flow.stay_gated("ledger")
    assert tenant.run("delete", "keptnworkloadversion", VERSION) == ""
    await flow.until_released("ledger")


@pytest.mark.claim("O20")
async def test_a_task_made_by_hand_in_the_place_of_a_generated_one_is_no_result(
    flow, tenant, targets
):
    name = targets["task"]["metadata"]["name"]
    assert tenant.run("delete", "keptntask", name, "--cascade=orphan") == ""
    forged = of_kind("KeptnTask", name, {"taskDefinition": "missing"})
    assert tenant.create(forged) == ""
    tenant.patch(TASKS, name, DONE, STATUS)
    others = await flow.until(
        lambda: [task for task in flow.all(TASKS) if task["metadata"]["name"] != name]
    )
    assert others[0]["metadata"]["ownerReferences"][0]["kind"] == "KeptnWorkloadVersion"
    await flow.stay_gated("ledger")


@pytest.mark.claim("O22")
async def test_the_control_plane_deletes_and_orphans_as_before(flow, tenant, targets):
    """The owner reference of a guarded object goes, and then every tenant may write it."""
    version = targets["version"]["metadata"]["name"]
    assert tenant.run("delete", "keptnworkload", LEDGER, "--cascade=orphan") == ""

    def is_orphaned():
        stored = flow.find(WORKLOAD_VERSIONS, version)
        return stored and "ownerReferences" not in stored["metadata"]

    await flow.until(is_orphaned)
    assert tenant.patch(WORKLOAD_VERSIONS, version, NO_TASKS) == ""
    await flow.stay_gated("ledger")
    # In the background, what it owned goes with it, down to the pod.
    assert tenant.run("delete", "keptnworkloadversion", version) == ""
    pod_name = targets["pod"]["metadata"]["name"]
    await flow.until(lambda: not flow.find(PODS, pod_name), why=lambda: "the pod is still there")
    # Its workload is recreated, and its check runs again.
    await flow.let_end()
    await flow.until_released("ledger")


@pytest.mark.claim("O22")
async def test_a_job_goes_in_its_time(flow, tenant):
    await flow.create(container_task("brief", ttlSecondsAfterFinished=1))
    await flow.create(deployment("ledger", keptn("ledger", pre_deployment_tasks="brief")))
    (task,) = await flow.until_all(TASKS, {"status": {"status": "Succeeded"}})
    await flow.until(lambda: not flow.all(JOBS), why=lambda: "the Job is still there")
    assert tenant.run("delete", "keptntask", task["metadata"]["name"]) == ""


@pytest.mark.claim("O22")
async def test_a_namespace_with_generated_objects_can_be_deleted(flow, client, targets):
    await client.delete(NAMESPACES, flow.namespace)
    await flow.until(
        lambda: (
            not any(flow.all(resource) for resource in (WORKLOADS, WORKLOAD_VERSIONS, TASKS, JOBS))
        ),
        why=lambda: "objects are left",
    )


@pytest.mark.claim("O22")
async def test_an_administrator_restores_a_backup_and_a_tenant_does_not(flow, tenant, targets):
    names = ("task", "version", "workload")
    backup = [fit(targets[key]) for key in names]
    for obj in backup:
        refused = tenant.create({**obj, "metadata": {**obj["metadata"], "name": "restored"}})
        assert "harbourmaster-generated-guard" in refused
    # Below objects that are still there: else the garbage collector takes it.
    restored = {**backup[0], "metadata": {**backup[0]["metadata"], "name": "restored"}}
    await flow.create(restored)
    await flow.until_like(TASKS, "restored", {"status": {"jobName": bool}})


def fit(obj):
    """The part of an object that a backup holds."""
    kept = {key: obj["metadata"][key] for key in ("name", "ownerReferences")}
    return {**{key: obj[key] for key in ("apiVersion", "kind", "spec")}, "metadata": kept}


def uid_of(obj):
    return obj["metadata"]["uid"]


@pytest.mark.claim("O17")
async def test_the_way_back_to_keptn_begins_without_the_guards(harbour, tenant, targets):
    kubectl = harbour.plane.kubectl
    page = (ROOT / "docs/migration/keptn.md").read_text()
    (words,) = re.findall(
        r"^kubectl (delete validatingadmission.*)$", page.replace("\\\n", " "), re.MULTILINE
    )
    _, kinds, *names = words.split()
    version = targets["version"]["metadata"]["name"]

    async def settle(*, refused):
        """Wait until what Keptn's operators write is refused, or is not."""
        patch = {"status": {"currentPhase": f"refused-{refused}"}}
        async with asyncio.timeout(PATIENCE):
            while bool(tenant.patch(WORKLOAD_VERSIONS, version, patch, STATUS)) != refused:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.1)

    await settle(refused=True)
    result = json.loads(kubectl("get", kinds, *names, "--output=json").stdout)
    assert len(result["items"]) == 4
    kubectl("delete", kinds, *names)
    try:
        await settle(refused=False)
    finally:
        for item in result["items"]:
            for key in ("resourceVersion", "uid"):
                del item["metadata"][key]
        kubectl("create", "-f=-", stdin=json.dumps(result))
    await settle(refused=True)
