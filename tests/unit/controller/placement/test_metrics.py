"""The gauges of applications and clusters, and moves by their reason."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from harbourmaster.api.metadata import Metadata
from harbourmaster.controller.placement.metrics import PlacementStates
from harbourmaster.placement.deployed import (
    ClusterObjects,
    DeployedApplication,
    DeployedStatus,
    MemberCluster,
)
from harbourmaster.placement.inventory import ObjectRef
from harbourmaster.placement.model import Condition, MemberStatus


def application(phase="", ready="", left=()):
    conditions = (Condition(type="Ready", status=ready),) if ready else ()
    if phase == "NotConfirmed":
        phase, conditions = "", (Condition(type="Scheduled", status="False", reason=phase),)
    ref = ObjectRef(api_version="v1", kind="ConfigMap", namespace="shop", name="one")
    pending = tuple(ClusterObjects(cluster=name, objects=(ref,)) for name in left)
    status = DeployedStatus(phase=phase, conditions=conditions, pending_cleanup=pending)
    return DeployedApplication(metadata=Metadata(name="shop"), status=status)


def test_gauges_count_objects_by_state_when_they_are_read():
    registry, applications, clusters = CollectorRegistry(), [], []
    PlacementStates(registry, lambda: applications, lambda: clusters)

    def value(name, **labels):
        return registry.get_sample_value(f"harbourmaster_placement_{name}", labels)

    assert value("pending_cleanups") == 0
    applications += [
        application(),
        application("Running", "True"),
        application("Running", "True", left=["m1", "m2"]),
        application("Running", "False", left=["m1"]),
        application("NotConfirmed"),
    ]
    clusters += [
        MemberCluster(metadata=Metadata(name="new")),
        MemberCluster(metadata=Metadata(name="m1"), status=MemberStatus(state="Offline")),
    ]
    assert value("applications", phase="Pending", ready="Unknown") == 1
    assert value("applications", phase="Running", ready="True") == 2
    assert value("applications", phase="Running", ready="False") == 1
    assert value("applications", phase="NotConfirmed", ready="Unknown") == 1
    assert value("clusters", state="Pending") == 1
    assert value("clusters", state="Offline") == 1
    assert value("pending_cleanups") == 3
