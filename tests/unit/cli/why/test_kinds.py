"""``why`` on namespaces, policies, metrics, checks, and the versions of apps and workloads."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api import resources
from helpers.explanations import NAMESPACE, essence, pod, put_owner, reference, template
from helpers.gated import keptn
from helpers.lifecycle_objects import owners
from helpers.objects import cluster_policy, policy

NOW = "2026-03-01T10:00:00Z"


def put(api, resource, name, spec, status=None, **metadata):
    obj = {"metadata": {"name": name, "namespace": NAMESPACE, **metadata}, "spec": spec}
    api.put(resource, {**obj, **({"status": status} if status else {})})
    return api.get(resource, name, NAMESPACE)


def shown(section, label):
    """The texts of the lines with that label."""
    return [line["text"] for line in section["lines"] if line["label"] == label]


@pytest.fixture
def ask(why):
    """Return ``ask(*words)``: the first section of the JSON output."""

    async def ask(*words):
        code, out, err = await why(*words, "-n", NAMESPACE, "-o", "json")
        assert (code, err) == (0, "")
        return json.loads(out)["sections"][0]

    return ask


def put_definition(api, metric="errors", **metadata):
    objective = {"keptnMetricRef": {"name": metric}, "evaluationTarget": "<5"}
    put(api, resources.EVALUATION_DEFINITIONS, "rate", {"objectives": [objective]}, **metadata)


def put_metric(api, status=None, secret=None, **spec):
    provider = {"type": "prometheus", "targetServer": "http://prom.example.com"}
    provider |= {"secretKeyRef": {"name": secret}} if secret else {}
    put(api, resources.METRICS_PROVIDERS, "prom", provider)
    asked = {"provider": {"name": "prom"}, "query": "up", "fetchIntervalSeconds": 10, **spec}
    stored = put(api, resources.KEPTN_METRICS, "errors", asked, status)
    stored["metadata"]["creationTimestamp"] = NOW
    put_definition(api)


@pytest.mark.parametrize(
    ("status", "more"),
    [
        ({"errMsg": "secret login not found"}, {"secret": "login"}),
        ({"errMsg": "no answer"}, {}),
        ({}, {"provider": {"name": "promm"}}),
        ({"value": "1", "rawValue": "MQ==", "lastUpdated": NOW}, {}),
    ],
    ids=["secret", "no answer", "no provider", "stale"],
)
async def test_a_metric_without_a_value_names_the_cause(api, ask, status, more):
    put_metric(api, status, **more)
    section = await ask("metric", "errors")
    expected = {
        "secret": ("metric-failing", "secret login not found", "get secret login"),
        "no answer": ("metric-failing", "no answer", "describe keptnmetricsprovider prom"),
        "provider": ("provider-missing", "promm not found", "get keptnmetricsproviders"),
        "value": ("metric-failing", "old, longer than", "describe keptnmetricsprovider prom"),
    }
    key = "secret" if "secret" in more else next(iter(more), "value" if status.get("value") else "")
    code, text, step = expected[key or "no answer"]
    assert (section["code"], section["state"]) == (code, "fault")
    assert text in section["summary"]
    assert f"kubectl -n {NAMESPACE} {step}" in section["next"]
    assert shown(section, "used by") == [f"{NAMESPACE}/rate"]


async def test_a_metric_of_a_moment_ago_waits_for_its_first_value(api, ask):
    put_metric(api)
    api.get(resources.KEPTN_METRICS, "errors", NAMESPACE)["metadata"].pop("creationTimestamp")
    del api.get(resources.KEPTN_METRICS, "errors", NAMESPACE)["spec"]["query"]
    assert (await ask("keptnmetric", "errors"))["code"] == "metric-failing"


@pytest.mark.parametrize("metric", ["errors", "missing"])
async def test_a_definition_names_the_metric_without_a_value(api, ask, metric):
    put_metric(api, {"errMsg": "no answer"})
    put_definition(api, metric)
    section = await ask("evaluationdefinition", "rate")
    step = f"harbourmaster why keptnmetric {NAMESPACE}/errors"
    missing = f"kubectl -n {NAMESPACE} get keptnmetrics lists those that exist"
    assert section["code"] == "metric-unavailable"
    assert section["next"] == (step if metric == "errors" else missing)


# Versions, and their checks.


def put_version(api, status, **spec):
    owner = {"uid": "rs-1", "kind": "ReplicaSet", "name": "cart-7c9"}
    spec = {
        "app": "shop",
        "version": "1.0",
        "workloadName": "shop-cart",
        "resourceReference": owner,
        **spec,
    }
    put(api, resources.WORKLOAD_VERSIONS, "shop-cart-1.0", spec, status, **owners())


TASKS = {"currentPhase": "WorkloadPreDeployTasks", "preDeploymentStatus": "Progressing"}


def item(name="", state="Progressing", field="preDeploymentTaskStatus", definition="migrate"):
    return {field: [{"definitionName": definition, "name": name, "status": state}]}


def put_task(api, **status):
    spec = {"taskDefinition": "migrate", "context": {"workloadName": "shop-cart"}}
    above = {**owners()["ownerReferences"][0], "kind": "KeptnWorkloadVersion"}
    above |= {"name": "shop-cart-1.0", "controller": True}
    put(api, resources.TASKS, "pre-migrate-1", spec, status, ownerReferences=[above])


QUOTA = "its Job has no pod: FailedCreate: exceeded quota: one, requested: pods=1"


@pytest.mark.parametrize(
    ("status", "spec"),
    [
        ({}, {}),
        ({**TASKS}, {"preDeploymentTasks": ["migrate"]}),
        ({**TASKS, **item("pre-migrate-1")}, {"preDeploymentTasks": ["migrate"]}),
        (
            {**TASKS, **item("pre-migrate-1", "Failed"), "preDeploymentStatus": "Failed"},
            {"preDeploymentTasks": ["migrate"]},
        ),
        (
            {
                "currentPhase": "WorkloadDeploy",
                "preDeploymentStatus": "Succeeded",
                "preDeploymentEvaluationStatus": "Succeeded",
            },
            {},
        ),
        ({"status": "Succeeded", "endTime": NOW}, {}),
        ({"status": "Deprecated"}, {}),
    ],
    ids=["app first", "no definition", "stuck", "failed", "deploying", "done", "replaced"],
)
async def test_a_version_tells_how_far_it_is(api, ask, assert_golden, status, spec):
    put_version(api, status, **spec)
    put_task(api, status="Progressing", reason="FailedCreate", message=QUOTA)
    assert_golden(essence(await ask("workloadversion", "shop-cart-1.0")))


async def test_a_task_whose_pods_are_refused_names_the_quota(api, ask):
    put_task(api, status="Progressing", reason="FailedCreate", message=QUOTA, jobName="j")
    section = await ask("task", "pre-migrate-1")
    assert (section["code"], section["state"]) == ("task-stuck", "fault")
    assert section["next"].endswith(f"kubectl -n {NAMESPACE} edit resourcequota/one")
    put_task(api, status="Failed", message="exit code 1")
    section = await ask("task", "pre-migrate-1")
    assert section["summary"] == "Failed: exit code 1"
    assert section["next"] == (f"harbourmaster why keptnworkloadversion {NAMESPACE}/shop-cart-1.0")


async def test_an_evaluation_names_the_objective_that_failed(api, ask):
    put_metric(api, {"errMsg": "no answer"})
    result = {"value": "9", "status": "Failed", "message": "value '9' did not meet '<5'"}
    status = {"overallStatus": "Failed", "retryCount": 1, "evaluationStatus": {"errors": result}}
    put(api, resources.EVALUATIONS, "pre-1", {"evaluationDefinition": "rate"}, status)
    section = await ask("evaluation", "pre-1")
    assert (section["code"], section["state"]) == ("checks-failed", "fault")
    assert section["summary"] == "Failed: value '9' did not meet '<5'"
    assert "up → 9 (<5)" in str(section["lines"])


async def test_an_app_names_the_workload_of_which_no_pod_was_seen(api, ask, assert_golden):
    app = put(
        api,
        resources.APPS,
        "shop",
        {"version": "1.0", "workloads": [{"name": "cart", "version": "1.0"}]},
    )
    section = await ask("keptnapp", "shop")
    assert section["summary"] == "its version 1.0 is not there yet"
    app["metadata"]["generation"] = 1
    spec = {"appName": "shop", "version": "1.0", "workloads": app["spec"]["workloads"]}
    passed = dict.fromkeys(("preDeploymentStatus", "preDeploymentEvaluationStatus"), "Succeeded")
    put(api, resources.APP_VERSIONS, "shop-1.0-6b86b273", spec, {"currentPhase": "x", **passed})
    assert_golden(essence(await ask("app", "shop")))
    put_version(api, {})
    section = await ask("appversion", "shop-1.0-6b86b273")
    assert section["next"] == f"harbourmaster why keptnworkloadversion {NAMESPACE}/shop-cart-1.0"


# Policies and namespaces.


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"nodeSelector": {"disk": "hdd"}}, "overridden"),
        ({"nodeSelector": {"zone": "a"}}, "not-applied"),
        ({"nodeSelector": {"disk": "ssd"}}, "valid"),
        ({"pods": {"app": "none"}}, "unmatched"),
        ({"tolerations": [{"operator": "Exists", "value": "x"}]}, "invalid"),
    ],
)
@pytest.mark.parametrize("scope", ["cluster", ""])
async def test_a_policy_tells_which_pods_it_selects_and_what_counts(api, why, given, code, scope):
    spec = {"pods": {"app": "cart"}, **given}
    api.put(resources.PODS, pod(nodeSelector={"disk": "ssd"}, owner=reference("StatefulSet", "c")))
    if scope:
        api.put(resources.CLUSTER_POLICIES, cluster_policy("mine", **spec))
    else:
        api.put(resources.POLICIES, policy("mine", NAMESPACE, **spec))
    kind = f"{scope}podschedulingpolicy"
    _, out, err = await why(kind, "mine", "-n", NAMESPACE, "-o", "json")
    (section,) = json.loads(out)["sections"]
    assert (section["name"], section["code"], err) == ("policy", code, "")
    selects = {"invalid", "unmatched"}.isdisjoint({code})
    assert shown(section, "selects") == ([f"StatefulSet {NAMESPACE}/c, 1 pod"] if selects else [])


def put_space(api, *, is_in=True, label=True):
    annotations = {"keptn.sh/lifecycle-toolkit": "enabled"} if is_in else {}
    labels = {"gates.harbourmaster.dev/enabled": "true"} if label else {}
    metadata = {"name": NAMESPACE, "annotations": annotations, "labels": labels}
    api.put(resources.NAMESPACES, {"metadata": metadata})


@pytest.mark.parametrize(
    ("given", "code"),
    [({}, "opted-in"), ({"is_in": False}, "not-opted-in"), ({"label": False}, "label-missing")],
)
async def test_a_namespace_tells_whether_its_pods_get_gates(api, why, given, code):
    put_space(api, **given)
    _, out, err = await why("namespace", NAMESPACE, "-o", "json")
    (section,) = json.loads(out)["sections"]
    assert (section["code"], err) == (code, "")
    assert f"PodSchedulingPolicy {NAMESPACE}/local" in shown(section, "policies")[0]
    _, out, _ = await why("ns", NAMESPACE)
    assert f"Namespace {NAMESPACE}\n" in out


async def test_a_namespace_names_workloads_whose_pods_are_refused(api, why):
    put_space(api)
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small, x"}
    put_owner(api, resources.DEPLOYMENTS, template())
    api.get(resources.DEPLOYMENTS, "cart", NAMESPACE)["status"] = {"conditions": [failure]}
    _, out, _ = await why("namespace", NAMESPACE)
    assert f"Namespace: 1 workload cannot create pods: Deployment {NAMESPACE}/cart" in out
    assert f"kubectl -n {NAMESPACE} edit resourcequota/small" in out


async def test_a_namespace_names_a_stateful_set_of_whose_pods_an_event_tells(api, why):
    put_space(api)
    put_owner(api, resources.STATEFUL_SETS, template())
    uid = api.get(resources.STATEFUL_SETS, "cart", NAMESPACE)["metadata"]["uid"]
    event = {
        "metadata": {"name": "refused", "namespace": NAMESPACE},
        "involvedObject": {"kind": "StatefulSet", "name": "cart", "uid": uid},
        "reason": "FailedCreate",
        "message": "exceeded quota: small, requested: pods=1",
        "lastTimestamp": "2030-01-01T00:00:00Z",
    }
    api.put(resources.CORE_EVENTS, event)
    _, out, _ = await why("namespace", NAMESPACE)
    assert f"Namespace: 1 workload cannot create pods: StatefulSet {NAMESPACE}/cart" in out


async def test_a_namespace_counts_the_pods_that_wait(api, why):
    put_space(api)
    gated = pod(
        schedulingGates=[{"name": "keptn-prechecks-gate"}], owner=reference("ReplicaSet", "c")
    )
    gated["metadata"]["annotations"] = keptn("cart", pre_deployment_tasks="migrate")
    api.put(resources.PODS, gated)
    _, out, _ = await why("namespace", NAMESPACE)
    assert "Namespace: 1 pod waits in it" in out
    assert f"next      harbourmaster gate list -n {NAMESPACE}" in out


async def test_the_policies_of_a_cluster_are_listed_once_for_all_namespaces(api, why):
    api.put(resources.CLUSTER_POLICIES, cluster_policy("mine", nodeSelector={"disk": "ssd"}))
    for name in ("a", "b", "c"):
        api.put(resources.NAMESPACES, {"metadata": {"name": name}})
        selected = pod()
        selected["metadata"]["namespace"] = name
        api.put(resources.PODS, selected)
    _, out, _ = await why("clusterpodschedulingpolicy", "mine")
    assert "selects 3 pods in 3 namespaces" in out
    lists = [seen.path.rpartition("/")[2] for seen in api.requests if seen.verb == "list"]
    assert lists.count("clusterpodschedulingpolicies") == 1


@pytest.mark.parametrize("scope", ["cluster", ""])
async def test_a_policy_is_explained_without_permission_to_list_namespaces(api, why, scope):
    spec = {"pods": {"app": "cart"}, "nodeSelector": {"disk": "ssd"}}
    api.put(resources.PODS, pod(nodeSelector={"disk": "ssd"}))
    put_policy = cluster_policy("mine", **spec) if scope else policy("mine", NAMESPACE, **spec)
    api.put(resources.CLUSTER_POLICIES if scope else resources.POLICIES, put_policy)
    api.forbid("*", resources.NAMESPACES)
    words = (f"{scope}podschedulingpolicy", "mine", "-n", NAMESPACE, "-o", "json")
    _, out, err = await why(*words)
    (section,) = json.loads(out)["sections"]
    assert (section["code"] != "unread", err) == (True, "")
    assert "namespaces" in shown(section, "unknown")[0]


async def test_a_metric_is_explained_without_its_provider_and_its_users(api, ask):
    put_metric(api, {"errMsg": "no answer"})
    api.forbid("*", resources.METRICS_PROVIDERS)
    api.forbid("*", resources.EVALUATION_DEFINITIONS)
    section = await ask("metric", "errors")
    assert (section["code"], section["summary"][-9:]) == ("metric-failing", "no answer")
    assert len(shown(section, "unknown")) == 3
