"""A ServiceAccount that may do what the controller needs and nothing else."""

from __future__ import annotations

import json

import yaml

from helpers.registration import NAME, SECRET

ACCOUNT = "controller"
LEASE = "harbourmaster-controller"
HOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
CONVERTED = ("keptnapps.lifecycle.keptn.sh", "keptnappversions.lifecycle.keptn.sh")
ADOPTED = "gardener-extension-webhook-cert"

# Group, resources, names (none: all), verbs.
EVERYWHERE = [
    ("", ["namespaces"], [], ["get", "list", "patch", "watch"]),
    ("events.k8s.io", ["events"], [], ["create", "patch"]),
    ("admissionregistration.k8s.io", [*HOOKS], [], ["create"]),
    ("admissionregistration.k8s.io", [*HOOKS], [NAME], ["list", "update", "watch"]),
    (
        "apiextensions.k8s.io",
        ["customresourcedefinitions"],
        [*CONVERTED],
        ["list", "patch", "watch"],
    ),
]
AT_HOME = [
    ("coordination.k8s.io", ["leases"], [], ["create"]),
    ("coordination.k8s.io", ["leases"], [LEASE], ["get", "update"]),
    ("", ["secrets"], [], ["create"]),
    ("", ["secrets"], [SECRET], ["list", "update", "watch"]),
    ("", ["secrets"], [ADOPTED], ["get"]),
    ("", ["pods"], [], ["list", "patch"]),
]


def granted_rights():
    """Every (verb, resource, name) that is allowed; the name is empty where any is."""
    return {
        (verb, resource, name)
        for _, resources, names, verbs in (*EVERYWHERE, *AT_HOME)
        for resource in resources
        for name in (names or [""])
        for verb in verbs
    }


def account(namespace):
    """The ServiceAccount in the namespace, with its roles and bindings."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _in(namespace, ACCOUNT)},
        *_role("ClusterRole", EVERYWHERE, {"name": namespace}, namespace),
        *_role("Role", AT_HOME, _in(namespace, ACCOUNT), namespace),
    ]


def kubeconfig(admin, **user):
    """The administrator's kubeconfig, with the credentials of another user."""
    config = yaml.safe_load(admin.read_text())
    for obj in config["users"]:
        obj["user"] = user
    return yaml.safe_dump(config)


def used_rights(audit_log, namespace):
    """The used rights of the account, as in ``granted_rights``, and the refused requests."""
    user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
    named = {(verb, resource) for verb, resource, name in granted_rights() if name}
    done, refused = set(), []
    for line in audit_log.read_text().splitlines():
        event = json.loads(line)
        if event["user"].get("username") != user or "objectRef" not in event:
            continue
        if event.get("responseStatus", {}).get("code") == 403:
            refused.append(event["requestURI"])
        resource, name = event["objectRef"]["resource"], event["objectRef"].get("name", "")
        is_named = (event["verb"], resource) in named
        done.add((event["verb"], resource, name if is_named else ""))
    return done, refused


def _in(namespace, name):
    return {"name": name, "namespace": namespace}


def _role(kind, rules, metadata, namespace):
    api_version = "rbac.authorization.k8s.io/v1"
    wire = [
        {
            "apiGroups": [group],
            "resources": resources,
            "verbs": verbs,
            **({"resourceNames": names} if names else {}),
        }
        for group, resources, names, verbs in rules
    ]
    yield {"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": wire}
    yield {
        "apiVersion": api_version,
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": kind,
            "name": metadata["name"],
        },
        "subjects": [{"kind": "ServiceAccount", **_in(namespace, ACCOUNT)}],
    }
