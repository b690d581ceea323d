"""Pods that wait for objects of each kind, on a real control plane."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import PODS
from helpers.flow.manifests import (
    OUTCOME,
    deployment,
    job,
    of_kind,
    owner,
    pod,
    service,
    stay_waiting,
    until_noted,
    until_waiting,
    waits,
)

pytestmark = [pytest.mark.gate, pytest.mark.cluster, pytest.mark.slow]

NEVER_READY = {OUTCOME: "never-ready"}
RUNNING = {"phase": "Running"}
READY = {
    "status": {
        "conditions": [
            {"type": name, "status": "True", "lastTransitionTime": "2026-11-21T18:00:00Z"}
            for name in ("Initialized", "ContainersReady", "Ready", "PodScheduled")
        ]
    }
}


@pytest.fixture
def opts_in():
    return False


async def test_pods_wait_for_the_end_of_a_job_and_for_ready_replicas(flow):
    items = {
        "for-job": "job/migrate",
        "for-deployment": "deployment/db",
        "for-statefulset": "sts/queue",
        "for-daemonset": "daemonset/agent",
        "for-label": "pod/example.com/part=cache",
        "for-pod": "pod/cache",
        "for-service": "service/db",
        "for-configmap": "configmap/settings",
        "for-all": "job/migrate deployment/db, statefulset/queue ds/agent,svc/db cm/settings",
    }
    await flow.create(
        *(pod(name, item) for name, item in items.items()),
        deployment("web", waits("job/migrate")),
        job("import", annotations=waits("job/migrate")),
        pod("free", "optional:job/none", "optional:pod/app=none"),
    )
    await flow.until_released("free")
    await flow.create(
        job("migrate", "hang"),
        deployment("db", labels=NEVER_READY),
        owner("StatefulSet", "queue", labels=NEVER_READY),
        owner("DaemonSet", "agent", labels=NEVER_READY),
        service("db", **{"example.com/part": "db"}),
        pod("cache", labels=NEVER_READY),
    )
    await flow.until_all(PODS, {"metadata": {"labels": NEVER_READY}, "status": RUNNING}, 6)
    await until_waiting(flow, *items, "web", "import")
    await stay_waiting(flow, *items, "web", "import")
    await flow.create(of_kind("ConfigMap", "settings"))
    await flow.until_released("for-configmap")
    await flow.let_end()
    for part in ("for-job", "web", "import"):
        await flow.until_released(part)
    await stay_waiting(flow, "for-all", "for-service", "for-label")
    for obj in flow.all(PODS, {"metadata": {"labels": NEVER_READY}}):
        await flow.change("Pod", obj["metadata"]["name"], READY, subresource="status")
    for part in items:
        await flow.until_released(part)


async def test_a_failed_job_blocks_until_a_new_one_of_its_name_completes(flow):
    await flow.create(job("migrate", "fail"), deployment("web", waits("job/migrate")))
    await until_waiting(flow, "web")
    (held,) = flow.pods("web")
    for name in ("web", held["metadata"]["name"]):
        note = await until_noted(flow, "GateBlocked", name, "job/migrate: failed: BackoffLimitExc")
        assert note.startswith("Blocked: job/migrate: failed: BackoffLimitExceeded: ")
    await stay_waiting(flow, "web")
    await flow.delete("Job", "migrate", propagation="Background")
    await stay_waiting(flow, "web")
    await flow.create(job("migrate"))
    await flow.until_released("web")
