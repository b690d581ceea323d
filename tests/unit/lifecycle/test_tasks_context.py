from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.lifecycle.model import TaskContext
from harbourmaster.lifecycle.task_context import context_text, go_json


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
