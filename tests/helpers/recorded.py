"""Reviews as a recorder takes them, with something in them that must never be written."""

from __future__ import annotations

import json

from harbourmaster.cli.offline import replay_case
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.recording import Taken, line_of, parents_now

CANARY = "c4n4ry-0f-a-s3cret"


def taken(body, engine, *, may_patch=True):
    """A review as a server has just answered it."""
    result, decision = answer(body, engine, may_patch=may_patch)
    parents = tuple(parents_now(decision.request, engine))
    return Taken(0.0, body, result, decision, engine, may_patch, parents)


def recorded(question, engine, *, may_patch=True):
    """The line that would be written of a review, and the response that was given; and why none."""
    review = taken(json.dumps(question).encode(), engine, may_patch=may_patch)
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


def annotated(value=CANARY):
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
