"""Changes in each cache wake the controllers in one table."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest
from msgspec.structs import replace

from harbourmaster.controller.extender.settings import SchedulerSettings
from harbourmaster.controller.lifecycle import watches
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.function_maps import decode_function_map
from harbourmaster.controller.lifecycle.owners import decode_owner
from harbourmaster.controller.lifecycle.started_pods import decode_started
from harbourmaster.controller.lifecycle.task_jobs import decode_job
from harbourmaster.lifecycle.apps import version_of
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.lifecycle.model import (
    AppVersionStatus,
    EvaluationStatus,
    FailedNode,
    ItemStatus,
    StageStatus,
    TaskDefinition,
    TaskStatus,
    WorkloadEntry,
    WorkloadState,
    WorkloadVersionStatus,
)
from helpers.lifecycle_objects import (
    app,
    app_version,
    evaluation,
    owner_by,
    task,
    workload,
    workload_version,
)

JOBS = (
    watches.GATES,
    watches.WORKLOADS,
    watches.WORKLOAD_VERSIONS,
    watches.APPS,
    watches.APP_VERSIONS,
    watches.CREATION_REQUESTS,
    watches.TASKS,
    watches.TASK_DEFINITIONS,
    watches.EVALUATIONS,
    watches.CONFIG,
    watches.WAIT_EVENTS,
)


class Woken:
    """Replaces a controller, and records the keys that it is woken for."""

    def __init__(self):
        self.keys = set()

    def enqueue(self, keys):
        self.keys.update(keys)


class WatchedCaches:
    """Caches that record the controllers that each change wakes."""

    def __init__(self, scheduler=None):
        self.caches = LifecycleCaches(client=None, scheduler=scheduler or SchedulerSettings())
        names = (*JOBS, watches.FAILED_NODES) if scheduler is not None else JOBS
        self.jobs = defaultdict(Woken, {name: Woken() for name in names})
        watches.Watches(self.caches, self.jobs).connect()

    def put(self, mirror, *objects):
        store = getattr(self.caches, mirror).store
        for obj in objects:
            store.put(key(obj), obj)

    def change(self, cache, *keys):
        """Change these keys of a cache; return which controllers were told which keys."""
        for job in self.jobs.values():
            job.keys = set()
        getattr(self.caches, cache).notify(frozenset(keys))
        return {name: job.keys for name, job in self.jobs.items() if job.keys}


def key(obj):
    place = getattr(obj, "metadata", obj)
    return f"{place.namespace}/{place.name}"


def metadata(name, **more):
    return {"name": name, "namespace": "prod", "uid": f"uid of {name}", **more}


def read(decode, obj):
    return decode(msgspec.json.encode(obj))


def definition(name, kind=TaskDefinition, namespace="prod", **spec):
    obj = {"metadata": {**metadata(name), "namespace": namespace}, "spec": spec}
    return msgspec.convert(obj, kind)


def owner(name, **more):
    return read(decode_owner, {"metadata": metadata(name, **more)})


def item(name, definition_name="entry"):
    return (ItemStatus(definition_name=definition_name, name=name, status="Progressing"),)


def app_in_progress(**spec):
    status = AppVersionStatus(
        status="Progressing", pre_deployment_task_status=item("pre-entry-12345")
    )
    return app_version(status=status, **spec)


def workload_in_progress(phase="WorkloadDeploy", **spec):
    status = WorkloadVersionStatus(
        status="Progressing",
        current_phase=phase,
        pre_deployment_evaluation_task_status=item("pre-eval-cpu-54321", "cpu"),
    )
    return workload_version(status=status, **spec)


@pytest.fixture
def caches():
    return WatchedCaches()


@pytest.mark.parametrize(
    ("mirror", "job"),
    [
        ("workloads", watches.WORKLOADS),
        ("apps", watches.APPS),
        ("creation_requests", watches.CREATION_REQUESTS),
        ("tasks", watches.TASKS),
        ("task_definitions", watches.TASK_DEFINITIONS),
        ("evaluations", watches.EVALUATIONS),
        ("configs", watches.CONFIG),
        ("pods", watches.GATES),
        ("app_versions", watches.APP_VERSIONS),
        ("workload_versions", watches.WORKLOAD_VERSIONS),
    ],
)
def test_each_kind_wakes_its_own_reconciler(caches, mirror, job):
    assert caches.change(mirror, "prod/one")[job] == {"prod/one"}


def test_a_metric_that_nobody_reads_wakes_nobody(caches):
    assert caches.change("metrics", "prod/one") == {}


def test_a_child_wakes_the_version_whose_status_names_it(caches):
    caches.put("app_versions", app_in_progress())
    caches.put("workload_versions", workload_in_progress())
    woken = caches.change("tasks", "prod/pre-entry-12345")
    assert woken[watches.APP_VERSIONS] == {"prod/shop-1-6b86b273"}
    assert watches.WORKLOAD_VERSIONS not in woken
    woken = caches.change("evaluations", "prod/pre-eval-cpu-54321")
    assert woken[watches.WORKLOAD_VERSIONS] == {"prod/shop-front-7"}


def test_the_checks_of_a_stage_and_their_definitions_wake_its_version(caches):
    status = WorkloadVersionStatus(
        status="Progressing",
        stage=StageStatus(number=1),
        stage_analysis_status=item("stage-1-analysis-errors-12345", "errors"),
    )
    checks = {"stage_tasks": ("smoke",), "stage_analyses": ("errors",)}
    caches.put("workload_versions", workload_version(status=status, stages="1", **checks))
    for mirror, name in (
        ("analyses", "stage-1-analysis-errors-12345"),
        ("analysis_definitions", "errors"),
        ("task_definitions", "smoke"),
    ):
        woken = caches.change(mirror, f"prod/{name}")
        assert woken[watches.WORKLOAD_VERSIONS] == {"prod/shop-front-7"}


def test_a_child_wakes_no_version_that_has_ended(caches):
    ended = AppVersionStatus(status="Failed", pre_deployment_task_status=item("pre-entry-12345"))
    caches.put("app_versions", app_version(status=ended))
    assert watches.APP_VERSIONS not in caches.change("tasks", "prod/pre-entry-12345")


@pytest.mark.parametrize("mirror", ["task_definitions", "evaluation_definitions"])
def test_a_definition_of_any_namespace_wakes_who_wants_it(caches, mirror):
    caches.put(
        "app_versions",
        app_in_progress(pre_deployment_tasks=("entry",), post_deployment_evaluations=("entry",)),
    )
    caches.put("workload_versions", workload_in_progress(post_deployment_tasks=("other",)))
    woken = caches.change(mirror, "keptn-system/entry")
    assert woken[watches.APP_VERSIONS] == {"prod/shop-1-6b86b273"}
    assert watches.WORKLOAD_VERSIONS not in woken


def test_a_definition_wakes_what_is_made_by_it_and_has_not_ended(caches):
    waiting = task(status=TaskStatus(status="Pending"))
    caches.put("tasks", waiting, task(name="pre-entry-99999"))
    assert caches.change("task_definitions", "prod/entry")[watches.TASKS] == {key(waiting)}
    measuring = msgspec.structs.replace(evaluation(), status=EvaluationStatus())
    caches.put("evaluations", measuring, evaluation(name="pre-eval-cpu-99999"))
    woken = caches.change("evaluation_definitions", "prod/cpu")
    assert woken[watches.EVALUATIONS] == {key(measuring)}


def test_a_definition_wakes_the_tasks_of_those_that_refer_to_it_however_far(caches):
    caches.put("tasks", task(status=TaskStatus(status="Pending")))
    chain = ("entry", "middle"), ("middle", "far"), ("far", "middle")
    for name, reference in chain:
        caches.put("task_definitions", definition(name, deno={"functionRef": {"name": reference}}))
    woken = caches.change("task_definitions", "prod/far")
    assert woken[watches.TASKS] == {"prod/pre-entry-12345"}


def test_a_config_map_wakes_the_definition_with_its_code_and_its_tasks(caches):
    caches.put("tasks", task(status=TaskStatus(status="Pending")))
    caches.put("task_definitions", definition("entry", deno={"configMapRef": {"name": "code"}}))
    config_map = read(decode_function_map, {"metadata": metadata("code")})
    caches.put("config_maps", config_map)
    woken = caches.change("config_maps", "prod/code")
    assert woken == {
        watches.TASK_DEFINITIONS: {"prod/entry"},
        watches.TASKS: {"prod/pre-entry-12345"},
    }


def test_a_job_wakes_its_task_by_its_owner_and_by_the_tasks_status(caches):
    status = TaskStatus(status="Progressing", job_name="pre-entry-12345-1")
    caches.put("tasks", task(status=status))
    # It is gone by now.
    assert caches.change("jobs", "prod/pre-entry-12345-1") == {
        watches.TASKS: {"prod/pre-entry-12345"}
    }
    watched_caches = WatchedCaches()
    of = {"apiVersion": "lifecycle.keptn.sh/v1", "kind": "KeptnTask"}
    reference = {**of, "name": "new", "uid": "u", "controller": True}
    job = read(decode_job, {"metadata": metadata("new-1", ownerReferences=[reference])})
    watched_caches.put("jobs", job)
    assert watched_caches.change("jobs", "prod/new-1") == {watches.TASKS: {"prod/new"}}


def gated_pod(name, **annotations):
    keys = {"keptn.sh/workload": "front", "keptn.sh/version": "7", "keptn.sh/app": "shop"}
    obj = {
        "metadata": metadata(name, annotations={**keys, **annotations}),
        "spec": {"schedulingGates": [{"name": "keptn-prechecks-gate"}]},
    }
    return read(decode_pod, obj)


def test_a_workload_version_wakes_its_pods_its_workload_and_its_app(caches):
    caches.put(
        "pods", gated_pod("one"), gated_pod("two"), gated_pod("other", **{"keptn.sh/version": "8"})
    )
    caches.put("workloads", workload())
    caches.put("workload_versions", workload_version())
    caches.put("app_versions", app_in_progress(), app_version("0", name="shop-0-6b86b273"))
    assert caches.change("workload_versions", "prod/shop-front-7") == {
        watches.GATES: {"prod/one", "prod/two"},
        watches.WORKLOADS: {"prod/shop-front"},
        watches.WORKLOAD_VERSIONS: {"prod/shop-front-7"},
        watches.APP_VERSIONS: {"prod/shop-1-6b86b273"},
        watches.WAIT_EVENTS: {"prod/shop-front-7"},
    }


def test_who_tells_why_pods_wait_looks_at_their_version_when_they_or_its_checks_change(caches):
    caches.put("pods", gated_pod("one"))
    caches.put("app_versions", app_in_progress())
    waiting = workload_version("8", status=WorkloadVersionStatus())
    caches.put("workload_versions", workload_in_progress(), waiting)
    for cache, changed, version in (
        ("pods", "one", "shop-front-7"),
        ("evaluations", "pre-eval-cpu-54321", "shop-front-7"),
        ("tasks", "pre-entry-12345", waiting.metadata.name),
        ("app_versions", "shop-1-6b86b273", waiting.metadata.name),
    ):
        woken = caches.change(cache, f"prod/{changed}", "prod/gone")
        assert woken[watches.WAIT_EVENTS] == {f"prod/{version}"}


def test_the_pods_of_a_deleted_version_look_again(caches):
    caches.put("pods", gated_pod("one"))
    assert caches.change("workload_versions", "prod/shop-front-7")[watches.GATES] == {"prod/one"}


def test_an_app_version_wakes_the_workloads_that_wait_for_it(caches):
    caches.put("app_versions", app_in_progress())
    waiting = workload_version("8", status=WorkloadVersionStatus())
    caches.put("workload_versions", waiting, workload_in_progress())
    woken = caches.change("app_versions", "prod/shop-1-6b86b273")
    assert woken[watches.WORKLOAD_VERSIONS] == {key(waiting)}


def test_an_app_that_checks_again_wakes_the_workloads_that_are_not_released(caches):
    in_progress = app_in_progress()
    states = (WorkloadState(workload=WorkloadEntry(name="front", version="7")),)
    status = replace(in_progress.status, workload_status=states)
    caches.put("app_versions", replace(in_progress, status=status))
    begun, released = workload_in_progress(), workload_version("6")
    status = WorkloadVersionStatus(
        current_phase="WorkloadDeploy", deployment_start_time="2026-11-21T18:00:00Z"
    )
    caches.put("workload_versions", begun, replace(released, status=status))
    woken = caches.change("app_versions", "prod/shop-1-6b86b273")
    assert woken[watches.WORKLOAD_VERSIONS] == {key(begun)}


def test_a_context_wakes_its_app_and_the_versions_of_its_workloads(caches):
    caches.put("workload_versions", workload_version())
    assert caches.change("app_contexts", "prod/shop") == {
        watches.APPS: {"prod/shop"},
        watches.WORKLOAD_VERSIONS: {"prod/shop-front-7"},
    }


@pytest.mark.parametrize(
    ("mirror", "kind"),
    [
        ("replica_sets", "ReplicaSet"),
        ("stateful_sets", "StatefulSet"),
        ("daemon_sets", "DaemonSet"),
    ],
)
def test_the_owner_of_pods_wakes_the_version_that_is_deployed(caches, mirror, kind):
    in_progress = workload_in_progress()
    reference = msgspec.structs.replace(in_progress.spec.resource_reference, kind=kind)
    spec = msgspec.structs.replace(in_progress.spec, resource_reference=reference)
    caches.put("workload_versions", msgspec.structs.replace(in_progress, spec=spec))
    woken = caches.change(mirror, "prod/front-abc")
    assert woken.pop(watches.WORKLOAD_VERSIONS) == {"prod/shop-front-7"}
    # A StatefulSet may have another revision for the pods that wait.
    wait_events = {watches.WAIT_EVENTS: {"prod/shop-front-7"}}
    assert woken == (wait_events if kind == "StatefulSet" else {})
    remaining = {"replica_sets", "stateful_sets", "daemon_sets"} - {mirror}
    assert [caches.change(name, "prod/front-abc") for name in remaining] == [{}, {}]


def test_a_rollout_wakes_the_version_of_its_replica_set(caches):
    above = {"kind": "Rollout", "name": "front", "uid": "r", "controller": True}
    caches.put("replica_sets", owner("front-abc", ownerReferences=[above]))
    caches.put("workload_versions", workload_in_progress())
    assert caches.change("rollouts", "prod/front") == {
        watches.WORKLOAD_VERSIONS: {"prod/shop-front-7"}
    }


def test_an_owner_that_wants_no_pods_wakes_the_app_that_lists_its_workload(caches):
    caches.put("app_versions", app_in_progress())
    annotations = {"keptn.sh/app": "shop", "keptn.sh/workload": "front", "keptn.sh/version": "7"}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "a"}]}}
    for replicas, woken in ((1, {}), (0, {watches.APP_VERSIONS: {"prod/shop-1-6b86b273"}})):
        spec = {"replicas": replicas, "template": template}
        manifest = {"metadata": metadata("front-abc"), "spec": spec}
        status = {"observedGeneration": 1}
        caches.put("replica_sets", read(decode_owner, {**manifest, "status": status}))
        assert caches.change("replica_sets", "prod/front-abc") == woken


def test_a_job_that_does_not_run_here_is_left_out():
    caches = LifecycleCaches(client=None)
    woken = Woken()
    watches.Watches(caches, {watches.APPS: woken}).connect()
    caches.apps.notify(frozenset(("prod/one",)))
    assert woken.keys == {"prod/one"}


def test_makers_of_what_is_gone_make_it_again(caches):
    """The app or workload recreates its version when a user has deleted it."""
    caches.put("apps", app())
    caches.put("workloads", workload())
    assert caches.change("app_versions", f"prod/{version_of(app())}")[watches.APPS] == {"prod/shop"}
    woken = caches.change("workload_versions", "prod/shop-front-7")
    assert woken[watches.WORKLOADS] == {"prod/shop-front"}


@pytest.mark.parametrize(
    ("mirror", "name"),
    [("creation_requests", "shop"), ("apps", "shop"), ("workloads", "shop-front")],
)
def test_pods_look_again_when_what_was_made_of_them_is_gone(caches, mirror, name):
    caches.put("pods", gated_pod("one"))
    assert caches.change(mirror, f"prod/{name}")[watches.GATES] == {"prod/one"}


@pytest.fixture
def scheduler_caches():
    """Return the caches of a release that serves a scheduler."""
    return WatchedCaches(SchedulerSettings(enabled=True))


STEPS = (
    {"start_time": "2026-03-01T12:00:10Z"},
    {"pre_deployment_status": "Failed"},
    {"failed_nodes": (FailedNode(name="n1"),)},
)


def wakes(caches, change):
    """Whether a change of a version's status wakes the pods that wait for it."""
    caches.put("pods", gated_pod("one"))
    before = workload_version(status=WorkloadVersionStatus())
    caches.put("workload_versions", before)
    caches.change("workload_versions", key(before))
    assert watches.GATES not in caches.change("workload_versions", key(before))
    caches.put("workload_versions", workload_version(status=WorkloadVersionStatus(**change)))
    return watches.GATES in caches.change("workload_versions", key(before))


@pytest.mark.parametrize("change", STEPS)
def test_pods_in_a_scheduler_look_again_at_whatever_they_are_told(caches, scheduler_caches, change):
    assert wakes(scheduler_caches, change)
    assert not wakes(caches, change)


def test_a_version_a_failed_check_and_a_pod_wake_the_record_of_nodes(scheduler_caches):
    version = workload_version()
    assert scheduler_caches.change("workload_versions", key(version))[watches.FAILED_NODES] == {
        key(version)
    }
    reference = owner_by("KeptnWorkloadVersion", version)
    failed_task = task()
    owned = msgspec.structs.replace(failed_task.metadata, owner_references=(reference,))
    scheduler_caches.put("tasks", msgspec.structs.replace(failed_task, metadata=owned))
    assert scheduler_caches.change("tasks", key(failed_task))[watches.FAILED_NODES] == {
        key(version)
    }
    annotations = gated_pod("one").annotations
    owner = {"kind": "ReplicaSet", "name": "front-abc", "uid": "rs-1"}
    obj = {
        "metadata": metadata(
            "one",
            annotations=annotations,
            ownerReferences=[owner],
            creationTimestamp="2026-03-01T12:00:10Z",
        ),
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Failed"},
    }
    scheduler_caches.caches.started_pods.store.put("prod/one", read(decode_started, obj))
    woken = scheduler_caches.change("started_pods", "prod/one", "prod/gone")
    assert woken == {watches.FAILED_NODES: {key(version)}}


def test_an_app_looks_for_workloads_that_are_gone_when_one_changes_or_is_deleted(caches):
    listed = msgspec.structs.replace(app().spec, workloads=app_version().spec.workloads)
    caches.put("apps", msgspec.structs.replace(app(), spec=listed))
    for cache, changed in (("workload_versions", "shop-front-7"), ("apps", "shop")):
        woken = caches.change(cache, f"prod/{changed}")
        assert woken[watches.CREATION_REQUESTS] == {"prod/shop"}


def test_the_owner_of_pods_wakes_its_app_and_what_waits_for_pods_that_come_back(caches):
    failed = workload_version(status=WorkloadVersionStatus(status="Failed"))
    listed = msgspec.structs.replace(app().spec, workloads=app_version().spec.workloads)
    caches.put("apps", msgspec.structs.replace(app(), spec=listed))
    caches.put("workloads", workload())
    caches.put("app_versions", app_in_progress())
    caches.put("workload_versions", failed)
    assert caches.change("replica_sets", "prod/front-abc") == {
        watches.WORKLOADS: {"prod/shop-front"},
        watches.WORKLOAD_VERSIONS: {"prod/shop-front-7"},
        watches.CREATION_REQUESTS: {"prod/shop"},
        watches.APP_VERSIONS: {"prod/shop-1-6b86b273"},
    }
