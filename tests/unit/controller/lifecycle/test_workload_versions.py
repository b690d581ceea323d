"""Workload versions wait for their app and their pods (keptn-spec 3.5)."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from harbourmaster.api.resources import (
    APP_VERSIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    ROLLOUTS,
    STATEFUL_SETS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.lifecycle.workload_versions import WorkloadVersionReconciler
from harbourmaster.controller.lifecycle.workloads import WorkloadReconciler
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.lifecycle.model import (
    AppVersionStatus,
    FailedNode,
    ResourceReference,
    WorkloadVersionStatus,
)
from helpers.gated import keptn, pod
from helpers.phased import NOW, STAMP, app_version, workload_version
from helpers.signals import RecordedSignals
from helpers.simulated_server import Mirrored, Server, owner, task_definition

NAME = "shop-cart-2.0"
KEY = f"prod/{NAME}"
APP = "shop-1.0-6b86b273"
CART = [("cart", "2.0")]
OWNERS = "gates.harbourmaster.dev/owners"
READY = {"availableReplicas": 2}


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now

    def later(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def server():
    fake_server = Server()
    for name in ("migrate", "announce"):
        fake_server.put(TASK_DEFINITIONS, task_definition(name))
    return fake_server


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def begin(server, clock):
    """Return a function that begins a life with a version of a workload, unless there is one."""

    def start(version=None, **options):
        if version is not None:
            server.put(WORKLOAD_VERSIONS, version)
        return Mirrored(server, WorkloadVersionReconciler, now=clock, **options)

    return start


def an_app(server, name=APP, *, created=STAMP, state="Succeeded", workloads=CART, **fields):
    """Put a version of the app whose checks are in a state."""
    passed = {"pre_deployment_status": "Succeeded", "pre_deployment_evaluation_status": state}
    status = passed | fields.pop("status", {})
    version = app_version(name, workloads, AppVersionStatus(**status), **fields)
    metadata = replace(version.metadata, creation_timestamp=created)
    return server.put(APP_VERSIONS, replace(version, metadata=metadata))


def owned_by(kind, name, uid="rs-1", annotations=None, **fields):
    """Return a version whose pods have an owner."""
    version = workload_version(**fields)
    reference = ResourceReference(uid=uid, kind=kind, name=name)
    return replace(
        version,
        spec=replace(version.spec, resource_reference=reference),
        metadata=replace(version.metadata, annotations=annotations or {}),
    )


def status_of(life):
    return life.workload_version(NAME).status


async def test_the_state_of_its_app_matters_at_the_beginning_only(begin, server):
    an_app(server)
    life = begin(workload_version(pre_deployment_tasks=("migrate",)))
    await life.sweep()
    server.remove(APP_VERSIONS, APP)
    life.sync()
    await life.sweep()
    assert status_of(life).current_phase == "WorkloadPreDeployTasks"
    assert "AppPreDeployEvaluationsAppVersionNotFound" not in life.signals.reasons


async def test_it_goes_on_with_the_trace_of_its_app(begin, server):
    carrier = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    status = {
        "phase_trace_ids": {"AppDeploy": carrier},
    }
    an_app(server, status=status)
    life = begin(workload_version(), signals=RecordedSignals(tracing=True))
    await life.sweep()
    version = life.workload_version(NAME)
    assert version.spec.trace_id == carrier
    for phase_carrier in version.status.phase_trace_ids.values():
        assert phase_carrier["traceparent"].split("-")[1] == carrier["traceparent"].split("-")[1]


async def test_the_write_that_releases_the_pods_is_the_first_one(begin, server):
    an_app(server)
    server.put(REPLICA_SETS, owner("cart-1", availableReplicas=0))
    life = begin(workload_version())
    waits = await life.sweep()
    assert waits == {KEY: 300.0}
    assert server.requests == [("patch", WORKLOAD_VERSIONS, f"{NAME}/status")]
    status = status_of(life)
    assert (status.deployment_status, status.deployment_start_time) == ("Progressing", STAMP)
    assert status.pre_deployment_status == status.pre_deployment_evaluation_status == "Succeeded"


async def test_the_timeout_goes_on_over_a_restart(begin, server, clock):
    an_app(server)
    server.put(REPLICA_SETS, owner("cart-1"))
    await begin(workload_version()).sweep()
    clock.later(120)
    assert await begin().sweep() == {KEY: 180.0}


async def test_an_owner_that_is_missing_is_waited_for_and_told_once(begin, server, clock):
    an_app(server)
    life = begin(workload_version())
    for _ in range(3):
        await life.sweep()
    (told,) = [
        signal for signal in life.signals.kept if signal.reason == "WorkloadDeployReconcileError"
    ]
    assert told.text == "ReplicaSet cart-1 not found; waiting for it to be created"
    assert server.seen("get") == ["cart-1"]
    assert status_of(life).deployment_status == "Progressing"
    server.put(REPLICA_SETS, owner("cart-1", **READY))
    life.sync()
    await life.sweep()
    assert status_of(life).status == "Succeeded"


async def test_an_owner_that_only_the_mirror_lacks_counts(begin, server):
    an_app(server)
    server.put(REPLICA_SETS, owner("cart-1", **READY))
    life = begin(workload_version())
    life.caches.replica_sets.store.replace_all({})
    (reconciler,) = life.reconcilers
    await reconciler.reconcile(KEY)
    assert status_of(life).status == "Succeeded"


async def test_an_owner_that_can_t_be_followed_is_told_once(begin, server, clock):
    an_app(server)
    life = begin(owned_by("Deployment", "cart"))
    for _ in range(3):
        await life.sweep()
    (told,) = [
        signal for signal in life.signals.kept if signal.reason == "WorkloadDeployReconcileError"
    ]
    assert told.text == (
        "Deployment cart owns the pods, and only these kinds can be followed: "
        "ReplicaSet, StatefulSet, DaemonSet"
    )
    clock.later(300)
    await life.sweep()
    assert status_of(life).status == "Failed"


DEPLOYMENT = [("Deployment", "cart")]
ARGO = [("Rollout", "cart")]
HEALTHY = {"replicas": 3, "updatedReplicas": 3, "phase": "Healthy"}
ALL = {"availableReplicas": 2, "updatedReplicas": 2}
NODES = {"desiredNumberScheduled": 3, "numberReady": 3, "updatedNumberScheduled": 3}
OLD = {"generation": 5, "observedGeneration": 4}


def second_set(**fields):
    return owner("cart-2", uid="rs-2", owners=DEPLOYMENT, **fields)


def rollout(**fields):
    return owner("cart", uid="r", **{**HEALTHY, **fields})


@pytest.mark.parametrize(
    ("sets", "rollouts", "is_deployed"),
    [
        ([owner("cart-1", **READY)], [], True),
        ([owner("cart-1", availableReplicas=1)], [], False),
        ([owner("cart-1", wanted=None, availableReplicas=1)], [], True),
        ([{**owner("cart-1", **READY), "status": READY}], [], False),
        ([owner("cart-1", generation=2, observedGeneration=1, **READY)], [], False),
        ([owner("cart-1", uid="other", **READY)], [], False),
        ([owner("cart-1", wanted=0)], [], True),
        ([owner("cart-1", wanted=0, owners=DEPLOYMENT)], [], True),
        ([owner("cart-1", wanted=0, owners=DEPLOYMENT), second_set(**READY)], [], False),
        ([owner("cart-1", wanted=0, owners=DEPLOYMENT), second_set(wanted=0)], [], True),
        ([owner("cart-1", owners=ARGO)], [rollout(observedGeneration="1")], True),
        ([owner("cart-1", owners=ARGO)], [rollout(phase="Progressing")], False),
        ([owner("cart-1", owners=ARGO)], [rollout(updatedReplicas=2)], False),
        ([owner("cart-1", owners=ARGO)], [rollout(observedGeneration="0")], False),
        ([owner("cart-1", owners=ARGO)], [], False),
    ],
)
async def test_a_replica_set_is_deployed_when_its_pods_are_available_or_its_rollout_is_healthy(
    begin, server, sets, rollouts, is_deployed
):
    for replica_set in sets:
        server.put(REPLICA_SETS, replica_set)
    for obj in rollouts:
        server.put(ROLLOUTS, obj)
    assert await is_deployed_in(begin, server, workload_version()) is is_deployed


async def is_deployed_in(begin, server, version):
    an_app(server)
    life = begin(version)
    await life.sweep()
    return status_of(life).deployment_status == "Succeeded"


@pytest.mark.parametrize(
    ("recorded", "second", "is_deployed"),
    [
        ("rs-1,rs-2", {"revision": 3}, False),
        # It is replaced by the first, which was rolled back to.
        ("rs-1,rs-2", {"revision": 1}, True),
        ("rs-2", {"revision": 1}, False),
        ("rs-1,rs-2", {"revision": 1, "above": "other"}, False),
        ("rs-1,rs-2", {"revision": 1, "above": "other", **READY}, True),
        # One that was deleted counts no more.
        ("rs-1,rs-9", {"revision": 1}, True),
    ],
)
async def test_a_version_is_deployed_when_the_newest_replica_set_of_each_deployment_is(
    begin, server, recorded, second, is_deployed
):
    server.put(REPLICA_SETS, numbered("cart-1", "rs-1", 2, **READY))
    server.put(REPLICA_SETS, numbered("cart-2", "rs-2", **second))
    version = owned_by("ReplicaSet", "cart-2", "rs-2", {OWNERS: recorded})
    assert await is_deployed_in(begin, server, version) is is_deployed


async def test_a_version_of_a_deployment_and_a_stateful_set_is_deployed_when_both_are(
    begin, server
):
    an_app(server)
    server.put(REPLICA_SETS, numbered("cart-1", "rs-1", 2, **READY))
    server.put(STATEFUL_SETS, owner("store", uid="sts", **{**ALL, "availableReplicas": 1}))
    life = begin(owned_by("ReplicaSet", "cart-1", "rs-1", {OWNERS: "rs-1,sts"}))
    await life.sweep()
    assert status_of(life).deployment_status == "Progressing"
    server.put(STATEFUL_SETS, owner("store", uid="sts", **ALL))
    life.sync()
    await life.sweep()
    assert status_of(life).deployment_status == "Succeeded"


@pytest.mark.parametrize(
    ("kind", "fields", "is_deployed"),
    [
        ("StatefulSet", ALL, True),
        ("StatefulSet", {**ALL, "updatedReplicas": 1}, False),
        ("StatefulSet", {**ALL, "availableReplicas": 1}, False),
        ("StatefulSet", {**ALL, **OLD}, False),
        ("DaemonSet", NODES, True),
        ("DaemonSet", {**NODES, "numberReady": 2}, False),
        ("DaemonSet", {**NODES, "updatedNumberScheduled": 2}, False),
        ("DaemonSet", {**NODES, **OLD}, False),
    ],
)
async def test_a_set_is_deployed_when_all_its_pods_are_new_and_ready(
    begin, server, kind, fields, is_deployed
):
    resource, wanted = {"StatefulSet": (STATEFUL_SETS, 2), "DaemonSet": (DAEMON_SETS, None)}[kind]
    server.put(resource, owner("cart", uid="set", wanted=wanted, **fields))
    assert await is_deployed_in(begin, server, owned_by(kind, "cart", "set")) is is_deployed


async def test_what_the_mirror_says_of_the_version_before_never_counts(begin, server):
    an_app(server)
    server.put(STATEFUL_SETS, owner("cart", uid="sts", **ALL))
    life = begin(owned_by("StatefulSet", "cart", "sts"))
    # Its template has changed since, and the watch has not told it yet.
    changed = {**ALL, "updatedReplicas": 0}
    server.put(STATEFUL_SETS, owner("cart", uid="sts", generation=2, **changed))
    (reconciler,) = life.reconcilers
    await reconciler.reconcile(KEY)
    assert status_of(life).deployment_status == "Progressing"


@pytest.mark.parametrize(("version", "is_deployed"), [("2.0", True), ("3.0", False)])
async def test_a_stateful_set_that_works_for_the_next_version_says_nothing_of_this_one(
    begin, server, version, is_deployed
):
    server.put(STATEFUL_SETS, owner("cart", uid="sts", **ALL))
    mine = owned_by("StatefulSet", "cart", "sts")
    spec = {"app": "shop", "version": version, "resourceReference": mine.spec.resource_reference}
    server.put(WORKLOADS, {"metadata": {"name": "shop-cart"}, "spec": spec})
    assert await is_deployed_in(begin, server, mine) is is_deployed


def numbered(name, uid, revision, above="cart", **status):
    replica_set = owner(name, uid=uid, owners=[("Deployment", above)], **status)
    annotations = {"deployment.kubernetes.io/revision": str(revision)}
    replica_set["metadata"]["annotations"] = annotations
    return replica_set


def follow(server, version, **reference):
    """Let the KeptnWorkload be in a version, whose pods have an owner."""
    spec = {"app": "shop", "version": version, "resourceReference": reference}
    server.put(WORKLOADS, {"metadata": {"name": "shop-cart"}, "spec": spec})


@pytest.mark.parametrize(
    ("current", "second_set", "state"),
    [
        ("3.0", {"revision": 10}, "Deprecated"),
        # It was rolled back to.
        ("3.0", {"revision": 8}, "Failed"),
        ("2.0", {"revision": 10}, "Failed"),
        ("3.0", {"revision": 10, "above": "other"}, "Failed"),
    ],
)
async def test_only_a_version_whose_replica_set_is_replaced_is_deprecated_and_without_a_warning(
    begin, server, clock, current, second_set, state
):
    an_app(server)
    server.put(REPLICA_SETS, numbered("cart-1", "rs-1", 9))
    life = begin(owned_by("ReplicaSet", "cart-1", "rs-1"))
    await life.sweep()
    assert status_of(life).deployment_status == "Progressing"
    server.put(REPLICA_SETS, numbered("cart-2", "rs-2", **second_set))
    follow(server, current, uid="rs-2", kind="ReplicaSet", name="cart-2")
    await life.sweep()
    clock.later(1000)
    await life.sweep()
    assert status_of(life).status == state
    assert any(signal.warning for signal in life.signals.kept) == (state == "Failed")
    assert ("deprecated" in life.signals.reasons) == (state == "Deprecated")


@pytest.mark.parametrize(("lives", "state"), [(True, "Progressing"), (False, "Deprecated")])
async def test_a_version_whose_owner_the_mirror_lacks_is_replaced_only_if_it_is_gone(
    begin, server, lives, state
):
    an_app(server)
    if lives:
        server.put(REPLICA_SETS, numbered("cart-1", "rs-1", 9))
    follow(server, "3.0", uid="rs-2", kind="ReplicaSet", name="cart-2")
    life = begin(owned_by("ReplicaSet", "cart-1", "rs-1"))
    life.caches.replica_sets.store.replace_all({})
    (reconciler,) = life.reconcilers
    await reconciler.reconcile(KEY)
    assert status_of(life).status == state


async def test_a_version_whose_owner_cannot_be_followed_is_not_replaced(begin, server):
    an_app(server)
    follow(server, "3.0", uid="d-2", kind="Deployment", name="cart")
    life = begin(owned_by("Deployment", "cart"))
    await life.sweep()
    assert status_of(life).status == "Progressing"


async def test_a_version_for_which_a_pod_waits_is_not_replaced(begin, server):
    """A StatefulSet that is rolled back keeps the pod, and only its version can release it."""
    an_app(server)
    server.put(STATEFUL_SETS, owner("cart", uid="sts"))
    follow(server, "3.0", uid="sts", kind="StatefulSet", name="cart")
    life = begin(owned_by("StatefulSet", "cart", "sts"))
    waiting = decode_pod(msgspec.json.encode(pod("cart-0", keptn("cart", "2.0"))))
    life.caches.pods.store.replace_all({"prod/cart-0": waiting})
    await life.sweep()
    assert status_of(life).status == "Progressing"
    life.caches.pods.store.replace_all({})
    await life.sweep()
    assert status_of(life).status == "Deprecated"


@pytest.mark.parametrize(("partition", "state"), [(0, "Deprecated"), (1, "Progressing")])
async def test_a_stateful_set_that_keeps_pods_of_a_version_does_not_replace_it(
    begin, server, partition, state
):
    an_app(server)
    store = owner("cart", uid="sts")
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
    store["spec"]["updateStrategy"] = rolling
    server.put(STATEFUL_SETS, store)
    follow(server, "3.0", uid="sts", kind="StatefulSet", name="cart")
    life = begin(owned_by("StatefulSet", "cart", "sts"))
    await life.sweep()
    assert status_of(life).status == state


@pytest.mark.parametrize(
    ("deployed_when", "desired", "old_pods", "is_deployed"),
    [
        ("Available", "10", 5, True),
        ("Complete", "10", 5, False),
        ("Complete", "10", 0, False),
        ("Complete", "2", 5, False),
        ("Complete", "2", 0, True),
    ],
)
async def test_a_deployment_is_complete_without_pods_of_other_replica_sets(
    begin, server, deployed_when, desired, old_pods, is_deployed
):
    an_app(server)
    replicas = {"replicas": old_pods, "availableReplicas": old_pods}
    server.put(REPLICA_SETS, owner("cart-1", uid="rs-0", owners=DEPLOYMENT, wanted=0, **replicas))
    current = owner("cart-2", owners=DEPLOYMENT, **READY)
    current["metadata"]["annotations"] = {"deployment.kubernetes.io/desired-replicas": desired}
    server.put(REPLICA_SETS, current)
    settings = {"deployed_when": deployed_when}
    life = begin(owned_by("ReplicaSet", "cart-2", "rs-1"), settings=settings)
    await life.sweep()
    assert (status_of(life).deployment_status == "Succeeded") is is_deployed


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600), ("30s", 30), ("soon", 300), ("", 300)])
async def test_a_workload_may_have_a_time_out_of_its_own(begin, server, clock, text, seconds):
    an_app(server)
    server.put(REPLICA_SETS, owner("cart-1"))
    annotations = {"gates.harbourmaster.dev/deployment-timeout": text}
    life = begin(owned_by("ReplicaSet", "cart-1", "rs-1", annotations))
    await life.sweep()
    clock.later(seconds - 1)
    await life.sweep()
    assert status_of(life).deployment_status == "Progressing"
    clock.later(2)
    await life.sweep()
    assert status_of(life).deployment_status == "Failed"


@pytest.mark.parametrize("message", ["exit code 1: not migrated", ""])
async def test_the_event_of_a_failed_task_says_why(begin, server, message):
    an_app(server)
    life = begin(workload_version(pre_deployment_tasks=("announce",)))
    await life.sweep()
    (task,) = server.all(TASKS)
    status = {"status": "Failed", "message": message}
    server.change(TASKS, task["metadata"]["name"], status=status)
    life.sync()
    await life.sweep()
    told = [
        signal.text for signal in life.signals.kept if signal.reason == "ReconcileTaskStatusChanged"
    ]
    cause = f": {message}" if message else ""
    assert told[-1] == f"task status changed from Pending to Failed{cause}"


@pytest.mark.parametrize(
    ("scheduler", "kept"),
    [
        ({"keep_failed_nodes": True}, ["n2"]),
        ({"keep_failed_nodes": False}, []),
        (None, []),
    ],
)
async def test_it_begins_with_the_failed_nodes_of_the_one_before_where_that_is_wanted(
    begin, server, scheduler, kept
):
    nodes = (
        FailedNode(name="n1", expires=format_rfc3339(NOW)),
        FailedNode(name="n2", expires=format_rfc3339(NOW + timedelta(minutes=1))),
    )
    before = workload_version("shop-cart-1.0", WorkloadVersionStatus(failed_nodes=nodes))
    server.put(WORKLOAD_VERSIONS, replace(before, spec=replace(before.spec, version="1.0")))
    version = workload_version("shop-cart-0.9", WorkloadVersionStatus(failed_nodes=nodes[:1]))
    server.put(WORKLOAD_VERSIONS, replace(version, spec=replace(version.spec, version="0.9")))
    an_app(server)
    life = begin(workload_version(previous_version="1.0"), scheduler=scheduler)
    await life.sweep()
    assert [node.name for node in status_of(life).failed_nodes] == kept
    # Those that are cleared come not back.
    written = server.get(WORKLOAD_VERSIONS, NAME)["status"]
    server.change(WORKLOAD_VERSIONS, NAME, status={**written, "failedNodes": []})
    life.sync()
    await life.sweep()
    assert status_of(life).failed_nodes == ()


def paused(status, **more):
    """Return the condition of a Rollout that Argo changes a moment after its phase."""
    return {"type": "Paused", "status": status, "lastTransitionTime": STAMP, **more}


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"phase": "Paused"}, "Progressing"),
        ({"phase": "Paused", "conditions": [paused("True")]}, "Progressing"),
        ({"phase": "Progressing", "conditions": [paused("True")]}, "Progressing"),
        ({"phase": "Progressing", "conditions": [paused("False")]}, "Failed"),
        ({"phase": "Progressing", "conditions": [{"type": "Available"}]}, "Failed"),
        ({"phase": "Degraded"}, "Failed"),
    ],
)
async def test_a_version_does_not_time_out_while_its_rollout_pauses(
    begin, server, clock, status, state
):
    an_app(server)
    server.put(REPLICA_SETS, owner("cart-1", owners=ARGO))
    server.put(ROLLOUTS, rollout(**status, updatedReplicas=1))
    await begin(workload_version()).sweep()
    clock.later(1000)
    # The controller was restarted during the pause.
    life = begin()
    await life.sweep()
    assert status_of(life).status == state
    server.put(ROLLOUTS, rollout())
    life.sync()
    await life.sweep()
    assert status_of(life).status == "Succeeded"
    assert [signal.reason for signal in life.signals.kept if signal.warning] == (
        ["WorkloadDeployFinished"] if state == "Failed" else []
    )


async def test_the_time_out_of_a_version_counts_from_the_end_of_the_pause(begin, server, clock):
    an_app(server)
    server.put(REPLICA_SETS, owner("cart-1", owners=ARGO))
    server.put(ROLLOUTS, rollout(phase="Paused", updatedReplicas=1))
    assert await begin(workload_version()).sweep() == {KEY: None}
    clock.later(1000)
    resumed = paused("False", lastTransitionTime=format_rfc3339(clock.now))
    clock.later(50)
    server.put(ROLLOUTS, rollout(phase="Progressing", conditions=[resumed], updatedReplicas=1))
    assert await begin().sweep() == {KEY: 250}


async def test_a_failure_by_time_out_stays_in_the_history_of_a_late_success(begin, server, clock):
    an_app(server)
    server.put(REPLICA_SETS, owner("cart-1"))
    life = begin(workload_version())
    await life.sweep()
    clock.later(301)
    await life.sweep()
    before = len(life.signals.kept)
    server.put(REPLICA_SETS, owner("cart-1", **READY))
    life.sync()
    await life.sweep()
    assert status_of(life).status == "Succeeded"
    ends = [
        signal.obj.status.status for signal in life.signals.kept if signal.reason == "completed"
    ]
    assert ends == ["Failed", "Succeeded"]
    first, later = (
        [signal.reason for signal in signals if signal.reason.startswith("WorkloadDeploy")]
        for signals in (life.signals.kept[:before], life.signals.kept[before:])
    )
    assert first == ["WorkloadDeployStarted", "WorkloadDeployFinished", "WorkloadDeployFailed"]
    assert later == ["WorkloadDeployFinished"]
    assert not any(signal.warning for signal in life.signals.kept[before:])


async def test_a_version_whose_deployment_names_another_workload_is_deprecated_until_a_rollback(
    begin, server, clock
):
    an_app(server)
    server.put(DEPLOYMENTS, {"metadata": {"name": "cart"}})
    server.put(REPLICA_SETS, numbered("cart-1", "rs-1", 1))
    follow(server, "2.0", uid="rs-1", kind="ReplicaSet", name="cart-1")
    stored = server.get(WORKLOADS, "shop-cart")
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart-1", "uid": "rs-1"}
    metadata = {**stored["metadata"], "uid": "w", "ownerReferences": [reference]}
    server.put(WORKLOADS, {**stored, "metadata": metadata, "status": {"owners": ["rs-1"]}})
    life = begin(owned_by("ReplicaSet", "cart-1", "rs-1"))
    await life.sweep()
    second = numbered("cart-2", "rs-2", 2)
    second["spec"] = {"template": {"metadata": {"annotations": keptn("store", "2.0")}}}
    server.put(REPLICA_SETS, second)
    life.sync()
    await life.sweep()
    assert status_of(life).status == "Progressing"
    first = numbered("cart-1", "rs-1", 1)
    server.put(REPLICA_SETS, {**first, "spec": {"replicas": 0}})
    life.sync()
    await life.sweep()
    assert status_of(life).status == "Deprecated"
    assert "Failed" not in str(life.signals.reasons)
    workloads = Mirrored(server, WorkloadReconciler, now=clock)
    (reconciler,) = workloads.reconcilers
    await reconciler.reconcile("prod/shop-cart")
    life.sync()
    assert status_of(life).status == "Deprecated"
    # kubectl rollout undo gives the former ReplicaSet the newest revision.
    server.put(REPLICA_SETS, numbered("cart-1", "rs-1", 3))
    workloads.sync()
    await reconciler.reconcile("prod/shop-cart")
    life.sync()
    assert status_of(life).status == "Progressing"
