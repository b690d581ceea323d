"""``why`` on gates, placement and rescheduling, and what it reports as unknown."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest

from harbourmaster.api.metadata import NO_OVERRIDE
from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPLICATIONS,
    CORE_EVENTS,
    DEPLOYMENTS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_METRICS,
    LEASES,
    NODES,
    PODS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.cli.live import reader
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.reader import Caller
from harbourmaster.cli.why.model import Report, Subject, WhyContext
from harbourmaster.cli.why.render import step_of
from harbourmaster.cli.why.sections import gate, placement, rescheduling, section_of
from harbourmaster.placement.manifests import ManifestOwner
from helpers.explanations import shown
from helpers.gated import CHECKED, FAILED, PROD, keptn, pod, put
from helpers.lifecycle_objects import owners
from helpers.rescheduling.objects import RESERVATIONS, node
from helpers.rescheduling.objects import pod as plain

LED = SimpleNamespace(section=partial(section_of, "gate"))
"""The section on the gate, with the reason that no controller leads."""
NOW = datetime.fromisoformat("2026-03-01T10:00:30Z")
HOME = "harbourmaster-system"


@pytest.fixture
def ask(client):
    """Return ``ask(module, object)``: the section on an object of the cluster."""

    async def section(module, obj, *, owners=(), kind="Pod"):
        above = tuple(subject(name, its) for its, name in owners)
        context = WhyContext(subject(obj, kind), Installation(client, HOME), NOW, above)
        return await module.section(context)

    return section


def subject(obj, kind):
    metadata = obj["metadata"]
    place = (metadata.get("namespace", ""), metadata["name"])
    return Subject("v1", kind, *place, msgspec.json.encode(obj))


def generated(given, kind):
    return {**given, "metadata": {**given["metadata"], **owners(kind)}}


def version(status=None, name="shop-waiter-1.0", **spec):
    return {
        "metadata": {"name": name, "namespace": PROD, **owners()},
        "spec": {
            "app": "shop",
            "version": "1.0",
            "workloadName": "shop-waiter",
            "resourceReference": {"uid": "rs-1", "kind": "ReplicaSet", "name": "waiter-rs"},
            **spec,
        },
        **({"status": status} if status else {}),
    }


def evaluating(**item):
    """The status of a version that waits for this evaluation by the definition ``rate``."""
    return {
        "currentPhase": "WorkloadPreDeployEvaluations",
        "preDeploymentStatus": "Succeeded",
        "preDeploymentEvaluationStatus": "Progressing",
        "preDeploymentEvaluationTaskStatus": [{"definitionName": "rate", **item}],
    }


def text(section):
    return "\n".join(f"{line.label} {line.text}" for line in section.lines)


def named(name, spec, status=None, namespace=PROD):
    result = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    return {**result, **({"status": status} if status else {})}


def running(*flags):
    """The Deployment of a controller with these flags."""
    container = {"name": "controller", "args": ["controller", *flags]}
    template = {"spec": {"containers": [container]}}
    return named("harbourmaster-controller", {"template": template}, namespace=HOME)


async def test_a_pod_that_waits_for_an_evaluation(api, ask, assert_golden):
    started = "2026-03-01T10:00:20Z"
    checking = evaluating(name="pre-eval-rate-1", status="Progressing", startTime=started)
    put(api, WORKLOAD_VERSIONS, version(checking, preDeploymentEvaluations=["rate"]))
    result = {"value": "0.2", "status": "Failed", "message": "value '0.2' did not meet it"}
    spec = {"evaluationDefinition": "rate", "retries": 5, "retryInterval": "30s"}
    status = {
        "retryCount": 1,
        "overallStatus": "Progressing",
        "startTime": started,
        "evaluationStatus": {"errors": result},
    }
    evaluation = named("pre-eval-rate-1", spec, status)
    written = {"subresource": "status", "time": "2026-03-01T10:00:25Z"}
    evaluation["metadata"]["managedFields"] = [written]
    put(api, EVALUATIONS, evaluation)
    # Definitions come from our own namespace as well, and metrics from where they are named.
    objective = {
        "keptnMetricRef": {"name": "errors", "namespace": "monitoring"},
        "evaluationTarget": "<=0.05",
    }
    definition = named("rate", {"objectives": [objective]}, namespace=HOME)
    api.put(EVALUATION_DEFINITIONS, definition)
    api.put(
        KEPTN_METRICS,
        named(
            "errors",
            {"provider": {"name": "prom"}, "query": "rate(errors[1m])", "fetchIntervalSeconds": 9},
            {"value": "0.1", "rawValue": "MC4x", "lastUpdated": "2026-03-01T10:00:29Z"},
            "monitoring",
        ),
    )
    put(api, DEPLOYMENTS, {"metadata": {"name": "other"}, "spec": {}})
    api.put(DEPLOYMENTS, running("--lifecycle-max-gate-age-seconds=60"))
    section = await ask(gate, pod())
    assert_golden(shown(section))
    assert (section.detail.unread, section.detail.deadline_unknown) == ((), "")
    flags = ("--lifecycle-max-gate-age-seconds=60", "--lifecycle-on-expiry=Release")
    api.put(DEPLOYMENTS, running(*flags))
    released = "it is released without its checks (onExpiry Release)"
    assert released in text(await ask(gate, pod()))


async def test_the_first_definition_in_the_order_of_namespaces_counts(api, ask):
    put(api, WORKLOAD_VERSIONS, version({"currentPhase": "x"}, preDeploymentEvaluations=["rate"]))
    for namespace, target in ((PROD, "<1"), (HOME, "<2"), ("keptn-system", "<3")):
        objective = {"keptnMetricRef": {"name": "errors"}, "evaluationTarget": target}
        api.put(EVALUATION_DEFINITIONS, named("rate", {"objectives": [objective]}, None, namespace))
    section = await ask(gate, pod())
    (check,) = section.detail.report.checks
    assert check.threshold == "<1"
    marked = api.get(EVALUATION_DEFINITIONS, "rate", HOME)
    marked["metadata"]["annotations"] = {NO_OVERRIDE: "true"}
    (check,) = (await ask(gate, pod())).detail.report.checks
    assert check.threshold == "<2"


@pytest.mark.parametrize(
    ("status", "code", "state"),
    [
        (FAILED, "checks-failed", "fault"),
        (CHECKED, "released", "waits"),
    ],
)
async def test_the_state_is_that_of_the_code(api, ask, status, code, state):
    put(api, WORKLOAD_VERSIONS, version(status))
    section = await ask(gate, pod())
    assert (section.code, section.state) == (code, state)


async def test_a_pod_that_waits_while_no_controller_leads_is_told(api, ask, monkeypatch):
    async def known(_):
        return Caller("ada", NOW, is_known=True)

    monkeypatch.setattr(reader, "caller", known)
    put(api, WORKLOAD_VERSIONS, version(CHECKED))
    spec = {"holderIdentity": "pod-1", "leaseDurationSeconds": 15}
    lease = {"metadata": {"name": "harbourmaster-controller", "namespace": HOME}}
    lease["spec"] = {**spec, "renewTime": "2026-03-01T10:00:00.000000Z"}
    api.put(LEASES, lease)
    section = await ask(LED, pod())
    assert (section.code, section.state) == ("not-led", "fault")
    assert "renewed 30 s ago by pod-1; at our gate for" in section.summary
    assert section.summary.endswith(", waits for its release, which is due")
    assert section.step.startswith("Deployment harbourmaster-controller not found: install it")
    # Without elections, the Lease is left from a time with them.
    api.put(DEPLOYMENTS, running("--leader-election-enabled=false"))
    assert (await ask(LED, pod())).code == "released"
    api.put(DEPLOYMENTS, running())
    section = await ask(LED, pod())
    assert section.step.endswith(f"kubectl -n {HOME} logs deployment/harbourmaster-controller")
    api.get(DEPLOYMENTS, "harbourmaster-controller", HOME)["spec"]["replicas"] = 0
    section = await ask(LED, pod())
    assert "; Deployment harbourmaster-controller is scaled to 0 replicas; " in section.summary
    assert (
        section.step == f"kubectl -n {HOME} scale deployment harbourmaster-controller --replicas=2"
    )
    lease["spec"]["renewTime"] = "2026-03-01T10:00:20.000000Z"
    api.put(LEASES, lease)
    assert (await ask(LED, pod())).code == "released"


async def test_a_check_that_failed_is_the_reason_also_without_a_leader(api, ask, monkeypatch):
    async def known(_):
        return Caller("ada", NOW, is_known=True)

    monkeypatch.setattr(reader, "caller", known)
    put(api, WORKLOAD_VERSIONS, version(FAILED))
    api.put(DEPLOYMENTS, running())
    assert (await ask(LED, pod())).code == "checks-failed"


async def test_a_quota_that_keeps_the_version_away_is_told(api, ask):
    message = 'keptnworkloadversions "shop-waiter-1.0" is forbidden: exceeded quota: full'
    put(api, WORKLOADS, named("shop-waiter", {}))
    uid = api.get(WORKLOADS, "shop-waiter", PROD)["metadata"]["uid"]
    event = {
        "metadata": {"name": "shop-waiter.1", "namespace": PROD},
        "involvedObject": {"uid": uid},
        "reportingComponent": "harbourmaster.dev/lifecycle",
        "type": "Warning",
        "reason": "CreateWorkloadVersionFailed",
        "message": f"{message} / Namespace: {PROD}, Name: shop-waiter",
    }
    assert (await ask(gate, pod())).code == "waits-for-version"
    api.put(CORE_EVENTS, event)
    section = await ask(gate, pod())
    assert (section.code, section.state) == ("version-refused", "fault")
    assert section.summary == f"its version is not created: {message}"


async def test_an_app_is_chosen_as_the_controller_does(api, ask):
    put(api, WORKLOAD_VERSIONS, version())
    for name, listed in (("shop-1-a", "9.9"), ("shop-1-b", "1.0")):
        spec = {
            "appName": "shop",
            "version": "1",
            "workloads": [{"name": "waiter", "version": listed}],
            "preDeploymentTasks": ["approve"],
        }
        put(api, APP_VERSIONS, generated(named(name, spec), "KeptnApp"))
    section = await ask(gate, pod())
    assert section.detail.report.app_version_object == "shop-1-b"
    assert "approve Pending" in section.summary


async def test_an_unreadable_app_version_is_named_and_does_not_hide_others(api, ask):
    put(api, WORKLOAD_VERSIONS, version())
    put(api, APP_VERSIONS, {"metadata": {"name": "broken", "namespace": PROD}})
    listed = [{"name": "waiter", "version": "1.0"}]
    spec = {"appName": "shop", "version": "1", "workloads": listed}
    put(api, APP_VERSIONS, generated(named("shop-1-a", spec), "KeptnApp"))
    section = await ask(gate, pod())
    assert section.detail.report.app_version_object == "shop-1-a"
    (unread,) = section.detail.unread
    assert unread.startswith("KeptnAppVersion prod/broken is skipped, because it cannot be read: ")


async def test_missing_permissions_are_named_and_leave_the_state_pending(api, ask):
    status = {
        "currentPhase": "WorkloadPreDeployTasks",
        "preDeploymentStatus": "Progressing",
        "preDeploymentTaskStatus": [
            {"definitionName": "warm", "name": "pre-warm-1", "status": "Progressing"}
        ],
    }
    put(api, WORKLOAD_VERSIONS, version(status, preDeploymentTasks=["warm"]))
    for resource in (TASKS, APP_VERSIONS):
        api.forbid("*", resource)
    section = await ask(gate, pod())
    assert section.code == "checks-pending"
    assert len(section.detail.unread) == 2
    assert all("could not be read" in line for line in section.detail.unread)
    assert "unknown: the settings could not be read" in text(section)
    assert "(--installed-in)" in section.detail.deadline_unknown


async def test_the_definition_of_a_running_check_is_found_though_it_is_no_longer_listed(api, ask):
    put(api, WORKLOAD_VERSIONS, version(evaluating(status="Pending")))
    put(api, EVALUATION_DEFINITIONS, named("rate", {"objectives": []}))
    assert "not found" not in text(await ask(gate, pod()))


async def test_checks_beyond_the_limit_are_not_reported_as_missing(api, ask, monkeypatch):
    monkeypatch.setattr("harbourmaster.cli.why.check_facts.MOST", 2)
    names = [f"warm-{number}" for number in range(3)]
    status = {"currentPhase": "WorkloadPreDeployTasks"}
    put(api, WORKLOAD_VERSIONS, version(status, preDeploymentTasks=names))
    section = await ask(gate, pod())
    assert "not found" not in text(section)
    assert "KeptnTaskDefinition: only 2 of 3 were looked at" in section.detail.unread


async def test_an_unreadable_version_makes_the_state_unknown(api, ask):
    api.forbid("*", WORKLOAD_VERSIONS)
    section = await ask(gate, pod())
    assert (section.state, section.code) == ("unknown", "unread")
    assert section.summary.startswith("what Pod prod/waiter-1 waits for could not be read")


@pytest.mark.parametrize(
    ("obj", "code", "summary"),
    [
        (pod(gates=()), "not-gated", "it has no gate of ours"),
        (
            pod(gates=("example.com/quota",)),
            "foreign-gates-only",
            "waits for the gates of others: example.com/quota",
        ),
    ],
)
async def test_nothing_is_read_for_a_pod_without_our_gate(api, ask, obj, code, summary):
    section = await ask(gate, obj)
    assert (section.code, section.summary) == (code, summary)
    assert api.seen(path_pattern="keptn") == []


def scheduled_by(name):
    pod_object = pod(gates=())
    return {**pod_object, "spec": {**pod_object["spec"], "schedulerName": name}}


@pytest.mark.parametrize(
    ("flags", "name", "code"),
    [
        ((), "keptn-scheduler", "not-gated"),
        (("--scheduler-enabled=true",), "keptn-scheduler", "waits-in-scheduler"),
        (("--scheduler-enabled=true",), "other", "not-gated"),
        (
            ("--scheduler-enabled=true", "--scheduler-scheduler-name=other"),
            "other",
            "waits-in-scheduler",
        ),
    ],
)
async def test_a_pod_waits_in_the_scheduler_of_the_settings(api, ask, flags, name, code):
    put(api, WORKLOAD_VERSIONS, version(CHECKED))
    api.put(DEPLOYMENTS, running(*flags))
    section = await ask(gate, scheduled_by(name))
    assert section.code == code
    if code == "not-gated":
        # Its keys are Keptn's: admission may have meant it to wait there.
        assert f"note it names the scheduler {name}; for that one to ask us" in text(section)


async def test_without_settings_the_default_scheduler_counts(api, ask):
    put(api, WORKLOAD_VERSIONS, version(CHECKED))
    assert (await ask(gate, scheduled_by("keptn-scheduler"))).code == "waits-in-scheduler"


async def test_few_objects_are_read_however_many_pods_exist(api, ask):
    put(api, WORKLOAD_VERSIONS, version({"currentPhase": "x"}, preDeploymentTasks=["warm"]))
    for at in range(50):
        put(api, PODS, pod(f"other-{at}"))
    await ask(gate, pod())
    assert api.seen("list", "/pods$") == []
    assert len(api.requests) <= 12


@pytest.mark.parametrize("module", [gate, rescheduling])
async def test_a_kind_that_does_not_wait_has_no_section(ask, module):
    assert await ask(module, pod(), kind="Job") is None


def workload(above=None, **annotations):
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "registry.example.com/main:1"}]},
    }
    metadata = {"name": "waiter", "namespace": PROD, "annotations": above or {}}
    return {"metadata": metadata, "spec": {"template": template}}


@pytest.mark.parametrize(
    ("obj", "owners"),
    [
        (workload(**keptn()), ()),
        # Named above the template, on what its pods inherit from.
        (workload(keptn()), ()),
        (workload(), [("Deployment", workload(keptn()))]),
    ],
    ids=["by its template", "by its own keys", "by those of its owner"],
)
async def test_a_workload_reports_what_its_pods_wait_for(api, ask, assert_golden, obj, owners):
    put(api, WORKLOAD_VERSIONS, version(FAILED))
    kind = "ReplicaSet" if owners else "Deployment"
    section = await ask(gate, obj, kind=kind, owners=owners)
    above = tuple(subject(name, its) for its, name in owners)
    assert_golden([*shown(section), step_of(section, Report(subject(obj, kind), "", (), above))])


async def test_pods_of_a_workload_are_released_when_its_checks_passed(api, ask, assert_golden):
    put(api, WORKLOAD_VERSIONS, version(CHECKED))
    assert_golden(shown(await ask(gate, workload(**keptn()), kind="StatefulSet")))


@pytest.mark.parametrize("obj", [workload(), workload(**keptn()), workload(keptn())])
async def test_a_workload_whose_pods_are_not_gated_has_no_section(ask, obj):
    assert await ask(gate, obj, kind="StatefulSet") is None


# Placement.

LABELS = ManifestOwner("uid-1", "apps", "web").labels
REFUSED = {"type": "Scheduled", "status": "False", "reason": "NoSuitableTarget", "message": "none"}


def application(**status):
    return named("web", {"manifests": []}, status, "apps")


async def test_an_object_that_was_not_placed_has_no_section(ask):
    assert await ask(placement, plain("p")) is None


@pytest.mark.parametrize(
    "status",
    [
        {"scheduledTo": {"name": "de"}, "runningOn": {"name": "de"}},
        {"scheduledTo": {"name": "de"}, "runningOn": {"name": "sk"}},
        {},
        {"conditions": [REFUSED]},
    ],
    ids=["placed", "moving", "unplaced", "refused"],
)
async def test_a_placed_object_reports_the_record_of_its_application(
    api, ask, assert_golden, status
):
    stored = api.put(APPLICATIONS, application(**status))
    obj = plain("p", labels=ManifestOwner(stored["metadata"]["uid"], "apps", "web").labels)
    obj["metadata"]["namespace"] = PROD
    assert_golden(shown(await ask(placement, obj)))


async def test_a_pod_is_of_the_application_of_its_deployment(api, ask):
    api.put(APPLICATIONS, application(scheduledTo={"name": "de"}, runningOn={"name": "de"}))
    above = {"metadata": {"name": "web", "namespace": PROD, "labels": LABELS}}
    section = await ask(placement, plain("p"), owners=[("Deployment", above)])
    assert section.detail.placed == "Deployment prod/web"


@pytest.mark.parametrize("given", [None, application()])
async def test_without_its_application_in_the_cluster_the_record_is_elsewhere(api, ask, given):
    if given is not None:
        api.put(APPLICATIONS, given)
    section = await ask(placement, plain("p", labels=LABELS))
    assert (section.state, section.code, section.lines) == ("unknown", "unknown", ())
    expected = "is another one" if given else "harbourmaster why application apps/web --context"
    assert expected in section.summary


async def test_a_missing_permission_on_the_application_is_reported(api, ask):
    api.forbid("*", APPLICATIONS)
    section = await ask(placement, plain("p", labels=LABELS))
    assert "Application apps/web could not be read" in section.summary


# Rescheduling.


def on(name, **spec):
    obj = plain(name, **spec)
    obj["metadata"] |= {"namespace": PROD, "uid": f"uid-{name}"}
    return {**obj, "status": {"phase": "Pending"}}


async def test_a_pod_that_rescheduling_does_not_concern_has_no_section(api, ask):
    api.put(NODES, node("n1"))
    assert await ask(rescheduling, on("p")) is None
    assert await ask(rescheduling, on("p", nodeName="n1")) is None


async def test_missing_permission_on_nodes_is_not_a_failure(api, ask):
    api.forbid("*", NODES)
    assert await ask(rescheduling, on("p")) is None


async def test_unreadable_annotations_reserve_no_node(api, ask):
    node_object = node("n1")
    node_object["metadata"]["annotations"] = {RESERVATIONS: '[{"pod": 7}, "x"'}
    api.put(NODES, node_object)
    assert await ask(rescheduling, on("p")) is None


async def test_a_slow_plan_is_left_to_its_own_command(api, ask, monkeypatch):
    monkeypatch.setattr("harbourmaster.cli.why.sections.rescheduling.PATIENCE", 0)
    obj = on("dns", priorityClassName="system-cluster-critical")
    obj["metadata"]["namespace"] = "kube-system"
    obj["spec"]["priority"] = 2_000_000_000
    section = await ask(rescheduling, obj)
    assert (section.state, section.code) == ("unknown", "unplanned")
    assert "harbourmaster reschedule plan --pod kube-system/dns" in section.summary


async def test_disabled_rescheduling_is_reported_where_it_could_help(api, ask, assert_golden):
    api.put(DEPLOYMENTS, running("--rescheduling-enabled=false"))
    api.put(NODES, node("n1", 1))
    victim = {**on("victim", nodeName="n1"), "status": {"phase": "Running"}}
    victim["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    ]
    api.put(PODS, victim)
    obj = on(
        "dns",
        priority=2_000_000_000,
        tolerations=[{"key": "CriticalAddonsOnly", "operator": "Exists"}],
    )
    obj["metadata"]["namespace"] = "kube-system"
    api.put(PODS, obj)
    assert_golden(shown(await ask(rescheduling, obj)))
