from __future__ import annotations

import itertools

import msgspec
import pytest

from harbourmaster.lifecycle.configuration import LifecycleConfiguration
from harbourmaster.lifecycle.keptn_config import chosen, configured, standing
from harbourmaster.lifecycle.model import Config

NAMESPACES = ("harbour", "keptn-system")


def config(name="config", namespace="harbour", created="2026-03-01T00:00:00Z", **spec):
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Config)


OWN = config("own", created="2026-03-01T00:00:09Z")
YOUNGER = config("a", created="2026-03-01T00:00:10Z")
SAME_AGE = config("z", created="2026-03-01T00:00:09Z")
ELSEWHERE = config("keptn-config", "keptn-system", created="2026-01-01T00:00:00Z")
FOREIGN = config("foreign", "prod", created="2025-01-01T00:00:00Z", blockDeployment=False)


@pytest.mark.parametrize(
    ("configs", "counts"),
    [
        ([], None),
        ([FOREIGN], None),
        ([ELSEWHERE, FOREIGN], ELSEWHERE),
        ([ELSEWHERE, OWN], OWN),
        ([YOUNGER, OWN], OWN),
        ([SAME_AGE, OWN], OWN),
    ],
)
def test_one_counts_whatever_the_order(configs, counts):
    for order in itertools.permutations(configs):
        assert chosen(order, NAMESPACES) is counts


def test_all_fields_are_taken_over():
    found = config(
        OTelCollectorUrl="collector.example.com:4317",
        keptnAppCreationRequestTimeoutSeconds=40,
        cloudEventsEndpoint="https://events.example.com/in",
        blockDeployment=False,
        observabilityTimeout="1m30s",
    )
    assert configured(found) == (
        LifecycleConfiguration(
            block_deployment=False,
            creation_request_timeout=40.0,
            observability_timeout=90.0,
            cloud_events_endpoint="https://events.example.com/in",
            collector_url="collector.example.com:4317",
        ),
        (),
    )


def test_without_one_the_defaults_are_in_force():
    assert configured(None) == (LifecycleConfiguration(), ())
    assert configured(config()) == (LifecycleConfiguration(), ())


@pytest.mark.parametrize("seconds", [0, 1, 10**9])
def test_no_time_for_apps_is_a_time(seconds):
    configuration, problems = configured(config(keptnAppCreationRequestTimeoutSeconds=seconds))
    assert (configuration.creation_request_timeout, problems) == (float(seconds), ())


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"keptnAppCreationRequestTimeoutSeconds": -1},
            (
                "keptnAppCreationRequestTimeoutSeconds -1 is not between 0 and 1000000000; "
                "30 is used instead"
            ),
        ),
        (
            {"keptnAppCreationRequestTimeoutSeconds": 10**18},
            (
                "keptnAppCreationRequestTimeoutSeconds 1000000000000000000 is not between 0 and "
                "1000000000; 30 is used instead"
            ),
        ),
        (
            {"observabilityTimeout": "0 days"},
            (
                'observabilityTimeout: "0 days" is not a duration: write for example 30s, 5m or '
                "1h30m; 5m0s is used instead"
            ),
        ),
        (
            {"observabilityTimeout": "0"},
            'observabilityTimeout: "0" is not above zero; 5m0s is used instead',
        ),
        (
            {"observabilityTimeout": "-5s"},
            'observabilityTimeout: "-5s" is not above zero; 5m0s is used instead',
        ),
        (
            {"cloudEventsEndpoint": "events.example.com"},
            "cloudEventsEndpoint is not an http or https URL; no CloudEvents are sent",
        ),
        (
            {"cloudEventsEndpoint": "http://events.example.com:99999"},
            "cloudEventsEndpoint is not an http or https URL; no CloudEvents are sent",
        ),
        (
            {"cloudEventsEndpoint": "file:///etc/passwd"},
            "cloudEventsEndpoint is not an http or https URL; no CloudEvents are sent",
        ),
    ],
)
def test_what_makes_no_sense_has_its_default_and_is_said(spec, problem):
    found = config(blockDeployment=False, **spec)
    configuration, problems = configured(found)
    assert configuration == LifecycleConfiguration(block_deployment=False)
    assert problems == (problem,)
    assert standing(found, found, NAMESPACES) == f"in force, but {problem}"


def test_all_problems_are_said():
    found = config(keptnAppCreationRequestTimeoutSeconds=-1, observabilityTimeout="x")
    assert len(configured(found)[1]) == 2
    assert standing(found, found, NAMESPACES).count("; ") == 3


def test_each_one_is_told_where_it_stands():
    assert standing(OWN, OWN, NAMESPACES) == "in force"
    assert standing(ELSEWHERE, OWN, NAMESPACES) == "not in force: harbour/own comes first"
    assert standing(FOREIGN, OWN, NAMESPACES) == (
        "not in force: only a KeptnConfig in harbour or keptn-system counts"
    )
