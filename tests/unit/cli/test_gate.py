"""``harbourmaster gate``: the list, releases, and their errors."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec
import pytest
import yaml

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPLICATIONS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    PODS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.cli import gate as gate_module
from harbourmaster.cli.gate import reports_on, short_age
from harbourmaster.cli.live import reader
from harbourmaster.cli.live.reader import Caller
from harbourmaster.cli.main import main
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.lifecycle.model import WorkloadVersion
from helpers.command import kubeconfig
from helpers.gated import CHECKED, FAILED, GATE, PROD, REMOVED, gates, keptn, owner_ref, pod, put
from helpers.lifecycle_objects import owners
from helpers.phased import app_version

NOW = datetime.fromisoformat("2026-03-01T12:30:00Z")
REASON = "incident 4711"
SCHEDULER = "keptn-scheduler"


def version(status=None, owner="rs-1", **spec):
    return {
        "metadata": {"name": "shop-waiter-1.0", "namespace": PROD, **owners()},
        "spec": {
            "app": "shop",
            "version": "1.0",
            "workloadName": "shop-waiter",
            "resourceReference": {"uid": owner, "kind": "ReplicaSet", "name": "waiter"},
            **spec,
        },
        **({"status": status} if status else {}),
    }


def shown(obj, *versions):
    pods = [decode_pod(msgspec.json.encode({**obj, "spec": obj["spec"]}), SCHEDULER)]
    decoded = [msgspec.convert(version, WorkloadVersion) for version in versions]
    ((_, report),) = reports_on(pods, decoded, (), NOW, {})
    return gate_module.fields_of(report)


def begun(**status):
    return version({"currentPhase": "WorkloadPreDeployTasks", **status}, preDeploymentTasks=TASKS)


TASKS = ["warm", "done", "late"]
WARM, DONE, COLD = (
    {"definitionName": name, "status": status}
    for name, status in (("warm", "Progressing"), ("done", "Succeeded"), ("warm", "Failed"))
)
EVALUATED = {
    "currentPhase": "WorkloadPreDeployEvaluations",
    "preDeploymentStatus": "Succeeded",
    "preDeploymentEvaluationStatus": "Failed",
    "deploymentStatus": "Deprecated",
    "status": "Failed",
}
PODS_OF_CHECKS = {
    "no version": (pod(),),
    "an app that is not there yet": (pod(), version()),
    "open tasks": (
        pod(),
        begun(preDeploymentStatus="Progressing", preDeploymentTaskStatus=[WARM, DONE]),
    ),
    "a failed task": (pod(), version({**FAILED, "preDeploymentTaskStatus": [COLD]})),
    "failed evaluations": (pod(), version(EVALUATED)),
    "passed checks": (pod(), version(CHECKED)),
    "a version of another owner": (pod(), version(CHECKED, owner="rs-9")),
    "a version of another workload": (pod(), version(workloadName="other")),
    "no workload": (pod(annotations={"a": "b"}),),
    "an owner whose pods are not checked": (pod(owners=[owner_ref("Job", "j", "j")]),),
    "an owner that is not determined yet": (
        pod(annotations={"gates.harbourmaster.dev/parent": "unresolved"}),
    ),
    "a clock that is ahead of ours": (pod(created="2026-03-01T12:30:09Z"),),
}


@pytest.mark.parametrize("objects", PODS_OF_CHECKS.values(), ids=PODS_OF_CHECKS)
def test_what_a_pod_waits_for(objects, assert_golden):
    assert_golden(msgspec.to_builtins(shown(*objects)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_800, "2d")],
)
def test_ages(seconds, text):
    assert short_age(seconds) == text


@pytest.fixture
def run(api, monkeypatch, tmp_path, capsys):
    """Return a function that runs the command line against the fake API server."""
    monkeypatch.setattr(gate_module, "PENDING_PODS", "")
    path = kubeconfig(tmp_path, api.url, namespace=PROD)

    async def start(*words):
        code = await asyncio.to_thread(main, ["gate", *words, f"--kubeconfig={path}"])
        return code, *capsys.readouterr()

    return start


async def test_the_list_says_that_no_controller_leads(api, run, monkeypatch):
    async def known(_):
        return Caller("ada", NOW, is_known=True)

    monkeypatch.setattr(reader, "caller", known)
    put(api, PODS, pod())
    spec = {"holderIdentity": "pod-1", "leaseDurationSeconds": 15}
    spec["renewTime"] = "2026-03-01T10:00:00.000000Z"
    metadata = {"name": "harbourmaster-controller", "namespace": "harbourmaster-system"}
    api.put(LEASES, {"metadata": metadata, "spec": spec})
    code, out, err = await run("list")
    assert (code, out.startswith("POD ")) == (0, True)
    assert "no controller of Harbourmaster leads, so nothing is released: " in err


async def test_the_list(api, run):
    put(api, PODS, pod())
    put(api, PODS, pod("orphan-1", {"a": "b"}, created="2026-03-01T09:00:00Z"))
    put(api, PODS, pod("free-1", gates=("example.com/quota",)))
    put(api, PODS, {**pod("bound-1"), "spec": {"containers": []}})
    put(api, WORKLOAD_VERSIONS, version())
    code, out, err = await run("list")
    lines = out.splitlines()
    assert (code, err, len(lines)) == (0, "", 3)
    assert lines[0].split() == ["POD", "AGE", "WORKLOAD", "WAITS", "FOR"]
    assert lines[1].startswith("prod/orphan-1")
    assert "Blocked: it no longer names a workload" in lines[1]
    assert "waiter@1.0" in lines[2]
    assert lines[2].endswith("no KeptnAppVersion has waiter in version 1.0 yet")


@pytest.fixture
def three(api):
    """Three waiting pods: two of the namespace of the context, one of another one."""
    put(api, PODS, pod(labels={"app": "waiter"}))
    put(api, PODS, pod("till-1", labels={"app": "till"}))
    pod_object = pod("other-1", labels={"app": "waiter"})
    pod_object["metadata"]["namespace"] = "other"
    put(api, PODS, pod_object)


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ((), {"waiter-1", "till-1"}),
        (("-n", "other"), {"other-1"}),
        (("-A",), {"waiter-1", "till-1", "other-1"}),
        (("-l", "app=waiter"), {"waiter-1"}),
        (("-A", "--selector=app=waiter"), {"waiter-1", "other-1"}),
    ],
)
async def test_the_list_has_the_scope_that_kubectl_would_give_it(run, three, flags, names):
    code, out, err = await run("list", "-o", "name", *flags)
    assert (code, set(out.splitlines()), err) == (0, {f"pod/{name}" for name in names}, "")


async def test_the_wide_list_adds_columns(api, run):
    put(api, PODS, pod())
    (head, line) = (await run("list", "-o", "wide"))[1].splitlines()
    assert head.split() == ["POD", "AGE", "APP", "WORKLOAD", "CODE", "WAITS", "FOR"]
    assert line.split()[0] == "prod/waiter-1"
    assert line.split()[2:5] == ["shop", "waiter@1.0", "waits-for-version"]


async def test_the_list_as_yaml_says_the_same_as_json(api, run):
    put(api, PODS, pod())
    (result,) = yaml.safe_load((await run("list", "-o", "yaml"))[1])
    (same,) = json.loads((await run("list", "-o", "json"))[1])
    assert result | {"age": 0} == same | {"age": 0}


async def test_the_list_as_json(api, run, assert_golden):
    put(api, PODS, pod())
    code, out, _ = await run("list", "--output", "json", "-n", PROD)
    (document,) = json.loads(out)
    assert (code, document.pop("age") > 0) == (0, True)
    assert_golden(document)


async def test_the_list_of_nothing_and_of_a_cluster_without_the_kinds(api, run):
    nothing = "No pod waits at a gate or in its scheduler.\n"
    assert (await run("list", "-A"))[:2] == (0, nothing)
    assert (await run("list"))[:2] == (0, nothing.replace(" waits", " in namespace prod waits"))
    api.undefine(WORKLOAD_VERSIONS)
    put(api, PODS, pod())
    code, out, err = await run("list")
    assert (code, err) == (0, "")
    assert "waiter@1.0" in out


async def test_a_version_that_cannot_be_read_is_named_and_the_pods_are_listed(api, run):
    put(api, PODS, pod())
    put(api, WORKLOAD_VERSIONS, {"metadata": {"name": "broken", "namespace": PROD}})
    put(api, WORKLOAD_VERSIONS, version())
    code, out, err = await run("list")
    assert code == 1
    assert out.splitlines()[1].endswith("no KeptnAppVersion has waiter in version 1.0 yet")
    assert err == (
        "harbourmaster: KeptnWorkloadVersion prod/broken is skipped, because it cannot be read: "
        "Object missing required field `spec`: correct or delete it\n"
    )


async def test_the_list_goes_by_the_versions_of_apps_that_may_be_read(api, run):
    put(api, PODS, pod())
    put(api, WORKLOAD_VERSIONS, version())
    entries = [{"name": "waiter", "version": "1.0"}]
    listed = {"appName": "shop", "version": "1", "workloads": entries}
    metadata = {"name": "shop-1", "namespace": PROD, **owners("KeptnApp", "shop")}
    put(api, APP_VERSIONS, {"metadata": metadata, "spec": listed})
    assert (await run("list"))[1].endswith("the checks of the app shop: pre-deployment tasks\n")
    api.forbid("list", APP_VERSIONS)
    code, out, err = await run("list")
    assert (code, "missing permission to list keptnappversions" in err) == (1, True)
    assert out.endswith("the checks of the app shop\n")


@pytest.fixture
def follow(api, tmp_path):
    """Return ``follow(*words)``, a context with a process of ``gate list --watch``."""

    @asynccontextmanager
    async def run(*words):
        path = kubeconfig(tmp_path, api.url, namespace=PROD)
        command = [sys.executable, "-m", "harbourmaster.cli.main", "gate", "list", "--watch"]
        child = await asyncio.create_subprocess_exec(
            *command, *words, f"--kubeconfig={path}", stdout=PIPE, stderr=PIPE
        )
        try:
            yield child
        finally:
            if child.returncode is None:
                child.kill()
            await child.communicate()

    return run


async def line_of(child):
    return (await child.stdout.readline()).decode().rstrip("\n")


async def test_the_list_is_followed_until_it_is_interrupted(api, follow):
    put(api, PODS, pod())
    async with follow() as child:
        assert (await line_of(child)).split() == ["POD", "AGE", "WORKLOAD", "WAITS", "FOR"]
        first = await line_of(child)
        assert first.split()[0] == "prod/waiter-1"
        await api.until_seen("watch", "/pods")
        api.tear_watches()
        put(api, WORKLOAD_VERSIONS, version(FAILED))
        changed = await line_of(child)
        assert "Blocked: pre-deployment tasks failed" in changed
        # Another pod with a wide name must not repeat the rows of others.
        put(api, PODS, pod("a-pod-with-a-much-longer-name"))
        assert (await line_of(child)).startswith("prod/a-pod-with-a-much-longer-name  ")
        released = {**keptn(), REMOVED: "true"}
        put(api, PODS, {**pod(annotations=released, gates=())})
        assert (await line_of(child)).endswith("its gate was removed")
        api.remove(PODS, "a-pod-with-a-much-longer-name", PROD)
        assert (await line_of(child)).endswith("it was deleted")
        child.send_signal(signal.SIGINT)
        out, err = await child.communicate()
        assert (child.returncode, out, err) == (130, b"", b"")


async def test_the_list_is_followed_as_lines_of_json(api, follow):
    async with follow("-o", "json", "-A") as child:
        # Nothing is printed before a pod waits.
        await api.until_seen("watch", "/pods")
        put(api, PODS, pod())
        row = json.loads(await line_of(child))
        assert (row["pod"], row["code"]) == ("waiter-1", "waits-for-version")


async def test_the_list_that_may_not_be_read(api, run):
    api.forbid("list", PODS)
    code, out, err = await run("list")
    assert (code, out) == (1, "")
    assert err.startswith("harbourmaster: ")
    assert 'cannot list resource "pods"' in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("annotations", [None, {}], ids=["annotated", "labels alone"])
async def test_a_release(api, run, annotations):
    labels = {"keptn.sh/workload": "waiter"}
    put(api, PODS, pod(annotations=annotations, labels=labels, gates=("example.com/a", GATE)))
    code, out, err = await run("release", "prod/waiter-1", "--reason", f" {REASON}\n")
    assert (code, err) == (0, "")
    who = out.strip().removeprefix("released prod/waiter-1 for ")
    assert gates(api) == ["example.com/a"]
    stored = api.get(PODS, "waiter-1", PROD)
    marks = {
        key: value
        for key, value in stored["metadata"]["annotations"].items()
        if key.startswith("gates.") or key == REMOVED
    }
    assert marks == {
        REMOVED: "true",
        "gates.harbourmaster.dev/released": "by-hand",
        "gates.harbourmaster.dev/released-by": who,
        "gates.harbourmaster.dev/released-reason": REASON,
    }
    ((_, event),) = api.objects.all(EVENTS).items()
    assert (event["reason"], event["type"]) == ("GateReleased", "Warning")
    assert event["regarding"]["uid"] == stored["metadata"]["uid"]
    assert event["note"] == f"released without its checks by {who}: {REASON}"


@pytest.mark.parametrize(
    "words",
    [
        ("waiter-1",),
        ("pod/waiter-1",),
        ("pods/waiter-1", "-n", PROD),
        ("pods.v1./waiter-1",),
        ("prod/waiter-1", "--namespace", PROD),
    ],
)
async def test_a_pod_to_release_is_named_as_for_kubectl(api, run, words):
    put(api, PODS, pod())
    code, out, _ = await run("release", *words, "--reason", REASON)
    assert code == 0
    assert out.startswith("released prod/waiter-1 for ")


def of_set(name, owner="waiter-7c9", label="pod-template-hash"):
    return pod(name, labels={label: "7c9"}, owners=[owner_ref("ReplicaSet", owner, "rs-1")])


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        ("deployment/waiter", ["waiter-1", "waiter-2"]),
        ("deploy.apps/waiter", ["waiter-1", "waiter-2"]),
        ("rollout/waiter", ["canary-1"]),
        ("rs/waiter-7c9", ["canary-1", "waiter-1", "waiter-2"]),
        ("statefulset/db", ["db-0"]),
    ],
)
async def test_the_waiting_pods_of_a_workload_are_released(api, run, workload, names):
    api.forbid("get", DEPLOYMENTS)
    for name in ("waiter-1", "waiter-2"):
        put(api, PODS, of_set(name))
    put(api, PODS, of_set("canary-1", label="rollouts-pod-template-hash"))
    put(api, PODS, of_set("by-hand-1", owner="waiter"))
    put(api, PODS, pod("db-0", owners=[owner_ref("StatefulSet", "db", "s-1")]))
    code, out, err = await run("release", workload, "-n", PROD, "--reason", REASON)
    assert (code, err) == (0, "")
    assert [line.split()[1] for line in out.splitlines()] == [f"prod/{name}" for name in names]
    assert all(gates(api, name) == [] for name in names)
    assert gates(api, "by-hand-1") == [GATE]


async def test_a_workload_of_which_no_pod_waits_is_one_line(api, run):
    put(api, PODS, of_set("waiter-1", owner="waiter"))
    code, out, err = await run("release", "deployment/waiter", "--reason", REASON)
    assert (code, out) == (1, "")
    assert err == (
        "harbourmaster: no pod of Deployment prod/waiter waits: "
        "harbourmaster gate list -n prod lists those that wait\n"
    )


async def test_two_namespaces_for_one_pod_are_refused(api, run):
    put(api, PODS, pod())
    code, out, err = await run("release", "prod/waiter-1", "-n", "other", "--reason", REASON)
    assert (code, out) == (2, "")
    assert err == (
        "harbourmaster: prod/waiter-1 is not in the namespace other: leave out one of them\n"
    )
    assert gates(api) == [GATE]


async def test_a_mistyped_pod_is_answered_with_the_one_that_is_meant(api, run):
    put(api, PODS, pod())
    code, _, err = await run("release", "watier-1", "--reason", REASON)
    assert (code, err) == (
        1,
        'harbourmaster: Pod prod/watier-1 not found: did you mean "waiter-1"?\n',
    )
    assert gates(api) == [GATE]


async def test_a_release_of_an_orphan_and_of_a_provisional_pod(api, run):
    put(api, PODS, pod("orphan-1", {"a": "b"}, owners=[]))
    provisional = {"gates.harbourmaster.dev/parent": "unresolved"}
    put(api, PODS, pod("new-1", provisional))
    for name in ("orphan-1", "new-1"):
        assert (await run("release", f"prod/{name}", "--reason", REASON))[0] == 0
        assert gates(api, name) == []
    annotations = api.get(PODS, "new-1", PROD)["metadata"]["annotations"]
    assert "gates.harbourmaster.dev/parent" not in annotations


async def test_a_pod_that_changes_meanwhile(api, run):
    put(api, PODS, pod())
    api.fail_next("patch", "/pods/", 2, status=409)
    assert (await run("release", "prod/waiter-1", "--reason", REASON))[0] == 0
    put(api, PODS, pod("waiter-2"))
    api.fail_next("patch", "/pods/", 3, status=409)
    code, out, err = await run("release", "prod/waiter-2", "--reason", REASON)
    assert (code, out) == (1, "")
    assert "prod/waiter-2: not released: patch" in err


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (lambda api: None, "Pod prod/waiter-1 not found: kubectl -n prod get pods lists those"),
        (
            lambda api: put(api, PODS, pod(gates=("example.com/a",))),
            (
                f"prod/waiter-1: not released: it does not have the gate {GATE} and does not wait "
                "in the"
            ),
        ),
        (
            lambda api: (put(api, PODS, pod()), api.forbid("patch", PODS)),
            "prod/waiter-1: not released: missing permission: pods is forbidden",
        ),
        (
            lambda api: api.forbid("get", PODS),
            "prod/waiter-1: not released: missing permission: pods is forbidden",
        ),
    ],
    ids=["missing", "not gated", "no patch", "no get"],
)
async def test_what_can_not_be_released_is_one_line(api, run, prepare, text):
    prepare(api)
    code, out, err = await run("release", "prod/waiter-1", "--reason", REASON)
    assert (code, out) == (1, "")
    assert err.startswith(f"harbourmaster: {text}")
    assert len(err.splitlines()) == 1


def in_scheduler(name="waiter-1", annotations=None, scheduler=SCHEDULER, **more):
    pod_object = pod(name, annotations, gates=(), **more)
    pod_object["spec"]["schedulerName"] = scheduler
    return pod_object


@pytest.mark.parametrize(
    ("versions", "text"),
    [
        ([], "its workload version, which is not there yet"),
        ([version({**FAILED, "currentPhase": "WorkloadPreDeployTasks"})], "nothing: "),
        ([version(CHECKED)], "a node: its checks passed, and its scheduler has none for it yet"),
    ],
)
def test_what_a_pod_in_its_scheduler_waits_for(versions, text):
    assert shown(in_scheduler(), *versions)["waitsFor"].startswith(text)


async def test_pods_in_a_scheduler_are_listed_by_its_name(run, api):
    put(api, PODS, in_scheduler())
    put(api, PODS, in_scheduler("other-1", scheduler="other"))
    released = {**keptn(), "gates.harbourmaster.dev/released": "by-hand"}
    put(api, PODS, in_scheduler("gone-1", released))
    code, out, _ = await run("list")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (0, ["POD", "prod/waiter-1"])
    code, out, _ = await run("list", "--scheduler", "other")
    assert "prod/other-1" in out
    assert "waiter-1" not in out


@pytest.mark.parametrize("annotations", [None, {"gates.harbourmaster.dev/parent": "unresolved"}])
async def test_a_release_of_a_pod_in_its_scheduler(api, run, annotations):
    put(api, PODS, in_scheduler(annotations=annotations))
    code, _, err = await run("release", "prod/waiter-1", "--reason", REASON)
    assert (code, err) == (0, "")
    stored = api.get(PODS, "waiter-1", PROD)["metadata"]["annotations"]
    assert stored["gates.harbourmaster.dev/released"] == "by-hand"
    assert stored["gates.harbourmaster.dev/released-reason"] == REASON
    assert stored.keys().isdisjoint({REMOVED, "gates.harbourmaster.dev/parent"})
    (event,) = api.objects.all(EVENTS).values()
    assert event["reason"] == "GateReleased"
    # It waits no more.
    assert (await run("release", "prod/waiter-1", "--reason", REASON))[0] == 1


CLEAR = ("clear-nodes", "prod/shop-waiter-1.0")


async def test_failed_nodes_are_cleared_by_a_request(api, run):
    nodes = [{"name": "n1", "reason": "pod failed", "expires": "2026-03-01T12:30:00Z"}]
    put(api, WORKLOAD_VERSIONS, version({"failedNodes": [*nodes, {"name": "n2"}]}))
    code, out, err = await run(*CLEAR)
    assert (code, err) == (0, "")
    assert out == "prod/shop-waiter-1.0: the controller will clear the failed nodes n1, n2\n"
    stored = api.get(WORKLOAD_VERSIONS, "shop-waiter-1.0", PROD)
    assert stored["metadata"]["annotations"] == {
        "gates.harbourmaster.dev/clear-failed-nodes": "wanted"
    }
    assert len(stored["status"]["failedNodes"]) == 2


async def test_without_failed_nodes_nothing_is_asked_for(api, run):
    put(api, WORKLOAD_VERSIONS, version())
    assert (await run(*CLEAR))[:2] == (0, "prod/shop-waiter-1.0 avoids no node\n")
    assert not api.seen("patch")


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (lambda api: None, "KeptnWorkloadVersion {} not found: kubectl -n prod get"),
        (
            lambda api: api.forbid("patch", WORKLOAD_VERSIONS),
            "{}: not cleared: missing permission: keptnworkloadversions",
        ),
        (
            lambda api: api.fail_next("patch", "/keptnworkloadversions/", 1, status=409),
            "{}: not cleared: patch",
        ),
    ],
    ids=["missing", "forbidden", "conflict"],
)
async def test_nodes_that_can_not_be_cleared_are_one_line(api, run, prepare, text, request):
    if "missing" not in request.node.name:
        put(api, WORKLOAD_VERSIONS, version({"failedNodes": [{"name": "n1"}]}))
    prepare(api)
    code, out, err = await run(*CLEAR)
    assert (code, out) == (1, "")
    assert err.startswith(f"harbourmaster: {text.format('prod/shop-waiter-1.0')}")
    assert len(err.splitlines()) == 1


RERUN = "gates.harbourmaster.dev/rerun"


@pytest.fixture
def stamping(api, monkeypatch):
    """Let the fake API server write jane into what is patched, as the webhook does."""
    patch = api.objects.patch

    def stamp(resource, namespace, name, body, *rest, **options):
        change = json.loads(body)
        change["metadata"]["annotations"][f"{RERUN}-by"] = "jane"
        return patch(resource, namespace, name, json.dumps(change).encode(), *rest, **options)

    monkeypatch.setattr(api.objects, "patch", stamp)


FAILED_TASK = {**FAILED, "preDeploymentTaskStatus": [{**COLD, "name": "pre-warm-1"}]}
FAILED_APP = "KeptnAppVersion prod/shop-1.0-6b86b273"
FAILED_WORKLOAD = "KeptnWorkloadVersion prod/shop-waiter-1.0"


def failed_versions(api, *, is_apps):
    """Put versions of two workloads of an app; the app or both have failed."""
    app = msgspec.to_builtins(app_version(workloads=[("waiter", "1.0"), ("till", "1.0")]))
    put(api, APP_VERSIONS, app | {"status": FAILED_TASK if is_apps else {}})
    for name in ("waiter", "till"):
        made = version({} if is_apps else FAILED_TASK, workloadName=f"shop-{name}")
        made["metadata"]["name"] = f"shop-{name}-1.0"
        put(api, WORKLOAD_VERSIONS, made)


def requested(api, resource, name):
    """The label and the reason of a request; None for none."""
    metadata = api.get(resource, name, PROD)["metadata"]
    reason = metadata.get("annotations", {}).get(f"{RERUN}-reason")
    return metadata.get("labels", {}).get(RERUN), reason


@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize("subject", ["prod/waiter-1", "deployment/waiter"])
@pytest.mark.parametrize("is_apps", [True, False], ids=["app", "workload"])
async def test_failed_checks_are_repeated_by_a_request_on_their_version(api, run, subject, is_apps):
    for name in ("waiter-1", "waiter-2"):
        put(api, PODS, of_set(name))
    failed_versions(api, is_apps=is_apps)
    code, out, err = await run("rerun", subject, "--reason", REASON)
    named = FAILED_APP if is_apps else FAILED_WORKLOAD
    assert (code, err) == (0, "")
    assert out == f"{named}: its failed checks are repeated for jane\n"
    app, workload, of_till = (
        requested(api, APP_VERSIONS, "shop-1.0-6b86b273"),
        requested(api, WORKLOAD_VERSIONS, "shop-waiter-1.0"),
        requested(api, WORKLOAD_VERSIONS, "shop-till-1.0"),
    )
    assert of_till == (None, None)
    asked, unasked = (app, workload) if is_apps else (workload, app)
    assert (asked[1], unasked) == (REASON, (None, None))
    assert re.fullmatch("[0-9A-Za-z.]{1,63}", asked[0])
    assert all(gates(api, name) == [GATE] for name in ("waiter-1", "waiter-2"))
    await run("rerun", subject, "--reason", REASON)
    resource, name = named.split(" prod/")
    again = requested(api, APP_VERSIONS if is_apps else WORKLOAD_VERSIONS, name)
    assert again[0] != asked[0], resource


def checked_application(api, **more):
    owner = {"apiVersion": APPLICATIONS.api_version, "kind": "Application", "name": "shop"}
    made = msgspec.to_builtins(app_version()) | {"status": FAILED_TASK} | more
    made["metadata"]["ownerReferences"] = [{**owner, "uid": "a", "controller": True}]
    put(api, APP_VERSIONS, made)
    proposed = {"generation": 2, "name": "c1", "check": made["metadata"]["name"]}
    metadata = {"name": "shop", "namespace": PROD}
    put(api, APPLICATIONS, {"metadata": metadata, "status": {"proposed": proposed}})


@pytest.mark.usefixtures("stamping")
@pytest.mark.parametrize("reason", [(), ("--reason", REASON)])
async def test_the_failed_checks_of_an_application_are_repeated(api, run, reason):
    checked_application(api)
    code, out, err = await run("rerun", "application/shop", "-n", PROD, *reason)
    assert (code, err) == (0, "")
    assert out == f"{FAILED_APP}: its failed checks are repeated for jane\n"
    label, noted = requested(api, APP_VERSIONS, "shop-1.0-6b86b273")
    assert label
    assert noted == (REASON if reason else None)


async def test_an_application_without_a_failed_check_is_one_line(api, run):
    code, out, err = await run("rerun", "application/shop", "-n", PROD)
    assert (code, out) == (1, "")
    assert err.startswith("harbourmaster: Application prod/shop not found: ")
    put(api, APPLICATIONS, {"metadata": {"name": "shop", "namespace": PROD}})
    nothing = "harbourmaster: prod/shop: not repeated: no check that it names has failed\n"
    assert (await run("rerun", "kapp/shop", "-n", PROD))[2] == nothing
    checked_application(api, status=CHECKED)
    assert (await run("rerun", "application/shop", "-n", PROD))[2] == nothing


def asked_before(obj):
    """The version with a former request of joe."""
    return {**obj, "metadata": {**obj["metadata"], "annotations": {f"{RERUN}-by": "joe"}}}


NOTHING = "prod/waiter-1: not repeated: no check that a pod waits for has failed"


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (
            lambda api: api.objects.delete(PODS, PROD, "waiter-1"),
            "Pod prod/waiter-1 not found: kubectl -n prod get pods",
        ),
        (lambda api: None, NOTHING),
        (lambda api: put(api, WORKLOAD_VERSIONS, version(CHECKED)), NOTHING),
        (lambda api: put(api, PODS, pod(gates=())), NOTHING),
        (
            # A user of an earlier request is no answer either.
            lambda api: put(api, WORKLOAD_VERSIONS, asked_before(version(FAILED_TASK))),
            f"{FAILED_WORKLOAD}: not repeated: no webhook wrote who asks: run harbourmaster doctor",
        ),
        (
            lambda api: (
                failed_versions(api, is_apps=False),
                api.forbid("patch", WORKLOAD_VERSIONS),
            ),
            "prod/waiter-1: not repeated: missing permission: keptnworkloadversions",
        ),
    ],
    ids=["missing", "no version", "passed", "not gated", "not stamped", "forbidden"],
)
async def test_checks_that_can_not_be_repeated_are_one_line(api, run, prepare, text):
    put(api, PODS, pod())
    prepare(api)
    code, out, err = await run("rerun", "prod/waiter-1", "--reason", REASON)
    assert (code, out) == (1, "")
    assert err.startswith(f"harbourmaster: {text}")
    assert len(err.splitlines()) == 1


PROMOTE = "gates.harbourmaster.dev/promote"
STAGE = {"number": 1, "of": 3, "state": "Held", "wanted": 4, "allowed": 1, "released": 1}


STAGES_AT = "metadata.annotations[gates.harbourmaster.dev/stages]: write numbers of pods or "
STAGES_AT += "percentages that grow, for example 1, 25%, 100%"


def staged_version(stage=STAGE, name="shop-waiter-1.0", stages="1, 50%", **status):
    made = version({**CHECKED, **({"stage": stage} if stage else {}), **status}, stages=stages)
    return made | {"metadata": {**made["metadata"], "name": name}}


def staged_pod(name="waiter-1", **more):
    return pod(name, labels={"gates.harbourmaster.dev/staged": "true"}, **more)


@pytest.mark.parametrize(
    ("subject", "more", "number", "text"),
    [
        ("prod/waiter-1", (), "2", "stage 2 of 3 is released"),
        ("deployment/waiter", (), "2", "stage 2 of 3 is released"),
        ("statefulset/waiter", ("--all",), "4", "all pods are released"),
        ("keptnworkload/shop-waiter", (), "2", "stage 2 of 3 is released"),
    ],
)
async def test_a_stage_is_promoted_by_a_request_on_its_version(
    api, run, subject, more, number, text
):
    put(api, PODS, staged_pod("waiter-1", gates=()))
    owned = {"kind": "ReplicaSet", "name": "waiter-7c9", "uid": "rs-1"}
    if subject.startswith("statefulset"):
        owned |= {"kind": "StatefulSet", "name": "waiter"}
    for name, more_of in (
        ("shop-waiter-1.0", {}),
        ("shop-waiter-0.9", {"status": "Deprecated"}),
        # It is newer, and all its pods are released: the rollout was undone.
        ("shop-waiter-1.1", {"stage": {**STAGE, "state": "Completed"}}),
    ):
        made = staged_version(name=name, **more_of)
        made["spec"]["resourceReference"] = owned
        if name == "shop-waiter-1.1":
            made["metadata"]["creationTimestamp"] = "2026-03-01T12:00:00Z"
        put(api, WORKLOAD_VERSIONS, made)
    till = staged_version(name="shop-till-1.0")
    till["spec"] |= {"workloadName": "shop-till", "resourceReference": owned | {"name": "till-x"}}
    put(api, WORKLOAD_VERSIONS, till)
    code, out, err = await run("promote", subject, *more, "--reason", REASON)
    assert (code, err) == (0, "")
    who = out.strip().rpartition(" for ")[2]
    assert out == f"KeptnWorkloadVersion prod/shop-waiter-1.0: {text} for {who}\n"
    stored = api.get(WORKLOAD_VERSIONS, "shop-waiter-1.0", PROD)
    notes = stored["metadata"]["annotations"]
    assert re.fullmatch(f"{number}/[0-9a-f]{{16}}", notes[PROMOTE])
    assert notes[f"{PROMOTE}-by"] == who
    assert notes[f"{PROMOTE}-reason"] == REASON
    assert stored["status"]["stage"] == STAGE
    await run("promote", subject, *more, "--reason", REASON)
    again = api.get(WORKLOAD_VERSIONS, "shop-waiter-1.0", PROD)
    assert again["metadata"]["annotations"][PROMOTE] != notes[PROMOTE]


async def test_a_stage_that_adds_no_pod_is_skipped_by_a_promotion(api, run):
    put(api, PODS, staged_pod())
    put(api, WORKLOAD_VERSIONS, staged_version({**STAGE, "wanted": 2}))
    _, out, _ = await run("promote", "waiter-1", "--reason", REASON)
    assert ": stage 3 of 3 is released for " in out


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (lambda api: None, "it has no version with checks or stages"),
        (
            lambda api: put(api, WORKLOAD_VERSIONS, staged_version(None, stages="")),
            "shop-waiter-1.0 has no stages",
        ),
        (
            lambda api: put(api, WORKLOAD_VERSIONS, staged_version(None)),
            "the stages of shop-waiter-1.0 have not begun",
        ),
        (
            lambda api: put(api, WORKLOAD_VERSIONS, staged_version({"state": "Completed"})),
            "all pods of shop-waiter-1.0 may be released (Completed)",
        ),
        (
            lambda api: put(api, WORKLOAD_VERSIONS, staged_version(status="Deprecated")),
            "its version is superseded",
        ),
        (
            lambda api: put(api, WORKLOAD_VERSIONS, staged_version(stages="2, 1")),
            f"stage 1 adds no pods to those before it: {STAGES_AT}",
        ),
    ],
    ids=["no version", "no stages", "not begun", "completed", "superseded", "unreadable"],
)
async def test_a_promotion_without_a_stage_is_one_line(api, run, prepare, text):
    put(api, PODS, staged_pod())
    prepare(api)
    code, out, err = await run("promote", "prod/waiter-1", "--reason", REASON)
    assert (code, out) == (1, "")
    step = "harbourmaster why pod/waiter-1 -n prod"
    assert err == f"harbourmaster: prod/waiter-1: not promoted: {text}: {step}\n"


async def test_a_promotion_is_written_only_on_the_state_that_was_read(api, run, monkeypatch):
    put(api, PODS, staged_pod())
    put(api, WORKLOAD_VERSIONS, staged_version())
    patch = api.objects.patch

    def change_first(resource, namespace, name, *rest, **options):
        put(api, WORKLOAD_VERSIONS, staged_version({**STAGE, "state": "Completed"}))
        return patch(resource, namespace, name, *rest, **options)

    monkeypatch.setattr(api.objects, "patch", change_first)
    code, out, err = await run("promote", "prod/waiter-1", "--reason", REASON)
    assert (code, out) == (1, "")
    assert err.startswith("harbourmaster: prod/waiter-1: not promoted: ")
    stored = api.get(WORKLOAD_VERSIONS, "shop-waiter-1.0", PROD)
    assert PROMOTE not in stored["metadata"].get("annotations", {})


async def test_a_promotion_that_is_forbidden_is_one_line(api, run):
    put(api, PODS, staged_pod())
    put(api, WORKLOAD_VERSIONS, staged_version())
    api.forbid("patch", WORKLOAD_VERSIONS)
    code, _, err = await run("promote", "prod/waiter-1", "--reason", REASON)
    assert code == 1
    assert err.startswith("harbourmaster: prod/waiter-1: not promoted: missing permission: ")


async def test_an_event_that_is_forbidden_is_no_failure(api, run):
    put(api, PODS, pod())
    api.forbid("create", EVENTS)
    code, out, err = await run("release", "prod/waiter-1", "--reason", REASON)
    assert code == 0
    assert out.startswith("released prod/waiter-1")
    assert "released, but the event could not be written" in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["release", "a/b/c", "--reason", "x"], 'invalid Pod "a/b/c": expected [NAMESPACE/]NAME'),
        (["release", "pod/", "--reason", "x"], 'invalid Pod "pod/"'),
        (["release", "a/b", "--reason", " "], "the reason is empty"),
        (["release", "a/b", "--reason", "x" * 513], "longer than 512"),
        (["release", "a/b"], "required: --reason"),
        (["clear-nodes", "/a"], 'invalid KeptnWorkloadVersion "/a": expected [NAMESPACE/]NAME'),
        ([], "ACTION"),
    ],
)
def test_arguments_that_are_wrong(arguments, text, capsys):
    with pytest.raises(SystemExit) as raised:
        main(["gate", *arguments])
    assert raised.value.code == 2
    assert text in capsys.readouterr().err
