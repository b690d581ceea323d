"""Tests of reading from annotations what a pod waits for."""

from __future__ import annotations

import pytest

from harbourmaster.api import resources
from harbourmaster.gates.mistakes import key_mistakes
from harbourmaster.gates.waits import (
    KINDS,
    MAX_ITEMS,
    MAX_TEXT,
    ON_TIMEOUT_KEY,
    TIMEOUT_KEY,
    WAIT_FOR_KEY,
    WaitItem,
    kind_of,
    waits_of,
)


def waits(text, **limits):
    keys = {"timeout": TIMEOUT_KEY, "on_timeout": ON_TIMEOUT_KEY}
    return waits_of({WAIT_FOR_KEY: text, **{keys[key]: value for key, value in limits.items()}})


@pytest.mark.parametrize("text", ["", " ", ",", " ,\n, "])
def test_a_blank_list_waits_for_nothing(text):
    assert waits(text) is None
    assert waits_of({}) is None


def test_all_items_of_a_list_are_read_in_their_order():
    parsed = waits(
        "job/migrate, deployment/db,pod/app=cache\nservice/queue crd/widgets.example.com"
    )
    assert [(item.kind, item.name, item.label) for item in parsed.items] == [
        ("job", "migrate", None),
        ("deployment", "db", None),
        ("pod", "", ("app", "cache")),
        ("service", "queue", None),
        ("crd", "widgets.example.com", None),
    ]
    assert (parsed.faults, parsed.timeout, parsed.on_timeout) == ((), 0.0, "Keep")


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("jobs", "job"),
        ("jobs.batch", "job"),
        ("deploy", "deployment"),
        ("deployments.apps", "deployment"),
        ("sts", "statefulset"),
        ("ds", "daemonset"),
        ("po", "pod"),
        ("svc", "service"),
        ("cm", "configmap"),
        ("crds", "crd"),
        ("customresourcedefinition", "crd"),
        ("customresourcedefinitions.apiextensions.k8s.io", "crd"),
        ("widgets.example.com", "widgets.example.com"),
    ],
)
def test_kinds_have_the_names_that_kubectl_takes(word, kind):
    parsed = waits(f"{word}/x")
    assert ([item.kind for item in parsed.items], parsed.faults) == ([kind], ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("job/x", ("", "", "")),
        ("widgets.example.com/x#condition=Ready", ("condition", "Ready", "True")),
        ("widgets.example.com/x#condition=Ready:False", ("condition", "Ready", "False")),
        ("pod/a=b#condition=Ready", ("condition", "Ready", "True")),
        ("pod/x#field=.status.phase:Running", ("field", "status.phase", "Running")),
        (
            "configmap/x#field=data.url:https://example.com",
            ("field", "data.url", "https://example.com"),
        ),
    ],
)
def test_an_item_may_ask_for_a_condition_or_a_field(text, expected):
    (item,) = waits(text).items
    assert (item.test, item.path, item.value) == expected
    assert item.text == text


def test_an_optional_item_is_shown_without_that_word():
    assert waits("optional:service/queue").items == (
        WaitItem("service/queue", "service", "queue", is_optional=True),
    )


def test_an_item_that_is_named_twice_counts_once():
    assert len(waits("job/x, job/x").items) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("migrate", '"migrate" is not an object'),
        ("job/", '"job/" is not an object'),
        ("/x", '"/x" is not an object'),
        ("job/x#ready", '"job/x#ready" is not an object'),
        ("job/x#condition=", '"job/x#condition=" is not an object'),
        ("optional:", '"optional:" is not an object'),
        ("jbo/x", '"jbo" is not a kind'),
        ("JOB/x", '"JOB/x" is not an object'),
        ("job/X", '"X" is not a name'),
        ("job/a/b", '"a/b" is not a name'),
        ("job/app=x", '"app=x" is not a name'),
        ("pod/=x", '"=x" is not a label'),
        ("pod/app=a=b", '"app=a=b" is not a label'),
        ("pod/x#field=status.phase", "has no value"),
        ("pod/a=b#field=status.phase:Running", "tests a field of many pods"),
        ("secret/x#field=data.key:x", "tests the content of a Secret"),
        ("secrets/x#condition=Ready", "tests the content of a Secret"),
        (f"job/{'x' * 254}", "is not a name"),
    ],
)
def test_what_is_not_an_item_is_told_with_its_place_and_what_to_do(text, told):
    parsed = waits(f"job/good, {text}")
    assert [item.name for item in parsed.items] == ["good"]
    (fault,) = parsed.faults
    wrong, at, to_do = fault.split(": ", 2)
    assert told in wrong
    assert at == f"metadata.annotations[{WAIT_FOR_KEY}]"
    assert to_do


def test_a_mistyped_kind_is_guessed():
    assert 'did you mean "deployment"?' in waits("deploymnet/db").faults[0]


@pytest.mark.parametrize(
    ("given", "seconds"), [("10m", 600.0), ("90s", 90.0), ("1h30m", 5400.0), ("", 0.0)]
)
def test_a_time_out_is_a_duration(given, seconds):
    parsed = waits("job/x", timeout=given)
    assert (parsed.timeout, parsed.faults) == (seconds, ())


@pytest.mark.parametrize("given", ["10", "0s", "-1m", "soon", "9999999h" * 20, "1s" * 20])
def test_another_time_out_is_a_fault(given):
    (fault,) = waits("job/x", timeout=given).faults
    assert f"metadata.annotations[{TIMEOUT_KEY}]" in fault


@pytest.mark.parametrize("given", ["Keep", "Release", "Fail"])
def test_what_happens_then_is_one_of_three(given):
    assert waits("job/x", on_timeout=given).on_timeout == given


def test_another_end_is_a_fault():
    (fault,) = waits("job/x", on_timeout="release").faults
    assert fault == (
        f'"release" is unknown: metadata.annotations[{ON_TIMEOUT_KEY}]: write Keep, Release or Fail'
    )


def test_lists_are_bounded():
    many = waits(",".join(f"job/x{number}" for number in range(MAX_ITEMS + 1)))
    assert len(many.items) == MAX_ITEMS
    assert "33 items" in many.faults[0]
    long = waits("job/x," * MAX_TEXT)
    assert (long.items, len(long.faults)) == ((), 1)
    assert f"more than {MAX_TEXT} characters" in long.faults[0]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("jobs.batch", ("job", resources.JOBS)),
        ("secrets", ("secret", resources.SECRETS)),
        ("jobs.v1.batch", ("job", resources.JOBS)),
        ("widgets.v1.example.com", ("widgets.example.com", "/apis/example.com/v1")),
        ("widgets.v1beta2.a.example.com", ("widgets.a.example.com", "/apis/a.example.com/v1beta2")),
    ],
)
def test_settings_name_kinds(entry, expected):
    name, resource = kind_of(entry)
    assert name == expected[0]
    if isinstance(expected[1], str):
        path = f"{expected[1]}/namespaces/ns/widgets/x"
        assert resource.path("ns", "x") == path
    else:
        assert resource is expected[1]


@pytest.mark.parametrize(
    "entry",
    ["", "widgets.example.com", "Widgets.v1.example.com", "a/b", "persistentvolumeclaims.v1"],
)
def test_settings_name_no_other_kinds(entry):
    with pytest.raises(ValueError, match=r"is not a kind: write PLURAL\.VERSION\.GROUP"):
        kind_of(entry)


def test_every_kind_can_be_written_by_its_own_name():
    assert [waits(f"{kind}/x").items[0].kind for kind in KINDS] == list(KINDS)


@pytest.mark.parametrize(
    ("annotations", "told"),
    [
        ({WAIT_FOR_KEY: "job/x"}, []),
        ({WAIT_FOR_KEY: "job x"}, ['"job" is not an object', '"x" is not an object']),
        ({TIMEOUT_KEY: "1m"}, [f"{TIMEOUT_KEY} has no effect"]),
        ({"gates.harbourmaster.dev/wait-fro": "job/x"}, ["is unknown and has no effect"]),
    ],
)
def test_mistakes_are_told_at_their_place(annotations, told):
    mistakes = key_mistakes(annotations, {}, "spec.template.metadata.{}")
    assert len(mistakes) == len(told)
    for mistake, expected in zip(mistakes, told, strict=True):
        assert expected in mistake.text
        assert "spec.template.metadata.annotations" in mistake.text


def test_what_is_meant_is_looked_for_once():
    faults = waits("deploymnet/a, jbos/b").faults
    assert 'did you mean "deployment"?' in faults[0]
    assert "did you mean" not in faults[1]
