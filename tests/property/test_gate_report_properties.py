"""A report says that a pod goes where the controller releases it, and only there."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api.metadata import Metadata
from harbourmaster.gates.release import may_release
from harbourmaster.lifecycle.check_facts import Facts
from harbourmaster.lifecycle.gate_report import GateReport, gate_report
from harbourmaster.lifecycle.gate_verdict import A_NODE, Code, GateWaitRules, wait_of
from harbourmaster.lifecycle.gated_pods import decode_whole
from harbourmaster.lifecycle.model import (
    AppVersion,
    AppVersionSpec,
    AppVersionStatus,
    ItemStatus,
    ResourceReference,
    Workload,
    WorkloadSpec,
    WorkloadVersion,
    WorkloadVersionSpec,
    WorkloadVersionStatus,
)
from harbourmaster.lifecycle.workloads import OWNERS_KEY, approval
from helpers import lifecycle_objects
from helpers.properties import cases

GATE = "keptn-prechecks-gate"
SCHEDULER = "keptn-scheduler"
PARENT = "gates.harbourmaster.dev/parent"
NOW = datetime.fromisoformat("2026-03-01T12:30:00Z")
STATES = st.sampled_from(
    ["", "Pending", "Progressing", "Succeeded", "Failed", "Warning", "Deprecated", "Unknown"]
)
CHECKS = st.lists(st.sampled_from(["warm", "load", "smoke"]), max_size=2, unique=True)
ITEMS = st.lists(
    st.builds(ItemStatus, definition_name=st.sampled_from(["warm", "load"]), status=STATES),
    max_size=2,
).map(tuple)


ENDING = "2026-03-01T12:29:00Z"
OTHERS = {
    "annotations.version": st.sampled_from(["8", ""]),
    "annotations.workload": st.just(None),
    "annotations.parent": st.sampled_from(["unresolved", "other"]),
    "annotations.released": st.just("by-hand"),
    "annotations.removed": st.just("true"),
    "pod.ending": st.just(ENDING),
    "pod.gates": st.sampled_from([[], ["example.com/quota"], ["example.com/quota", GATE]]),
    "pod.owner": st.sampled_from(["rs-2", "", None]),
    "pod.owner_kind": st.just("Job"),
    "facts.version": st.just(None),
    "facts.workload": st.just(None),
    "facts.app": st.just(None),
    "facts.unread": st.just(("KeptnAppVersion",)),
    "workload.ending": st.just(ENDING),
    "workload.uid": st.just("w-2"),
    "version.ending": st.just(ENDING),
    "version.version": st.just("8"),
    "version.owner": st.just("rs-2"),
    "version.owners": st.sampled_from(["rs-2", "rs-1,rs-2"]),
    "version.phase": st.just(""),
    "version.tasks": STATES,
    "version.evaluations": STATES,
    "version.deployment": STATES,
    "version.state": STATES,
    "version.items": ITEMS,
    "app.tasks": STATES,
    "app.evaluations": STATES,
    "app.state": STATES,
    "app.items": ITEMS,
}
"""Deviations from a world in which the pod is released, by what they change."""


@st.composite
def worlds(draw):
    """A pod and the facts about it: it would be released, except for a few deviations."""
    names = draw(st.lists(st.sampled_from(sorted(OTHERS)), max_size=4, unique=True))
    deviations = {name: draw(OTHERS[name]) for name in names}
    deviations["pod.age"] = draw(st.sampled_from([30, 100, 1000]))
    deviations["pod.in_scheduler"] = draw(st.booleans())
    return pod_in(deviations), facts_in(deviations, tuple(draw(CHECKS)), tuple(draw(CHECKS)))


def pod_in(deviations):
    annotations = {
        "keptn.sh/app": "shop",
        "keptn.sh/workload": deviations.get("annotations.workload", "front"),
        "keptn.sh/version": deviations.get("annotations.version", "7"),
        PARENT: deviations.get("annotations.parent"),
        "gates.harbourmaster.dev/released": deviations.get("annotations.released"),
        "keptn.sh/scheduling-gate-removed": deviations.get("annotations.removed"),
    }
    is_in_scheduler = deviations["pod.in_scheduler"]
    uid = deviations.get("pod.owner", "rs-1")
    kind = deviations.get("pod.owner_kind", "ReplicaSet")
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "front", "uid": uid}
    created = NOW - timedelta(seconds=deviations["pod.age"])
    metadata = {
        "name": "front-1",
        "namespace": "prod",
        "uid": "u",
        "annotations": {key: value for key, value in annotations.items() if value is not None},
        "ownerReferences": [] if uid is None else [owner],
        "creationTimestamp": created.isoformat(),
    }
    if "pod.ending" in deviations:
        metadata["deletionTimestamp"] = deviations["pod.ending"]
    gates = deviations.get("pod.gates", [] if is_in_scheduler else [GATE])
    spec = {
        "schedulingGates": [{"name": gate} for gate in gates],
        "schedulerName": SCHEDULER if is_in_scheduler else "default-scheduler",
    }
    return {"metadata": metadata, "spec": spec}


def facts_in(deviations, tasks, evaluations):
    owner = ResourceReference(
        uid=deviations.get("version.owner", "rs-1"), kind="ReplicaSet", name="front"
    )
    version = WorkloadVersion(
        metadata=Metadata(
            name="shop-front-7",
            namespace="prod",
            annotations={OWNERS_KEY: deviations.get("version.owners", "")},
            deletion_timestamp=deviations.get("version.ending", ""),
            owner_references=(lifecycle_objects.owner(),),
        ),
        spec=WorkloadVersionSpec(
            app="shop",
            version=deviations.get("version.version", "7"),
            workload_name="shop-front",
            resource_reference=owner,
            pre_deployment_tasks=tasks,
            pre_deployment_evaluations=evaluations,
        ),
        status=WorkloadVersionStatus(
            pre_deployment_status=deviations.get("version.tasks", "Succeeded"),
            pre_deployment_evaluation_status=deviations.get("version.evaluations", "Warning"),
            deployment_status=deviations.get("version.deployment", "Progressing"),
            status=deviations.get("version.state", "Progressing"),
            current_phase=deviations.get("version.phase", "WorkloadDeploy"),
            pre_deployment_task_status=deviations.get("version.items", ()),
            pre_deployment_evaluation_task_status=deviations.get("version.items", ()),
        ),
    )
    app = AppVersion(
        metadata=Metadata(name="shop-1-abc", namespace="prod"),
        spec=AppVersionSpec(app_name="shop", version="1", pre_deployment_tasks=tasks),
        status=AppVersionStatus(
            pre_deployment_status=deviations.get("app.tasks", "Succeeded"),
            pre_deployment_evaluation_status=deviations.get("app.evaluations", "Succeeded"),
            status=deviations.get("app.state", "Progressing"),
            pre_deployment_task_status=deviations.get("app.items", ()),
        ),
    )
    workload = Workload(
        metadata=Metadata(
            name="shop-front",
            namespace="prod",
            uid=deviations.get("workload.uid", "w"),
            deletion_timestamp=deviations.get("workload.ending", ""),
        ),
        spec=WorkloadSpec(app="shop", version="7", resource_reference=owner),
    )
    return Facts(
        workload=deviations.get("facts.workload", workload),
        version=deviations.get("facts.version", version),
        app=deviations.get("facts.app", app),
        unread=deviations.get("facts.unread", ()),
    )


RULES = st.builds(
    GateWaitRules,
    max_age_seconds=st.sampled_from([0.0, 60.0, 500.0]),
    on_expiry=st.sampled_from(["Keep", "Release"]),
)


def is_let_go(raw, facts, scheduler):
    """Whether the checks let the pod go, told from what it is made of and not by the report."""
    metadata, spec = raw["metadata"], raw["spec"]
    annotations = metadata["annotations"]
    waits = any(gate["name"] == GATE for gate in spec["schedulingGates"]) or (
        spec["schedulerName"] == scheduler
        and not {"gates.harbourmaster.dev/released", "keptn.sh/scheduling-gate-removed"}
        & annotations.keys()
    )
    is_known = (
        annotations.get("keptn.sh/workload")
        and annotations["keptn.sh/version"]
        and annotations.get(PARENT) != "unresolved"
    )
    owners = [
        reference["uid"]
        for reference in metadata["ownerReferences"]
        if reference["kind"] == "ReplicaSet"
    ]
    version, workload = facts.version, facts.workload
    if (
        not waits
        or not is_known
        or not owners
        or version is None
        or version.metadata.deletion_timestamp
        or version.spec.version != annotations["keptn.sh/version"]
        or "deletionTimestamp" in metadata
        or (workload and (workload.metadata.deletion_timestamp or workload.metadata.uid != "w"))
    ):
        return False
    return may_release(approval(version), owners[0])


@settings(max_examples=cases(500))
@given(worlds(), RULES)
def test_released_is_who_the_controller_lets_go(world, rules):
    raw, facts = world
    pod = decode_whole(msgspec.json.encode(raw), SCHEDULER)
    report = gate_report(pod, facts, rules, NOW)
    goes = is_let_go(raw, facts, SCHEDULER)
    if not report.place:
        assert not goes
        return
    is_due = rules.on_expiry == "Release" and report.is_overdue and not pod.is_ending
    at_gate = report.place == "gate"
    assert (report.code == "released") == ((goes and at_gate) or (is_due and not goes))
    assert (report.code == "waits-in-scheduler") == (goes and not at_gate)


@settings(max_examples=cases(500))
@given(worlds(), RULES)
def test_one_reason_wins_and_its_text_is_what_the_version_says(world, rules):
    raw, facts = world
    pod = decode_whole(msgspec.json.encode(raw), SCHEDULER)
    report = gate_report(pod, facts, rules, NOW)
    assert report.code in get_args(Code)
    assert report.text
    assert "\n" not in report.text + report.advice
    assert msgspec.json.decode(msgspec.json.encode(report), type=GateReport) == report
    own = {"released", "waits-for-version", "checks-failed", "checks-pending", "deployment-due"}
    if (
        not report.place
        or report.code in {"ending", "orphaned"}
        or "to be determined" in report.text
    ):
        return
    if report.text.startswith("its release without its checks"):
        return
    # Told by its version alone, as ``gate list`` tells it.
    owners = [
        reference["uid"]
        for reference in raw["metadata"]["ownerReferences"]
        if reference["kind"] == "ReplicaSet"
    ]
    known = facts.version if report.code != "waits-for-version" else None
    said = wait_of(known, owners[0]).text
    if report.code == "waits-in-scheduler":
        assert (said, report.text) == ("its release, which is due", A_NODE)
    elif report.code in own:
        assert report.text == said
    else:
        assert report.text.startswith(said)


@settings(max_examples=cases(200))
@given(worlds(), RULES)
def test_what_could_not_be_read_changes_no_verdict_but_that_on_the_app(world, rules):
    """``gate list`` reads only versions, and says the same of who goes and who is left."""
    raw, facts = world
    pod = decode_whole(msgspec.json.encode(raw), SCHEDULER)
    full = gate_report(pod, facts, rules, NOW)
    less = msgspec.structs.replace(facts, app=None, unread=("KeptnAppVersion",))
    report = gate_report(pod, less, rules, NOW)
    if full.code in {"app-failed", "waits-for-app"}:
        assert report.code == "waits-for-app"
        assert full.text.startswith(report.text)
    else:
        assert (report.code, report.text) == (full.code, full.text)


@settings(max_examples=cases(200))
@given(worlds(), RULES)
def test_a_check_that_is_open_is_one_that_the_text_may_wait_for(world, rules):
    raw, facts = world
    pod = decode_whole(msgspec.json.encode(raw), SCHEDULER)
    report = gate_report(pod, facts, rules, NOW)
    names = [(check.phase, check.name) for check in report.checks]
    assert len(names) == len(set(names))
    if report.code in {"checks-pending", "checks-failed"}:
        told = report.text.partition(": ")[2]
        shown = {check.name for check in report.checks if check.phase.startswith("Workload")}
        for name in ("warm", "load", "smoke"):
            if name in told:
                assert name in shown
