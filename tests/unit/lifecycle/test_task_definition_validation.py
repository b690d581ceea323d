"""Task definitions that cannot run are refused (keptn-spec 1.5)."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.lifecycle.model import TaskDefinition
from harbourmaster.lifecycle.task_definition_validation import validate

CODE = {"inline": {"code": "console.log(1)"}}


def faults(name="seed", **spec):
    definition = {"metadata": {"name": name, "namespace": "market"}, "spec": spec}
    return validate(msgspec.convert(definition, TaskDefinition))


def texts(**spec):
    return [str(fault) for fault in faults(**spec)]


@pytest.mark.parametrize(
    "spec",
    [
        {"container": {"name": "seed", "image": "registry.example.com/seed:1"}},
        {"deno": CODE},
        {"python": {"httpRef": {"url": "https://example.com/seed.py"}}},
        {"python": {"configMapRef": {"name": "scripts"}}},
        {"deno": {"functionRef": {"name": "other"}, "parameters": {"map": {"a": "b"}}}},
        {"deno": {**CODE, "secureParameters": {"secret": "token"}, "cmdParameters": "-v"}},
        {"deno": CODE, "timeout": "1h30m", "retries": 0, "ttlSecondsAfterFinished": 0},
        {"deno": CODE, "timeout": "0", "serviceAccount": {"name": "runner.a-1"}},
        {"deno": CODE, "imagePullSecrets": [{"name": "pull"}, {"name": ""}]},
    ],
)
def test_what_can_run_has_no_fault(spec):
    assert faults(**spec) == []


def test_c68_one_runtime_is_needed():
    (fault,) = faults()
    assert (fault.path, fault.reason) == ("spec", "FieldValueInvalid")
    assert fault.message == (
        "Invalid value: null: forbidden: either container, python or deno has to be defined"
    )


@pytest.mark.parametrize("function", [CODE, {"functionRef": {"name": "other"}}, {}])
def test_the_former_name_of_deno_is_explained(function):
    (fault,) = faults(function=function)
    assert (fault.path, fault.reason) == ("spec", "FieldValueInvalid")
    assert fault.message.endswith("be defined; spec.function is spec.deno now: rename it")
    assert faults(function=function, deno=CODE) == []


@pytest.mark.parametrize(
    ("spec", "given"),
    [
        ({"deno": CODE, "python": CODE}, "python, deno"),
        ({"container": {"name": "a"}, "python": CODE}, "container, python"),
        ({"container": {"name": "a"}, "deno": CODE}, "container, deno"),
        ({"container": {"name": "a"}, "deno": CODE, "python": CODE}, "container, python, deno"),
        ({"container": {}, "deno": CODE}, "container, deno"),
    ],
)
def test_c68_more_than_one_runtime_is_too_much(spec, given):
    (fault,) = faults(**spec)
    assert (fault.path, fault.reason) == ("spec", "FieldValueInvalid")
    assert fault.message == (
        f'Invalid value: "{given}": forbidden: only one of container, python and deno may be '
        "defined"
    )


@pytest.mark.parametrize("name", ["deno", "python"])
@pytest.mark.parametrize(
    "runtime",
    [
        {},
        {"inline": {}},
        {"httpRef": {"url": ""}},
        {"functionRef": {}, "configMapRef": {"name": ""}},
        {"parameters": {"map": {"a": "b"}}, "cmdParameters": "-v"},
    ],
)
def test_c67_a_runtime_without_anything_to_run_is_refused(name, runtime):
    (text,) = texts(**{name: runtime})
    assert text == (
        f"spec.{name}: Required value: nothing to run: give one of inline, httpRef, functionRef, "
        "configMapRef"
    )


def test_a_definition_that_runs_itself_is_refused():
    assert texts(deno={"functionRef": {"name": "seed"}}) == [
        'spec.deno.functionRef.name: Invalid value: "seed": a definition cannot run itself'
    ]
    assert faults("", deno={"functionRef": {"name": "seed"}}) == []


@pytest.mark.parametrize("timeout", ["0x", "soon5m", "5", "5m 3s", "1d", "-"])
def test_a_timeout_that_is_no_duration_is_refused(timeout):
    (text,) = texts(deno=CODE, timeout=timeout)
    assert text == (
        f'spec.timeout: Invalid value: "{timeout}": "{timeout}" is not a duration: write for '
        "example 30s, 5m or 1h30m"
    )


def test_what_no_job_could_have_is_refused():
    assert texts(deno=CODE, timeout="-5m", retries=-1, ttlSecondsAfterFinished=-2) == [
        "spec.retries: Invalid value: -1: must not be negative",
        'spec.timeout: Invalid value: "-5m": must not be negative',
        "spec.ttlSecondsAfterFinished: Invalid value: -2: must not be negative",
    ]


@pytest.mark.parametrize("name", ["other/token", "../token", "a b", "Token", "-a", "a.", "x" * 254])
@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("spec.deno.functionRef.name", {"deno": {"functionRef": {"name": "{}"}}}),
        ("spec.deno.configMapRef.name", {"deno": {"configMapRef": {"name": "{}"}}}),
        (
            "spec.python.secureParameters.secret",
            {"python": {**CODE, "secureParameters": {"secret": "{}"}}},
        ),
        ("spec.serviceAccount.name", {"deno": CODE, "serviceAccount": {"name": "{}"}}),
        ("spec.imagePullSecrets[0].name", {"deno": CODE, "imagePullSecrets": [{"name": "{}"}]}),
    ],
)
def test_s20_nothing_of_another_namespace_can_be_named(name, field, spec):
    spec = msgspec.json.decode(msgspec.json.encode(spec).replace(b"{}", name.encode()))
    (fault,) = faults(**spec)
    assert fault.path == field
    assert "an object in the same namespace" in fault.message
