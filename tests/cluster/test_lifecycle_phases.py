"""Phases of apps and workloads on the real API server, with real owners of real pods.

The reconcilers of both kinds of version run in this process. What tasks and evaluations come to,
the tests write.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    APP_VERSIONS,
    DEPLOYMENTS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.api.times import parse
from harbourmaster.controller.lifecycle import watches
from helpers.cluster import (
    delete_namespace,
    fresh_namespace,
)
from helpers.controller import connected
from helpers.lifecycle import running

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

MINE = (watches.APP_VERSIONS, watches.WORKLOAD_VERSIONS)
APP = "shop-1.0-6b86b273"
CART = "shop-cart-1.0"
HOME = "harbourmaster-system"
NOWHERE = {"example.com/pool": "none"}


@pytest.fixture(scope="module")
def _home(control_plane):
    control_plane.add_nodes(1)
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}}
    control_plane.kubectl("apply", "-f=-", stdin=json.dumps(home))


@pytest.fixture
async def client(control_plane, _home):
    async with connected(control_plane.kubeconfig) as found:
        yield found


@pytest.fixture
def place(request, client, kubectl):
    name = fresh_namespace(kubectl, request.node.name)
    yield Place(client, name)
    delete_namespace(kubectl, name)


class Place:
    """A namespace, and what a test does there."""

    def __init__(self, client, namespace):
        self.client = client
        self.namespace = namespace
        self.world = None

    async def create(self, resource, name, spec, namespace=None, **metadata):
        obj = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        stored = await self.client.create(resource, obj, namespace or self.namespace)
        return msgspec.json.decode(stored)

    async def app(self, name=APP, workloads=("cart",), **spec):
        entries = [{"name": each, "version": "1.0"} for each in workloads]
        await self.create(
            APP_VERSIONS, name, {"appName": "shop", "version": "1.0", "workloads": entries, **spec}
        )

    async def workload(self, owner, version="1.0", **spec):
        """The version of the workload ``cart`` whose pods this owner makes."""
        metadata = owner["metadata"]
        reference = {"kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"]}
        await self.create(
            WORKLOAD_VERSIONS,
            f"shop-cart-{version}",
            {
                "app": "shop",
                "version": version,
                "workloadName": "shop-cart",
                "resourceReference": reference,
                **spec,
            },
        )

    async def pods(self, resource=REPLICA_SETS, *, ready=True, **spec):
        """An owner of a pod that kwok makes ready, or that finds no node."""
        labels = {"example.com/app": "cart"}
        containers = [{"name": "cart", "image": "registry.example.com/cart:1"}]
        pod = {"containers": containers, **({} if ready else {"nodeSelector": NOWHERE})}
        template = {"metadata": {"labels": labels}, "spec": pod}
        return await self.create(
            resource,
            "cart",
            {"replicas": 1, "selector": {"matchLabels": labels}, "template": template, **spec},
        )

    async def define(self, *names, namespace=None):
        for each in names:
            container = {"name": "task", "image": "registry.example.com/task:1"}
            await self.create(TASK_DEFINITIONS, each, {"container": container}, namespace)

    async def define_evaluation(self, name):
        objective = {"keptnMetricRef": {"name": "load"}, "evaluationTarget": "<1"}
        await self.create(EVALUATION_DEFINITIONS, name, {"objectives": [objective]})

    def cached(self, mirror, name):
        return mirror.store.get(f"{self.namespace}/{name}")

    async def until(self, mirror, name, condition):
        """Wait until the status of an object fits; return it."""

        def fits():
            found = self.cached(mirror, name)
            return found if found is not None and condition(found.status) else None

        return (await self.world.until(fits)).status

    async def until_app(self, condition, name=APP):
        return await self.until(self.world.caches.app_versions, name, condition)

    async def until_workload(self, condition, name=CART):
        return await self.until(self.world.caches.workload_versions, name, condition)

    async def app_over(self, name=APP):
        """Wait until a version has ended, and until that was told; return its status."""
        await self.until_told("completed", name)
        return await self.until_app(lambda status: status.is_finished, name)

    async def workload_over(self, name=CART):
        """The same for the workload."""
        await self.until_told("completed", name)
        return await self.until_workload(lambda status: status.is_finished, name)

    async def until_told(self, reason, name):
        await self.world.until(lambda: reason in self.reasons(name))

    async def until_children(self, count=1, mirror=None):
        """Wait for so many tasks, or evaluations; return them."""
        store = (mirror or self.world.caches.tasks).store

        def found():
            mine = [each for each in store.values() if each.metadata.namespace == self.namespace]
            return mine if len(mine) >= count else None

        return await self.world.until(found)

    async def end(self, child, state="Succeeded"):
        """Write what became of a task or an evaluation."""
        is_task = hasattr(child.spec, "task_definition")
        status = {"status": state} if is_task else {"overallStatus": state, "retryCount": 1}
        if not is_task:
            status["evaluationStatus"] = {}
        await self.client.patch(
            TASKS if is_task else EVALUATIONS,
            child.metadata.name,
            MergePatch({"status": status}),
            self.namespace,
            subresource="status",
        )

    def reasons(self, name=None):
        return [
            each.reason
            for each in self.world.signals.kept
            if each.obj.metadata.namespace == self.namespace
            and name in {None, each.obj.metadata.name}
        ]


@pytest.fixture
def play(client, place):
    """Return a function that runs both reconcilers, with options of the configuration."""

    class Playing:
        def __init__(self, **configuration):
            self._running = running(client, *MINE, configuration=configuration)

        async def __aenter__(self):
            place.world = await self._running.__aenter__()
            return place

        async def __aexit__(self, *error):
            return await self._running.__aexit__(*error)

    return Playing


async def test_c51_without_checks_all_phases_are_told_in_their_order(play):
    async with play() as place:
        await place.workload(await place.pods())
        await place.app()
        app = await place.app_over()
        workload = await place.workload_over()
        assert (app.status, app.current_phase) == ("Succeeded", "Completed")
        assert (workload.status, workload.current_phase) == ("Succeeded", "Completed")
        assert app.start_time <= app.end_time
        assert workload.deployment_start_time
        reasons = [each for each in place.reasons() if "NotFound" not in each]
        order = [
            "AppPreDeployTasksStarted",
            "AppPreDeployEvaluationsFinished",
            "AppDeployStarted",
            "WorkloadPreDeployTasksStarted",
            "WorkloadPreDeployEvaluationsFinished",
            "WorkloadDeployStarted",
            "WorkloadDeployFinished",
            "WorkloadPostDeployEvaluationsFinished",
            "AppDeployFinished",
            "AppPostDeployTasksStarted",
            "AppPostDeployEvaluationsFinished",
        ]
        assert [each for each in reasons if each in order] == order
        assert place.reasons(APP)[-1] == place.reasons(CART)[-1] == "completed"


async def test_c52_a_failed_task_of_the_app_deprecates_the_rest_and_holds_its_workloads(play):
    async with play() as place:
        await place.define("migrate")
        await place.app(preDeploymentTasks=["migrate"])
        await place.workload(await place.pods())
        (task,) = await place.until_children()
        await place.end(task, "Failed")
        app = await place.app_over()
        assert app.pre_deployment_status == app.status == "Failed"
        assert {
            app.pre_deployment_evaluation_status,
            app.workload_overall_status,
            app.post_deployment_status,
            app.post_deployment_evaluation_status,
            app.promotion_status,
        } == {"Deprecated"}
        assert app.end_time
        assert place.reasons(APP)[-2:] == ["AppPreDeployTasksFailed", "completed"]
        await place.until_told("AppPreDeployEvaluationsFailed", CART)
        workload = place.cached(place.world.caches.workload_versions, CART).status
        assert (workload.current_phase, workload.deployment_status) == ("", "Pending")


async def test_c53_a_failed_task_of_a_workload_fails_its_app(play):
    async with play() as place:
        await place.define("migrate")
        await place.app()
        await place.workload(await place.pods(), preDeploymentTasks=["migrate"])
        (task,) = await place.until_children()
        await place.end(task, "Failed")
        workload = await place.workload_over()
        assert workload.status == workload.pre_deployment_status == "Failed"
        assert {
            workload.pre_deployment_evaluation_status,
            workload.deployment_status,
            workload.post_deployment_status,
            workload.post_deployment_evaluation_status,
        } == {"Deprecated"}
        app = await place.app_over()
        assert (app.workload_overall_status, app.status) == ("Failed", "Failed")
        assert app.current_phase == "AppDeploy"
        assert {app.post_deployment_status, app.promotion_status} == {"Deprecated"}


async def test_c54_a_missing_definition_is_waited_for_while_the_other_runs(play):
    async with play() as place:
        await place.define("here")
        await place.app(workloads=(), preDeploymentTasks=["here", "late"])
        (task,) = await place.until_children()
        await place.end(task)
        app = await place.until_app(
            lambda status: (
                [each.status for each in status.pre_deployment_task_status]
                == ["Succeeded", "Pending"]
            )
        )
        assert (app.pre_deployment_status, app.status) == ("Pending", "Progressing")
        await place.define("late")
        _, late = sorted(await place.until_children(2), key=lambda one: one.spec.task_definition)
        await place.end(late)
        assert (await place.app_over()).status == "Succeeded"
        assert place.reasons(APP).count("CreateTaskNotFound") == 1


async def test_c55_and_c56_definitions_are_taken_from_home_unless_there_are_own_ones(play):
    async with play() as place:
        shared, own = (f"{each}-{place.namespace}" for each in ("shared", "own"))
        await place.define(shared, own, namespace=HOME)
        await place.create(
            TASK_DEFINITIONS,
            own,
            {"container": {"name": "task", "image": "registry.example.com/task:2"}, "retries": 3},
        )
        await place.app(workloads=(), preDeploymentTasks=[shared, own])
        tasks = {each.spec.task_definition: each for each in await place.until_children(2)}
        assert (tasks[shared].spec.retries, tasks[own].spec.retries) == (10, 3)


async def test_c57_a_deleted_task_is_made_anew_under_another_name(play):
    async with play() as place:
        await place.define("migrate")
        await place.app(workloads=(), preDeploymentTasks=["migrate"])
        (first,) = await place.until_children()
        await place.end(first, "Progressing")
        await place.until_app(lambda status: status.pre_deployment_status == "Progressing")
        await place.client.delete(TASKS, first.metadata.name, place.namespace)
        app = await place.until_app(
            lambda status: status.pre_deployment_task_status[0].name != first.metadata.name
        )
        (second,) = await place.until_children()
        assert second.metadata.name == app.pre_deployment_task_status[0].name
        await place.end(second)
        assert (await place.app_over()).status == "Succeeded"


async def test_c70_a_definition_listed_twice_gives_one_task(play):
    async with play() as place:
        await place.define("migrate")
        await place.app(workloads=(), preDeploymentTasks=["migrate", "migrate"])
        (task,) = await place.until_children()
        await place.end(task)
        app = await place.app_over()
        assert len(app.pre_deployment_task_status) == 1
        assert len(await place.until_children()) == 1


async def test_c43_and_c44_who_lacks_the_other_waits_and_says_so_once(play):
    async with play() as place:
        await place.workload(await place.pods())
        await place.until_told("AppPreDeployEvaluationsAppVersionNotFound", CART)
        assert len(place.reasons(CART)) == 1
        await place.app(workloads=("cart", "never"))
        await place.workload_over()
        app = await place.until_app(
            lambda status: (
                [each.status for each in status.workload_status] == ["Succeeded", "Pending"]
            )
        )
        assert (app.current_phase, app.status) == ("AppDeploy", "Progressing")
        assert place.reasons(APP).count("ReconcileWorkloadNotFound") == 1


async def test_c45_and_c46_the_next_version_of_the_app_lets_its_workloads_go(play):
    async with play() as place:
        await place.define_evaluation("load")
        await place.app(preDeploymentEvaluations=["load"])
        await place.workload(await place.pods())
        (evaluation,) = await place.until_children(mirror=place.world.caches.evaluations)
        await place.end(evaluation, "Failed")
        await place.app_over()
        await place.until_told("AppPreDeployEvaluationsFailed", CART)
        assert "ReconcileEvaluationFailed" in place.reasons(evaluation.metadata.name)
        await place.app("shop-1.0-d4735e3a", revision=2)
        assert (await place.workload_over()).status == "Succeeded"
        assert (await place.app_over("shop-1.0-d4735e3a")).status == "Succeeded"
        assert place.reasons(CART).count("AppPreDeployEvaluationsFailed") == 1


async def test_c81_without_blocking_a_failed_evaluation_lets_workloads_go(play):
    async with play(block_deployment=False) as place:
        await place.define_evaluation("load")
        await place.app(preDeploymentEvaluations=["load"])
        await place.workload(await place.pods())
        (evaluation,) = await place.until_children(mirror=place.world.caches.evaluations)
        await place.end(evaluation, "Failed")
        app = await place.app_over()
        assert app.status == "Succeeded"
        assert app.pre_deployment_evaluation_status == "Warning"
        assert app.pre_deployment_evaluation_task_status[0].status == "Failed"


async def test_c83_pods_that_never_get_ready_end_it_at_the_timeout(play):
    async with play(observability_timeout=2.0) as place:
        await place.app()
        await place.workload(await place.pods(ready=False))
        workload = await place.workload_over()
        assert workload.status == workload.deployment_status == "Failed"
        began, ended = parse(workload.deployment_start_time), parse(workload.end_time)
        assert 2 <= (ended - began).total_seconds() <= 3
        assert place.reasons(CART)[-3:] == [
            "WorkloadDeployFinished",
            "WorkloadDeployFailed",
            "completed",
        ]
        assert (await place.app_over()).status == "Failed"


async def test_the_replica_set_of_a_real_deployment_is_followed(play):
    async with play() as place:
        await place.pods(DEPLOYMENTS)

        def replica_set():
            store = place.world.caches.replica_sets.store
            found = [each for each in store.values() if each.metadata.namespace == place.namespace]
            return found[0].metadata if found else None

        metadata = await place.world.until(replica_set)
        owner = {"name": metadata.name, "uid": metadata.uid}
        await place.workload({"kind": "ReplicaSet", "metadata": owner})
        await place.app()
        assert (await place.workload_over()).status == "Succeeded"


async def test_the_second_version_of_a_stateful_set_is_not_ready_by_the_first_one_s_pods(play):
    async with play() as place:
        sts = await place.pods(STATEFUL_SETS, serviceName="cart")
        await place.workload(sts)
        await place.app()
        assert (await place.workload_over()).status == "Succeeded"
        held = [{"name": "example.com/held"}]
        template = {"metadata": {"annotations": {"example.com/v": "2"}}}
        template["spec"] = {"schedulingGates": held}
        await place.client.patch(
            STATEFUL_SETS, "cart", MergePatch({"spec": {"template": template}}), place.namespace
        )
        await place.create(
            APP_VERSIONS,
            "shop-2.0-d4735e3a",
            {
                "appName": "shop",
                "version": "2.0",
                "workloads": [{"name": "cart", "version": "2.0"}],
            },
        )
        await place.workload(sts, "2.0")
        second = "shop-cart-2.0"
        await place.until_workload(lambda status: status.deployment_status != "Pending", second)
        store = place.world.caches.stateful_sets.store
        await place.world.until(
            lambda: store.get(f"{place.namespace}/cart").status.available_replicas == 0 or None
        )
        status = place.cached(place.world.caches.workload_versions, second).status
        assert status.deployment_status == "Progressing"
        await place.client.patch(
            STATEFUL_SETS,
            "cart",
            MergePatch({"spec": {"template": {"spec": {"schedulingGates": None}}}}),
            place.namespace,
        )
        # A StatefulSet does not replace a broken pod by itself.
        await place.client.delete(PODS, "cart-0", place.namespace, missing_ok=True)
        assert (await place.workload_over(second)).status == "Succeeded"


async def test_a_restart_in_the_midst_repeats_nothing(play):
    async with play() as place:
        await place.define("migrate")
        await place.app(workloads=(), preDeploymentTasks=["migrate"])
        (task,) = await place.until_children()
        await place.until_told("ReconcileTaskStatusChanged", APP)
        before = place.reasons(APP)
    await place.end(task)
    async with play() as place:
        await place.app_over()
        after = place.reasons(APP)
        assert len(await place.until_children()) == 1
    assert before == ["AppPreDeployTasksStarted", "ReconcileTaskStatusChanged"]
    assert after[:2] == ["ReconcileTaskStatusChanged", "AppPreDeployTasksFinished"]
    assert after.count("completed") == 1
