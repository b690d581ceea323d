"""Attacks on gates and tasks with rights in one namespace only: S20, S23, S28, S29.

All of it with the whole installation, webhooks included.
"""

from __future__ import annotations

import base64
import json
import re

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    APP_VERSIONS,
    CONFIG_MAPS,
    JOBS,
    NAMESPACES,
    PODS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.kube.errors import ApiError
from helpers.flow.installation import HOME
from helpers.flow.manifests import (
    app,
    app_context,
    container_task,
    deployment,
    keptn,
    of_kind,
    task_definition,
)
from helpers.flow.namespace import GATE, gates

pytestmark = pytest.mark.gate

CODE = {"inline": {"code": "print(1)"}}
SECRET = base64.b64encode(b"s3cr3t").decode()


def task(name, definition, **spec):
    """A task made by hand."""
    context = {"appName": "ledger", "workloadName": "ledger", "workloadVersion": "1.0"}
    return of_kind("KeptnTask", name, {"taskDefinition": definition, "context": context, **spec})


@pytest.fixture
async def neighbour(request, harbour, client):
    """The namespace of another tenant, with secrets to steal."""
    async with harbour.flow(client, "neighbour") as flow:
        await flow.create(
            of_kind("Secret", "treasure", data={"SECURE_DATA": SECRET}),
            of_kind("ConfigMap", "treasure", data={"code": "print('s3cr3t')"}),
            of_kind("ServiceAccount", "treasurer"),
            task_definition("theirs", deno={"configMapRef": {"name": "treasure"}}),
        )
        yield flow


# S20: rights end at the namespace.


async def test_s20_a_definition_of_a_neighbour_is_none(flow, neighbour):
    names = ["theirs", f"{neighbour.namespace}/theirs", f"../{neighbour.namespace}/theirs"]
    await flow.create(*(task(f"by-hand-{at}", name) for at, name in enumerate(names)))
    await flow.create(deployment("ledger", keptn("ledger", pre_deployment_tasks=",".join(names))))
    for at in range(len(names)):
        await flow.until_like(
            TASKS,
            f"by-hand-{at}",
            {"status": {"status": "Pending", "reason": "TaskDefinitionNotFound"}},
        )
    await flow.until_told("CreateTaskNotFound", "ledger-ledger-1.0")
    await flow.until_gated("ledger")
    await flow.stay_gated("ledger")
    assert len(flow.all(TASKS)) == len(names)
    assert flow.all(JOBS) == []


@pytest.mark.claim("O5")
async def test_s20_what_a_definition_names_is_that_of_the_tasks_own_namespace(flow, neighbour):
    await flow.create(
        task_definition("mapped", deno={"configMapRef": {"name": "treasure"}}),
        task_definition("told", python={**CODE, "secureParameters": {"secret": "treasure"}}),
        container_task("trusted", serviceAccount={"name": "treasurer"}),
        *(task(f"by-hand-{name}", name) for name in ("mapped", "told", "trusted")),
    )
    await flow.until_like(
        TASKS, "by-hand-mapped", {"status": {"status": "Pending", "reason": "FunctionNotFound"}}
    )
    # The Secret and the account of these names are looked for here, by the kubelet or before.
    jobs = await flow.until_all(JOBS, {}, 2)
    for job in jobs:
        assert job["metadata"]["namespace"] == flow.namespace
        assert "s3cr3t" not in json.dumps(job)
        assert SECRET not in json.dumps(job)
    assert neighbour.all(JOBS) == []


async def test_s20_a_shared_definition_lends_its_code_and_no_right_of_ours(flow, harbour, client):
    """A shared definition that names objects of our namespace does not read them either."""
    shared = [
        task_definition(
            "lent",
            deno={**CODE, "secureParameters": {"secret": "harbourmaster-webhook-cert"}},
            serviceAccount={"name": "harbourmaster-controller"},
        ),
        of_kind("ConfigMap", "private", data={"code": "print('s3cr3t')"}),
    ]
    await flow.create(*shared, namespace=HOME)
    try:
        await flow.create(
            task_definition("mine", deno={"configMapRef": {"name": "private"}}),
            task("theirs", "lent"),
            task("mine", "mine"),
        )
        (job,) = await flow.until_all(JOBS, {})
        await flow.until_like(TASKS, "mine", {"status": {"reason": "FunctionNotFound"}})
        spec = job["spec"]["template"]["spec"]
        assert job["metadata"]["namespace"] == flow.namespace
        assert spec["serviceAccountName"] == "harbourmaster-controller"
        # There is no account of that name here, so the API server takes no pod of it.
        assert await flow.until_told("FailedCreate", job["metadata"]["name"])
        assert flow.all(PODS) == []
        assert (await client.list(JOBS, HOME)).items == ()
    finally:
        await client.delete(TASK_DEFINITIONS, "lent", HOME)
        await client.delete(CONFIG_MAPS, "private", HOME)


PATH = "../../kube-system/secrets/treasure"
PATHS = {
    "spec.deno.configMapRef.name": {"deno": {"configMapRef": {"name": PATH}}},
    "spec.deno.functionRef.name": {"deno": {"functionRef": {"name": PATH}}},
    "spec.python.secureParameters.secret": {
        "python": {**CODE, "secureParameters": {"secret": PATH}}
    },
    "spec.serviceAccount.name": {"python": CODE, "serviceAccount": {"name": PATH}},
    "spec.imagePullSecrets[0].name": {"python": CODE, "imagePullSecrets": [{"name": PATH}]},
}


@pytest.mark.parametrize("field", PATHS)
async def test_s20_a_name_that_is_a_path_is_refused(flow, field):
    with pytest.raises(ApiError, match=re.escape(field)):
        await flow.create(task_definition("path", **PATHS[field]))


@pytest.mark.parametrize(
    "spec",
    [{"secureParameters": {"secret": PATH}}, {"parameters": {"map": {"SECURE_DATA": PATH}}}],
    ids=["secret", "parameter"],
)
async def test_s20_what_a_task_brings_along_is_no_path_either(flow, spec):
    """Nobody validates a task before it is stored."""
    await flow.create(task_definition("it", python=CODE), task("it", "it", **spec))
    obj = await flow.until(lambda: final_status(flow.find(TASKS, "it")))
    if "secureParameters" in spec:
        assert obj["reason"] == "JobInvalid"
        assert flow.all(JOBS) == []
    else:
        (job,) = flow.all(JOBS)
        names = [variable["name"] for variable in environment(job)]
        assert "SECURE_DATA" not in names


def final_status(job):
    status = (job or {}).get("status", {})
    return status if status.get("status") in {"Succeeded", "Failed"} else None


# S23: our marks are worth nothing to who writes them.


MARKS = {
    "released": {"gates.harbourmaster.dev/released": "by-hand"},
    "released-by": {
        "gates.harbourmaster.dev/released-by": "me",
        "gates.harbourmaster.dev/released-reason": "because",
    },
    "unresolved": {"gates.harbourmaster.dev/parent": "unresolved"},
    "owners": {"gates.harbourmaster.dev/owners": "*"},
    "since": {"gates.harbourmaster.dev/since": "9999-01-01T00:00:00Z"},
    "single-service": {"gates.harbourmaster.dev/app-type": "single-service"},
}


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("at", ["pod", "owner"])
@pytest.mark.claim("O4")
async def test_s23_a_mark_of_ours_on_a_pod_gains_nothing(flow, mark, at):
    given = keptn("ledger", pre_deployment_tasks="failing")
    manifest = deployment("ledger", {**given, **MARKS[mark]})
    if at == "owner":
        manifest = deployment("ledger", MARKS[mark], above={**given, **MARKS[mark]})
    # Nor does it help to bring the gate along.
    manifest["spec"]["template"]["spec"]["schedulingGates"] = [{"name": GATE}]
    await flow.create(container_task("failing", "fail"), manifest)
    await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-1.0", "Failed")
    await flow.stay_gated("ledger")


async def test_s23_the_version_of_another_workload_does_not_let_a_pod_go(flow):
    """Nor another app's, nor another version of its own."""
    await flow.create(
        container_task("failing", "fail"),
        deployment("passed", keptn("passed", app="shop")),
        app("shop", "1.0", ("passed", "1.0"), ("ledger", "1.0")),
    )
    await flow.until_released("passed")
    await flow.create(
        deployment("ledger", keptn("ledger", app="shop", pre_deployment_tasks="failing")),
        deployment("newer", keptn("passed", "2.0", app="shop", pre_deployment_tasks="failing")),
        deployment("other", keptn("passed", app="other", pre_deployment_tasks="failing")),
    )
    for part, version in (
        ("ledger", "shop-ledger-1.0"),
        ("newer", "shop-passed-2.0"),
        ("other", "other-passed-1.0"),
    ):
        await flow.until_gated(part)
        await flow.until(lambda version=version: flow.find(WORKLOAD_VERSIONS, version))
    await flow.stay_gated("ledger", "newer", "other")


# S28: what strangers write is data.


HOSTILE = "$(SECURE_DATA) $$(id) `id` {{ ''.__class__ }} ${HOME} $((1)) <&>\n'\" \\ %s %(a)s"
VARIABLES = {"SECURE_DATA": "s3cr3t", "CMD_ARGS": "", "HOME": "/root", "id": "0"}


def expand_variables(value):
    """A value as the kubelet expands it: ``$(NAME)`` of a known variable is it, ``$$`` is ``$``."""

    def replace(match):
        if match[0] == "$$":
            return "$"
        return VARIABLES.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replace, value)


def environment(job):
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return container["env"]


@pytest.mark.claim("O6")
async def test_s28_hostile_text_goes_through_a_whole_flow_as_data(flow):
    pairs, version = f"note={HOSTILE.replace(',', '')}", HOSTILE[:40]
    await flow.create(
        task_definition(
            "function",
            python={**CODE, "parameters": {"map": {"text": HOSTILE}}, "cmdParameters": HOSTILE},
            annotations={"example.com/text": HOSTILE},
        ),
        container_task("container"),
        app_context("shop", preDeploymentTasks=["function"], metadata={HOSTILE: HOSTILE}),
        app("shop", "1.0", ("ledger", version)),
        deployment(
            "ledger",
            keptn(
                "ledger",
                version,
                app="shop",
                pre_deployment_tasks="function,container",
                metadata=pairs,
            ),
        ),
    )
    await flow.until_ended(APP_VERSIONS, "shop-1.0-6b86b273")
    await flow.until_released("ledger")
    jobs = await flow.until_all(JOBS, {}, 3)
    for job in jobs:
        names = [variable["name"] for variable in environment(job)]
        given = {
            variable["name"]: expand_variables(variable["value"]) for variable in environment(job)
        }
        context = json.loads(given["KEPTN_CONTEXT"])
        assert context["metadata"][HOSTILE] == HOSTILE
        if context["objectType"] == "Workload":
            assert context["metadata"]["note"] == pairs.partition("=")[2]
            assert context["workloadVersion"] == version.lower()
        if "DATA" in names:
            assert names == ["DATA", "KEPTN_CONTEXT", "CMD_ARGS", "SCRIPT"]
            assert json.loads(given["DATA"]) == {"text": HOSTILE}
            assert given["CMD_ARGS"] == HOSTILE
            assert job["metadata"]["annotations"]["example.com/text"] == HOSTILE
        spec = job["spec"]["template"]["spec"]["containers"][0]
        assert "command" not in spec
        assert "args" not in spec


@pytest.mark.parametrize(
    "key", ["workload", "app", "pre_deployment_tasks", "pre_deployment_evaluations"]
)
async def test_s28_hostile_names_are_told_and_let_nothing_go(flow, key):
    """An invalid name makes no object, no path and no second line."""
    given = {"workload": "ledger", "app": "shop"}
    name = HOSTILE if "tasks" in key or "eval" in key else HOSTILE[:40]
    await flow.create(deployment("ledger", keptn(**{**given, key: name})))
    await flow.until_gated("ledger")
    (event, *_) = await flow.until(
        lambda: [
            event
            for event in flow.events(type="Warning")
            if event["reportingController"].startswith("harbourmaster.dev/")
        ]
    )
    assert "\n" not in event["note"]
    await flow.stay_gated("ledger")
    assert flow.all(JOBS) == []


# S29: what the pods of tasks may do.


@pytest.mark.parametrize("runtime", ["deno", "python"])
@pytest.mark.claim("O7")
async def test_s29_functions_run_where_pods_must_be_restricted(flow, client, runtime):
    enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
    patch = MergePatch({"metadata": {"labels": enforce}})
    await client.patch(NAMESPACES, flow.namespace, patch)
    secure = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "ledger", "image": "ledger:1", "securityContext": secure}
    body = {runtime: CODE, "timeout": "30s", "ttlSecondsAfterFinished": 77}
    manifest = deployment(
        "ledger", keptn("ledger", pre_deployment_tasks="it"), containers=[container]
    )
    await flow.create(task_definition("it", **body), manifest)
    await flow.until_released("ledger")
    (job,) = await flow.until_all(JOBS, {"spec": {"ttlSecondsAfterFinished": 77}})
    assert job["spec"]["activeDeadlineSeconds"] == 30
    (owner,) = job["metadata"]["ownerReferences"]
    (task,) = flow.all(TASKS)
    assert (owner["kind"], owner["uid"]) == ("KeptnTask", task["metadata"]["uid"])
    (pod,) = [obj for obj in flow.all(PODS) if "job-name" in obj["metadata"]["labels"]]
    spec = pod["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert all("projected" not in volume for volume in spec["volumes"])
    assert spec["containers"][0]["resources"] == {}
    assert spec["containers"][0]["securityContext"]["runAsNonRoot"] is True
    assert gates(pod) == []
