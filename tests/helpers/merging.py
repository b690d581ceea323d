"""Policies merged into one object, without a server and without selecting."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import jsonpatch
import msgspec

from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.merge import MergeOptions, merge
from harbourmaster.policies.model import Policy
from harbourmaster.policies.pods import KINDS


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


def compiled(*documents):
    return [compile_policy(msgspec.convert(document, Policy)) for document in documents]


def kind_of(document):
    group, _, version = document["apiVersion"].rpartition("/")
    return KINDS[group, version, document["kind"]]


def merged(document, *policies, **options):
    """Merge policies in the order given; the patch is applied by the independent oracle."""
    kind = kind_of(document)
    pod = kind.read(json.dumps(document).encode())
    result = merge(pod, kind.pointer, compiled(*policies), MergeOptions(**options))
    operations = json.loads(msgspec.json.encode(result.operations))
    return Result(operations, result.warnings, jsonpatch.apply_patch(document, operations))


def pod_spec(document):
    value = document
    for token in kind_of(document).pointer.split("/")[1:]:
        value = value[token]
    return value


def one_of(key, *values):
    return {"key": key, "operator": "In", "values": list(values)}
