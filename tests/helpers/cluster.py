"""Control planes of tests, and manifests: workloads, policies, and our webhook registrations."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import time
import urllib.error
import urllib.request
import uuid

from harbourmaster.playground import api
from harbourmaster.playground.control_plane import ControlPlane
from harbourmaster.playground.errors import PlaygroundError
from helpers.faults.stored_objects import Stored
from helpers.objects import API, RESOURCES
from helpers.oracles import NODE_REQUIRED
from helpers.patience import PATIENCE


@contextlib.contextmanager
def plane_for(request, factory, name, **options):
    """Run a control plane; keep its folder, and say where its logs are, if a test fails.

    ``options`` are those of ControlPlane.
    """
    directory = factory.mktemp(name)
    failed = request.session.testsfailed
    with ControlPlane(directory, **options) as plane:
        yield plane
    if request.session.testsfailed > failed:
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\nlogs of the control plane: {directory / 'logs'}")  # noqa: T201
    else:
        shutil.rmtree(directory)


RBAC = "rbac.authorization.k8s.io/v1"
STRICTLY = "?fieldValidation=Strict"
POLICY_RESOURCES = ["podschedulingpolicies", "clusterpodschedulingpolicies"]
LABELS = {"example.com/app": "ledger", "example.com/role": "main"}
PAUSE_SECONDS = 0.05
# The namespaces whose reviews go to the server that tests share.
SERVED = {"example.com/reviews": "shared"}


def manifests(namespace, *, suffix="", labels=None, **pod_spec):
    """One object of each of the eight workload kinds and both policy kinds."""
    labels = LABELS if labels is None else labels
    template = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [{"name": "ledger", "image": "registry.example.com/ledger:3"}],
            **pod_spec,
        },
    }
    once = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    selector = {"matchLabels": labels}
    specs = {
        "Pod": template["spec"],
        "ReplicationController": {"replicas": 0, "selector": labels, "template": template},
        "ReplicaSet": {"replicas": 0, "selector": selector, "template": template},
        "Deployment": {"replicas": 0, "selector": selector, "template": template},
        "StatefulSet": {
            "replicas": 0,
            "selector": selector,
            "serviceName": "ledger",
            "template": template,
        },
        "DaemonSet": {"selector": selector, "template": template},
        "Job": {"suspend": True, "template": once},
        "CronJob": {
            "schedule": "0 0 1 1 *",
            "suspend": True,
            "jobTemplate": {"spec": {"template": once}},
        },
    }
    for kind, spec in specs.items():
        group, version, _ = RESOURCES[kind]
        metadata = {"name": f"ledger{suffix}", "namespace": namespace}
        if kind == "Pod":
            metadata["labels"] = labels
        yield {
            "apiVersion": f"{group}/{version}".lstrip("/"),
            "kind": kind,
            "metadata": metadata,
            "spec": spec,
        }
    for kind in ("PodSchedulingPolicy", "ClusterPodSchedulingPolicy"):
        metadata = {"name": f"ledger{suffix}"}
        if kind == "PodSchedulingPolicy":
            metadata["namespace"] = namespace
        yield {
            "apiVersion": API,
            "kind": kind,
            "metadata": metadata,
            "spec": {"podSelector": {}, "nodeSelector": {"example.com/pool": "ledger"}},
        }


def workloads(namespace, **options):
    """One object of each workload kind, as a List; the options are those of ``manifests``.

    Each has labels of its own: a ReplicaSet of no replicas would take any pod of its labels.
    """
    items = [
        workload(kind, namespace, labels={**LABELS, "example.com/kind": kind}, **options)
        for kind in RESOURCES
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def workload(kind, namespace, **options):
    """A workload of the kind."""
    return next(
        manifest for manifest in manifests(namespace, **options) if manifest["kind"] == kind
    )


def bare_pod(name, metadata=None, **spec):
    """A pod of no kind of owner, unless its metadata names one."""
    main = {"name": "main", "image": "registry.example.com/main:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"containers": [main], **spec},
    }


def pod_spec(stored):
    """The pod spec in a workload of any kind."""
    spec = stored["spec"]
    if stored["kind"] == "Pod":
        return spec
    if stored["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    return spec["template"]["spec"]


def required_terms(spec):
    """The alternatives of the required node affinity."""
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(NODE_REQUIRED, {})
    return required.get("nodeSelectorTerms", [])


def path_of(manifest, *more):
    """The path of an object in the API; without its name, that of the objects of its kind."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    place = ("namespaces", metadata["namespace"]) if "namespace" in metadata else ()
    plural = re.sub("y$", "ie", re.sub("is$", "e", manifest["kind"].lower())) + "s"
    return "/".join(("", "apis" if "/" in version else "api", version, *place, plural, *more))


def why_refused(kubectl, user, method, path, body=None, kind="json"):
    """Return why the API server refuses a request of this user; empty if it does not.

    ``kind`` is that of a patch: merge-patch+json, apply-patch+yaml and so on.
    """
    plane = kubectl.__self__
    headers = {"Content-Type": f"application/{kind}", "Impersonate-User": user}
    content = json.dumps(body).encode()
    url = f"{plane.server}{path}"
    request = urllib.request.Request(url, content, headers, method=method)  # noqa: S310
    try:
        urllib.request.urlopen(request, timeout=PATIENCE, context=plane.admin).close()  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            return json.load(error)["message"]
    return ""


def role_of(kind, metadata, *rules):
    """A Role or ClusterRole."""
    return {"apiVersion": RBAC, "kind": kind, "metadata": metadata, "rules": rules}


def role_binding(name, namespace, user, role, kind="ClusterRole"):
    """A RoleBinding that gives a user a role in the namespace."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def create(kubectl, *manifests, is_tried=False):
    """Create objects, or try it by a dry run; return what is stored, or would be.

    The namespaces are in the manifests. Requests of our own serve for this: a process takes longer.
    """
    stored, query = Stored(kubectl.__self__), STRICTLY + "&dryRun=All" * is_tried
    return [stored.ask("POST", path_of(manifest) + query, manifest) for manifest in manifests]


def delete(kubectl, *manifests):
    """Delete objects; they may be gone already."""
    for manifest in manifests:
        Stored(kubectl.__self__).remove(path_of(manifest, manifest["metadata"]["name"]))


def read(kubectl, manifest):
    """The stored objects of a manifest by kind; an empty dict for nothing."""
    given, stored = json.loads(manifest), Stored(kubectl.__self__)
    kinds = {
        item["kind"]: stored.find(path_of(item, item["metadata"]["name"]))
        for item in given.get("items", [given])
    }
    return {kind: texts for kind, texts in kinds.items() if texts}


def fresh_namespace(kubectl, stem, labels=None, annotations=None):
    """Create a namespace of a name like ``stem`` in which pods can be created; return its name."""
    plane = kubectl.__self__
    stem = re.sub("[^a-z0-9]+", "-", stem.lower())[:40].strip("-")
    name = f"{stem}-{uuid.uuid4().hex[:8]}"
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    create(kubectl, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts?watch=true"
    with contextlib.closing(api.watch(plane.port, plane.admin, accounts, PATIENCE)) as events:
        # The first one is there for pods without another.
        next(events)
    return name


def delete_namespace(kubectl, name):
    """Delete a namespace without waiting for its end; it may be gone already."""
    with contextlib.suppress(PlaygroundError):
        Stored(kubectl.__self__).ask("DELETE", f"/api/v1/namespaces/{name}")


def selecting(namespace):
    """A namespace selector for one namespace."""
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


@contextlib.contextmanager
def keep_registered(kubectl, *configurations):
    """Keep webhook configurations in the API; they take effect a moment later."""
    create(kubectl, *configurations)
    try:
        yield
    finally:
        delete(kubectl, *configurations)


def eventually(ask, *, is_right=bool):
    """Ask the API server until the answer is right; return it."""
    deadline = time.monotonic() + PATIENCE
    while not is_right(answer := ask()):
        assert time.monotonic() < deadline, f"still {answer}"
        time.sleep(PAUSE_SECONDS)
    return answer


def tried_pod(kubectl, namespace):
    """The spec that a bare pod would get in the namespace, by a server-side dry run."""
    (tried,) = create(kubectl, workload("Pod", namespace, suffix="-tried"), is_tried=True)
    return tried["spec"]


def rule(resources, group="", version="v1", operations=("CREATE",)):
    """A rule of a webhook."""
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": resources,
        "operations": list(operations),
    }


def webhook_configuration(
    kind, url="", bundle=b"", *, name="harbourmaster-test", webhook="", **fields
):
    """A registration by URL; ``kind`` is Mutating or Validating, ``fields`` go into the webhook."""
    operations = ("CREATE", "UPDATE")
    if kind == "Mutating":
        rules = [
            rule([resource], group, version, operations)
            for group, version, resource in RESOURCES.values()
        ]
        path = "mutate"
    else:
        rules = [rule(POLICY_RESOURCES, "kupid.gardener.cloud", "v1alpha1", operations)]
        path = "validate"
    entry = {
        "name": webhook or f"{path}.harbourmaster.example.com",
        "clientConfig": {
            "url": f"{url}/{path}",
            "caBundle": base64.b64encode(bundle).decode(),
        },
        "rules": rules,
        "admissionReviewVersions": ["v1", "v1beta1"],
        "sideEffects": "None",
        "timeoutSeconds": 3,
        "failurePolicy": "Fail",
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", "kube-public", "kube-node-lease"],
                }
            ]
        },
    }
    if kind == "Mutating":
        entry["reinvocationPolicy"] = "IfNeeded"
    entry.update(fields)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [entry],
    }
