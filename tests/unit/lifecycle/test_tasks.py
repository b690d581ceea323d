from __future__ import annotations

import json
import re

import msgspec
import pytest

from harbourmaster.lifecycle.model import TaskContext
from harbourmaster.lifecycle.tasks import check_name, context_text, go_json, task_for
from helpers.phased import app_version, workload_version
from helpers.tasks import definition, read


def make_task(parent, check_type="pre", **spec):
    return task_for(parent, read(definition(**spec)), check_type)


def test_a_task_is_named_after_its_check_and_definition():
    name = make_task(workload_version(), name="entry")["metadata"]["name"]
    assert re.fullmatch("pre-entry-[1-9][0-9]{4}", name)


def test_the_same_question_gives_the_same_name_and_another_one_another():
    first = check_name("u", "pre", "entry")
    assert check_name("u", "pre", "entry") == first
    different = [
        check_name("v", "pre", "entry"),
        check_name("u", "post", "entry"),
        check_name("u", "pre", "exit"),
        check_name("u", "pre", "entry", first),
        check_name("u", "pre", "entry", check_name("u", "pre", "entry", first)),
    ]
    assert len({first, *different}) == 1 + len(different)


def test_a_workload_task_has_this_context():
    version = make_task(workload_version(), "post")
    assert version["spec"]["context"] == {
        "workloadName": "shop-cart",
        "appName": "shop",
        "appVersion": "",
        "workloadVersion": "2.0",
        "taskType": "post",
        "objectType": "Workload",
    }
    assert version["spec"]["checkType"] == "post"


def test_an_app_task_has_this_context():
    assert make_task(app_version(), "promotion")["spec"]["context"] == {
        "workloadName": "",
        "appName": "shop",
        "appVersion": "1.0",
        "workloadVersion": "",
        "taskType": "promotion",
        "objectType": "App",
    }


def test_without_a_trace_nothing_is_put_anywhere():
    assert "metadata" not in make_task(app_version())["spec"]["context"]


def test_labels_and_annotations_are_the_definitions():
    noted = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    metadata = make_task(
        workload_version(),
        labels={"kwok-outcome": "fail"},
        annotations={"container": "test", **noted},
    )["metadata"]
    assert metadata["labels"] == {"kwok-outcome": "fail"}
    assert metadata["annotations"] == {"container": "test"}


def test_a_task_goes_with_its_version():
    assert make_task(app_version())["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "lifecycle.keptn.sh/v1",
            "kind": "KeptnAppVersion",
            "name": "shop-1.0-6b86b273",
            "uid": "uid-shop-1.0-6b86b273",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    (owner,) = make_task(workload_version())["metadata"]["ownerReferences"]
    assert owner["kind"] == "KeptnWorkloadVersion"
    assert make_task(workload_version(), namespace="harbour")["metadata"]["namespace"] == "prod"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("5m", "5m0s"),
        ("30s", "30s"),
        ("1h30m", "1h30m0s"),
        ("0", "0s"),
        ("", "5m0s"),
        ("0five", "0five"),
    ],
)
def test_time_outs_are_as_go_prints_them_and_what_is_none_stays(given, wanted):
    assert make_task(app_version(), timeout=given)["spec"]["timeout"] == wanted


@pytest.mark.parametrize(("given", "wanted"), [({"retries": 2}, 2), ({"retries": 0}, 0), ({}, 10)])
def test_retries_are_the_definitions(given, wanted):
    assert make_task(app_version(), **given)["spec"]["retries"] == wanted


def test_parameters_are_left_to_the_definition():
    spec = make_task(app_version(), deno={"parameters": {"map": {"a": "b"}}})["spec"]
    assert spec.keys() == {"taskDefinition", "context", "checkType", "retries", "timeout"}


def text_of(**fields):
    return context_text(msgspec.convert(fields, TaskContext))


def test_the_context_of_a_task_made_by_hand():
    # simple-task of Keptn's own tests.
    assert text_of(
        workloadName="workload",
        appName="podtato-head",
        appVersion="1.0.0",
        workloadVersion="0.1.0",
        metadata={"commit-id": "1234"},
    ) == (
        '{"workloadName":"workload","appName":"podtato-head","appVersion":"1.0.0",'
        '"workloadVersion":"0.1.0","taskType":"","objectType":"",'
        '"metadata":{"commit-id":"1234"}}'
    )


def test_nothing_is_left_out_but_empty_metadata():
    assert text_of() == (
        '{"workloadName":"","appName":"","appVersion":"","workloadVersion":"",'
        '"taskType":"","objectType":""}'
    )


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("<b>&", '"\\u003cb\\u003e\\u0026"'),
        ("\u2028\u2029", '"\\u2028\\u2029"'),
        ('"\\/', '"\\"\\\\/"'),
        ("\n\r\t\b\f\x01\x7f", '"\\n\\r\\t\\b\\f\\u0001\x7f"'),
        ("grün 😀", '"grün 😀"'),
        ({"<": ">"}, '{"\\u003c":"\\u003e"}'),
    ],
)
def test_strings_and_keys_are_escaped_as_go_does(given, written):
    assert go_json(given) == written
    assert json.loads(written) == given
