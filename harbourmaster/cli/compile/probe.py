"""Objects that are created by dry run, to compare the API server's result with the webhook's."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harbourmaster.cli.offline import pod_in, render_manifest
from harbourmaster.policies.cel_paths import NAMESPACE_NAME, PROBE_NAMESPACE
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.model import (
    AFFINITY,
    NODE_SELECTOR,
    REQUIRED,
    SCHEDULER_NAME,
    TOLERATIONS,
)
from harbourmaster.policies.tolerations import DEFAULTS, counting
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Namespace, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harbourmaster.api.selectors import Matcher
    from harbourmaster.policies.compiled import CompiledPolicy

Json: TypeAlias = "dict[str, Any]"
KINDS: Final = {
    "pods": ("v1", "Pod", "pods"),
    "templates": ("apps/v1", "Deployment", "deployments"),
    "cronjobs": ("batch/v1", "CronJob", "cronjobs"),
}
"""The kind that is tried for each part of the registration."""
_OWNED: Final = (AFFINITY, NODE_SELECTOR, SCHEDULER_NAME, TOLERATIONS)
_CONTAINER: Final = {"name": "probe", "image": "registry.example.com/probe:1"}
_OWN: Final = {
    NODE_SELECTOR: {"probe.example.com/own": "a"},
    TOLERATIONS: [{"key": "probe.example.com/own", "operator": "Exists"}],
    AFFINITY: {
        "nodeAffinity": {
            REQUIRED: {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": f"probe.example.com/{key}", "operator": "Exists"}
                        ]
                    }
                    for key in ("a", "b")
                ]
            }
        }
    },
}


def probes(policies: Sequence[CompiledPolicy]) -> Iterator[tuple[dict[str, str], Json]]:
    """Yield labels of a namespace and a pod that each policy selects, bare and with own fields."""
    for policy in policies:
        namespace = _labels(policy.namespaces)
        if policy.namespace is not None:
            namespace = {NAMESPACE_NAME: policy.namespace}
        for own in ({}, _OWN):
            metadata = {"labels": {"app.kubernetes.io/name": "probe", **_labels(policy.pods)}}
            yield namespace, {"metadata": metadata, "spec": copy.deepcopy(own)}


def _labels(selector: Matcher | None) -> dict[str, str]:
    """Return labels that a selector selects, as far as they follow without a search."""
    if selector is None:
        return {}
    labels = dict.fromkeys(selector.present, "probe")
    return labels | {key: min(values) for key, values in selector.one_of if values}


def object_of(part: str, name: str, namespace: Mapping[str, str], pod: Json) -> Json:
    """Return the pod, or a workload with it as template, in the probe namespace."""
    version, kind, _ = KINDS[part]
    spec = {SCHEDULER_NAME: "default-scheduler", **pod["spec"], "containers": [_CONTAINER]}
    owned = spec.get(TOLERATIONS) or []
    if kind == "Pod":
        # As the API server adds them.
        defaults = (item for taint, item in DEFAULTS.items() if counting(owned, taint) is None)
        owned = [*owned, *defaults]
    if owned:
        spec[TOLERATIONS] = owned
    template = {"metadata": dict(pod["metadata"]), "spec": spec}
    whole: Json = {}
    match kind:
        case "Pod":
            whole = template
        case "Deployment":
            selector = {"matchLabels": template["metadata"]["labels"]}
            whole = {"spec": {"selector": selector, "template": template}}
        case _:
            spec["restartPolicy"] = "Never"
            job = {"spec": {"template": template}}
            whole = {"spec": {"schedule": "@yearly", "jobTemplate": job}}
    metadata = {
        **whole.get("metadata", {}),
        "name": name,
        "namespace": PROBE_NAMESPACE,
        "annotations": dict(namespace),
    }
    return {"apiVersion": version, "kind": kind, **whole, "metadata": metadata}


def fields_by_webhook(obj: Json, policies: Sequence[CompiledPolicy]) -> Json:
    """Return the owned fields of its pod as the webhook would set them in the probed namespace."""
    labels = obj["metadata"]["annotations"]
    name = labels.get(NAMESPACE_NAME, PROBE_NAMESPACE)
    snapshot = Snapshot(policy_set(policies), {name: Namespace(labels)})
    moved = {**obj, "metadata": {**obj["metadata"], "namespace": name}}
    after, _ = render_manifest(moved, Engine(snapshot, AdmissionSettings(features=("policies",))))
    return owned_fields_of(after)


def owned_fields_of(obj: Json) -> Json:
    """Return the owned fields of its pod; what is empty counts as absent."""
    spec = pod_in(obj, obj["kind"])["spec"]
    json: Json = _without_empty({name: spec.get(name) for name in _OWNED})
    return json


def _without_empty(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, list):
        return [_without_empty(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: stripped
        for name, field in value.items()
        # An empty selector is not the same as none.
        if (stripped := _without_empty(field)) not in (None, [], {}, "")
        or (field == {} and name in {"labelSelector", "namespaceSelector"})
    }
