"""Pods with a node are decoded, and only failed ones are kept."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api.times import parse_rfc3339
from harbourmaster.controller.lifecycle.started_pods import (
    StartedPod,
    decode_started,
    failed_node,
    selector,
    versions_of_started,
)
from harbourmaster.lifecycle.failed_nodes import NodeFailure
from helpers.gated import CREATED, LATER, keptn, owner_ref, pod

FAILING = {"phase": "Failed", "startTime": LATER}


def pod_json(status=None, node="node-1", annotations=None, **more):
    started_pod = pod(annotations=keptn() if annotations is None else annotations, gates=(), **more)
    started_pod["spec"]["nodeName"] = node
    return msgspec.json.encode({**started_pod, "status": FAILING if status is None else status})


def waiting(*reasons, part="containerStatuses", **status):
    containers = [{"name": "c", "state": {"waiting": {"reason": reason}}} for reason in reasons]
    return {"phase": "Pending", part: containers, **status}


def test_a_pod_that_failed_counts_for_its_version_from_its_start():
    started_pod = decode_started(pod_json())
    assert started_pod == StartedPod(
        "prod", "shop-waiter-1.0", NodeFailure("node-1", "pod failed", parse_rfc3339(LATER))
    )
    assert versions_of_started(started_pod) == [("prod", "shop-waiter-1.0")]
    assert selector("ours") == "spec.schedulerName=ours,spec.nodeName!="


def test_a_pod_that_never_got_a_start_counts_from_its_creation():
    assert decode_started(pod_json({"phase": "Failed"})).failure.at == parse_rfc3339(CREATED)


@pytest.mark.parametrize("part", ["containerStatuses", "initContainerStatuses"])
def test_a_container_that_does_not_start(part):
    started_pod = decode_started(pod_json(waiting("ContainerCreating", "ErrImagePull", part=part)))
    assert started_pod.failure.reason == "pod ErrImagePull"


def test_a_pod_that_was_ready_for_long_has_started():
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-03-01T11:00:00Z"}
    assert decode_started(pod_json({**FAILING, "conditions": [ready]})).failure is None
    ready["lastTransitionTime"] = LATER
    assert decode_started(pod_json({**FAILING, "conditions": [ready]})).failure is not None
    ready["lastTransitionTime"] = None
    assert decode_started(pod_json({**FAILING, "conditions": [ready]})).failure is not None


@pytest.mark.parametrize(
    "given",
    [
        pod_json({"phase": "Running"}),
        pod_json(waiting("ContainerCreating")),
        pod_json({}),
        pod_json(node=""),
        pod_json(annotations={"example.com/a": "b"}),
        pod_json(owners=[]),
        # Stopped while it started: its containers end as failed.
        pod_json(deletionTimestamp=LATER),
        # It has no other node to go to.
        pod_json(owners=[owner_ref("DaemonSet", "waiter", "d-1")]),
    ],
)
def test_all_others_are_kept_as_good_as_empty(given):
    started_pod = decode_started(given)
    assert started_pod == StartedPod()
    assert versions_of_started(started_pod) == []


def test_a_pod_of_a_job_that_failed():
    assert failed_node(pod_json(owners=[owner_ref("Job", "j", "j")])) == (CREATED, "node-1")
    assert failed_node(pod_json(node="")) is None
    assert failed_node(pod_json({"phase": "Succeeded"})) is None
