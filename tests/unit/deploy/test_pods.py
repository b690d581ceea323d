from __future__ import annotations

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from harbourmaster.serving.http_connection import Timeouts
from harbourmaster.serving.readiness import PROBE_TIMEOUT, STARTUP_WAIT, Readiness, health_app
from harbourmaster.webhook.server import _LAST_CONNECTIONS
from helpers.manifests import ROOT, container, objects, of_kind, one, selects, settings_of

DEPLOYMENTS = {
    deployment["metadata"]["name"]: deployment for deployment in of_kind(objects(), "Deployment")
}
SECURE = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
each_deployment = pytest.mark.parametrize("name", list(DEPLOYMENTS))


@pytest.fixture
def deployment(name):
    return DEPLOYMENTS[name]


@pytest.fixture
def pod(deployment):
    return deployment["spec"]["template"]["spec"]


@each_deployment
def test_pods_are_hardened(pod, deployment):
    assert container(deployment)["securityContext"] == SECURE
    assert pod["securityContext"] == {
        "fsGroup": 65532,
        "runAsGroup": 65532,
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert not any("hostPath" in volume for volume in pod.get("volumes", ()))


@each_deployment
def test_cpu_is_asked_for_and_never_limited(deployment):
    resources = container(deployment)["resources"]
    assert resources["requests"].keys() == {"cpu", "memory"}
    assert resources["limits"].keys() == {"memory"}


@each_deployment
def test_a_rollout_takes_no_replica_away_before_another_is_ready(deployment):
    assert deployment["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }


@each_deployment
def test_replicas_are_spread_where_that_is_possible(pod, deployment):
    assert [constraint["topologyKey"] for constraint in pod["topologySpreadConstraints"]] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    for topology_spread_constraint in pod["topologySpreadConstraints"]:
        # Where there is one node or zone only, they must run all the same.
        assert topology_spread_constraint["whenUnsatisfiable"] == "ScheduleAnyway"
        assert topology_spread_constraint["labelSelector"] == deployment["spec"]["selector"]
        # Else the old pods of a rollout count, and the new ones share nodes when these are gone.
        assert topology_spread_constraint["matchLabelKeys"] == ["pod-template-hash"]


@each_deployment
def test_the_priority_is_admitted_where_a_quota_must_count_it(pod):
    scope = one(objects(), "ResourceQuota")["spec"]["scopeSelector"]["matchExpressions"]
    assert scope == [
        {"scopeName": "PriorityClass", "operator": "In", "values": [pod["priorityClassName"]]}
    ]


@each_deployment
def test_arguments_are_settings_and_meet_the_ports(deployment):
    settings = settings_of(deployment)
    ports = {port["name"]: port["containerPort"] for port in container(deployment)["ports"]}
    expected = {"health": settings.server.health_port}
    if hasattr(settings.server, "port"):
        expected["webhook"] = settings.server.port
    if hasattr(settings, "metrics"):
        expected["metrics-api"] = settings.metrics.custom_metrics_port
    assert ports == expected
    assert settings.server.host == "::"


@each_deployment
def test_probes_ask_what_the_process_answers(deployment):
    container_ = container(deployment)
    served = {
        route.resource.canonical
        for route in health_app(Readiness(), CollectorRegistry()).router.routes()
        if isinstance(route.resource, web.PlainResource)
    }
    probes = [container_[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")]
    assert {probe["httpGet"]["port"] for probe in probes} == {"health"}
    paths = [probe["httpGet"]["path"] for probe in probes]
    assert paths == ["/startupz", "/healthz", "/readyz"]
    assert set(paths) <= served
    # Else a start that takes longer than it waits for has failed.
    assert probes[0]["timeoutSeconds"] > STARTUP_WAIT + PROBE_TIMEOUT
    # Readiness dials itself first.
    assert probes[2]["timeoutSeconds"] > PROBE_TIMEOUT
    # Else a slow start is taken for a hang.
    assert probes[0]["periodSeconds"] * probes[0]["failureThreshold"] >= 60
    # A process that listens but does not answer costs the time-out, not the period.
    assert probes[0]["timeoutSeconds"] * probes[0]["failureThreshold"] <= 300


@each_deployment
def test_the_namespace_is_told(deployment):
    told = {
        variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"]
        for variable in container(deployment)["env"]
    }
    assert told == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}


@each_deployment
def test_services_lead_to_ports_that_are_there(deployment):
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    services = [
        service
        for service in of_kind(objects(), "Service")
        if selects(service["spec"]["selector"], labels)
    ]
    assert deployment["metadata"]["name"] in {service["metadata"]["name"] for service in services}
    targets = [port["targetPort"] for service in services for port in service["spec"]["ports"]]
    assert sorted(targets) == sorted(port["name"] for port in container(deployment)["ports"])


def test_the_webhook_has_time_for_its_whole_drain():
    deployment = DEPLOYMENTS["harbourmaster-webhook"]
    drain = settings_of(deployment).server.drain_seconds
    needed = drain * _LAST_CONNECTIONS + Timeouts().shutdown
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert needed + 3 <= grace <= needed + 10


def test_the_webhook_mounts_its_certificate_but_not_the_key_of_the_authority():
    deployment = DEPLOYMENTS["harbourmaster-webhook"]
    (volume,) = deployment["spec"]["template"]["spec"]["volumes"]
    assert {(item["key"], item["path"]) for item in volume["secret"]["items"]} == {
        (name, name) for name in ("ca.crt", "tls.crt", "tls.key")
    }
    # For the group, which fsGroup makes ours.
    assert volume["secret"]["defaultMode"] == 0o440
    (mount,) = container(deployment)["volumeMounts"]
    assert mount == {
        "name": volume["name"],
        "mountPath": settings_of(deployment).server.cert_dir,
        "readOnly": True,
    }


@pytest.mark.parametrize("base", ["default", "with-certmanager"])
def test_pods_start_without_the_certificate_only_where_a_controller_says_when_to_mount_it(base):
    deployment = one(objects(base), "Deployment", "harbourmaster-webhook")
    (volume,) = deployment["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["optional"] is (base == "default")


def test_three_answer_and_two_lead_in_turn():
    replicas = {name: deployment["spec"]["replicas"] for name, deployment in DEPLOYMENTS.items()}
    assert replicas == {"harbourmaster-webhook": 3, "harbourmaster-controller": 2}
    budgets = [
        budget["spec"]["maxUnavailable"] for budget in of_kind(objects(), "PodDisruptionBudget")
    ]
    assert budgets == [1, 1]


def test_a_user_of_the_image_is_the_user_of_the_pods():
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "\nUSER 65532:65532\n" in dockerfile
