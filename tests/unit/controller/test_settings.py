from __future__ import annotations

import argparse

import msgspec
import pytest

from harbourmaster.api.decoding import describe
from harbourmaster.controller.names import (
    LIFECYCLE,
    METRICS,
    NAMESPACES,
    POLICIES,
    REGISTRATION,
)
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.controller.validation import validate
from harbourmaster.serving.options import SettingsError, add_settings, settings_from


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


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        (
            {"controllers": ["gates"]},
            'controllers[0]: Unsupported value: "gates": supported values: "registration", "names',
        ),
        (
            {"controllers": []},
            "controllers: Required value: at least one of registration, namespaces",
        ),
        ({"webhook": {"kinds": ["pods", "pod"]}}, 'webhook.kinds[1]: Unsupported value: "pod"'),
        ({"webhook": {"kinds": []}}, "webhook.kinds: Required value"),
        (
            {"webhook": {"templateOperations": ["DELETE"]}},
            'webhook.templateOperations[0]: Unsupported value: "DELETE"',
        ),
        ({"webhook": {"serviceName": "a.b"}}, 'webhook.serviceName: Invalid value: "a.b"'),
        ({"webhook": {"serviceNamespace": ""}}, 'webhook.serviceNamespace: Invalid value: ""'),
        (
            {"webhook": {"excludedNamespaces": ["ok", "No"]}},
            'webhook.excludedNamespaces[1]: Invalid value: "No"',
        ),
        (
            {"webhook": {"namespaceSelector": {"matchLabel": {"a": "b"}}}},
            "webhook.namespaceSelector.matchLabel: Forbidden: a label selector has only",
        ),
        (
            {"webhook": {"objectSelector": {"matchLabels": {"a b": "c"}}}},
            'webhook.objectSelector.matchLabels: Invalid value: "a b"',
        ),
        (
            {"webhook": {"objectSelector": {"matchLabels": {"a": 1}}}},
            "webhook.objectSelector.matchLabels",
        ),
        (
            {"webhook": {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "in"}]}}},
            'webhook.objectSelector.matchExpressions[0].operator: Invalid value: "in"',
        ),
        (
            {"certificates": {"leafLifetimeSeconds": 120, "caLifetimeSeconds": 100}},
            "certificates.leafLifetimeSeconds: Invalid value: 120: longer than",
        ),
        (
            {
                "certificates": {
                    "publishSeconds": 40,
                    "caLifetimeSeconds": 120,
                    "leafLifetimeSeconds": 20,
                }
            },
            "certificates.publishSeconds: Invalid value: 40: must be less than a third",
        ),
        ({"certificates": {"secretName": "A"}}, 'certificates.secretName: Invalid value: "A"'),
        (
            {"certificates": {"adoptSecret": "harbourmaster-webhook-cert"}},
            "certificates.adoptSecret: Invalid value",
        ),
        ({"certificates": {"adoptSecret": "-"}}, 'certificates.adoptSecret: Invalid value: "-"'),
        (
            {"lifecycle": {"definitionNamespaces": ["ok", "No"]}},
            'lifecycle.definitionNamespaces[1]: Invalid value: "No"',
        ),
        (
            {"leaderElection": {"renewDeadlineSeconds": 15}},
            "leaderElection.renewDeadlineSeconds: Invalid value: 15",
        ),
        (
            {"leaderElection": {"retryPeriodSeconds": 10}},
            "leaderElection.retryPeriodSeconds: Invalid value: 10",
        ),
        (
            {"leaderElection": {"retryPeriodSeconds": 6}},
            "leaderElection.retryPeriodSeconds: Invalid value: 6: must be at most half of",
        ),
        (
            {"scheduler": {"schedulerName": "My scheduler"}},
            'scheduler.schedulerName: Invalid value: "My scheduler"',
        ),
        (
            {"scheduler": {"schedulerName": "default-scheduler"}},
            'scheduler.schedulerName: Invalid value: "default-scheduler": pods without checks',
        ),
        ({"scheduler": {"serviceName": "a.b"}}, 'scheduler.serviceName: Invalid value: "a.b"'),
        (
            {"scheduler": {"enabled": True}, "registerWebhooks": False},
            "metrics.customMetricsCertDir: Required value: the extender needs a certificate",
        ),
        ({"leaderElection": {"leaseName": "_"}}, 'leaderElection.leaseName: Invalid value: "_"'),
        ({"cluster": {"namespace": "a.b"}}, 'cluster.namespace: Invalid value: "a.b"'),
    ],
)
def test_a_fault_names_its_key(values, fault):
    read = faults(**values)
    assert len(read) == 1
    assert read[0].startswith(fault)


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        (["--webhook-timeout-seconds", "31"], "--webhook-timeout-seconds"),
        (["--webhook-timeout-seconds", "0"], "--webhook-timeout-seconds"),
        (["--webhook-failure-policy", "ignore"], "--webhook-failure-policy"),
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
    )
    assert read.controllers == ("registration",)
    assert read.webhook.kinds == ("pods", "jobs")
    assert read.webhook.object_selector == {"matchLabels": {"a": "b"}}


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
