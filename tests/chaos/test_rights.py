"""S22: every right that the manifests grant is used, and no request is refused.

The processes run as their ServiceAccounts; the API server's audit log has their requests. It lacks
only the rights of JUDGED, which the API server checks itself for owner references.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time

import msgspec
import pytest

from harbourmaster.api.references import ALLOW_FROM
from harbourmaster.api.resources import (
    ANALYSES,
    APP_VERSIONS,
    APPS,
    CONFIG_MAPS,
    EVALUATIONS,
    JOBS,
    PODS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.gates.stages import STAGE_ANALYSIS_KEY, STAGES_KEY, STAGES_ON_FIRST_KEY
from harbourmaster.gates.waits import WAIT_FOR_KEY
from harbourmaster.playground.installation import Installation
from harbourmaster.policies.enforcement import ENFORCEMENT_KEY
from helpers import releases
from helpers.cluster import RBAC, eventually
from helpers.faults.api_proxy import ApiProxy, Fault
from helpers.faults.stored_objects import Stored
from helpers.flow.installation import HOME, Harbour
from helpers.flow.manifests import (
    IMAGE,
    RESOURCES,
    app,
    app_context,
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    of_kind,
    owner,
    task_definition,
    without_outcome,
)
from helpers.flow.namespace import WATCHED
from helpers.manifests import DEPLOY, objects
from helpers.objects import cluster_policy, policy
from helpers.patience import PATIENCE
from helpers.processes import client_of
from helpers.rescheduling.case_cluster import CaseCluster
from helpers.rescheduling.cases import Case, Plane, ready_field
from helpers.rescheduling.objects import budget, volume_of
from helpers.rescheduling.toy_kubelet import SLOW
from helpers.rights import kubeconfig
from helpers.schemas import open_definition

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(480)]

ACCOUNTS = {
    role: f"system:serviceaccount:{HOME}:harbourmaster-{role}" for role in ("webhook", "controller")
}
SHORT_LIVES = [
    "--certificates-ca-lifetime-seconds=120",
    "--certificates-leaf-lifetime-seconds=30",
    "--certificates-publish-seconds=1",
]
FEW_VERSIONS = ["--lifecycle-history-limit=2"]
PATIENT = '[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":29}]'
OPT_IN = "keptn.sh/lifecycle-toolkit"
ANY_NAME = ""
RESCHEDULING = (
    "rbac/service-accounts.yaml",
    "rbac/controller.yaml",
    "rbac/lifecycle.yaml",
    "components/rescheduling/rights.yaml",
    "components/account-guard/nodes.yaml",
    "components/account-guard/pods.yaml",
)
"""The manifests of a controller that only reschedules."""
PLUGIN = "OwnerReferencesPermissionEnforcement"
LIFECYCLE = "lifecycle.keptn.sh"
JUDGED = {
    # An owner is kept from going before what it owns.
    ("update", LIFECYCLE, "keptnapps/finalizers"),
    ("update", LIFECYCLE, "keptnappversions/finalizers"),
    ("update", LIFECYCLE, "keptntasks/finalizers"),
    ("update", LIFECYCLE, "keptnworkloads/finalizers"),
    ("update", LIFECYCLE, "keptnworkloadversions/finalizers"),
    # A workload gets another owner, for which the plugin asks who might as well delete it.
    ("delete", LIFECYCLE, "keptnworkloads"),
}
"""The rights that the plugin checks at writes; no request has these verbs."""
GUARDED = {("write-generated", "gates.harbourmaster.dev", "generated")}
"""The rights that the guards check."""
WATCHES_OF_OWNERS = r"^/apis/(apps|argoproj\.io)/\w+/\w+$"
OWNERS = ("Deployment", "StatefulSet", "DaemonSet", "Rollout")
FIRST, SECOND = "6b86b273", "d4735e3a"
"""The suffixes of an app's versions, by its generation."""


def granted_rights(kubectl):
    """Return the rights of each account: verb, group, resource, and the name if limited to one."""
    stored, roles, bindings = Stored(kubectl.__self__), {}, []
    for kind in ("Role", "ClusterRole"):
        path = f"/apis/{RBAC}/{kind.lower()}"
        items = stored.ask("GET", f"{path}s")["items"]
        roles |= {(kind, item["metadata"]["name"]): item["rules"] for item in items}
        bindings += stored.ask("GET", f"{path}bindings")["items"]
    for binding in bindings:
        for subject in binding.get("subjects") or ():
            if subject.get("namespace") != HOME:
                continue
            for rule in roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            for name in rule.get("resourceNames") or [ANY_NAME]:
                                user = f"system:serviceaccount:{HOME}:{subject['name']}"
                                yield user, verb, group, resource, name


def audited_requests(plane):
    """Return the requests of the accounts so far, with their results."""
    lines = (plane.layout.logs / "audit.log").read_text().splitlines()
    for line in lines:
        # Most are of the other components, and there are many of them.
        if f":{HOME}:harbourmaster-" not in line:
            continue
        event = msgspec.json.decode(line)
        user = event["user"]["username"]
        if user in ACCOUNTS.values() and "objectRef" in event:
            target = event["objectRef"]
            name = target.get("name", ANY_NAME)
            resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
            right = (user, event["verb"], target.get("apiGroup", ""), resource)
            yield (*right, name), event["responseStatus"]


def used_rights(plane, rights):
    """Return the used rights; a right to a name counts before one to any name."""
    exercised = {
        right
        for right, status in audited_requests(plane)
        # A 404 for a read means that it was allowed.
        if status["code"] < 400 or (right[1], status["code"]) == ("get", 404)
    }
    return rights & (exercised | {(*right[:-1], ANY_NAME) for right in exercised - rights})


def refused_requests(plane):
    """Return the refused requests, except in namespaces that are being deleted."""
    return [
        (right, status)
        for right, status in audited_requests(plane)
        if status["code"] in {401, 403} and "is being terminated" not in status.get("message", "")
    ]


def checked_rights(flow):
    """Yield the rights that the plugin checked for each version of these objects."""
    for resource in WATCHED:
        if resource.group != LIFECYCLE and resource not in {CONFIG_MAPS, JOBS}:
            continue
        for obj in flow.all(resource):
            versions = flow.history(resource, obj["metadata"]["name"])
            for before, after in itertools.pairwise([None, *versions]):
                owners = after["metadata"].get("ownerReferences", [])
                for reference in owners:
                    if reference.get("blockOwnerDeletion"):
                        above = RESOURCES[reference["kind"]]
                        yield "update", above.group, f"{above.plural}/finalizers"
                if (
                    before is not None
                    and before["metadata"]["uid"] == after["metadata"]["uid"]
                    and before["metadata"].get("ownerReferences", []) != owners
                ):
                    yield "delete", resource.group, resource.plural


def plugin_refuses(kubectl):
    """Whether the API server keeps the controller from what none of its rights is for."""
    reference = {"apiVersion": "v1", "kind": "Namespace", "name": HOME, "uid": "of-any"}
    config_map = of_kind("ConfigMap", "tried")
    config_map["metadata"]["ownerReferences"] = [{**reference, "blockOwnerDeletion": True}]
    answer = kubectl(
        "create",
        "--dry-run=server",
        f"--namespace={HOME}",
        f"--as={ACCOUNTS['controller']}",
        "-f=-",
        stdin=json.dumps(config_map),
        check=False,
    )
    return "cannot set blockOwnerDeletion" in answer.stderr


def drift(kubectl, kind):
    """Edit a configuration by hand, and return once that is undone."""
    configuration = f"{kind}webhookconfiguration/harbourmaster"
    ask = "-o=jsonpath={.webhooks[0].timeoutSeconds}"
    # It may have been deleted just now.
    right = eventually(lambda: kubectl("get", configuration, ask, check=False).stdout)
    kubectl("patch", configuration, "--type=json", f"--patch={PATIENT}")
    eventually(lambda: kubectl("get", configuration, ask).stdout, is_right=right.__eq__)


def undo_registration(kubectl):
    """Let our registration and the label of a namespace be put right."""
    for kind in ("mutating", "validating"):
        kubectl("delete", f"{kind}webhookconfiguration", "harbourmaster")
    kubectl("annotate", "namespace", "default", f"{OPT_IN}=enabled")
    label = "-o=jsonpath={.metadata.labels.gates\\.harbourmaster\\.dev/enabled}"
    eventually(lambda: kubectl("get", "namespace", "default", label).stdout)
    kubectl("annotate", "namespace", "default", f"{OPT_IN}-")
    # Twice, so that the second event joins the first.
    for kind in ("validating", "mutating", "mutating"):
        drift(kubectl, kind)


def ask_for_values(kubectl):
    """Ask for values as an HPA does: whether it may is asked back."""
    path = "namespaces/default/keptnmetrics.metrics.keptn.sh/*/*"
    for version in ("v1beta1", "v1beta2"):
        url = f"/apis/custom.metrics.k8s.io/{version}/{path}"
        eventually(lambda url=url: kubectl("get", "--raw", url, check=False).stdout)


def metrics(kubectl):
    """A metric behind a Secret, an analysis, and a value as an HPA asks for it."""
    reference = {"name": "given"}
    specs = {
        "KeptnMetricsProvider": {
            "type": "static",
            "static": {"metrics": {"load": 7}},
            "secretKeyRef": {**reference, "key": "token"},
        },
        "KeptnMetric": {"provider": reference, "query": "load", "fetchIntervalSeconds": 60},
        "AnalysisValueTemplate": {"provider": reference, "query": "load"},
        "AnalysisDefinition": {
            "objectives": [{"analysisValueTemplateRef": reference}],
            "totalScore": {"passPercentage": 90, "warningPercentage": 75},
        },
        "Analysis": {"timeframe": {"recent": "5m"}, "analysisDefinition": reference},
    }
    items = [
        {"apiVersion": "v1", "kind": "Secret", "stringData": {"token": "secret"}},
        *(
            {"apiVersion": "metrics.keptn.sh/v1", "kind": kind, "spec": spec}
            for kind, spec in specs.items()
        ),
    ]
    items = [{**item, "metadata": {**reference, "namespace": "default"}} for item in items]
    stdin = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    kubectl("create", "-f=-", stdin=stdin)
    for kind, field, value in (("keptnmetric", "value", "7"), ("analysis", "state", "Completed")):
        ask = ("get", kind, "given", f"-o=jsonpath={{.status.{field}}}")
        eventually(lambda ask=ask: kubectl(*ask).stdout, is_right=value.__eq__)
    of_all = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/keptnmetrics.metrics.keptn.sh"
    eventually(lambda: not kubectl("get", "--raw", f"{of_all}/given/given", check=False).returncode)


async def of_unknown_owners(flow, proxy):
    """Pods whose owners no watch has told of: the controller asks for each of them."""
    with proxy.failing(Fault.HANG, WATCHES_OF_OWNERS):
        for kind in OWNERS:
            name = kind.lower()
            above = keptn(name, pre_deployment_tasks="quick")
            stored = await flow.create(owner(kind, name, above=above))
            if kind == "Rollout":
                replica_set = owner("ReplicaSet", name)
                reference = {key: stored[key] for key in ("apiVersion", "kind")}
                reference |= {key: stored["metadata"][key] for key in ("name", "uid")}
                replica_set["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
                await flow.create(replica_set)
        for kind in OWNERS:
            await flow.until_released(kind.lower())
    status = {"observedGeneration": "1", "replicas": 1, "updatedReplicas": 1, "phase": "Healthy"}
    await flow.change("Rollout", "rollout", {"status": status}, subresource="status")
    for kind in OWNERS:
        await flow.until_ended(WORKLOAD_VERSIONS, f"{kind.lower()}-{kind.lower()}-1.0")


async def of_others(flow, proxy):
    """Objects of which the watch does not tell in time: they are found to be there already."""
    strange = {"kind": "ReplicaSet", "name": "former", "uid": "of-the-former"}
    taken = {"spec": {"resourceReference": {"uid": lambda uid: uid != strange["uid"]}}}
    with proxy.failing(Fault.HANG, f"v1/{WORKLOADS.plural}$"):
        spec = {"app": "late", "version": "1.0", "resourceReference": strange}
        early = of_kind("KeptnWorkload", "late-late", spec)
        await flow.create(early, deployment("late", keptn("late")))
        await flow.until_like(WORKLOADS, "late-late", taken)
    await until_done(flow, "late")
    spec = {"app": "early", "version": "1.0", "resourceReference": strange}
    await flow.create(of_kind("KeptnWorkload", "early-early", spec))
    await flow.until_like(WORKLOAD_VERSIONS, "early-early-1.0", {"spec": {"app": "early"}})
    await flow.create(deployment("early", keptn("early")))
    await until_done(flow, "early")
    spec = {"app": "later", "version": "0.9", "resourceReference": strange}
    made = await flow.create(of_kind("KeptnWorkload", "later-later", spec))
    with proxy.failing(Fault.HANG, f"v1/{WORKLOAD_VERSIONS.plural}$"):
        version = {**spec, "version": "1.0", "workloadName": "later-later"}
        early = of_kind("KeptnWorkloadVersion", "later-later-1.0", version)
        early["metadata"]["ownerReferences"] = [
            {
                **{key: made[key] for key in ("apiVersion", "kind")},
                **{key: made["metadata"][key] for key in ("name", "uid")},
                "controller": True,
            }
        ]
        await flow.create(early, deployment("later", keptn("later")))
        await flow.until_like(WORKLOAD_VERSIONS, "later-later-1.0", taken)
    await until_done(flow, "later")


async def until_done(flow, part):
    """Wait until the pods of a workload are released, and its version has ended."""
    await flow.until_released(part)
    await flow.until_ended(WORKLOAD_VERSIONS, f"{part}-{part}-1.0")


async def of_tasks(flow):
    """Run tasks of every kind, and delete the Job, the code and the task of some."""
    code = {"inline": {"code": "console.log(1)"}}
    await flow.create(task_definition("of-all", deno=code), namespace=HOME)
    checks = {"pre_deployment_tasks": "migrate,inline,refer,of-all"}
    await flow.create(
        container_task("migrate", "hang"),
        task_definition("inline", deno=code),
        task_definition("refer", deno={"functionRef": {"name": "late"}}),
        deployment("tasks", keptn("tasks", **checks)),
    )
    task, job = await started_names(flow, "migrate")
    await flow.delete("Job", job, propagation="Background")
    again, _ = await started_names(flow, "migrate", job)
    assert again == task
    # The next one ends.
    await flow.change("KeptnTaskDefinition", "migrate", without_outcome())
    await flow.delete("KeptnTask", task)
    stored = {"status": {"function": {"configMap": bool}}}
    definition = await flow.until_like(TASK_DEFINITIONS, "inline", stored)
    name = definition["status"]["function"]["configMap"]
    data = flow.find(CONFIG_MAPS, name)["data"]
    await flow.change("ConfigMap", name, {"data": dict.fromkeys(data, "something else")})
    await flow.until(
        lambda: any(version["data"] != data for version in flow.history(CONFIG_MAPS, name))
    )
    await flow.until_like(CONFIG_MAPS, name, {"data": data})
    waits = {"spec": {"taskDefinition": "refer"}, "status": {"reason": "TaskDefinitionNotFound"}}
    await flow.until_all(TASKS, waits)
    await flow.create(task_definition("late", deno=code))
    await flow.until_released("tasks")
    await flow.until_ended(WORKLOAD_VERSIONS, "tasks-tasks-1.0")


async def started_names(flow, definition, *former):
    """The names of the running task of a definition and of its Job, another than the former."""
    status = {"status": "Progressing", "jobName": lambda job: job and job not in former}
    like = {"spec": {"taskDefinition": definition}, "status": status}
    (task,) = await flow.until_all(TASKS, like)
    job = task["status"]["jobName"]
    await flow.until_like(JOBS, job, {"metadata": {"name": job}})
    return task["metadata"]["name"], job


async def of_evaluations(flow):
    """Run an evaluation, and delete it before its metric meets the target."""
    await flow.measure("load", "1")
    await flow.create(
        evaluation_definition("enough", "load", ">5", retries=100),
        deployment("evaluations", keptn("evaluations", pre_deployment_evaluations="enough")),
    )
    (evaluation,) = await flow.until_all(EVALUATIONS, {"status": {"overallStatus": "Progressing"}})
    await flow.delete("KeptnEvaluation", evaluation["metadata"]["name"])
    await flow.measure("load", "10")
    await flow.until_released("evaluations")
    await flow.until_ended(WORKLOAD_VERSIONS, "evaluations-evaluations-1.0")


async def of_analyses(flow):
    """Check a stage by an analysis, and delete it before its definition consents."""
    reference = {"name": "stage"}
    specs = {
        "KeptnMetricsProvider": {"type": "static", "static": {"metrics": {"load": 7}}},
        "AnalysisValueTemplate": {"provider": reference, "query": "load"},
        "AnalysisDefinition": {
            "objectives": [{"analysisValueTemplateRef": reference}],
            "totalScore": {"passPercentage": 90, "warningPercentage": 75},
        },
    }
    shared = (of_kind(kind, "stage", spec) for kind, spec in specs.items())
    await flow.create(*shared, namespace=HOME)
    stages = {STAGES_KEY: "1", STAGES_ON_FIRST_KEY: "true", STAGE_ANALYSIS_KEY: "stage"}
    await flow.create(deployment("staged", {**keptn("staged"), **stages}, replicas=2))
    (analysis,) = await flow.until_all(ANALYSES, {"status": {"state": "Pending"}})
    deleted = analysis["metadata"]["name"]
    await flow.delete("Analysis", deleted)
    await flow.until_all(ANALYSES, {"metadata": {"name": lambda name: name != deleted}})
    consent = {"metadata": {"annotations": {ALLOW_FROM: "*"}}}
    await flow.change("AnalysisDefinition", "stage", consent, namespace=HOME)
    await flow.until_ended(WORKLOAD_VERSIONS, "staged-staged-1.0")


async def of_made_apps(flow):
    """An app that is made by a creation request, changed by another one, and deleted."""
    for name in ("front", "back"):
        await flow.create(deployment(name, keptn(name, app="shop")))
    for name in ("front", "back"):
        await flow.until_ended(WORKLOAD_VERSIONS, f"shop-{name}-1.0")
    template = {"metadata": {"annotations": {"keptn.sh/version": "2.0"}}}
    await flow.change("Deployment", "front", {"spec": {"template": template}})
    await flow.until_ended(WORKLOAD_VERSIONS, "shop-front-2.0")
    for name in ("front", "back"):
        await flow.delete("Deployment", name)
    await flow.until(lambda: flow.find(APPS, "shop") is None)


async def of_written_apps(flow):
    """Run an app with a context again, and an app whose version has the name of another's."""
    await flow.create(app_context("desk"), app("desk", "1.0", ("ledger", "1.0")))
    await flow.until_like(APP_VERSIONS, f"desk-1.0-{FIRST}", {})
    # While no pod is released.
    change = {"spec": {"preDeploymentTasks": ["quick"]}}
    await flow.change("KeptnAppContext", "desk", change)
    await flow.until_like(APP_VERSIONS, f"desk-1.0-{FIRST}", change)
    await flow.create(deployment("ledger", keptn("ledger", app="desk")))
    await flow.until_ended(APP_VERSIONS, f"desk-1.0-{FIRST}")
    await flow.change("KeptnApp", "desk", {"spec": {"revision": 2}})
    await flow.until_ended(APP_VERSIONS, f"desk-1.0-{FIRST}", "Deprecated")
    await flow.until_ended(APP_VERSIONS, f"desk-1.0-{SECOND}")
    # Another ReplicaSet of the same version.
    template = {"spec": {"containers": [{"name": "ledger", "image": f"{IMAGE}.1"}]}}
    before = flow.find(WORKLOAD_VERSIONS, "desk-ledger-1.0")["spec"]["resourceReference"]
    await flow.change("Deployment", "ledger", {"spec": {"template": template}})
    after = {"spec": {"resourceReference": lambda value: value != before}}
    await flow.until_like(WORKLOAD_VERSIONS, "desk-ledger-1.0", after)

    await flow.create(app("pair-of", "1"))
    await flow.until_ended(APP_VERSIONS, f"pair-of-1-{FIRST}")
    await flow.create(app("pair", "of-1"))
    await flow.pass_through()


async def of_old_versions(flow):
    """Versions of a StatefulSet, until an old one of its app is deleted."""
    await flow.create(owner("StatefulSet", "aged", keptn("aged", "1.0")))
    for version in ("2.0", "3.0"):
        await flow.until_ended(WORKLOAD_VERSIONS, f"aged-aged-{int(version[0]) - 1}.0")
        template = {"metadata": {"annotations": {"keptn.sh/version": version}}}
        await flow.change("StatefulSet", "aged", {"spec": {"template": template}})
    await flow.until_ended(WORKLOAD_VERSIONS, "aged-aged-3.0")
    await flow.until(lambda: flow.find(APP_VERSIONS, f"aged-1.0-{FIRST}") is None)


async def of_refused(flow):
    """A task whose pod cannot be created; an event of its Job says why."""
    await flow.create(
        container_task("refused", serviceAccount={"name": "missing"}),
        deployment("refused", keptn("refused", pre_deployment_tasks="refused")),
    )
    waits = {"spec": {"taskDefinition": "refused"}, "status": {"reason": "FailedCreate"}}
    await flow.until_all(TASKS, waits)


async def of_waits(flow):
    """A pod that waits for a Deployment and a Service."""
    waits = {WAIT_FOR_KEY: "deployment/waited, service/waited, crd/none"}
    await flow.create(deployment("patient", waits))
    needed = {"metadata": {"annotations": waits}, "status": {"phase": "Pending"}}
    await flow.until_all(PODS, needed, 1)


async def lifecycle(plane, harbour, proxy):
    """All that the controller does for deployments; what the plugin was asked meanwhile."""
    async with client_of(plane.kubeconfig) as client, harbour.flow(client, "rights") as flow:
        await harbour.configure(client, {"keptnAppCreationRequestTimeoutSeconds": 1})
        await flow.create(container_task("quick"))
        await of_unknown_owners(flow, proxy)
        await of_others(flow, proxy)
        async with asyncio.TaskGroup() as group:
            for part in (
                of_tasks,
                of_refused,
                of_evaluations,
                of_analyses,
                of_made_apps,
                of_written_apps,
                of_old_versions,
                of_waits,
            ):
                group.create_task(part(flow))
        return set(checked_rights(flow))


@pytest.mark.claim("R1")
def test_s22_every_right_is_used_and_nothing_is_refused(throwaway_control_plane):
    plane = throwaway_control_plane(audit=True, flags=(f"--enable-admission-plugins={PLUGIN}",))
    kubectl = plane.kubectl
    plane.add_nodes(1)
    with (
        ApiProxy(plane) as proxy,
        Installation(
            plane,
            controllers=2,
            arguments={"controller": [*SHORT_LIVES, *FEW_VERSIONS]},
            api_ports=dict.fromkeys(("controller", "controller-2", "webhook"), proxy.port),
        ) as installation,
    ):
        assert {right[0] for right in granted_rights(kubectl)} == set(ACCOUNTS.values())
        assert plugin_refuses(kubectl)
        kubectl("apply", "-f=-", stdin=json.dumps(open_definition(RESOURCES["Rollout"])))
        # RuntimeClasses are watched for the node selector.
        rules = {"nodeName": "n", "nodeSelector": {"a": "b"}}
        for obj in (cluster_policy(pods={"a": "b"}, **rules), policy(namespace="default")):
            # Their status says that nothing is compiled.
            obj["metadata"]["annotations"] = {ENFORCEMENT_KEY: "Both"}
            kubectl("apply", "-f=-", stdin=json.dumps(obj))
        undo_registration(kubectl)
        ask_for_values(kubectl)
        installation.await_answer()
        metrics(kubectl)
        assert asyncio.run(lifecycle(plane, Harbour(plane, installation), proxy)) == JUDGED
        # Who ends tells at once what was repeated, and the other takes over its lease.
        for name in ("controller", "controller-2"):
            installation.restart(name, grace=10)
        rights = set(granted_rights(kubectl))
        kept = releases.KEPT.get(releases.VERSION, set())
        of_others = {
            (ACCOUNTS["controller"], *right, ANY_NAME) for right in JUDGED | GUARDED | kept
        }
        assert of_others <= rights
        rights -= of_others
        deadline = time.monotonic() + PATIENCE
        while missing := rights - used_rights(plane, rights):
            assert time.monotonic() < deadline, f"granted and never used: {sorted(missing)}"
            # The log has no notification.
            time.sleep(0.5)
    assert refused_requests(plane) == []
    assert not used_rights(plane, of_others), "used: remove it from releases.KEPT"


def apply_alone(plane):
    """Grant what the overlay of the rescheduler alone grants."""
    kinds = ("ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    items = [obj for obj in objects("rescheduler-alone") if obj["kind"] in kinds]
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    plane.kubectl("apply", "--server-side", "--filename=-", stdin=everything)


def apply_component(plane):
    """Grant what the component grants, to a controller that does more."""
    for file in RESCHEDULING:
        plane.kubectl("apply", "--server-side", f"--filename={DEPLOY / file}")


async def made_room(plane, apply):
    """Have the rescheduler do each thing that it does, as its ServiceAccount."""
    async with ready_field(plane, fillers=60) as field:
        apply(plane)
        account = ("harbourmaster-controller", f"--namespace={HOME}", "--duration=3h")
        token = plane.kubectl("create", "token", *account).stdout.strip()
        file = plane.layout.directory / "controller.kubeconfig"
        file.write_text(kubeconfig(plane.kubeconfig, token=token))
        places = []
        for name in ("evicted", "violated", "shortened", "stored"):
            places.append(CaseCluster(field, Case(name, None, {}), asyncio.Event()))
            await places[-1].open()
        evicted, violated, shortened, stored = places
        async with field.control({}, "--leader-election-enabled=true", kubeconfig=file):
            await evicted.full(await evicted.node(), "v0", "v1", "v2", "v3")
            on = await violated.node("n1", 1)
            await violated.full(on, "v0", labels={"app": "a"})
            await violated.budget(budget("of-a", 1, {"app": "a"}), 0)
            on = await shortened.node("n1", 1)
            await shortened.full(on, "v0", labels=SLOW, grace=60)
            await shortened.delete("v0")
            on = await stored.node("n1", 1)
            await stored.full(on, "v0")
            volumes = [volume_of(await stored.claim(on))]
            for place, victim in zip(places, ("v3", "v0", "v0", "v0"), strict=True):
                uid = await place.critical(volumes=volumes if place is stored else [])
                await place.until_bound(uid, patience=PATIENCE)
                await place.clean()
                assert place.taken_pods() == {victim}
        assert field.faults == []


@pytest.mark.parametrize("apply", [apply_component, apply_alone])
def test_s22_every_right_of_the_rescheduler_is_used_and_nothing_is_refused(tmp_path, apply):
    with Plane(tmp_path / "plane") as plane:
        asyncio.run(made_room(plane, apply))
        component = json.loads(
            plane.kubectl("get", "clusterrole", "harbourmaster-rescheduling", "-o=json").stdout
        )
        rights = {
            (ACCOUNTS["controller"], verb, group, resource, name)
            for rule in component["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            for name in rule.get("resourceNames") or [ANY_NAME]
        }
        assert rights <= set(granted_rights(plane.kubectl))
        if apply is apply_alone:
            # Events are patched where they repeat.
            events = (ACCOUNTS["controller"], "patch", "events.k8s.io", "events", ANY_NAME)
            rights = set(granted_rights(plane.kubectl)) - {events}
        missing = rights - used_rights(plane, rights)
        assert not missing, f"granted and never used: {sorted(missing)}"
        assert refused_requests(plane) == []
