"""Jobs of tasks; the exact environments are those that Keptn's own tests expect.

These tests prove keptn-spec 3.8, 11.2.
"""

from __future__ import annotations

import json
import re

import pytest

from harbourmaster.lifecycle.functions import TaskContainer
from harbourmaster.lifecycle.jobs import (
    MESSAGE_POLICY,
    Runners,
    active_deadline,
    job_for,
    job_name,
    literal,
    ttl_of,
)
from harbourmaster.lifecycle.jobs import NONCE as NONCE_LABEL
from helpers.tasks import (
    APP_CONTEXT,
    DENO,
    NONCE,
    PYTHON,
    RUNNERS,
    WORKLOAD_CONTEXT,
    container_of,
    definition,
    environment,
    expand_variables,
    job,
    read,
    task,
)

CONTEXT = json.dumps(WORKLOAD_CONTEXT, separators=(",", ":"))
PARENT = definition(
    "parent",
    deno={
        "inline": {"code": "1"},
        "parameters": {"map": {"user": "myotheruser", "data": "myotherdata", "other": "data"}},
    },
)
CHILD = definition(
    "child",
    deno={
        "functionRef": {"name": "parent"},
        "parameters": {"map": {"user": "myuser", "data": "mydata"}},
        "secureParameters": {"secret": "mysecret"},
    },
)
BUSYBOX = {"name": "testy-test", "image": "busybox:1.36.0", "command": ["sh", "-c", "sleep 30"]}


LAST_LINES = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def container(**fields):
    return definition(container={**BUSYBOX, **fields})


def pod_of(body):
    return body["spec"]["template"]["spec"]


def test_simple_task_has_exactly_this_environment():
    context = {
        "workloadName": "workload",
        "appName": "podtato-head",
        "appVersion": "1.0.0",
        "workloadVersion": "0.1.0",
        "taskType": "",
        "objectType": "",
        "metadata": {"commit-id": "1234"},
    }
    body = job(definition(), config_map="keptnfn-hello", name="t", context=context)
    assert environment(body) == [
        {"name": "KEPTN_CONTEXT", "value": json.dumps(context, separators=(",", ":"))},
        {"name": "CMD_ARGS", "value": ""},
        {"name": "SCRIPT", "value": "/var/data/function.ts"},
    ]
    assert container_of(body)["name"] == "keptn-function-runner"
    assert container_of(body)["imagePullPolicy"] == "IfNotPresent"
    assert body["metadata"]["annotations"]["keptn.sh/task-name"] == "t"


def test_simple_deployment_recursive_task_has_exactly_these_environments():
    parent = job(PARENT, config_map="keptnfn-parent")
    assert environment(parent) == [
        {"name": "DATA", "value": '{"data":"myotherdata","other":"data","user":"myotheruser"}'},
        {"name": "KEPTN_CONTEXT", "value": CONTEXT},
        {"name": "CMD_ARGS", "value": ""},
        {"name": "SCRIPT", "value": "/var/data/function.ts"},
    ]
    child = job(CHILD, PARENT, config_map="keptnfn-parent")
    assert environment(child) == [
        {"name": "DATA", "value": '{"data":"mydata","other":"data","user":"myuser"}'},
        {"name": "KEPTN_CONTEXT", "value": CONTEXT},
        {"name": "CMD_ARGS", "value": ""},
        {
            "name": "SECURE_DATA",
            "valueFrom": {"secretKeyRef": {"name": "mysecret", "key": "SECURE_DATA"}},
        },
        {"name": "SCRIPT", "value": "/var/data/function.ts"},
    ]
    for body in (parent, child):
        assert pod_of(body)["volumes"] == [
            {"name": "function-mount", "configMap": {"name": "keptnfn-parent"}}
        ]
        assert container_of(body)["volumeMounts"] == [
            {
                "name": "function-mount",
                "mountPath": "/var/data/function.ts",
                "subPath": "code",
                "readOnly": True,
            }
        ]


def test_container_runtime_has_exactly_one_variable():
    body = job(container(), annotations={"container": "test"})
    assert environment(body) == [{"name": "KEPTN_CONTEXT", "value": CONTEXT}]
    assert container_of(body) == {**BUSYBOX, **LAST_LINES, "env": environment(body)}
    assert body["metadata"]["annotations"]["container"] == "test"
    assert body["spec"]["template"]["metadata"] == {
        "labels": {NONCE_LABEL: NONCE},
        "annotations": {"container": "test"},
    }


def test_python_has_a_file_and_an_image_of_its_own():
    python = definition(
        python={"inline": {"code": "1"}, "cmdParameters": "-u -X dev", "parameters": {"map": {}}}
    )
    body = job(python, config_map="keptnfn-hello")
    assert container_of(body)["image"] == PYTHON
    assert container_of(body)["volumeMounts"][0]["mountPath"] == "/var/data/function.py"
    assert environment(body)[1:] == [
        {"name": "CMD_ARGS", "value": "-u -X dev"},
        {"name": "SCRIPT", "value": "/var/data/function.py"},
    ]


def test_code_behind_a_url_needs_no_volume():
    url = "https://example.com/hello.ts"
    body = job(definition(deno={"httpRef": {"url": url}}))
    assert environment(body)[-1] == {"name": "SCRIPT", "value": url}
    assert container_of(body)["image"] == DENO
    assert "volumes" not in pod_of(body)
    assert "volumeMounts" not in container_of(body)


def test_c60_retries_are_the_jobs_backoff_limit():
    assert job(definition(), retries=2)["spec"]["backoffLimit"] == 2
    assert job(definition(), retries=0)["spec"]["backoffLimit"] == 0
    assert job(definition(), retries=None)["spec"]["backoffLimit"] == 10


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [("30s", 30), ("5m0s", 300), ("", 300), ("90.9s", 90), ("300ms", 1), ("0s", 0)],
)
def test_c61_time_outs_are_the_jobs_deadline(timeout, seconds):
    assert job(definition(), timeout=timeout)["spec"]["activeDeadlineSeconds"] == seconds


def test_a_time_out_that_is_none_is_told_in_one_line():
    with pytest.raises(ValueError, match=r'^"0five" is not a duration: write for example'):
        active_deadline("0five")


def test_c62_a_childs_parameters_win():
    (data,) = (
        variable for variable in environment(job(CHILD, PARENT)) if variable["name"] == "DATA"
    )
    assert data["value"] == '{"data":"mydata","other":"data","user":"myuser"}'


def test_c63_an_app_task_has_this_context_and_no_workload():
    body = job(definition(), context=APP_CONTEXT)
    assert environment(body)[0] == {
        "name": "KEPTN_CONTEXT",
        "value": '{"workloadName":"","appName":"podtato-head","appVersion":"0.1.0",'
        '"workloadVersion":"","taskType":"pre","objectType":"App"}',
    }
    assert body["metadata"]["annotations"] == {
        "keptn.sh/app": "podtato-head",
        "keptn.sh/version": "0.1.0",
        "keptn.sh/task-name": "pre-hello-12345",
    }


def test_a_workload_task_names_its_workload():
    assert job(definition())["metadata"]["annotations"] == {
        "keptn.sh/app": "waiter",
        "keptn.sh/workload": "waiter-waiter",
        "keptn.sh/version": "0.4",
        "keptn.sh/task-name": "pre-hello-12345",
    }


def test_without_any_version_the_annotation_is_empty():
    body = job(definition(), context={})
    assert body["metadata"]["annotations"]["keptn.sh/version"] == ""


def test_c64_parameters_are_escaped_as_go_does():
    given = {"z": "<b>&", "a": "\u2028"}
    variables = environment(
        job(definition(deno={"inline": {"code": "1"}, "parameters": {"map": given}}))
    )
    assert variables[0]["value"] == '{"a":"\\u2028","z":"\\u003cb\\u003e\\u0026"}'


def test_c65_a_containers_own_context_is_replaced_in_its_place():
    own = [
        {"name": "BEFORE", "value": "$(HOME)"},
        {"name": "KEPTN_CONTEXT", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "AFTER", "value": "2"},
    ]
    variables = environment(job(container(env=own)))
    assert variables == [own[0], {"name": "KEPTN_CONTEXT", "value": CONTEXT}, own[2]]


def test_c65_a_containers_context_comes_last():
    own = [{"name": "BEFORE", "value": "1"}]
    assert environment(job(container(env=own))) == [
        *own,
        {"name": "KEPTN_CONTEXT", "value": CONTEXT},
    ]


def test_c66_a_container_gets_its_volume_in_memory():
    mounts = [{"name": "data", "mountPath": "/data"}, {"name": "data", "mountPath": "/more"}]
    limited = container(volumeMounts=mounts, resources={"limits": {"memory": "64Mi"}})
    assert pod_of(job(limited))["volumes"] == [
        {"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}
    ]
    free = container(volumeMounts=mounts, resources={"requests": {"memory": "64Mi"}})
    assert pod_of(job(free))["volumes"] == [
        {"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    ]
    assert "volumes" not in pod_of(job(container()))


def test_c66_each_further_mount_gets_a_volume_too():
    mounts = [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}]
    volumes = pod_of(job(container(volumeMounts=mounts)))["volumes"]
    assert [volume["name"] for volume in volumes] == ["a", "b"]


@pytest.mark.parametrize("name", ["a", "a" * 57, "a" * 58, "a" * 200, f"{'a' * 48}.{'b' * 50}"])
def test_c69_a_jobs_name_fits_the_label_of_its_pods(name):
    job_name_ = job_name(read(task(name)))
    assert len(job_name_) <= 63
    assert re.fullmatch(r"[a-z0-9]([a-z0-9]|[-.][a-z0-9])*-[0-9]{5}", job_name_)
    assert job_name_.startswith(name if len(name) <= 57 else name[:40])


def test_c69_long_names_stay_apart():
    names = {job_name(read(task(f"{'a' * 80}{number}"))) for number in range(50)}
    assert len(names) == 50


def test_a_jobs_name_follows_from_its_task_and_the_job_before():
    first = job_name(read(task()))
    assert first == job_name(read(task()))
    second = job_name(read(task()), first)
    assert len({first, second, job_name(read(task()), second)}) == 3


def test_labels_and_annotations_are_also_those_of_the_pods():
    body = job(
        definition(),
        labels={"task-definition": "parent"},
        annotations={
            "deno": "test",
            "kubectl.kubernetes.io/last-applied-configuration": '{"kind":"KeptnTask"}',
        },
    )
    assert body["metadata"]["labels"] == {"task-definition": "parent", NONCE_LABEL: NONCE}
    assert body["metadata"]["annotations"].keys() == {
        "deno",
        "keptn.sh/app",
        "keptn.sh/workload",
        "keptn.sh/version",
        "keptn.sh/task-name",
    }
    assert body["spec"]["template"]["metadata"] == {
        "labels": body["metadata"]["labels"],
        "annotations": {"deno": "test"},
    }


def test_a_job_goes_with_its_task():
    assert job(definition())["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "lifecycle.keptn.sh/v1",
            "kind": "KeptnTask",
            "name": "pre-hello-12345",
            "uid": "uid-of-pre-hello-12345",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_a_job_may_not_go_before_its_result_is_recorded():
    spec = job(definition(ttlSecondsAfterFinished=100))["spec"]
    assert "ttlSecondsAfterFinished" not in spec
    assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (definition(ttlSecondsAfterFinished=100), 100),
        (definition(ttlSecondsAfterFinished=0), 0),
        (definition(), 300),
        (None, 300),
    ],
)
def test_a_job_goes_after_the_definitions_time(given, seconds):
    assert ttl_of(given and read(given)) == seconds


def test_the_account_and_its_secrets_are_the_definitions():
    pod = pod_of(
        job(
            definition(
                serviceAccount={"name": "keptn-serviceaccount"},
                automountServiceAccountToken={"type": False},
                imagePullSecrets=[{"name": "my-registry-secret"}],
            )
        )
    )
    assert pod["serviceAccountName"] == "keptn-serviceaccount"
    assert pod["automountServiceAccountToken"] is False
    assert pod["imagePullSecrets"] == [{"name": "my-registry-secret"}]


@pytest.mark.parametrize(
    ("spec", "token"),
    [
        ({}, False),
        ({"serviceAccount": {"name": "deployer"}}, None),
        (
            {
                "serviceAccount": {"name": "deployer"},
                "automountServiceAccountToken": {"type": True},
            },
            True,
        ),
        ({"automountServiceAccountToken": {"type": True}}, True),
        ({"serviceAccount": {"name": ""}}, False),
    ],
)
@pytest.mark.parametrize("kind", [{}, {"container": BUSYBOX}])
def test_s29_no_token_without_an_account_or_a_wish(kind, spec, token):
    assert pod_of(job(definition(**kind, **spec))).get("automountServiceAccountToken") is token


def test_s29_functions_run_where_pods_are_restricted():
    assert container_of(job(definition()))["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_functions_have_no_security_context_where_keptns_is_set():
    runners = Runners(deno_image=DENO, python_image=PYTHON, is_restricted=False)
    body = job(definition(), runners=runners)
    assert "securityContext" not in container_of(body)
    assert "securityContext" not in pod_of(body)


def test_s29_functions_have_the_limits_that_are_set():
    runners = Runners(
        deno_image=DENO, python_image=PYTHON, requests={"cpu": "10m"}, limits={"memory": "512Mi"}
    )
    container_ = container_of(job(definition(), runners=runners))
    assert container_["resources"] == {"requests": {"cpu": "10m"}, "limits": {"memory": "512Mi"}}
    assert "resources" not in container_of(job(definition()))


def test_a_container_of_the_users_is_taken_as_it_is():
    own = {
        **BUSYBOX,
        "args": ["$(HOME)", "`id`"],
        "securityContext": {"privileged": True},
        "resources": {"limits": {"cpu": 1}},
        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    used = container_of(job(definition(container=own)))
    assert {key: value for key, value in used.items() if key != "env"} == {**own, **LAST_LINES}
    assert "env" not in own


@pytest.mark.parametrize("runtime", ["deno", "python"])
def test_the_last_lines_of_a_function_are_kept_because_its_log_is_gone_at_once(runtime):
    used = container_of(job(definition(**{runtime: {"inline": {"code": "1"}}}), config_map="c"))
    assert LAST_LINES.items() <= used.items()


@pytest.mark.parametrize(
    "own", [{"terminationMessagePolicy": "File"}, {"terminationMessagePath": "/dev/result"}]
)
def test_what_a_container_of_the_users_keeps_is_not_changed(own):
    used = container_of(job(container(**own)))
    assert {key: value for key, value in used.items() if key.startswith("termin")} == own


@pytest.mark.parametrize("runtime", ["deno", "python", "container"])
def test_an_annotation_of_the_definition_keeps_the_log_out(runtime):
    spec = BUSYBOX if runtime == "container" else {"inline": {"code": "1"}}
    by = definition(annotations={MESSAGE_POLICY: "File"}, **{runtime: spec})
    assert container_of(job(by, config_map="c"))["terminationMessagePolicy"] == "File"


def test_making_a_job_changes_nothing_that_it_is_made_of():
    of, by = read(task(annotations={"a": "b"})), read(container(env=[{"name": "A", "value": ""}]))
    first = job_for(of, by, TaskContainer(by.spec.container), RUNNERS)
    assert job_for(of, by, TaskContainer(by.spec.container), RUNNERS) == first
    assert of == read(task(annotations={"a": "b"}))


HOSTILE = [
    "$(KEPTN_CONTEXT)",
    "$$(KEPTN_CONTEXT)",
    "$$$(SECURE_DATA) $",
    "$(SECURE_DATA",
    "`id`",
    "$(id); rm -rf /",
    "{{ ''.__class__ }}",
    "${HOME}",
    "line\nbreak\r\n",
    "'\"\\",
    "$",
    "$$",
    "a$b$$c",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_s28_text_reaches_the_container_as_it_was_written(text):
    variables = {"KEPTN_CONTEXT": "leaked", "SECURE_DATA": "leaked", "HOME": "leaked"}
    assert expand_variables(literal(text), variables) == text


@pytest.mark.parametrize("text", HOSTILE)
def test_s28_what_strangers_wrote_is_only_ever_a_value(text):
    hostile = definition(
        deno={
            "httpRef": {"url": text},
            "parameters": {"map": {text: text}},
            "cmdParameters": text,
        }
    )
    context = {**WORKLOAD_CONTEXT, "appName": text, "metadata": {text: text}}
    body = job(hostile, context=context)
    values = {
        variable["name"]: expand_variables(variable["value"], {"DATA": "x"})
        for variable in environment(body)
    }
    assert json.loads(values["DATA"]) == {text: text}
    assert json.loads(values["KEPTN_CONTEXT"]) == context
    assert values["CMD_ARGS"] == text
    assert values["SCRIPT"] == text
    # Nothing runs by a command line of ours.
    assert container_of(body).keys() & {"command", "args"} == set()
    own = environment(job(container(), context=context))[-1]
    assert json.loads(expand_variables(own["value"], {"DATA": "x"})) == context
