"""Pods under review: by the engine, over HTTP, and as a recorder takes them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from harbourmaster.cli.offline import replay_case
from harbourmaster.policies.index import policy_set
from harbourmaster.serving.limits import Limits
from harbourmaster.serving.settings import ServerSettings
from harbourmaster.serving.site import Site
from harbourmaster.telemetry.metrics import create_metrics
from harbourmaster.webhook.engine import Engine, EngineHolder
from harbourmaster.webhook.handlers import answer, answer_failed
from harbourmaster.webhook.parents import ParentObject, parents_of
from harbourmaster.webhook.policy_objects import source_of
from harbourmaster.webhook.recording import Taken, line_of, parents_now
from harbourmaster.webhook.records import Records
from harbourmaster.webhook.review import ReviewBody
from harbourmaster.webhook.server import Reviews, create_app
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import NamespaceObject, Snapshot
from harbourmaster.webhook.sources import namespaces_of, read_policy
from harbourmaster.webhook.verdict import OUTCOMES
from helpers.objects import review
from helpers.oracles import apply_patch, decode_patch
from helpers.raw_http import Connection

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
        return apply_patch(self.before, self.response)

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
        policy_set(map(_compile, policies)),
        known,
        parents=parents_of(msgspec.convert(list(parents), list[ParentObject])),
    )
    return Engine(snapshot, msgspec.convert(settings, AdmissionSettings))


def policy_engine(*policies, namespaces=None, **settings):
    """An engine with these policies and settings; every namespace exists and none has gates."""
    compiled = policy_set(read_policy(policy)[0] for policy in policies)
    return Engine(Snapshot(compiled, namespaces), AdmissionSettings(**settings))


def answer_after_failure(document, engine, **request):
    """The answer about an object after any failure."""
    body = json.dumps(review(document, **request)).encode()
    result, decision = answer_failed(ReviewBody(body), engine, "internal-error", "it failed")
    return Answer(json.loads(result)["response"], decision.verdict, document)


def _compile(policy):
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


KUPID_TYPES = ("processed", "allowed", "denied", "mutated", "error")


class Admission:
    """Server of the review paths, backed by one engine."""

    def __init__(self, log, engine, *, limits=None, tracer=None, shadow=None, **settings):
        self.output = log
        self.metrics = create_metrics("0", OUTCOMES)
        self.limits = Limits(metrics=self.metrics, **(limits or {}))
        self.records = Records(self.metrics, asyncio.get_running_loop(), log, tracer)
        server = ServerSettings(**settings)
        reviews = Reviews(EngineHolder(engine), server, self.limits, self.records)
        reviews.shadow = shadow
        self.app = create_app(reviews)

    @asynccontextmanager
    async def connect(self, tls=None, client=None):
        """A client's connection to it."""
        site = Site(self.app, host="127.0.0.1", port=0, tls=tls)
        await site.start()
        wire = await Connection.open(site, client)
        try:
            yield wire
        finally:
            await wire.drop()
            await site.stop()

    async def ask(self, data):
        async with self.connect() as wire:
            return await wire.ask(data)

    def lines(self):
        self.records.flush()
        return [json.loads(line) for line in self.output.getvalue().splitlines()]

    def value(self, name, **labels):
        self.records.flush()
        return self.metrics.registry.get_sample_value(f"harbourmaster_admission_{name}", labels)

    def kupid(self):
        """The types of kupid's counter that are not 0."""
        self.records.flush()
        value = self.metrics.registry.get_sample_value
        counts = {name: value("kupid_aggr_requests_total", {"type": name}) for name in KUPID_TYPES}
        return {name: count for name, count in counts.items() if count}


CANARY = "c4n4ry-0f-a-s3cret"


def take(body, engine, *, may_patch=True):
    """A review as a server has just answered it."""
    result, decision = answer(body, engine, may_patch=may_patch)
    parents = tuple(parents_now(decision.request, engine))
    return Taken(0.0, body, result, decision, engine, may_patch, parents)


def record_of(question, engine, *, may_patch=True):
    """The line that would be written of a review, and the response that was given; and why none."""
    review = take(json.dumps(question).encode(), engine, may_patch=may_patch)
    line, outcome = line_of(review)
    response = review.result.partition(b'"response":')[2][:-1]
    return line, response, outcome


def replayed_response(line):
    """The answer of replay, byte by byte."""
    return bytes(replay_case(line).response)


def secretive(spec, value=CANARY):
    """A pod spec with secrets wherever people put them."""
    probe = {"httpGet": {"path": "/", "httpHeaders": [{"name": "Authorization", "value": value}]}}
    variables = [
        {"name": "TOKEN", "value": value},
        {"name": "REF", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    container = {
        "name": "c",
        "image": "registry.example.com/app:1",
        "env": variables,
        "envFrom": [{"secretRef": {"name": "s"}}],
        "args": [f"--token={value}"],
        "command": ["sh", "-c", value],
        "livenessProbe": probe,
        "lifecycle": {"postStart": {"exec": {"command": [value]}}},
    }
    volumes = [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"password": value}}}]
    return {
        **spec,
        "containers": [container],
        "initContainers": [{**container, "name": "i"}],
        "ephemeralContainers": [{**container, "name": "e"}],
        "imagePullSecrets": [{"name": value}],
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": [value]}],
        "volumes": volumes,
        "securityContext": {"seLinuxOptions": {"user": value}},
    }


def secret_annotations(value=CANARY):
    """Annotations that hold a secret, and one that decides."""
    last = {"spec": {"containers": [{"env": [{"name": "TOKEN", "value": value}]}]}}
    return {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps(last),
        "example.com/token": value,
        "keptn.sh/version": "1.0",
    }


def asked_by(value=CANARY):
    """Further fields of a request, none of which decides."""
    return {
        "userInfo": {"username": value, "extra": {"token": [value]}},
        "options": {"fieldManager": value},
        "oldObject": {"kind": "Pod", "spec": {"containers": [{"env": [{"value": value}]}]}},
    }
