"""Pods that may run are always woken, though replicas of the scheduler and its watch lag."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from types import SimpleNamespace

import jsonpatch
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.extender.settings import SchedulerSettings
from harbourmaster.controller.lifecycle import scheduler_wakeups
from harbourmaster.kube.store import Store
from harbourmaster.lifecycle.gated_pods import decode_pod, versions_of_pod
from harbourmaster.lifecycle.model import FailedNode, WorkloadVersionStatus
from harbourmaster.lifecycle.scheduling import CandidatePod, scheduling_permission
from harbourmaster.lifecycle.workloads import approval
from helpers.gated import CHECKED, CREATED, keptn, owner_ref
from helpers.phased import workload_version
from helpers.properties import cases
from helpers.signals import RecordedSignals

START = datetime.fromisoformat(CREATED)
DEADLINE = 60.0
PASSED = msgspec.convert(CHECKED, WorkloadVersionStatus)
STATES = {
    "waiting": WorkloadVersionStatus(status="Progressing"),
    "checking": WorkloadVersionStatus(status="Progressing", current_phase="checks"),
    "failed": WorkloadVersionStatus(status="Failed", pre_deployment_status="Failed"),
    "passed": PASSED,
}
actions = st.lists(
    st.one_of(
        st.tuples(st.just("become"), st.sampled_from([*STATES, "passed"])),
        st.tuples(st.just("avoid"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.sampled_from([1, 30, 70])),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("lead"), st.none()),
        st.tuples(st.just("look"), st.none()),
        st.tuples(st.just("sync"), st.none()),
        st.tuples(st.just("ask"), st.integers(0, 3)),
    ),
    max_size=25,
)


class Scene:
    """One pod, its version, a scheduler that asks replicas, and whoever leads."""

    def __init__(self):
        self.now = START
        status = replace(STATES["waiting"], start_time=CREATED)
        checks = {"pre_deployment_tasks": ("smoke",)}
        self.versions = [workload_version("shop-cart-2.0", status, **checks)]
        self.pod = {
            "metadata": {
                "name": "cart-1",
                "namespace": "prod",
                "uid": "u",
                "annotations": keptn("cart", "2.0"),
                "ownerReferences": [owner_ref("ReplicaSet", "cart-1", "rs-1")],
            },
            "spec": {"schedulerName": "keptn-scheduler"},
            "status": {},
        }
        self.is_bound = False
        self.wakes = 1
        self.patches = 0
        self.signals = RecordedSignals()
        self.lead()

    @property
    def version(self):
        return self.versions[-1]

    def set_status(self, status):
        self.versions.append(replace(self.version, status=status))

    def lead(self):
        self.store = Store({"version": versions_of_pod})
        self.sync()
        context = SimpleNamespace(
            client=self,
            caches=SimpleNamespace(pods=SimpleNamespace(store=self.store)),
            scheduler=SchedulerSettings(enabled=True, pre_check_deadline_seconds=DEADLINE),
            signals=self.signals,
            now=lambda: self.now,
        )
        self.wakeups = scheduler_wakeups.SchedulerWakeups(context)

    def sync(self):
        """The watch brings the pod."""
        self.store.put("prod/cart-1", decode_pod(msgspec.json.encode(self.pod), "keptn-scheduler"))

    async def patch(self, _resource, _name, patch, _namespace):
        after = jsonpatch.apply_patch(self.pod, msgspec.json.decode(patch.encode()))
        # The API server takes no notice of what changes nothing.
        if after != self.pod:
            self.pod = after
            self.wakes += 1
        self.patches += 1

    def look(self):
        if not self.is_bound:
            may_run = approval(self.version).is_given
            pod = self.store.get("prod/cart-1")
            asyncio.run(self.wakeups.update(pod, self.version, may_run=may_run))

    def ask(self, lag):
        """The scheduler asks a replica that is ``lag`` changes behind, if it was woken."""
        if not self.wakes or self.is_bound:
            return
        self.wakes = 0
        known_version = self.versions[max(len(self.versions) - 1 - lag, 0)]
        candidate = CandidatePod(
            namespace="prod",
            annotations=self.pod["metadata"]["annotations"],
            owner_references=(
                OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="cart-1", uid="rs-1"),
            ),
        )
        answer = scheduling_permission(
            candidate, lambda _key: known_version, deadline=DEADLINE, now=self.now
        )
        if answer.refusal or answer.avoided:
            words = answer.refusal or ", 1 ".join(answer.avoided.values())
            message = f"0/2 nodes are available: 1 {words}. preemption: 0/2 nodes are ..."
            condition = {"type": "PodScheduled", "status": "False", "message": message}
            self.pod = {**self.pod, "status": {"conditions": [condition]}}
        else:
            self.is_bound = True

    def do(self, action, value):
        status = self.version.status
        if action == "become":
            nodes = status.failed_nodes if value == "passed" else ()
            self.set_status(
                replace(STATES[value], start_time=status.start_time, failed_nodes=nodes)
            )
        elif action == "avoid":
            ends = [
                format_rfc3339(self.now + timedelta(minutes=number + 1)) for number in range(value)
            ]
            nodes = tuple(FailedNode(name=end, reason="pod failed", expires=end) for end in ends)
            self.set_status(replace(status, failed_nodes=nodes))
        elif action == "wait":
            self.now += timedelta(seconds=value)
        elif action == "restart":
            self.set_status(replace(STATES["waiting"], start_time=format_rfc3339(self.now)))
        elif value is None:
            getattr(self, action)()
        else:
            getattr(self, action)(value)


@settings(max_examples=cases(1000))
@given(actions)
def test_whoever_may_run_does_and_nobody_is_woken_for_nothing(steps):
    scene = Scene()
    for action, value in steps:
        scene.do(action, value)
    # All replicas know all, and the watch is not behind.
    for _ in range(6):
        scene.sync()
        scene.look()
        scene.ask(0)
    quiet = scene.patches
    scene.sync()
    scene.look()
    scene.look()
    assert scene.patches == quiet
    nodes = [
        node
        for node in scene.version.status.failed_nodes
        if node.expires > format_rfc3339(scene.now)
    ]
    if approval(scene.version).is_given and not nodes:
        assert scene.is_bound


@settings(max_examples=cases(1000))
@given(actions)
def test_each_state_is_told_once_and_each_deadline_too(steps):
    """One leader with a current watch reports each state once, to replicas that are current."""
    scene = Scene()
    changes = 0
    before = ("", None)
    for action, value in steps:
        is_passed = approval(scene.version).is_given
        # A new leader asks one more time at most, and passed checks stay passed.
        if action == "lead" or (is_passed and (value in STATES or action == "restart")):
            continue
        scene.do(action, 0 if action == "ask" else value)
        status = scene.version.status
        state = (approval(scene.version).is_given, status, scene.now)
        changes += state != before
        before = state
        scene.sync()
        patches = scene.patches
        scene.look()
        assert scene.patches <= patches + 1
        scene.sync()
        patches = scene.patches
        scene.look()
        assert scene.patches == patches
    assert scene.patches <= changes
    deadlines = [report.obj.status.start_time for report in scene.signals.kept]
    assert len(deadlines) == len(set(deadlines))
