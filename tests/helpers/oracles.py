"""Independent oracles: JSON Patch, and the scheduler's rules for nodes."""

from __future__ import annotations

import base64
import json

import jsonpatch

NODE_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def decode_patch(response):
    if "patch" not in response:
        assert "patchType" not in response
        return []
    assert response["patchType"] == "JSONPatch"
    return json.loads(base64.b64decode(response["patch"], validate=True))


def apply_patch(document, response):
    return jsonpatch.apply_patch(document, decode_patch(response))


def as_sets(value, key=None):
    """Required node terms as sets of sets, everything else as it is; empty and absent are one."""
    if isinstance(value, dict):
        fields = {k: as_sets(v, k) for k, v in value.items()}
        return {k: v for k, v in fields.items() if v not in (None, [], {}, "", frozenset())}
    if isinstance(value, list):
        if key == "nodeSelectorTerms":
            return frozenset(term_set(term) for term in value)
        return [as_sets(item) for item in value]
    return value


def term_set(term):
    return frozenset(
        (scope, r["key"], r["operator"], frozenset(r.get("values") or ()))
        for scope in ("matchExpressions", "matchFields")
        for r in term.get(scope) or ()
    )


NAMES = ("n1", "n2")


def all_nodes():
    """Each combination of values (or absence) of three labels, on two names."""
    choices = (None, "1", "2", "3")
    for name in NAMES:
        for a in choices:
            for b in choices:
                for pool in (None, "1", "2"):
                    labels = {"a": a, "b": b, "example.com/pool": pool}
                    yield name, {k: v for k, v in labels.items() if v is not None}


def satisfies(requirement, fields):
    value = fields.get(requirement["key"])
    values = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
    raise AssertionError(requirement)


def is_empty(term):
    return not term.get("matchExpressions") and not term.get("matchFields")


def holds(term, name, labels):
    """An empty term selects no node."""
    return (
        not is_empty(term)
        and all(satisfies(r, labels) for r in term.get("matchExpressions") or [])
        and all(satisfies(r, {"metadata.name": name}) for r in term.get("matchFields") or [])
    )


def required_terms(spec):
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get(NODE_REQUIRED) or {}
    return required.get("nodeSelectorTerms") or []


def admits(spec, name, labels):
    """Whether the scheduler (or, with a nodeName, its absence) may put the pod on the node."""
    if spec.get("nodeName") and spec["nodeName"] != name:
        return False
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    terms = required_terms(spec)
    return not terms or any(holds(term, name, labels) for term in terms)


def should_admit(spec, policies, name, labels):
    """The conjunction of what the pod asks and of the policy parts that it does not override.

    An empty term of a pod that meets a policy asks for nothing; a policy with an empty term asks
    nothing of a pod that has terms of its own (the observed case "empty term").
    """
    wanted = dict(spec.get("nodeSelector") or {})
    node_name = spec.get("nodeName")
    groups = [required_terms(spec)] if required_terms(spec) else []
    gated = bool(spec.get("schedulingGates"))
    for policy in policies:
        part = policy["spec"]
        additions = [required_terms(part)] if required_terms(part) else []
        if part.get("nodeName") and not node_name:
            node_name = part["nodeName"]
            if gated:
                field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
                additions.append([{"matchFields": [field]}])
        for group in additions:
            if not groups or not any(is_empty(term) for term in group):
                groups.append(group)
        for key, value in (part.get("nodeSelector") or {}).items():
            wanted.setdefault(key, value)
    if node_name and node_name != name:
        return False
    if any(labels.get(k) != v for k, v in wanted.items()):
        return False
    if not groups:
        return True
    first, *others = groups
    is_open = bool(others) and any(is_empty(term) for term in first)
    return (is_open or any(holds(t, name, labels) for t in first)) and all(
        any(holds(t, name, labels) for t in group) for group in others
    )
