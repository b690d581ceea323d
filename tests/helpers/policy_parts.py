"""Policies of the model and the parts of their specs, for tests of single rules."""

from __future__ import annotations

import msgspec

from harbourmaster.policies.model import CLUSTER_POLICY, POLICY, PREFERRED, REQUIRED, Policy

MISSING = "Required value"
INVALID = "Invalid value"
FORBIDDEN = "Forbidden"
UNSUPPORTED = "Unsupported value"

TERMS = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
PREFERENCES = f"spec.affinity.nodeAffinity.{PREFERRED}"
NEAR = f"spec.affinity.podAffinity.{REQUIRED}"
APART = f"spec.affinity.podAntiAffinity.{PREFERRED}"
VALID_POD_TERM = {"topologyKey": "zone"}


def policy(spec=None, **metadata):
    document = {"kind": POLICY, "metadata": {"name": "p", "namespace": "ns", **metadata}}
    return msgspec.convert({**document, "spec": spec}, Policy)


def cluster_policy(spec=None, **metadata):
    document = {"kind": CLUSTER_POLICY, "metadata": {"name": "c", **metadata}}
    return msgspec.convert({**document, "spec": spec}, Policy)


def requirement(key="a", operator="In", values=("x",)):
    return {"key": key, "operator": operator, "values": list(values)}


def expressions(*requirements):
    return {"matchExpressions": list(requirements)}


def fields(*requirements):
    return {"matchFields": list(requirements)}


def node_terms(*terms):
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def preferences(*entries):
    return {"affinity": {"nodeAffinity": {PREFERRED: list(entries)}}}


def near(*terms):
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def apart(*entries):
    return {"affinity": {"podAntiAffinity": {PREFERRED: list(entries)}}}


def tolerations(*items):
    return {"tolerations": list(items)}


def located(errors):
    return [(error.path, error.kind, error.value) for error in errors]
