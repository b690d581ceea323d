"""Faults of the cluster of ``helpers.examined``."""

from __future__ import annotations

import base64

from harbourmaster.api.resources import (
    API_SERVICES,
    CLUSTER_POLICIES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    POLICIES,
    SECRETS,
    VALIDATING_WEBHOOKS,
)
from harbourmaster.certs.authority import issue_serving_certificate
from harbourmaster.kube.errors import ForbiddenError, ServerError
from harbourmaster.registration import break_glass
from helpers.examined import (
    CONTROLLER,
    HOME,
    NAME,
    SECRET_NAME,
    WEBHOOK,
    own_metadata,
    unreachable,
)

GATED = "gated-pods.harbourmaster.dev"
POD = "pods.harbourmaster.dev"
ASKED = {"keptn.sh/lifecycle-toolkit": "enabled"}


def flags(cluster, *more, name=CONTROLLER):
    cluster.container(name)["args"] += more


def namespace(cluster, name, **metadata):
    labels = {"kubernetes.io/metadata.name": name, **metadata.pop("labels", {})}
    cluster.put(NAMESPACES, {"metadata": {"name": name, "labels": labels, **metadata}})


def policy(cluster, name, spec, annotations=None, *, space=None):
    metadata = {"name": name, "annotations": annotations or {}}
    metadata |= {"namespace": space} if space else {}
    resource = POLICIES if space else CLUSTER_POLICIES
    cluster.put(
        resource,
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "spec": spec,
        },
    )


def addon(name="dns", *, tolerates=True, safe=False, priority="system-cluster-critical", **status):
    annotations = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"} if safe else {}
    tolerations = [{"key": "CriticalAddonsOnly", "operator": "Exists"}] if tolerates else []
    return {
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "uid": name,
            "labels": {"k8s-app": name},
            "annotations": annotations,
        },
        "spec": {"priorityClassName": priority, "tolerations": tolerations, "containers": []},
        "status": {"phase": "Running", **status},
    }


def leaf(cluster, now, names, authority=None, **options):
    made = issue_serving_certificate(now, authority or cluster.authority, names, **options)
    data = cluster.at(SECRETS, SECRET_NAME, HOME)["data"]
    data["tls.crt"], data["tls.key"] = made.certificate, made.key


def set_replicas(cluster, name, replicas, ready):
    deployment = cluster.at(DEPLOYMENTS, name, HOME)
    deployment["spec"]["replicas"] = replicas
    deployment["status"] = {"readyReplicas": ready}


def unready_pod(cluster, status):
    set_replicas(cluster, WEBHOOK, 3, 2)
    labels = {"app.kubernetes.io/name": "harbourmaster", "app.kubernetes.io/component": "webhook"}
    metadata = {"name": "w-1", "namespace": HOME, "labels": labels}
    cluster.put(PODS, {"metadata": metadata, "status": status})


def glass(cluster):
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        said = break_glass.BreakGlass(by="ada", reason="fire")
        cluster.put(resource, break_glass.with_break_glass(cluster.at(resource, NAME), said))


def api_service(cluster, **status):
    service = {"namespace": HOME, "name": "harbourmaster-metrics"}
    bundle = base64.b64encode(cluster.authority.certificate).decode()
    cluster.put(
        API_SERVICES,
        {
            "metadata": {"name": "v1beta1.custom.metrics.k8s.io"},
            "spec": {"service": service, "caBundle": bundle},
            "status": status,
        },
    )


def settings_file(cluster, text):
    spec = cluster.at(DEPLOYMENTS, CONTROLLER, HOME)["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "settings", "configMap": {"name": "settings"}}]
    mount = {"name": "settings", "mountPath": "/etc/settings"}
    spec["containers"][0]["volumeMounts"] = [mount]
    flags(cluster, "--config=/etc/settings/controller.yaml")
    cluster.put(
        CONFIG_MAPS, {"metadata": own_metadata("settings"), "data": {"controller.yaml": text}}
    )


def other_webhook(cluster, name, **fields):
    rule = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    entry = {"name": f"{name}.example.com", "rules": [rule], **fields}
    cluster.put(MUTATING_WEBHOOKS, {"metadata": {"name": name}, "webhooks": [entry]})


def steals(cluster):
    other_webhook(cluster, "thief")
    other_webhook(cluster, "bystander", namespaceSelector={"matchLabels": {"no": "one"}})

    def admit(pod):
        admitted = cluster.answer_pod(pod)
        admitted["spec"].pop("tolerations")
        return admitted

    cluster.admit = admit


def never_ends(cluster):
    def admit(pod):
        admitted = cluster.answer_pod(pod)
        admitted["spec"]["nodeSelector"][str(len(admitted["spec"]["nodeSelector"]))] = ""
        return admitted

    cluster.admit = admit


def refuses(text, status=403):
    def break_it(cluster):
        def admit(_pod):
            kind = ForbiddenError if status == 403 else ServerError
            raise kind(text, status=status)

        cluster.admit = admit

    return break_it


def silent(why=None, *, denies=True):
    def break_it(cluster):
        cluster.admit = lambda pod: pod
        judged = cluster.judge_object

        def check(resource, obj):
            if why is not None:
                raise unreachable(why)
            return judged(resource, obj) if denies else obj

        cluster.check = check

    return break_it


X509 = (
    'Post "https://harbourmaster-webhook.harbourmaster-system.svc:443/validate?timeout=3s": tls: '
    "failed to verify certificate: x509: certificate signed by unknown authority"
)
