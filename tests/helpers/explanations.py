"""Pods and their owners, which ``harbourmaster why`` is to explain, and our registration."""

from __future__ import annotations

from harbourmaster.api.resources import MUTATING_WEBHOOKS

NAMESPACE = "shop"


def essence(section):
    """Return a section of the JSON output without its details."""
    return {key: section[key] for key in ("state", "code", "summary", "next")}


def pod(name="cart-1", owner=None, labels=None, **spec):
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "labels": {"app": "cart"} if labels is None else labels,
        "creationTimestamp": "2026-03-01T12:00:00Z",
    }
    if owner:
        metadata["ownerReferences"] = [owner]
    containers = [{"name": "c", "image": "registry.example.com/cart:1"}]
    spec = {"containers": containers, "schedulerName": "default-scheduler", **spec}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def reference(kind, name):
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "uid": f"uid-{name}",
        "controller": True,
    }


def template(**spec):
    manifest = pod(**spec)
    return {"metadata": {"labels": manifest["metadata"]["labels"]}, "spec": manifest["spec"]}


def put_owner(api, resource, pod_template, **metadata):
    """Put a workload with a template under the uid by which ``reference`` names it."""
    metadata = {"name": "cart", "namespace": NAMESPACE, **metadata}
    api.put(resource, {"metadata": metadata, "spec": {"template": pod_template}})
    api.get(resource, "cart", NAMESPACE)["metadata"]["uid"] = "uid-cart"


def registration(**entry):
    rule = {"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}
    webhook = {"name": "pods.harbourmaster.dev", "rules": [rule], **entry}
    return {"metadata": {"name": "harbourmaster"}, "webhooks": [webhook]}


def put_registration(api, **entry):
    """Register a webhook that is older than all pods."""
    stored = api.put(MUTATING_WEBHOOKS, registration(**entry))
    stored["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return stored


def shown(section):
    """The lines of a section, the first with its state and code."""
    lines = [f"{'  ' * line.depth}{line.label} {line.text}" for line in section.lines]
    return [f"{section.state} {section.code}: {section.summary}", *lines]
