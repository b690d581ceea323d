"""The pods that wait for Keptn according to ``migrate`` and ``doctor``, and those to release."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import APP_VERSIONS, DEPLOYMENTS, LEASES, PODS, WORKLOAD_VERSIONS
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.migrate.findings import findings
from harbourmaster.cli.migrate.plan import plan
from harbourmaster.cli.migrate.run import report_of
from harbourmaster.cli.migrate.survey import read_observed
from harbourmaster.kube.errors import ApiError
from helpers.broken_installations import flags, set_replicas, settings_file
from helpers.examined import CONTROLLER, HOME, WEBHOOK, ExaminedCluster, examine, problems
from helpers.gated import CHECKED, FAILED, PROD, PROVISIONAL, keptn, pod
from helpers.lifecycle_objects import owners

PENDING = {"currentPhase": "WorkloadPreDeployTasks", "preDeploymentStatus": "Progressing"}
BARE = {"preDeploymentTaskStatus": [{"definitionName": "quality", "status": "Failed"}]}
ASKED = "pre-deployment checks of shop-waiter-1.0 are pending"


@pytest.fixture
def cluster():
    """An installation whose webhook is down."""
    examined_cluster = ExaminedCluster()
    set_replicas(examined_cluster, WEBHOOK, 3, 0)
    return examined_cluster


def stop_keptn(cluster):
    """End the controller too."""
    cluster.age(3600)


def version(cluster, status, workload="shop-waiter"):
    owner = {"uid": "rs-1", "kind": "ReplicaSet", "name": "waiter-rs"}
    spec = {"app": "shop", "workloadName": workload, "version": "1.0", "resourceReference": owner}
    metadata = {"name": f"{workload}-1.0", "namespace": PROD, **owners()}
    cluster.put(WORKLOAD_VERSIONS, {"metadata": metadata, "spec": spec, "status": status})


def app_version(cluster, status):
    entry = {"name": "waiter", "version": "1.0"}
    spec = {"appName": "shop", "version": "1", "workloads": [entry]}
    metadata = {"name": "shop-1", "namespace": PROD, **owners("KeptnApp")}
    cluster.put(APP_VERSIONS, {"metadata": metadata, "spec": spec, "status": status})


def put_scheduled(cluster, name="keptn-scheduler", message="", annotations=None):
    """A pod that waits in a scheduler."""
    manifest = pod(annotations=annotations, gates=())
    manifest["spec"]["schedulerName"] = name
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    manifest["status"]["conditions"] = [condition]
    cluster.put(PODS, manifest)


async def report(cluster):
    observed = await read_observed(Installation(cluster, HOME))
    return report_of(findings(observed), plan(observed), observed.unread)


async def waiting(cluster):
    """The findings about pods."""
    findings = await report(cluster)
    return {
        finding["object"]: finding
        for finding in findings["findings"]
        if finding["code"].startswith("pod-")
    }


async def commands(cluster):
    findings = await report(cluster)
    steps = [text for step in findings["plan"] for text in step["commands"]]
    said = [finding["command"] for finding in findings["findings"]]
    return [text for text in (*steps, *said) if "pod" in text]


GATED = f"pod waiter-1 in namespace {PROD}"


async def test_a_gated_pod_is_left_to_a_controller_that_leads(cluster):
    cluster.put(PODS, pod())
    assert await waiting(cluster) == {}
    stop_keptn(cluster)
    (text,) = (await waiting(cluster)).values()
    assert "no operator is there to remove it" in text["why"]
    assert text["command"].startswith(f"kubectl -n {PROD} patch pod waiter-1 ")


async def test_a_controller_without_a_lease_is_looked_at_by_its_deployment(cluster):
    cluster.put(PODS, pod())
    cluster.remove(LEASES, CONTROLLER, HOME)
    assert set(await waiting(cluster)) == {GATED}
    flags(cluster, "--leader-election-enabled=false")
    assert await waiting(cluster) == {}
    set_replicas(cluster, CONTROLLER, 2, 0)
    assert set(await waiting(cluster)) == {GATED}


async def test_a_lease_that_cannot_be_read_frees_no_pod(cluster):
    cluster.put(PODS, pod())
    stop_keptn(cluster)
    cluster.forbidden.add("leases")
    assert await commands(cluster) == []
    assert any("leases" in line for line in (await report(cluster))["unread"])


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize(
    ("of_pod", "of_app", "text"),
    [
        (FAILED, None, "pre-deployment tasks failed"),
        ({**PENDING, **BARE}, None, "pre-deployment tasks failed (quality)"),
        (
            {
                **PENDING,
                "preDeploymentStatus": "Succeeded",
                "preDeploymentEvaluationStatus": "Failed",
            },
            None,
            "pre-deployment evaluations failed",
        ),
        ({}, {"status": "Failed", "preDeploymentStatus": "Failed"}, "pre-deployment tasks failed"),
        (
            {},
            {"preDeploymentStatus": "Succeeded", "preDeploymentEvaluationStatus": "Failed"},
            "pre-deployment evaluations failed",
        ),
    ],
    ids=["tasks", "one-task", "evaluations", "tasks-of-the-app", "evaluations-of-the-app"],
)
@pytest.mark.parametrize("place", ["gate", "scheduler"])
async def test_no_command_lets_go_a_pod_whose_check_failed(
    cluster, leads, of_pod, of_app, text, place
):
    version(cluster, of_pod)
    if of_app is not None:
        app_version(cluster, of_app)
    if place == "gate":
        cluster.put(PODS, pod())
    else:
        put_scheduled(cluster)
    if not leads:
        stop_keptn(cluster)
    assert await commands(cluster) == []
    findings = await waiting(cluster)
    assert set(findings) == (set() if place == "gate" and leads else {GATED})
    for finding in findings.values():
        assert " failed: pre-deployment " in finding["why"]
        assert text in finding["why"]
        assert f"harbourmaster why pod {PROD}/waiter-1" in finding["why"]


@pytest.mark.parametrize("status", [PENDING, CHECKED, {}])
async def test_a_check_that_has_not_failed_keeps_no_command_back(cluster, status):
    cluster.put(PODS, pod())
    version(cluster, status)
    stop_keptn(cluster)
    assert len(await commands(cluster)) == 1


async def test_no_command_lets_go_a_pod_of_which_it_is_not_known_whether_its_check_failed(cluster):
    stop_keptn(cluster)
    cluster.put(PODS, pod())
    cluster.forbidden.add("keptnworkloadversions")
    (text,) = (await waiting(cluster)).values()
    assert text["command"] == ""
    assert "whether its check failed is unknown" in text["why"]
    assert [line for line in (await report(cluster))["unread"] if "keptnworkloadversions" in line]
    cluster.forbidden.clear()
    version(cluster, FAILED)
    cluster.at(WORKLOAD_VERSIONS, "shop-waiter-1.0", PROD)["spec"].pop("resourceReference")
    assert await commands(cluster) == []
    # Neither is a pod whose owner has yet to be asked.
    cluster.put(PODS, pod(annotations=PROVISIONAL))
    assert await commands(cluster) == []


@pytest.mark.parametrize("error", [RecursionError, ValueError])
async def test_no_command_lets_go_a_pod_whose_version_cannot_be_read(cluster, monkeypatch, error):
    def too_deep(_raw):
        raise error("too deep")

    stop_keptn(cluster)
    cluster.put(PODS, pod())
    version(cluster, FAILED)
    monkeypatch.setattr("harbourmaster.cli.migrate.survey._decode_version", too_deep)
    assert await commands(cluster) == []


async def test_a_version_of_another_workload_by_that_name_says_nothing(cluster):
    stop_keptn(cluster)
    version(cluster, FAILED, "shop-waiter-b")
    cluster.put(PODS, pod(annotations=keptn(version="b-1.0")))
    assert len(await commands(cluster)) == 1


@pytest.mark.parametrize(
    ("more", "name", "left"),
    [
        ((), "keptn-scheduler", True),
        (("--scheduler-enabled=true",), "keptn-scheduler", False),
        (("--scheduler-enabled=true", "--scheduler-scheduler-name=a"), "keptn-scheduler", True),
        (("--scheduler-enabled=true", "--scheduler-scheduler-name=a"), "a", False),
    ],
)
async def test_pods_in_our_scheduler_are_no_leftovers(more, name, left):
    cluster = ExaminedCluster()
    flags(cluster, *more)
    put_scheduled(cluster, name)
    assert set(await waiting(cluster)) == ({GATED} if left else set())
    assert bool(await commands(cluster)) == left
    said = [line for line in problems(await examine(cluster)) if line[0] == "leftovers"]
    assert len(said) == left


@pytest.mark.parametrize(
    ("message", "told_before", "left"),
    [
        (f"0/2 nodes are available: 2 {ASKED}.", {}, False),
        ("0/2 nodes are available", {"gates.harbourmaster.dev/checks": "passed"}, False),
        ("0/2 nodes are available", {}, True),
    ],
)
async def test_without_settings_a_pod_shows_which_scheduler_has_it(message, told_before, left):
    cluster = ExaminedCluster()
    for name in (CONTROLLER, WEBHOOK):
        cluster.remove(DEPLOYMENTS, name, HOME)
    put_scheduled(cluster, message=message, annotations={**keptn(), **told_before})
    assert set(await waiting(cluster)) == ({GATED} if left else set())


@pytest.mark.parametrize(
    "given",
    [
        ["--controllers=registration,namespaces"],
        ["--controllers", "registration,namespaces"],
        "controllers: [registration, namespaces]",
    ],
    ids=["one-word", "two-words", "file"],
)
async def test_a_controller_beside_keptn_does_none_of_its_work(given):
    cluster = ExaminedCluster()
    cluster.put(PODS, pod())
    if isinstance(given, str):
        settings_file(cluster, given)
    else:
        flags(cluster, *given)
    observed = await read_observed(Installation(cluster, HOME))
    assert observed.ours.is_beside_keptn
    assert "keptn-stopped" in {finding.code for finding in findings(observed)}
    assert set(await waiting(cluster)) == {GATED}


async def test_unusable_settings_are_reported_and_stop_the_plan(cluster):
    flags(cluster, "--config=/etc/none.yaml")
    findings = await report(cluster)
    assert [
        line for line in findings["unread"] if "/etc/none.yaml is mounted from no ConfigMap" in line
    ]


async def test_an_api_server_that_does_not_tell_its_time_frees_no_pod(cluster):
    cluster.put(PODS, pod())
    stop_keptn(cluster)
    ask = cluster.request

    async def request(method, path, **options):
        if "selfsubjectreviews" in path:
            raise ApiError("not found", status=404)
        return await ask(method, path, **options)

    cluster.request = request
    assert await commands(cluster) == []
