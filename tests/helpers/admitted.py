"""Pods under review in a namespace with gates, and the owners that they inherit from."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec

from harbourmaster.policies.index import policy_set
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer, answer_failed
from harbourmaster.webhook.parents import ParentObject, parents_of
from harbourmaster.webhook.policy_objects import source_of
from harbourmaster.webhook.review import ReviewBody
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import NamespaceObject, Snapshot
from harbourmaster.webhook.sources import namespaces_of, read_policy
from helpers.objects import review
from helpers.patching import decode_patch, patched

GATE = {"name": "keptn-prechecks-gate"}
THEIRS = {"name": "example.com/quota"}
OPT_IN = {"keptn.sh/lifecycle-toolkit": "enabled"}
APP_TYPE = "gates.harbourmaster.dev/app-type"
PARENT = "gates.harbourmaster.dev/parent"
CONTAINER = {"name": "nginx", "image": "nginx:1.25"}
API_VERSIONS = {"Job": "batch/v1", "Rollout": "argoproj.io/v1alpha1"}
CRITICAL = {
    "priorityClassName": "system-cluster-critical",
    "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
}


def keys(**values):
    """Keptn's keys, with hyphens for underscores."""
    return {f"keptn.sh/{key.replace('_', '-')}": value for key, value in values.items()}


def owner(kind="ReplicaSet", name="web-5d9c", **fields):
    """An owner reference as a controller writes it."""
    api_version = API_VERSIONS.get(kind, "apps/v1")
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"{kind}-1", **fields}


def pod(annotations=None, *, owners=None, labels=None, **spec):
    """A pod of a ReplicaSet, unless other owners are given."""
    metadata: dict[str, Any] = {"generateName": "web-5d9c-", "labels": labels or {"app": "web"}}
    if annotations is not None:
        metadata["annotations"] = annotations
    references = [owner()] if owners is None else owners
    if references:
        metadata["ownerReferences"] = references
    spec = {"containers": [dict(CONTAINER)], "dnsPolicy": "ClusterFirst", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def parent(kind="Deployment", name="web", annotations=None, *, owners=(), **metadata):
    """An owner as the API gives it."""
    own_metadata = {"name": name, "namespace": "ns1", "uid": f"{kind}-1", **metadata}
    if annotations:
        own_metadata["annotations"] = annotations
    if owners:
        own_metadata["ownerReferences"] = list(owners)
    api_version = API_VERSIONS.get(kind, "apps/v1")
    return {"apiVersion": api_version, "kind": kind, "metadata": own_metadata, "spec": {}}


def family(annotations=None, kind="Deployment"):
    """A ReplicaSet and the Deployment or Rollout above it, which has the annotations."""
    return [
        parent("ReplicaSet", "web-5d9c", owners=[owner(kind, "web")]),
        parent(kind, "web", annotations),
    ]


class Answer(NamedTuple):
    """The answer about an object, and the reason for it."""

    response: dict[str, Any]
    verdict: Any
    before: dict[str, Any]

    @property
    def operations(self):
        return decode_patch(self.response)

    @property
    def after(self):
        """The object that the API server stores; the patch is applied by the oracle."""
        return patched(self.before, self.response)

    @property
    def gates(self):
        return self.after["spec"].get("schedulingGates")

    @property
    def annotations(self):
        return self.after["metadata"].get("annotations")

    @property
    def is_untouched(self):
        return self.response["allowed"] and "patch" not in self.response


def engine_of(parents=(), *policies, namespaces=None, namespace="ns1", **settings):
    """An engine that knows one namespace, with gates unless namespaces are given."""
    if namespaces is None:
        namespaces = [{"metadata": {"name": namespace, "annotations": OPT_IN}}]
    known = namespaces_of(msgspec.convert(namespaces, list[NamespaceObject]))
    snapshot = Snapshot(
        policy_set(map(_compiled, policies)),
        known,
        parents=parents_of(msgspec.convert(list(parents), list[ParentObject])),
    )
    return Engine(snapshot, msgspec.convert(settings, AdmissionSettings))


def policy_engine(*policies, namespaces=None, **settings):
    """An engine with these policies and settings; every namespace exists and none has gates."""
    compiled = policy_set(read_policy(policy)[0] for policy in policies)
    return Engine(Snapshot(compiled, namespaces), AdmissionSettings(**settings))


def failed(document, engine, **request):
    """The answer about an object after any failure."""
    body = json.dumps(review(document, **request)).encode()
    result, decision = answer_failed(ReviewBody(body), engine, "internal-error", "it failed")
    return Answer(json.loads(result)["response"], decision.verdict, document)


def _compiled(policy):
    source = source_of(json.dumps(policy).encode())
    return msgspec.structs.replace(read_policy(policy)[0], source=source)


def admit(document, parents=(), *policies, request=None, **options):
    """The answer to the creation of a pod; ``request`` are further fields of the request."""
    namespace = options.get("namespace", "ns1")
    question = review(document, namespace=namespace, **(request or {}))
    return ask(question, engine_of(parents, *policies, **options))


def ask(question, engine):
    """The answer to a review."""
    result, decision = answer(json.dumps(question).encode(), engine)
    return Answer(json.loads(result)["response"], decision.verdict, question["request"]["object"])
