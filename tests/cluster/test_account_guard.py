"""Attacks with a stolen token of the controller: the guard allows only the controller's own writes.

Each attack and each legitimate write is a dry run with the account's real token and all the
permissions of all components. Without the guard every attack succeeds.
"""

from __future__ import annotations

import base64
import copy
import json
import uuid
from types import SimpleNamespace

import pytest

from helpers.cluster import bare_pod, eventually, rule
from helpers.guarded_account import (
    FOREIGN_GATE,
    GATE,
    JSON,
    MERGE,
    STRATEGIC,
    GuardedAccount,
    a_list,
    account_client,
    guard,
    job,
    owner,
    rights_in,
    stored_object,
)

pytestmark = pytest.mark.gate

PODS = "/api/v1/namespaces/{tenant}/pods"
JOBS = "/apis/batch/v1/namespaces/{tenant}/jobs"
MAPS = "/api/v1/namespaces/{tenant}/configmaps"
NODE = "/api/v1/nodes/guarded-node"
CERTIFICATE = "certs.harbourmaster.dev/serving-certificate"
RESERVATIONS = "rescheduler.harbourmaster.dev/reservations"
CONVERTED = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/keptnapps.lifecycle.keptn.sh"
SERVED = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io"
SCHEDULER = "/apis/apps/v1/namespaces/{home}/deployments/harbourmaster-scheduler"
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
TOLERATIONS = {"key": "CriticalAddonsOnly", "operator": "Exists", "effect": "NoSchedule"}
STAGED = {"labels": {"gates.harbourmaster.dev/staged": "true"}}


def annotation(value, key="gates.harbourmaster.dev/checks"):
    return {"metadata": {"annotations": {key: value}}}


def config_map(name, uid, kind="KeptnTaskDefinition", **more):
    metadata = {"name": name, "ownerReferences": [owner(kind, "coded", uid)]}
    data = {"data": {"code": "print(1)"}, **more}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **data}


def secret(kind):
    annotations = {"kubernetes.io/service-account.name": "harbourmaster-webhook"}
    metadata = {"generateName": "stolen-", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind}


def condition_of(reason, kind="DisruptionTarget"):
    condition = {"type": kind, "status": "True", "reason": reason, "message": "room"}
    return {"status": {"conditions": [condition]}}


def deletion(uid=None, **options):
    preconditions = {"preconditions": {"uid": uid}} if uid else {}
    # With a body, the API server ignores the query.
    options["dryRun"] = ["All"]
    return {"apiVersion": "v1", "kind": "DeleteOptions", **preconditions, **options}


def eviction(uid=None, **options):
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "running"},
        "deleteOptions": deletion(uid, **options),
    }


def taints_of(*taints):
    return {"spec": {"taints": list(taints)}}


FOREIGN_TAINT = {"key": "example.com/gpu", "value": "yes", "effect": "NoSchedule"}
OUR_TAINT = {"key": "CriticalAddonsOnly", "value": "resched.0123abcd", "effect": "NoSchedule"}


def webhooks(name="harbourmaster", *, group="", resource="pods", **client):
    where = client or {"service": {"namespace": "{home}", "name": "harbourmaster-webhook"}}
    webhook = {
        "name": "all.example.com",
        "clientConfig": where,
        "rules": [rule([resource], group)],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }


def pod_attacks(ids):
    waiting, running = f"{PODS}/waiting", f"{PODS}/running"
    own = {**TOLERATIONS, "key": "example.com/own"}
    status = f"{running}/status"
    both = [{"op": "replace", "path": "/spec/schedulingGates", "value": [{"name": GATE}]}]
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil.example/x"}]
    more = {"op": "add", "path": "/spec/tolerations/-"}
    everything = [{**more, "value": {"operator": "Exists"}}]
    evicting = [{**more, "value": {**own, "effect": "NoExecute"}}]
    patch = "application/json-patch+json"
    yield "image", "PATCH", running, image, patch, "nothing in the spec of a pod"
    yield "deadline", "PATCH", running, {"spec": {"activeDeadlineSeconds": 1}}, MERGE, "spec"
    yield "foreign gate", "PATCH", waiting, both, patch, "no other"
    selector = {"spec": {"nodeSelector": {"example.com/pool": "evil"}}}
    yield "node selector", "PATCH", waiting, selector, MERGE, "nothing in the spec of a pod"
    yield "all tolerations", "PATCH", running, everything, patch, "at most one toleration"
    yield "no execute", "PATCH", running, evicting, patch, "at most one toleration"
    labels = {"metadata": {"labels": {"app": "payments"}}}
    yield "labels", "PATCH", running, labels, MERGE, "only the label gates.harbourmaster.dev/staged"
    finalizers = {"metadata": {"finalizers": ["example.com/forever"]}}
    yield "finalizers", "PATCH", running, finalizers, MERGE, "no metadata of a pod"
    owners = {"metadata": {"ownerReferences": [owner("KeptnTask", "checked", ids.task)]}}
    yield "owner", "PATCH", running, owners, MERGE, "no metadata of a pod"
    foreign = annotation("true", "cluster-autoscaler.kubernetes.io/safe-to-evict")
    yield "annotation", "PATCH", running, foreign, MERGE, "only the annotations"
    version = annotation("2.0", "keptn.sh/version")
    elsewhere = annotation("0", CERTIFICATE)
    yield (
        "certificate of a tenant's pod",
        "PATCH",
        running,
        elsewhere,
        MERGE,
        "only the annotations",
    )
    yield "version of a pod that runs", "PATCH", running, version, MERGE, "only the annotations"
    yield "ready", "PATCH", status, condition_of("x", "Ready"), STRATEGIC, "DisruptionTarget"
    yield (
        "eviction forged",
        "PATCH",
        status,
        condition_of("EvictionByEvictionAPI"),
        STRATEGIC,
        "sets only",
    )
    yield "address", "PATCH", status, {"status": {"podIP": "10.1.2.3"}}, STRATEGIC, "sets only"
    yield "labels by status", "PATCH", status, labels, STRATEGIC, "no metadata of a pod"
    yield "any deletion", "DELETE", running, deletion(), JSON, "only by its UID"
    at_once = deletion(ids.running, gracePeriodSeconds=0)
    yield "deletion at once", "DELETE", running, at_once, JSON, "not at once"
    critical = "/api/v1/namespaces/kube-system/pods/guarded-critical"
    yield "node critical", "DELETE", critical, deletion(ids.critical), JSON, "none with the"
    yield "any eviction", "POST", f"{running}/eviction", eviction(), JSON, "only by its UID"


def job_attacks(ids):
    def attack(name, text, **what):
        return name, "POST", JOBS, job(ids.task, **what), JSON, text

    bare, foreign = job(ids.task), job(ids.task)
    del bare["metadata"]["ownerReferences"]
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": ids.task}
    foreign["metadata"]["ownerReferences"] = [{**deployment, "controller": True}]
    yield "no owner", "POST", JOBS, bare, JSON, "that a KeptnTask controls"
    yield "foreign owner", "POST", JOBS, foreign, JSON, "that a KeptnTask controls"
    for namespace in ("kube-system", "kube-public", "kube-node-lease", "{home}"):
        path = JOBS.replace("{tenant}", namespace)
        yield f"in {namespace}", "POST", path, job(ids.task), JSON, "namespaces of the system"
    yield attack("hostNetwork", "hostNetwork", pod={"hostNetwork": True})
    yield attack("hostPID", "hostNetwork", pod={"hostPID": True})
    yield attack("hostIPC", "hostNetwork", pod={"hostIPC": True})
    volumes = [{"name": "root", "hostPath": {"path": "/"}}]
    yield attack("hostPath", "hostPath", pod={"volumes": volumes})
    yield attack("nodeName", "nodeName", pod={"nodeName": "guarded-node"})
    yield attack("priority", "nodeName", pod={"priorityClassName": "system-node-critical"})
    yield attack("hostPort", "hostPorts", ports=[{"containerPort": 80, "hostPort": 80}])
    for name, context in {
        "privileged": {"privileged": True},
        "capabilities": {"capabilities": {"add": ["SYS_ADMIN"]}},
        "seccomp": {"seccompProfile": {"type": "Unconfined"}},
        "procMount": {"procMount": "Unmasked"},
    }.items():
        more = {"hostUsers": False} if name == "procMount" else None
        yield attack(name, "baseline", securityContext=context, pod=more)
    profile = {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}
    yield attack("AppArmor by annotation", "unconfined AppArmor", annotations=profile)
    get = {"httpGet": {"host": "169.254.169.254", "port": 80}}
    connect = {"tcpSocket": {"host": "169.254.169.254", "port": 80}}
    for name, field in {
        "livenessProbe": {"livenessProbe": get},
        "readinessProbe": {"readinessProbe": connect},
        "startupProbe": {"startupProbe": get},
        "postStart": {"lifecycle": {"postStart": get}},
        "preStop": {"lifecycle": {"preStop": get}},
    }.items():
        yield attack(f"host of {name}", "name a host", **field)
    init = {"name": "init", "image": "x", "securityContext": {"privileged": True}}
    yield attack("privileged init container", "baseline", pod={"initContainers": [init]})
    sysctls = [{"name": "kernel.msgmax", "value": "1"}]
    yield attack("sysctl", "baseline", pod={"securityContext": {"sysctls": sysctls}})
    suspended = {"spec": {"suspend": True}}
    yield "suspend", "PATCH", f"{JOBS}/checked", suspended, MERGE, "only ttlSecondsAfterFinished"
    labels = {"metadata": {"labels": {"a": "b"}}}
    yield "label of a Job", "PATCH", f"{JOBS}/checked", labels, MERGE, "only ttlSeconds"
    ttl = {"spec": {"ttlSecondsAfterFinished": 0}}
    yield "another's Job", "PATCH", f"{JOBS}/foreign", ttl, MERGE, "that a KeptnTask controls"


def other_attacks(ids):
    auth = "/api/v1/namespaces/kube-system/configmaps"
    value = {"data": {"mapUsers": "- userarn: evil"}}
    maps = "writes only ConfigMaps"
    yield "aws-auth", "PATCH", f"{auth}/guarded-auth", value, MERGE, maps
    claimed = {"metadata": {"ownerReferences": [owner("KeptnTask", "t", ids.task)]}, **value}
    yield "aws-auth claimed", "PATCH", f"{auth}/guarded-auth", claimed, MERGE, maps
    made = config_map("aws-auth", ids.definition)
    yield "aws-auth made", "POST", auth, made, JSON, maps
    bare = config_map("keptnfn-bare", ids.definition)
    del bare["metadata"]["ownerReferences"]
    yield "ConfigMap without owner", "POST", MAPS, bare, JSON, maps
    labels = {"metadata": {"labels": {"grafana_dashboard": "1"}}}
    yield "ConfigMap label", "PATCH", f"{MAPS}/keptnfn-coded", labels, MERGE, "only the data"
    token = secret("kubernetes.io/service-account-token")
    yield "token", "POST", "/api/v1/namespaces/{home}/secrets", token, JSON, "of the types Opaque"
    yield "webhooks", "POST", HOOKS, webhooks("evil"), JSON, "guard-webhooks"
    url = webhooks(url="https://evil.example.com")
    yield "webhook elsewhere", "POST", HOOKS, url, JSON, "guard-webhooks"
    foreign = webhooks(service={"namespace": "{tenant}", "name": "evil"})
    yield "webhook of a tenant", "POST", HOOKS, foreign, JSON, "guard-webhooks"
    for group, resource in (("", "secrets"), ("*", "*"), ("authentication.k8s.io", "tokenreviews")):
        seen = webhooks(group=group, resource=resource)
        yield f"webhook for {resource}", "POST", HOOKS, seen, JSON, "guard-webhooks"
    untainted = taints_of(OUR_TAINT)
    yield "foreign taint removed", "PATCH", NODE, untainted, MERGE, "only its own taints"
    evil = taints_of(FOREIGN_TAINT, {"key": "evil", "effect": "NoExecute"})
    yield "foreign taint added", "PATCH", NODE, evil, MERGE, "only its own taints"
    forged = taints_of(FOREIGN_TAINT, {**OUR_TAINT, "effect": "NoExecute"})
    yield "NoExecute as ours", "PATCH", NODE, forged, MERGE, "only its own taints"
    yield "cordon", "PATCH", NODE, {"spec": {"unschedulable": True}}, MERGE, "spec of a node"
    labels = {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}
    yield "node label", "PATCH", NODE, labels, MERGE, "only the annotation"
    yield "node annotation", "PATCH", NODE, annotation("1", "x"), MERGE, "only the annotation"
    versions = {"metadata": {"labels": {"x": "y"}}}
    yield "definition label", "PATCH", CONVERTED, versions, MERGE, "guard-registration"
    elsewhere = {"service": {"namespace": "{tenant}", "name": "evil"}}
    conversion = {"spec": {"conversion": {"webhook": {"clientConfig": elsewhere}}}}
    yield "conversion elsewhere", "PATCH", CONVERTED, conversion, MERGE, "guard-registration"
    singular = {"spec": {"names": {"shortNames": ["po"]}}}
    yield "definition's names", "PATCH", CONVERTED, singular, MERGE, "guard-registration"
    yield "metrics elsewhere", "PATCH", SERVED, {"spec": elsewhere}, MERGE, "guard-registration"
    unverified = {"spec": {"insecureSkipTLSVerify": True, "caBundle": None}}
    yield "metrics unverified", "PATCH", SERVED, unverified, MERGE, "guard-registration"
    replicas = {"spec": {"replicas": 0}}
    yield "scheduler off", "PATCH", SCHEDULER, replicas, MERGE, "guard-registration"
    image = [{"name": "main", "image": "evil.example/x"}]
    pods = {"spec": {"template": {"spec": {"containers": image}}}}
    yield "scheduler's image", "PATCH", SCHEDULER, pods, MERGE, "guard-registration"


def legitimate(ids):
    """The writes of the controller, as ``harbourmaster/controller/`` sends them."""
    waiting, running = f"{PODS}/waiting", f"{PODS}/running"
    patch = "application/json-patch+json"

    def at(uid, *operations):
        return [{"op": "test", "path": "/metadata/uid", "value": uid}, *operations]

    removed = {"op": "add", "path": "/metadata/annotations/keptn.sh~1scheduling-gate-removed"}
    gate = {"op": "remove", "path": "/spec/schedulingGates/0"}
    freed = at(ids.waiting, gate, {**removed, "value": "true"})
    yield "release", "PATCH", waiting, freed, patch
    completed = {
        "keptn.sh/workload": "cart",
        "keptn.sh/version": "2.0",
        "gates.harbourmaster.dev/parent": None,
    }
    yield "completion", "PATCH", waiting, {"metadata": {"annotations": completed, **STAGED}}, MERGE
    yield "nudge", "PATCH", running, annotation("passed-2"), MERGE
    webhook = PODS.replace("{tenant}", "{home}") + "/guarded-webhook"
    yield "mount", "PATCH", webhook, annotation("0", CERTIFICATE), MERGE
    toleration = {"op": "add", "path": "/spec/tolerations/-", "value": TOLERATIONS}
    yield "toleration", "PATCH", running, at(ids.running, toleration), patch
    yield "mark", "PATCH", f"{running}/status", condition_of("DeletionByRescheduler"), STRATEGIC
    ended = deletion(ids.running, gracePeriodSeconds=1)
    yield "deletion", "DELETE", running, ended, JSON
    gone = eviction(ids.running, gracePeriodSeconds=5)
    yield "eviction", "POST", f"{running}/eviction", gone, JSON
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    mount = {"name": "function-mount", "mountPath": "/var/data/function.ts", "subPath": "code"}
    volume = {"name": "function-mount", "configMap": {"name": "keptnfn-coded"}}
    pod = {"volumes": [volume], "serviceAccountName": "default"}
    made = job(ids.task, pod=pod, securityContext=restricted, volumeMounts=[mount])
    yield "Job", "POST", JOBS, made, JSON
    ttl = {"op": "add", "path": "/spec/ttlSecondsAfterFinished", "value": 300}
    yield "time to live", "PATCH", f"{JOBS}/checked", [ttl], patch
    coded = config_map("keptnfn-new", ids.definition)
    yield "ConfigMap", "POST", MAPS, coded, JSON
    copied = config_map("keptntask-copy", ids.task, "KeptnTask")
    yield "copy", "POST", MAPS, copied, JSON
    code = [
        {"op": "add", "path": "/data", "value": {"code": "print(2)"}},
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {"gates.harbourmaster.dev/code-digest": "0"},
        },
    ]
    yield "code", "PATCH", f"{MAPS}/keptnfn-coded", code, patch
    owners = {
        "op": "add",
        "path": "/metadata/ownerReferences",
        "value": [owner("KeptnTaskDefinition", "coded", ids.definition)],
    }
    yield "adoption", "PATCH", f"{MAPS}/keptnfn-left", [*code, owners], patch
    certificate = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "harbourmaster-webhook-cert"},
        "type": "Opaque",
    }
    yield "certificate", "POST", "/api/v1/namespaces/{home}/secrets", certificate, JSON
    reserved = {**annotation("[]", RESERVATIONS), **taints_of(FOREIGN_TAINT, OUR_TAINT)}
    yield "reservation", "PATCH", NODE, reserved, MERGE
    left = {"key": "CriticalAddonsOnly", "value": "kube-system_dns", "effect": "NoSchedule"}
    assert left in ids.taints
    yield "reservation of the predecessor ends", "PATCH", NODE, taints_of(FOREIGN_TAINT), MERGE
    bundle = {"op": "add", "path": "/spec/conversion/webhook/clientConfig/caBundle"}
    yield "conversion", "PATCH", CONVERTED, [{**bundle, "value": ids.bundle}], patch
    bundle = {"op": "add", "path": "/spec/caBundle", "value": ids.bundle}
    yield "metrics", "PATCH", SERVED, [bundle], patch
    yield "registration", "POST", HOOKS, webhooks(), JSON
    mark = annotation("0", "certs.harbourmaster.dev/authority")
    yield "restart", "PATCH", SCHEDULER, {"spec": {"template": mark}}, MERGE


@pytest.fixture(scope="module")
def places(control_plane):
    """The account's own namespace and a tenant's, with what the account writes and attacks."""
    kubectl = control_plane.kubectl
    home, tenant = (f"guarded-{name}-{uuid.uuid4().hex[:6]}" for name in ("home", "tenant"))
    for name in (home, tenant):
        kubectl("create", "namespace", name)
    created = a_list([*rights_in(home), *cluster_wide(home)])
    kubectl("apply", "-f=-", stdin=created)
    kubectl("create", "-f=-", f"--namespace={tenant}", stdin=a_list(of_keptn()))
    uids = SimpleNamespace(
        task=uid(kubectl, "keptntask", "checked", tenant),
        definition=uid(kubectl, "keptntaskdefinition", "coded", tenant),
    )
    kubectl("create", "-f=-", f"--namespace={tenant}", stdin=a_list(of_tenant(uids)))
    uids.running, uids.waiting = (uid(kubectl, "pod", n, tenant) for n in ("running", "waiting"))
    uids.critical = uid(kubectl, "pod", "guarded-critical", "kube-system")
    uids.bundle = base64.b64encode((control_plane.layout.pki / "ca.crt").read_bytes()).decode()
    uids.taints = stored_object(kubectl, "node", "guarded-node")["spec"]["taints"]
    yield SimpleNamespace(home=home, tenant=tenant, uids=uids)
    kubectl("delete", "-f=-", "--ignore-not-found", "--grace-period=0", "--force", stdin=created)
    kubectl("delete", "namespace", "--wait=false", home, tenant)


def uid(kubectl, kind, name, namespace):
    return stored_object(kubectl, kind, name, namespace)["metadata"]["uid"]


def pod(name, namespace=None, **spec):
    metadata = {"annotations": {"gates.harbourmaster.dev/parent": "unresolved"}}
    return bare_pod(name, {**metadata, "namespace": namespace}, **spec)


def cluster_wide(home):
    """Objects outside the tenant's namespace."""
    labels = {"matchLabels": {"app": "scheduler"}}
    template = {
        "metadata": {"labels": labels["matchLabels"]},
        "spec": {"containers": [{"name": "main", "image": "registry.example.com/main:1"}]},
    }
    left = {"key": "CriticalAddonsOnly", "value": "kube-system_dns", "effect": "NoSchedule"}
    yield {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "guarded-node"},
        **taints_of(FOREIGN_TAINT, left),
    }
    yield pod("guarded-critical", "kube-system", priorityClassName="system-node-critical")
    yield pod("guarded-webhook", home)
    metadata = {"name": "guarded-auth", "namespace": "kube-system"}
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "harbourmaster-scheduler", "namespace": home},
        "spec": {"replicas": 1, "selector": labels, "template": template},
    }
    yield {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1beta1.custom.metrics.k8s.io"},
        "spec": {
            "group": "custom.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 1,
            "service": {"namespace": home, "name": "harbourmaster-metrics"},
        },
    }


def of_keptn():
    """A task and a definition, which own what the controller makes."""
    api = "lifecycle.keptn.sh/v1"
    context = {"appName": "cart", "workloadName": "cart", "workloadVersion": "1"}
    yield {
        "apiVersion": api,
        "kind": "KeptnTask",
        "metadata": {"name": "checked"},
        "spec": {"taskDefinition": "coded", "context": context},
    }
    yield {
        "apiVersion": api,
        "kind": "KeptnTaskDefinition",
        "metadata": {"name": "coded"},
        "spec": {"deno": {"inline": {"code": "1"}}},
    }


def of_tenant(ids):
    """Tenant objects that the account writes, and those that it never does."""
    yield pod("waiting", schedulingGates=[{"name": GATE}, {"name": FOREIGN_GATE}])
    yield pod("running", nodeName="guarded-node", tolerations=[{"operator": "Exists", "key": "a"}])
    yield job(ids.task, "checked")
    foreign = copy.deepcopy(job(ids.task, "foreign"))
    del foreign["metadata"]["ownerReferences"]
    yield foreign
    yield config_map("keptnfn-coded", ids.definition)
    left = config_map("keptnfn-left", ids.definition)
    del left["metadata"]["ownerReferences"]
    yield left


@pytest.fixture
async def account(control_plane, places, tmp_path):
    async with account_client(control_plane, places.home, tmp_path) as client:
        yield GuardedAccount(client, places.home, places.tenant)


def attacks(ids):
    return [*pod_attacks(ids), *job_attacks(ids), *other_attacks(ids)]


@pytest.fixture
async def guard_in_force(control_plane, places, account):
    """The guard in force."""
    kubectl, policies = control_plane.kubectl, a_list(guard())
    kubectl("apply", "-f=-", stdin=policies)
    try:
        open_ = {obj["metadata"]["name"] for obj in guard()}
        while open_:
            for attack in attacks(places.uids):
                told = await account.refusal(*attack[1:5])
                open_ -= {name for name in open_ if name in told}
        yield account
    finally:
        kubectl("delete", "-f=-", stdin=policies)
        name = "guarded-probe"
        metadata = {"name": name, "namespace": places.tenant}
        probe = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        account_name = f"system:serviceaccount:{places.home}:harbourmaster-controller"
        command = ("create", "-f=-", "--dry-run=server", f"--as={account_name}")
        eventually(lambda: kubectl(*command, stdin=probe, check=False).returncode == 0)


async def test_without_the_guard_every_attack_succeeds(account, places):
    attempts = attacks(places.uids)
    assert len(attempts) >= 50
    told = {attempt[0]: await account.refusal(*attempt[1:5]) for attempt in attempts}
    assert {name: text for name, text in told.items() if text} == {}


@pytest.mark.claim("R11")
async def test_the_guard_refuses_every_attack_and_nothing_that_the_controller_does(
    guard_in_force, places
):
    attempts = attacks(places.uids)
    told = {attempt[0]: await guard_in_force.refusal(*attempt[1:5]) for attempt in attempts}
    assert len(told) == len(attempts)
    assert {
        name: told[name]
        for name, *_, text in attempts
        if "harbourmaster-account-guard-" not in told[name] or text not in told[name]
    } == {}
    written = {
        attempt[0]: await guard_in_force.refusal(*attempt[1:])
        for attempt in legitimate(places.uids)
    }
    assert len(written) >= 20
    assert {name: text for name, text in written.items() if text} == {}


@pytest.mark.claim("R11")
async def test_the_guard_binds_nobody_else(guard_in_force, places, admin):
    guarded_account = GuardedAccount(admin, places.home, places.tenant)
    told = [await guarded_account.refusal(*attack[1:5]) for attack in attacks(places.uids)]
    assert [text for text in told if "account-guard" in text] == []
