"""``harbourmaster gate wait``: when it returns, with which exit code, and the lines until then."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPS,
    DEPLOYMENTS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.cli import gate_wait
from harbourmaster.cli.main import main
from harbourmaster.gates.release import RERUN_BY_KEY, RERUN_CHECKS_KEY, RERUN_KEY
from harbourmaster.lifecycle.apps import version_of
from harbourmaster.lifecycle.model import App
from helpers.command import kubeconfig
from helpers.explanations import put_registration
from helpers.gated import CHECKED, FAILED, PROD, REMOVED, keptn, owner_ref, pod, put, replica_set
from helpers.lifecycle_objects import owners

OPT_IN = {"keptn.sh/lifecycle-toolkit": "enabled"}
HASH = "7c9"
BY_HAND = {
    "gates.harbourmaster.dev/released": "by-hand",
    "gates.harbourmaster.dev/released-by": "ada",
    "gates.harbourmaster.dev/released-reason": "incident 4711",
}
EVALUATED = {"pre_deployment_evaluations": "errors"}
EVALUATION = {"definitionName": "errors", "name": "errors-1"}
EVALUATING = {
    "currentPhase": "WorkloadPreDeployEvaluations",
    "preDeploymentStatus": "Succeeded",
    "preDeploymentEvaluationStatus": "Progressing",
    "preDeploymentEvaluationTaskStatus": [{**EVALUATION, "status": "Progressing"}],
    "status": "Progressing",
}
EVALUATED_BADLY = {
    **EVALUATING,
    "preDeploymentEvaluationStatus": "Failed",
    "preDeploymentEvaluationTaskStatus": [{**EVALUATION, "status": "Failed"}],
    "status": "Failed",
}


def template(version, **more):
    """The template of a Deployment, whose pods have its annotations."""
    annotations = keptn(version=version, pre_deployment_tasks="migrate", **more)
    containers = [{"name": "main", "image": "registry.example.com/main:1"}]
    return {
        "metadata": {"annotations": annotations, "labels": {"app": "waiter"}},
        "spec": {"containers": containers},
    }


def deployment(version="1.0", *, updated=1, seen=True, replicas=1, **more):
    """A Deployment; ``seen``: its controller has observed the newest template."""
    return {
        "metadata": {"name": "waiter", "namespace": PROD, "uid": "d-1", "generation": 2},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "waiter"}},
            "template": template(version, **more),
        },
        "status": {"observedGeneration": 2 if seen else 1, "updatedReplicas": updated},
    }


def member(name="waiter-7c9-1", version="1.0", *, released=None, ending=None, **more):
    """A pod of the Deployment; ``released`` are its annotations once it has no gate."""
    annotations = template(version, **more)["metadata"]["annotations"]
    ended = {"deletionTimestamp": ending} if ending else {}
    return pod(
        name,
        {**annotations, **(released or {})},
        owners=[owner_ref("ReplicaSet", f"waiter-{HASH}", "rs-1")],
        labels={"app": "waiter", "pod-template-hash": HASH},
        **({"gates": ()} if released is not None else {}),
        **ended,
    )


def workload_version(version="1.0", status=None, labels=None, notes=None, **spec):
    return {
        "metadata": {
            "name": f"shop-waiter-{version}",
            "namespace": PROD,
            "labels": labels or {},
            "annotations": notes or {},
            **owners(),
        },
        "spec": {
            "app": "shop",
            "version": version,
            "workloadName": "shop-waiter",
            "resourceReference": {"uid": "rs-1", "kind": "ReplicaSet", "name": f"waiter-{HASH}"},
            **spec,
        },
        "status": status or {},
    }


def evaluate(api, value, *, is_over=False):
    """Store the evaluation ``errors`` with a measured value."""
    state = "Failed" if is_over else "Progressing"
    reference = {"keptnMetricRef": {"name": "error-rate"}, "evaluationTarget": "<0.05"}
    put(
        api,
        EVALUATION_DEFINITIONS,
        {"metadata": {"name": "errors", "namespace": PROD}, "spec": {"objectives": [reference]}},
    )
    measured = {"error-rate": {"value": value, "status": "Failed"}}
    status = {
        "retryCount": 1,
        "evaluationStatus": measured,
        "overallStatus": state,
        "startTime": "2026-03-01T10:00:00Z",
    }
    spec = {"evaluationDefinition": "errors", "retries": 2, "retryInterval": "1h"}
    metadata = {"name": "errors-1", "namespace": PROD}
    put(api, EVALUATIONS, {"metadata": metadata, "spec": spec, "status": status})


class Waiting:
    """A command that runs, and what it has printed so far."""

    def __init__(self, task, out):
        self.task = task
        self._out = out
        self.text = ""

    async def until(self, text):
        """Wait until it has printed the text."""
        while text not in self.text:
            line = asyncio.ensure_future(self._out.get())
            await asyncio.wait([line, self.task], return_when=asyncio.FIRST_COMPLETED)
            assert line.done(), f"{text!r} is not in {self.text}"
            self.text += line.result()

    async def end(self):
        """Return the exit code, and all that was printed."""
        code = await self.task
        while not self._out.empty():
            self.text += self._out.get_nowait()
        return code, self.text


@pytest.fixture
def start(api, monkeypatch, tmp_path):
    """Return ``start(*words)``, which runs ``gate wait`` and gives a Waiting."""
    put_registration(api)
    api.put(NAMESPACES, {"metadata": {"name": PROD, "annotations": OPT_IN}})
    path = kubeconfig(tmp_path, api.url, namespace=PROD)
    loop, printed = asyncio.get_event_loop(), asyncio.Queue()

    def tell(line):
        loop.call_soon_threadsafe(printed.put_nowait, f"{line}\n")

    def tell_json(lines):
        for line in lines:
            tell(json.dumps(line))

    monkeypatch.setattr(gate_wait, "say", tell)
    monkeypatch.setattr(gate_wait, "complain", lambda line: tell(f"error: {line}"))
    monkeypatch.setattr(gate_wait, "print_lines", tell_json)

    def run(*words):
        # A test that fails must not leave a thread.
        argv = ["gate", "wait", "--timeout=15s", *words, f"--kubeconfig={path}"]
        return Waiting(asyncio.ensure_future(asyncio.to_thread(main, argv)), printed)

    return run


async def test_a_workload_is_waited_for_until_its_gate_is_removed(api, start):
    put(api, DEPLOYMENTS, deployment())
    put(api, PODS, member())
    waiting = start("deployment/waiter")
    await waiting.until("waits for its workload version, which is not there yet")
    begun = {"currentPhase": "WorkloadPreDeployTasks", "status": "Progressing"}
    put(api, WORKLOAD_VERSIONS, workload_version(status=begun, preDeploymentTasks=["migrate"]))
    await waiting.until("waits for pre-deployment task migrate")
    put(api, WORKLOAD_VERSIONS, workload_version(status=CHECKED, preDeploymentTasks=["migrate"]))
    # Its checks passed, and the controller has not released it yet.
    await waiting.until("its release, which is due")
    put(api, PODS, member(released={REMOVED: "true"}))
    code, text = await waiting.end()
    assert (code, "error" in text) == (0, False)
    assert text.splitlines()[-1] == "deployment/waiter: released: its gate was removed"
    # No watch may keep the command from its end.
    await api.until_watched(0)


async def test_a_failed_check_is_told_with_its_value_and_objective(api, start):
    put(api, DEPLOYMENTS, deployment(**EVALUATED))
    put(api, PODS, member(**EVALUATED))
    spec = {"preDeploymentEvaluations": ["errors"]}
    evaluate(api, "0.07")
    put(api, WORKLOAD_VERSIONS, workload_version(status=EVALUATING, **spec))
    waiting = start("deployment/waiter")
    await waiting.until("error-rate is 0.07, must be <0.05; try 1 of 2")
    evaluate(api, "0.09", is_over=True)
    put(api, WORKLOAD_VERSIONS, workload_version(status=EVALUATED_BADLY, **spec))
    code, text = await waiting.end()
    assert code == 1
    *_, failure, step = text.splitlines()
    assert failure == (
        "error: deployment/waiter: Blocked: pre-deployment evaluation errors failed and will not "
        "be retried: error-rate is 0.09, must be <0.05"
    )
    assert step.startswith("error: next: correct the cause and run harbourmaster gate rerun ")


STAGED = {"gates.harbourmaster.dev/staged": "true"}


def in_stage(state, **more):
    stage = {"number": 1, "of": 2, "state": state, "wanted": 4, "allowed": 1, "released": 1, **more}
    return workload_version(status={**CHECKED, "stage": stage}, stages="1", stagePause="Manual")


def canary(name="waiter-7c9-1", **more):
    made = member(name, **more)
    made["metadata"]["labels"] |= STAGED
    return made


@pytest.mark.parametrize("waits", [True, False], ids=["a pod waits", "no pod waits"])
async def test_a_version_is_released_with_its_last_stage_and_held_is_a_failure(api, start, waits):
    put(api, DEPLOYMENTS, deployment())
    put(api, PODS, canary(released={REMOVED: "true"}))
    if waits:
        put(api, PODS, canary("waiter-7c9-2"))
    put(api, WORKLOAD_VERSIONS, in_stage("Releasing"))
    waiting = start("deployment/waiter")
    await waiting.until("waits for stage 1 of 2: 1 of 4 pods released, not all of them are ready")
    put(api, WORKLOAD_VERSIONS, in_stage("Paused"))
    await waiting.until("paused until it")
    put(api, WORKLOAD_VERSIONS, in_stage("Held", message="task probe failed"))
    code, text = await waiting.end()
    assert code == 1
    assert "Blocked: stage 1 of 2 is held: task probe failed; 1 of 4 pods released" in text
    assert "harbourmaster gate promote keptnworkload/shop-waiter -n prod --reason" in text


async def test_the_end_of_the_last_stage_is_a_release(api, start):
    put(api, DEPLOYMENTS, deployment())
    put(api, PODS, canary(released={REMOVED: "true"}))
    put(api, WORKLOAD_VERSIONS, in_stage("Completed"))
    assert (await start("deployment/waiter").end())[0] == 0
    # A pod itself is released, whatever its stage.
    put(api, WORKLOAD_VERSIONS, in_stage("Held"))
    assert (await start("pod/waiter-7c9-1").end())[0] == 0


async def test_the_version_before_is_never_taken_for_the_newest(api, start):
    # As right after kubectl apply: the new generation is not observed, and the old one runs.
    put(api, DEPLOYMENTS, deployment("2.0", seen=False))
    put(api, PODS, member(released={REMOVED: "true"}))
    put(api, WORKLOAD_VERSIONS, workload_version(status=CHECKED))
    waiting = start("deploy.apps/waiter", "-n", PROD)
    await waiting.until("no pod of the newest template exists yet")
    put(api, PODS, member("waiter-8d1-1", "2.0"))
    put(api, DEPLOYMENTS, deployment("2.0"))
    await waiting.until("waits for its workload version")
    put(api, WORKLOAD_VERSIONS, workload_version("2.0", CHECKED))
    put(api, PODS, member("waiter-8d1-1", "2.0", released={REMOVED: "true"}))
    assert (await waiting.end())[0] == 0


async def test_pods_of_a_former_version_that_failed_do_not_count(api, start):
    put(api, DEPLOYMENTS, deployment("2.0"))
    put(api, PODS, member("waiter-old", "1.0"))
    put(api, WORKLOAD_VERSIONS, workload_version("1.0", FAILED))
    put(api, PODS, member("waiter-new", "2.0", released={REMOVED: "true"}))
    put(api, WORKLOAD_VERSIONS, workload_version("2.0", CHECKED))
    assert (await start("deployment/waiter").end())[0] == 0


async def test_a_rollback_to_a_version_that_passed_is_released(api, start):
    put(api, DEPLOYMENTS, deployment("1.0", updated=0))
    put(api, WORKLOAD_VERSIONS, workload_version("1.0", CHECKED))
    code, text = await start("deployment/waiter").end()
    assert (code, text.count("\n")) == (0, 1)


async def test_pods_that_a_person_releases_are_released(api, start):
    put(api, DEPLOYMENTS, deployment())
    put(api, PODS, member())
    put(api, WORKLOAD_VERSIONS, workload_version())
    waiting = start("deployment/waiter")
    await waiting.until("waits for ")
    put(api, PODS, member(released=BY_HAND))
    code, text = await waiting.end()
    assert (code, "ada released it without its checks: incident 4711" in text) == (0, True)


async def test_checks_that_are_repeated_have_not_failed(api, start):
    task = {"definitionName": "migrate", "name": "migrate-1", "status": "Failed"}
    failed = {**FAILED, "preDeploymentTaskStatus": [task]}
    notes = {RERUN_BY_KEY: "ada", RERUN_CHECKS_KEY: "migrate-1"}
    put(api, DEPLOYMENTS, deployment())
    put(api, PODS, member())
    wanted = workload_version(status=failed, labels={RERUN_KEY: "1"}, notes=notes)
    put(api, WORKLOAD_VERSIONS, wanted)
    waiting = start("pod/waiter-7c9-1")
    await waiting.until("task migrate failed")
    put(api, WORKLOAD_VERSIONS, workload_version(status=failed))
    assert (await waiting.end())[0] == 1


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        (deployment(replicas=0, updated=0), 0, "it has no pods, because spec.replicas is 0"),
        (deployment(workload=""), 1, "names neither checks nor objects to wait for"),
    ],
    ids=["no replicas", "no keys"],
)
async def test_what_has_nothing_to_wait_for_is_told_at_once(api, start, given, code, text):
    put(api, DEPLOYMENTS, given)
    ended, out = await start("deployment/waiter").end()
    assert (ended, text in out) == (code, True)


async def test_a_namespace_that_has_not_opted_in_is_an_error_unless_that_is_allowed(api, start):
    api.put(NAMESPACES, {"metadata": {"name": PROD}})
    put(api, DEPLOYMENTS, deployment())
    code, text = await start("deployment/waiter").end()
    assert (code, f"namespace {PROD} has not opted in" in text) == (1, True)
    assert text.splitlines()[-1] == (
        f"error: next: kubectl annotate namespace {PROD} keptn.sh/lifecycle-toolkit=enabled"
    )
    assert (await start("deployment/waiter", "--allow-ungated").end())[0] == 0


async def test_pods_that_run_without_a_gate_are_an_error(api, start):
    put(api, DEPLOYMENTS, deployment())
    ungated = member(released={})
    ungated["metadata"]["annotations"] = {}
    put(api, PODS, ungated)
    code, text = await start("deployment/waiter").end()
    assert (code, "the webhook did not review it" in text) == (1, True)


async def test_what_does_not_exist_or_is_deleted_ends_the_wait(api, start):
    code, text = await start("deployment/waitre").end()
    assert (code, "error: deployment/waitre: Deployment prod/waitre not found" in text) == (1, True)
    put(api, DEPLOYMENTS, deployment())
    put(api, PODS, member())
    waiting = start("deployment/waiter")
    await waiting.until("waits for")
    api.remove(DEPLOYMENTS, "waiter", PROD)
    code, text = await waiting.end()
    assert (code, text.splitlines()[-1]) == (
        1,
        "error: deployment/waiter: Deployment prod/waiter was deleted",
    )


async def test_a_time_out_has_an_exit_code_of_its_own(api, start):
    put(api, DEPLOYMENTS, deployment())
    put(api, PODS, member())
    code, text = await start("deployment/waiter", "--timeout=300ms").end()
    assert code == 124
    assert "error: deployment/waiter: not released in 300ms: " in text
    assert text.splitlines()[-1].startswith("error: next: ")


async def test_lost_watches_and_an_api_server_that_restarts_do_not_end_the_wait(api, start):
    put(api, DEPLOYMENTS, deployment())
    put(api, PODS, member())
    waiting = start("deployment/waiter")
    await waiting.until("waits for its workload version")
    await api.until_seen("watch", "/pods")
    api.tear_watches()
    put(api, WORKLOAD_VERSIONS, workload_version())
    api.compact()
    await waiting.until("waits for the checks of the app shop")
    await api.stop()
    put(api, PODS, member(released={REMOVED: "true"}))
    await api.start()
    assert (await waiting.end())[0] == 0


async def test_permissions_that_are_missing_are_named_or_not_needed(api, start):
    put(api, DEPLOYMENTS, deployment())
    put(api, PODS, member(released={REMOVED: "true"}))
    for verb in ("get", "list", "watch"):
        for resource in (NAMESPACES, MUTATING_WEBHOOKS, APP_VERSIONS):
            api.forbid(verb, resource)
    assert (await start("deployment/waiter").end())[0] == 0
    api.forbid("get", DEPLOYMENTS)
    code, text = await start("deployment/waiter").end()
    assert (code, "missing permission to get deployments.apps" in text) == (1, True)


async def test_a_namespace_that_cannot_be_read_is_not_said_to_have_no_gates(api, start):
    api.forbid("get", NAMESPACES)
    put(api, DEPLOYMENTS, deployment(seen=False))
    waiting = start("deployment/waiter")
    await waiting.until("deployment/waiter: ")
    put(api, DEPLOYMENTS, deployment())
    put(api, PODS, member(released={REMOVED: "true"}))
    assert (await waiting.end())[0] == 0


async def test_lines_for_programs(api, start):
    put(api, DEPLOYMENTS, deployment())
    put(api, PODS, member())
    put(api, WORKLOAD_VERSIONS, workload_version(status=FAILED, preDeploymentTasks=["migrate"]))
    code, text = await start("deployment/waiter", "-o", "json").end()
    (line,) = map(json.loads, text.splitlines())
    assert code == 1
    assert line.pop("time").endswith("Z")
    assert line.pop("next")
    report = line.pop("report")
    assert (report["code"], report["checks"][0]["name"]) == ("checks-failed", "migrate")
    assert line == {
        "object": "deployment/waiter",
        "namespace": PROD,
        "state": "Failed",
        "code": "checks-failed",
        "message": "Blocked: pre-deployment tasks failed (no details)",
    }


WAIT_FOR = {"gates.harbourmaster.dev/wait-for": "service/db"}


async def test_pods_that_wait_for_objects_alone(api, start):
    given = deployment(updated=0)
    given["spec"]["template"]["metadata"]["annotations"] = WAIT_FOR
    put(api, DEPLOYMENTS, given)
    waiting = start("deployment/waiter")
    await waiting.until(
        "no pod of the newest template exists yet; its pods will wait for service/db"
    )
    held = member()
    held["metadata"]["annotations"] = WAIT_FOR | {"gates.harbourmaster.dev/checks": "none"}
    put(api, PODS, held)
    given["status"]["updatedReplicas"] = 1
    put(api, DEPLOYMENTS, given)
    await waiting.until("waits for service/db: does not exist")
    held["metadata"]["annotations"] |= {"gates.harbourmaster.dev/waited": "met", REMOVED: "true"}
    held["spec"]["schedulingGates"] = []
    put(api, PODS, held)
    code, text = await waiting.end()
    assert (code, text.splitlines()[-1]) == (
        0,
        "deployment/waiter: released: all its waits are met",
    )


def keptn_app(version="1.0", generation=1):
    entries = [{"name": "waiter", "version": version}]
    metadata = {"name": "shop", "namespace": PROD, "uid": "app-1", "generation": generation}
    return {"metadata": metadata, "spec": {"version": version, "workloads": entries}}


def app_version(app, status=None, **spec):
    """The KeptnAppVersion of the generation of an app."""
    decoded = msgspec.convert(app, App)
    owned = owners("KeptnApp", "app-1", "shop")
    metadata = {"name": version_of(decoded), "namespace": PROD, **owned}
    listed = {"appName": "shop", **app["spec"], **spec}
    return {"metadata": metadata, "spec": listed, "status": status or {}}


async def test_an_app_is_released_with_all_its_workloads(api, start):
    app = keptn_app()
    put(api, APPS, app)
    waiting = start("app/shop")
    await waiting.until("waits for KeptnAppVersion shop-1.0-")
    passed = {"preDeploymentStatus": "Succeeded", "preDeploymentEvaluationStatus": "Succeeded"}
    put(api, APP_VERSIONS, app_version(app, passed))
    await waiting.until("waiter@1.0 waits for its workload version, which is not there yet")
    put(api, WORKLOAD_VERSIONS, workload_version(status=CHECKED))
    code, text = await waiting.end()
    assert (code, "error" in text) == (0, False)


async def test_an_app_is_not_released_while_its_deployment_has_a_newer_template(api, start):
    # The app that the controller composes has the new version a moment later.
    put(api, DEPLOYMENTS, deployment("2.0", seen=False))
    put(api, REPLICA_SETS, replica_set(f"waiter-{HASH}"))
    owner = {"ownerReferences": [owner_ref("ReplicaSet", f"waiter-{HASH}", "rs-1")]}
    spec = workload_version()["spec"]
    metadata = {"name": "shop-waiter", "namespace": PROD, **owner}
    status = {"currentVersion": "1.0", "owners": ["rs-1"]}
    put(api, WORKLOADS, {"metadata": metadata, "spec": spec, "status": status})
    app = keptn_app()
    put(api, APPS, app)
    passed = {"preDeploymentStatus": "Succeeded", "preDeploymentEvaluationStatus": "Succeeded"}
    put(api, APP_VERSIONS, app_version(app, passed))
    put(api, WORKLOAD_VERSIONS, workload_version(status=CHECKED))
    waiting = start("keptnapp/shop")
    await waiting.until("deployment/waiter: no pod of the newest template exists yet")
    put(
        api,
        APP_VERSIONS,
        app_version(app, {**FAILED, "status": "Failed"}, preDeploymentTasks=["a"]),
    )
    code, text = await waiting.end()
    assert (code, "error: keptnapp/shop: the app Blocked: pre-deployment tasks failed" in text) == (
        1,
        True,
    )


async def test_a_stateful_set_is_waited_for_by_its_template(api, start):
    stateful = deployment()
    put(api, STATEFUL_SETS, stateful)
    held = member("waiter-0")
    held["metadata"]["ownerReferences"] = [owner_ref("StatefulSet", "waiter", "d-1")]
    put(api, PODS, held)
    waiting = start("sts/waiter")
    await waiting.until("waits for")
    free = member("waiter-0", released={REMOVED: "true"})
    free["metadata"]["ownerReferences"] = held["metadata"]["ownerReferences"]
    put(api, PODS, free)
    assert (await waiting.end())[0] == 0
