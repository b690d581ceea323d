"""Policies of the model, the parts of their specs, and their merge into one object."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import jsonpatch
import msgspec

from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.merge import MergeOptions, merge
from harbourmaster.policies.model import CLUSTER_POLICY, POLICY, PREFERRED, REQUIRED, Policy
from harbourmaster.policies.pods import KINDS

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


def places(errors):
    return [(error.path, error.kind, error.value) for error in errors]


class Result(NamedTuple):
    operations: list[dict[str, Any]]
    warnings: list[Any]
    document: dict[str, Any]

    @property
    def paths(self):
        return [operation["path"] for operation in self.operations]

    @property
    def spec(self):
        return pod_spec(self.document)

    @property
    def codes(self):
        return [warning.code for warning in self.warnings]


def compile_all(*documents):
    return [compile_policy(msgspec.convert(document, Policy)) for document in documents]


def kind_of(document):
    group, _, version = document["apiVersion"].rpartition("/")
    return KINDS[group, version, document["kind"]]


def merge_of(document, *policies, **options):
    """Merge policies in the order given; the patch is applied by the independent oracle."""
    kind = kind_of(document)
    pod = kind.read(json.dumps(document).encode())
    result = merge(pod, kind.pointer, compile_all(*policies), MergeOptions(**options))
    operations = json.loads(msgspec.json.encode(result.operations))
    return Result(operations, result.warnings, jsonpatch.apply_patch(document, operations))


def pod_spec(document):
    value = document
    for token in kind_of(document).pointer.split("/")[1:]:
        value = value[token]
    return value


def one_of(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}
