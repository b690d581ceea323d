from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
import pytest
import yaml

from harbourmaster.api.decoding import describe
from harbourmaster.controller.names import LIFECYCLE, METRICS, NAMESPACES, POLICIES, REGISTRATION
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.controller.validation import validate
from harbourmaster.serving.options import SettingsError, add_settings, settings_from

INVALID = yaml.safe_load((Path(__file__).parents[2] / "fixtures/invalid_settings.yaml").read_text())


def settings(**values):
    return msgspec.convert(values, ControllerSettings)


def faults(**values):
    return [str(fault) for fault in validate(settings(**values))]


def from_flags(*flags):
    parser = argparse.ArgumentParser()
    add_settings(parser, ControllerSettings)
    return settings_from(parser.parse_args(flags), ControllerSettings, describe)


def test_the_defaults_are_valid():
    assert faults() == []


def test_everything_runs_by_default():
    assert settings().running == (REGISTRATION, NAMESPACES, POLICIES, METRICS, LIFECYCLE)


@pytest.mark.parametrize(
    ("values", "running"),
    [
        ({"registerWebhooks": False}, (NAMESPACES, POLICIES, METRICS, LIFECYCLE)),
        ({"controllers": ["registration"]}, (REGISTRATION,)),
        ({"controllers": ["namespaces", "registration"]}, (REGISTRATION, NAMESPACES)),
        ({"controllers": ["lifecycle"]}, (LIFECYCLE,)),
        ({"controllers": ["lifecycle", "registration"]}, (REGISTRATION, LIFECYCLE)),
        ({"controllers": ["registration"], "registerWebhooks": False}, ()),
    ],
)
def test_what_runs_is_chosen(values, running):
    assert settings(**values).running == running


@pytest.mark.parametrize("invalid", INVALID, ids=lambda invalid: invalid["error"])
def test_an_error_begins_with_its_key(invalid):
    (error,) = faults(**invalid["settings"])
    assert error.startswith(invalid["error"])


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        (["--webhook-timeout-seconds", "31"], "--webhook-timeout-seconds"),
        (["--webhook-timeout-seconds", "0"], "--webhook-timeout-seconds"),
        (["--webhook-failure-policy", "ignore"], "--webhook-failure-policy"),
        (["--webhook-annotations", "{a: true}"], "--webhook-annotations"),
        (["--webhook-match-conditions", "[a]"], "--webhook-match-conditions"),
        (["--certificates-leaf-lifetime-seconds", "x"], "--certificates-leaf-lifetime-seconds"),
        (["--lifecycle-max-gate-age-seconds", "-1"], "--lifecycle-max-gate-age-seconds"),
        (["--lifecycle-on-expiry", "Delete"], "--lifecycle-on-expiry"),
        (["--lifecycle-event-vocabulary", "short"], "--lifecycle-event-vocabulary"),
        (["--lifecycle-workers", "65"], "--lifecycle-workers"),
        (["--lifecycle-runner-user", "0"], "--lifecycle-runner-user"),
        (["--lifecycle-runner-limits", "[a]"], "--lifecycle-runner-limits"),
        (["--lifecycle-runner-security-context", "None"], "--lifecycle-runner-security-context"),
    ],
)
def test_a_value_of_the_wrong_type_names_its_flag(flags, key):
    with pytest.raises(SettingsError, match=key):
        from_flags(*flags)


def test_lists_and_selectors_are_flags_too():
    read = from_flags(
        "--controllers=registration",
        "--webhook-kinds=pods,jobs",
        "--webhook-object-selector={matchLabels: {a: b}}",
        "--register-webhooks=true",
        '--webhook-annotations={"admissions.enforcer/disabled": "true"}',
        "--webhook-match-conditions={a: 'object.kind == \"Pod\"'}",
    )
    assert read.controllers == ("registration",)
    assert read.webhook.kinds == ("pods", "jobs")
    assert read.webhook.object_selector == {"matchLabels": {"a": "b"}}
    assert read.webhook.annotations == {"admissions.enforcer/disabled": "true"}
    assert read.webhook.match_conditions == {"a": 'object.kind == "Pod"'}


def test_the_flags_of_kupid_keep_their_names():
    flags = ("--webhook-timeout-seconds=15", "--webhook-failure-policy=Fail")
    read = from_flags(*flags).webhook
    assert (read.timeout_seconds, read.failure_policy) == (15, "Fail")


def test_what_functions_may_use_is_a_flag_too_and_has_a_default_of_its_own():
    given = from_flags(
        "--lifecycle-runner-limits={memory: 1Gi, cpu: '1'}", "--lifecycle-definition-namespaces=a,b"
    ).lifecycle
    assert given.runner_limits == {"memory": "1Gi", "cpu": "1"}
    assert given.definition_namespaces == ("a", "b")
    assert from_flags().lifecycle.runner_limits == {}


@pytest.mark.parametrize(
    "values",
    [
        {"metrics": {"customMetricsCertDir": "/certs"}},
        {"controllers": ["namespaces"]},
        {"scheduler": {"enabled": False}},
    ],
)
def test_a_scheduler_needs_a_certificate_only_where_it_is_answered(values):
    assert faults(**{"registerWebhooks": False, "scheduler": {"enabled": True}, **values}) == []
