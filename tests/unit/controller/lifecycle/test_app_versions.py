"""App versions go through their phases (keptn-spec 3.3)."""

from __future__ import annotations

import pytest
from aiohttp import ServerDisconnectedError
from msgspec.structs import replace

from harbourmaster.api.resources import (
    APP_VERSIONS,
    DAEMON_SETS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    REPLICA_SETS,
    ROLLOUTS,
    STATEFUL_SETS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.controller.lifecycle.app_versions import AppVersionReconciler
from harbourmaster.kube.errors import (
    ConflictError,
    ForbiddenError,
    TooManyRequestsError,
    UnreachableError,
)
from harbourmaster.lifecycle.model import AppVersionStatus, WorkloadVersionStatus
from harbourmaster.lifecycle.tasks import check_name
from helpers.fake_store import StatusError
from helpers.phased import CHECKS, NOW, app_version, workload_version
from helpers.simulated_server import Mirrored, Server, evaluation_definition, owner, task_definition

NAME = "shop-1.0-6b86b273"
KEY = f"prod/{NAME}"


@pytest.fixture
def server():
    fake_server = Server()
    for name in ("migrate", "announce", "a", "b"):
        fake_server.put(TASK_DEFINITIONS, task_definition(name))
    for name in ("load", "errors"):
        fake_server.put(EVALUATION_DEFINITIONS, evaluation_definition(name))
    return fake_server


@pytest.fixture
def begin(server):
    """Return a function that begins a life with a version of an app, unless there is one."""

    def start(version=None, **options):
        if version is not None:
            server.put(APP_VERSIONS, version)
        return Mirrored(server, AppVersionReconciler, now=lambda: NOW, **options)

    return start


def status_of(life):
    return life.app_version(NAME).status


def items(life):
    return [
        (item.definition_name, item.status) for item in status_of(life).pre_deployment_task_status
    ]


def end(server, resource, name, state="Succeeded", **fields):
    status = {"status": state} if resource is TASKS else {"overallStatus": state}
    return server.change(resource, name, status={**status, **fields})


def end_all(server, state="Succeeded"):
    for resource in (TASKS, EVALUATIONS):
        for obj in server.all(resource):
            end(server, resource, obj["metadata"]["name"], state)


async def test_an_app_without_checks_takes_one_write_and_tells_its_end_last(begin, server):
    life = begin(app_version())
    await life.sweep()
    assert server.writes() == [("patch", APP_VERSIONS, f"{NAME}/status")]
    # Each of five phases starts and finishes.
    assert len(life.signals.reasons) == 2 * 5 + 1
    assert life.signals.reasons[-1] == "completed"
    assert life.signals.kept[-1].obj.status.status == "Succeeded"
    assert status_of(life).current_phase == "Completed"


async def test_children_are_created_before_the_status_that_names_them(begin, server):
    life = begin(app_version(pre_deployment_tasks=("a", "b")))
    await life.sweep()
    assert [write[:2] for write in server.writes()] == [
        ("create", TASKS),
        ("create", TASKS),
        ("patch", APP_VERSIONS),
    ]
    assert life.signals.reasons == [
        "created",
        "created",
        "AppPreDeployTasksStarted",
        "ReconcileTaskStatusChanged",
        "ReconcileTaskStatusChanged",
    ]
    named = [item.name for item in status_of(life).pre_deployment_task_status]
    assert named == [check_name(f"uid-{NAME}", "pre", name) for name in "ab"]
    assert sorted(named) == sorted(obj["metadata"]["name"] for obj in server.all(TASKS))


async def test_a_flow_takes_few_writes(begin, server):
    life = begin(app_version(**CHECKS))
    for state in ("Pending", "Progressing", "Succeeded") * 4:
        await life.sweep()
        for resource in (TASKS, EVALUATIONS):
            for obj in server.all(resource):
                done = obj["status"].values() if "status" in obj else ()
                if "Succeeded" not in done:
                    end(server, resource, obj["metadata"]["name"], state)
        life.sync()
    await life.sweep()
    assert status_of(life).status == "Succeeded"
    # The first; each of four children begins and ends.
    assert len(server.seen("patch", APP_VERSIONS)) == 1 + 4 * 2
    assert len(server.seen("create")) == 4
    assert server.seen("get") == []


async def test_own_writes_that_the_watch_has_not_brought_are_waited_for(begin, server):
    life = begin(app_version(pre_deployment_tasks=("a",)))
    (reconciler,) = life.reconcilers
    await reconciler.reconcile(KEY)
    before = len(server.requests)
    assert await reconciler.reconcile(KEY) is None
    assert len(server.requests) == before
    life.sync()
    end_all(server)
    life.sync()
    await life.sweep()
    assert status_of(life).status == "Succeeded"


async def test_a_name_that_a_stranger_has_is_not_taken(begin, server):
    taken = check_name(f"uid-{NAME}", "pre", "a")
    owner = {"kind": "KeptnAppVersion", "name": NAME, "uid": "another", "controller": True}
    metadata = {"name": taken, "ownerReferences": [owner]}
    server.put(TASKS, {"metadata": metadata, "spec": {"taskDefinition": "a"}})
    life = begin(app_version(pre_deployment_tasks=("a",)))
    await life.sweep()
    assert status_of(life).pre_deployment_task_status[0].name == check_name(
        f"uid-{NAME}", "pre", "a", taken
    )


async def test_a_deleted_task_is_made_anew(begin, server):
    life = begin(app_version(pre_deployment_tasks=("a",)))
    await life.sweep()
    (first,) = server.all(TASKS)
    name = first["metadata"]["name"]
    server.remove(TASKS, name)
    life.sync()
    await life.sweep()
    assert server.seen("get", TASKS) == [name]
    (second,) = server.all(TASKS)
    assert second["metadata"]["name"] == check_name(f"uid-{NAME}", "pre", "a", name)
    assert status_of(life).pre_deployment_task_status[0].name == second["metadata"]["name"]


async def test_a_task_that_only_the_mirror_lacks_is_not_made_anew(begin, server):
    life = begin(app_version(pre_deployment_tasks=("a",)))
    await life.sweep()
    end_all(server, "Progressing")
    life.caches.tasks.store.replace_all({})
    (reconciler,) = life.reconcilers
    await reconciler.reconcile(KEY)
    assert len(server.seen("create")) == 1
    assert items(life) == [("a", "Progressing")]


async def test_a_refused_creation_is_told_once_and_delays_no_other(begin, server):
    error = StatusError(403, "keptntasks is forbidden")
    server.refusals[TASKS, check_name(f"uid-{NAME}", "pre", "b")] = error
    life = begin(app_version(pre_deployment_tasks=("a", "b")))
    for _ in range(3):
        with pytest.raises(ForbiddenError):
            await life.sweep()
        life.sync()
    assert [name for name, _ in items(life)] == ["a", "b"]
    assert status_of(life).pre_deployment_task_status[1].name == ""
    (told,) = [signal for signal in life.signals.kept if signal.reason == "CreateTaskFailed"]
    assert told.text.startswith("could not create the KeptnTask for b: ")
    assert told.text.endswith(": 403 Forbidden: keptntasks is forbidden")
    assert told.warning is True
    server.refusals.clear()
    await life.sweep()
    end_all(server)
    life.sync()
    await life.sweep()
    assert status_of(life).status == "Succeeded"


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (ServerDisconnectedError(), UnreachableError),
        (StatusError(429, "busy"), TooManyRequestsError),
    ],
)
async def test_what_is_over_in_a_moment_is_no_news(begin, server, refusal, error):
    server.refusals[TASKS] = refusal
    life = begin(app_version(pre_deployment_tasks=("a",)))
    with pytest.raises(error):
        await life.sweep()
    assert "CreateTaskFailed" not in life.signals.reasons


async def test_a_namespace_that_ends_is_no_fault(begin, server):
    text = "forbidden: unable to create new content because it is being terminated"
    server.refusals[TASKS] = StatusError(403, text)
    life = begin(app_version(pre_deployment_tasks=("a",)))
    await life.sweep()
    assert "CreateTaskFailed" not in life.signals.reasons


async def test_a_version_that_changed_meanwhile_is_neither_written_nor_told_of(begin, server):
    life = begin(app_version())
    server.change(APP_VERSIONS, NAME, spec={**server.get(APP_VERSIONS, NAME)["spec"]})
    (reconciler,) = life.reconcilers
    with pytest.raises(ConflictError):
        await reconciler.reconcile(KEY)
    assert life.signals.kept == []
    life.sync()
    await life.sweep()
    assert status_of(life).status == "Succeeded"


async def test_a_version_that_vanishes_is_no_fault(begin, server):
    life = begin(app_version())
    server.remove(APP_VERSIONS, NAME)
    (reconciler,) = life.reconcilers
    assert await reconciler.reconcile(KEY) is None
    assert life.signals.kept == []
    life.sync()
    assert await reconciler.reconcile(KEY) is None
    assert list(reconciler.map_changes([KEY])) == []


async def test_a_version_that_is_being_deleted_is_left_alone(begin, server):
    version = app_version(**CHECKS)
    ending = replace(version.metadata, deletion_timestamp="2026-11-21T18:00:00Z")
    life = begin(replace(version, metadata=ending))
    (reconciler,) = life.reconcilers
    assert list(reconciler.map_changes(None)) == list(reconciler.map_changes([KEY])) == []
    await reconciler.reconcile(KEY)
    assert server.requests == []


@pytest.mark.parametrize("state", ["Succeeded", "Failed", "Deprecated"])
async def test_thousands_of_finished_versions_cost_no_request(begin, server, state):
    for number in range(3000):
        version = app_version(f"shop-{number}", status=AppVersionStatus(status=state), **CHECKS)
        server.put(APP_VERSIONS, version)
    life = begin()
    (reconciler,) = life.reconcilers
    assert list(reconciler.map_changes(None)) == []
    await reconciler.reconcile("prod/shop-1")
    assert server.requests == []
    assert life.signals.kept == []


async def test_a_workload_of_another_app_is_none_of_ours(begin, server):
    cart = workload_version(status=WorkloadVersionStatus(status="Succeeded"))
    server.put(WORKLOAD_VERSIONS, replace(cart, spec=replace(cart.spec, app="shop-cart")))
    life = begin(app_version(workloads=[("cart", "2.0")]))
    await life.sweep()
    assert status_of(life).workload_status[0].status == "Pending"


TRACKED = {"keptn.sh/app": "shop", "keptn.sh/workload": "cart", "keptn.sh/version": "2.0"}
COUNTERS = {
    "Deployment": "deployment.kubernetes.io/",
    "Rollout": "rollout.argoproj.io/",
}
CART = [("cart", "2.0")]


def idle(name="cart-1", *, above=(), owners=(), replicas=0, uid="rs-1", **fields):
    """Return an owner with a template; ``above`` has annotations of its own."""
    manifest = owner(name, uid=uid, owners=owners, wanted=replicas, **fields.pop("status", {}))
    manifest["metadata"]["annotations"] = dict(above)
    container = {"name": "main", "image": fields.pop("image", "registry.example.com/cart:2.0")}
    metadata = {"annotations": fields.pop("annotations", TRACKED), **fields}
    manifest["spec"]["template"] = {"metadata": metadata, "spec": {"containers": [container]}}
    return manifest


def counted(kind, *, desired=0, revision=1, **more):
    """Return the fields of a ReplicaSet of a Deployment or Rollout."""
    counters = {"desired-replicas": str(desired), "revision": str(revision)}
    annotations = {f"{COUNTERS[kind]}{key}": text for key, text in counters.items()}
    return {"owners": [(kind, "cart")], "above": {**annotations, **more}}


RECOMMENDED = {f"app.kubernetes.io/{key}": text for key, text in (
    ("part-of", "shop"), ("name", "cart"), ("version", "2.0"),
)}  # fmt: skip
NODES = {"desiredNumberScheduled": 3}
UNVERSIONED = {key: TRACKED[key] for key in ("keptn.sh/app", "keptn.sh/workload")}
BY_CONTAINER = {**UNVERSIONED, "keptn.sh/container": "main"}


@pytest.mark.parametrize(
    ("resource", "obj", "state"),
    [
        (REPLICA_SETS, idle(), "Succeeded"),
        (REPLICA_SETS, idle(**counted("Deployment")), "Succeeded"),
        (REPLICA_SETS, idle(**counted("Rollout")), "Succeeded"),
        # A rollout begins with a ReplicaSet without pods.
        (REPLICA_SETS, idle(**counted("Deployment", desired=3)), "Pending"),
        (REPLICA_SETS, idle(**counted("Rollout", desired=3)), "Pending"),
        (REPLICA_SETS, idle(replicas=1), "Pending"),
        (REPLICA_SETS, idle(annotations={}, labels=RECOMMENDED), "Succeeded"),
        (REPLICA_SETS, idle(annotations={}), "Pending"),
        (REPLICA_SETS, idle(annotations={**TRACKED, "keptn.sh/version": "1.9"}), "Pending"),
        (REPLICA_SETS, idle(annotations={**TRACKED, "keptn.sh/app": "bank"}), "Pending"),
        # A Deployment's annotations are copied to its ReplicaSet.
        (REPLICA_SETS, idle(annotations={}, **counted("Deployment", **TRACKED)), "Succeeded"),
        (REPLICA_SETS, idle(annotations=BY_CONTAINER), "Succeeded"),
        (REPLICA_SETS, idle(annotations=BY_CONTAINER, image="cart:1.9"), "Pending"),
        (STATEFUL_SETS, idle("cart"), "Succeeded"),
        (STATEFUL_SETS, idle("cart", annotations={}, above=RECOMMENDED), "Succeeded"),
        (STATEFUL_SETS, idle("cart", replicas=2), "Pending"),
        (DAEMON_SETS, idle("cart", replicas=None), "Succeeded"),
        (DAEMON_SETS, idle("cart", replicas=None, status=NODES), "Pending"),
        (DAEMON_SETS, idle("cart", replicas=None, status={"observedGeneration": 0}), "Pending"),
    ],
)
async def test_a_workload_whose_owner_wants_no_pods_counts_as_deployed(
    begin, server, resource, obj, state
):
    server.put(resource, obj)
    life = begin(app_version(workloads=CART))
    await life.sweep()
    assert status_of(life).workload_status[0].status == state
    assert status_of(life).status == ("Succeeded" if state == "Succeeded" else "Progressing")


async def test_only_the_current_replica_set_of_a_deployment_counts(begin, server):
    server.put(REPLICA_SETS, idle(**counted("Deployment", revision=1)))
    next_version = {**TRACKED, "keptn.sh/version": "3.0"}
    newer = idle(
        "cart-2", uid="rs-2", annotations=next_version, **counted("Deployment", revision=2)
    )
    server.put(REPLICA_SETS, newer)
    life = begin(app_version(workloads=CART))
    await life.sweep()
    assert status_of(life).status == "Progressing"
    # It is rolled back.
    server.put(REPLICA_SETS, idle(**counted("Deployment", revision=3)))
    life.sync()
    await life.sweep()
    assert status_of(life).status == "Succeeded"


async def test_a_deployment_that_lends_its_template_to_a_rollout_is_not_deployed(begin, server):
    server.put(REPLICA_SETS, idle(**counted("Deployment")))
    borrower = {**owner("cart-rollout", uid="r"), "spec": {"workloadRef": {"name": "cart"}}}
    server.put(ROLLOUTS, borrower)
    life = begin(app_version(workloads=CART))
    await life.sweep()
    assert status_of(life).status == "Progressing"


@pytest.mark.parametrize(
    ("state", "end"),
    [("Progressing", "Progressing"), ("Failed", "Succeeded"), ("Deprecated", "Succeeded")],
)
async def test_a_version_that_runs_its_checks_counts_more_than_the_wish_for_no_pods(
    begin, server, state, end
):
    server.put(REPLICA_SETS, idle())
    server.put(WORKLOAD_VERSIONS, workload_version(status=WorkloadVersionStatus(status=state)))
    life = begin(app_version(workloads=CART))
    await life.sweep()
    assert status_of(life).status == end


def put_failed_cart(server, *replica_sets):
    """Let the workload ``cart`` be Failed, with these ReplicaSets."""
    server.put(WORKLOAD_VERSIONS, workload_version(status=WorkloadVersionStatus(status="Failed")))
    for replica_set in replica_sets:
        server.put(REPLICA_SETS, replica_set)


def with_pods(wanted, pods, **more):
    return idle(replicas=wanted, status={"replicas": pods}, **more)


@pytest.mark.parametrize(
    ("wanted", "pods", "state"),
    [(0, 0, "Succeeded"), (0, 1, "Failed"), (1, 0, "Failed"), (1, 1, "Failed")],
)
async def test_a_failed_workload_without_pods_fails_no_app(begin, server, wanted, pods, state):
    put_failed_cart(server, with_pods(wanted, pods))
    life = begin(app_version(workloads=CART))
    await life.sweep()
    assert status_of(life).status == state


async def test_a_failed_workload_fails_no_app_until_a_rollback_to_its_replica_set(begin, server):
    newer = idle("cart-2", uid="rs-2", replicas=1, **counted("Deployment", revision=2))
    put_failed_cart(server, with_pods(1, 1, **counted("Deployment", revision=1)), newer)
    life = begin(app_version(workloads=CART))
    await life.sweep()
    assert status_of(life).workload_overall_status == "Pending"
    put_failed_cart(server, with_pods(1, 1, **counted("Deployment", revision=3)))
    life.sync()
    await life.sweep()
    assert status_of(life).status == "Failed"


async def test_an_app_that_has_failed_stays_so_when_its_failed_workload_loses_its_pods(
    begin, server
):
    put_failed_cart(server, with_pods(1, 1))
    life = begin(app_version(workloads=CART))
    await life.sweep()
    put_failed_cart(server, with_pods(0, 0))
    life.sync()
    await life.sweep()
    assert status_of(life).status == "Failed"
