"""Compiled objects as ``harbourmaster compile`` names them, with one small mutation of pods."""

from __future__ import annotations

import json

from harbourmaster.policies.enforcement import policy_hash
from harbourmaster.webhook.policy_objects import convert_policy

KEY = "harbourmaster.dev/compiled"
FIRST, SECOND = "0a1b2c3d", "4e5f6a7b"
"""Two sets."""
MODED = "example.com/moded"
TOLERATION = {"key": MODED, "operator": "Exists", "effect": "NoSchedule"}
RULES = {"nodeSelector": {MODED: "yes"}, "tolerations": [TOLERATION]}
"""The fields that ``SPEC`` adds to pods with the label MODED."""
_TOLERATIONS = "object.spec.?tolerations.orValue([])"
_VALUE = f'{{"key": "{MODED}", "operator": "Exists", "effect": "NoSchedule"}}'
EXPRESSION = f"""
(has(object.spec.nodeSelector) ? [] : [JSONPatch{{
  op: "add", path: "/spec/nodeSelector", value: {{"{MODED}": "yes"}}
}}]) + ({_TOLERATIONS}.exists(t, t.?key.orValue("") == "{MODED}") ? [] : [JSONPatch{{
  op: "add", path: "/spec/tolerations", value: {_TOLERATIONS} + [Object.spec.tolerations{{
    key: "{MODED}", operator: "Exists", effect: "NoSchedule"
  }}]
}}])
"""
SPEC = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
        "objectSelector": {"matchExpressions": [{"key": MODED, "operator": "Exists"}]},
    },
    "failurePolicy": "Ignore",
    "reinvocationPolicy": "IfNeeded",
    "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": EXPRESSION}}],
}


def hash_of(manifest):
    """The hash of a policy as compiled objects have it."""
    return policy_hash(convert_policy(manifest))


def mutation(hashes, policy_hash=FIRST, part="pods", parts="pods", **metadata):
    """A MutatingAdmissionPolicy of one part; ``hashes`` are by reference."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {
            "name": f"harbourmaster-compiled-{policy_hash}-{part}",
            "labels": {"app.kubernetes.io/name": "harbourmaster", KEY: "policy"},
            "annotations": {
                "harbourmaster.dev/policy-hashes": json.dumps(hashes),
                "harbourmaster.dev/compiled-set": policy_hash,
                "harbourmaster.dev/compiled-parts": parts,
                "harbourmaster.dev/bound": "{}",
            },
            **metadata,
        },
        "spec": SPEC,
    }


def binding(policy_hash=FIRST, part="pods", label="final", matched=None, **metadata):
    """A binding of that part to that set; ``matched`` is for what it counts."""
    probe = "" if label == "final" else f"{label}-"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {
            "name": f"harbourmaster-compiled-{probe}{part}",
            "labels": {"app.kubernetes.io/name": "harbourmaster", KEY: label},
            **metadata,
        },
        "spec": {
            "policyName": f"harbourmaster-compiled-{policy_hash}-{part}",
            "matchResources": matched,
        },
    }
