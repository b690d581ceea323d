"""One KeptnConfig counts (keptn-spec 3.11)."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from harbourmaster.lifecycle.keptn_config import (
    ADOPTS,
    ChosenConfig,
    LifecycleConfiguration,
    choose_config,
    is_in_force,
    read_configuration,
    status_text,
)
from harbourmaster.lifecycle.model import Config

NAMESPACES = ("harbour", "keptn-system")


def config(name="config", namespace="harbour", created="2026-03-01T00:00:00Z", adopts=None, **spec):
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": created}
    if adopts is not None:
        metadata["annotations"] = {ADOPTS: adopts}
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
        assert choose_config(order, NAMESPACES) == ChosenConfig(counts, counts)


def test_all_fields_are_taken_over():
    full = config(
        OTelCollectorUrl="collector.example.com:4317",
        keptnAppCreationRequestTimeoutSeconds=40,
        cloudEventsEndpoint="https://events.example.com/in",
        blockDeployment=False,
        observabilityTimeout="1m30s",
    )
    assert read_configuration(full) == (
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
    assert read_configuration(None) == (LifecycleConfiguration(), ())
    assert read_configuration(config()) == (LifecycleConfiguration(), ())


@pytest.mark.parametrize("seconds", [0, 1, 10**9])
def test_no_time_for_apps_is_a_time(seconds):
    configuration, problems = read_configuration(
        config(keptnAppCreationRequestTimeoutSeconds=seconds)
    )
    assert (configuration.creation_request_timeout, problems) == (float(seconds), ())


TIMEOUT = "keptnAppCreationRequestTimeoutSeconds"
NO_URL = "cloudEventsEndpoint is not an http or https URL; no CloudEvents are sent"
NOT_ABOVE = "is not above zero; 5m0s is used instead"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({TIMEOUT: -1}, f"{TIMEOUT} -1 is not between 0 and 1000000000; 30 is used instead"),
        ({TIMEOUT: 10**18}, f"{TIMEOUT} {10**18} is not between 0 and 1000000000; 30 is used"),
        ({"observabilityTimeout": "0 days"}, 'observabilityTimeout: "0 days" is not a duration: '),
        ({"observabilityTimeout": "0"}, f'observabilityTimeout: "0" {NOT_ABOVE}'),
        ({"observabilityTimeout": "-5s"}, f'observabilityTimeout: "-5s" {NOT_ABOVE}'),
        ({"cloudEventsEndpoint": "events.example.com"}, NO_URL),
        ({"cloudEventsEndpoint": "http://events.example.com:99999"}, NO_URL),
        ({"cloudEventsEndpoint": "file:///etc/passwd"}, NO_URL),
    ],
)
def test_what_makes_no_sense_has_its_default_and_is_said(spec, problem):
    wrong = config(blockDeployment=False, **spec)
    configuration, (told,) = read_configuration(wrong)
    assert configuration == LifecycleConfiguration(block_deployment=False)
    assert told.startswith(problem)
    status = status_text(wrong, ChosenConfig(wrong, wrong), NAMESPACES)
    assert status == f"in force, but {told}"
    assert not is_in_force(status)


def test_all_problems_are_said():
    wrong = config(keptnAppCreationRequestTimeoutSeconds=-1, observabilityTimeout="x")
    assert len(read_configuration(wrong)[1]) == 2
    assert status_text(wrong, ChosenConfig(wrong, wrong), NAMESPACES).count("; ") == 3


def test_each_one_is_told_where_it_stands():
    choice = ChosenConfig(OWN, OWN)
    assert status_text(OWN, choice, NAMESPACES) == "in force"
    assert is_in_force("in force")
    assert status_text(ELSEWHERE, choice, NAMESPACES) == "not in force: harbour/own comes first"
    assert status_text(FOREIGN, choice, NAMESPACES) == (
        "not in force: outside harbour and keptn-system it counts only after an administrator "
        "runs harbourmaster config adopt prod/foreign"
    )


def statuses(*configs):
    choice = choose_config(configs, NAMESPACES)
    return [status_text(config, choice, NAMESPACES) for config in configs]


def test_one_that_an_administrator_adopts_counts_instead_of_the_adopting_one():
    adopting = config("adopted", adopts="prod/foreign", observabilityTimeout="x")
    adopted = config("other", "prod", created="2024-01-01T00:00:00Z")
    choice = choose_config([adopted, FOREIGN, adopting, ELSEWHERE], NAMESPACES)
    assert read_configuration(choice.counts)[0] == LifecycleConfiguration(block_deployment=False)
    assert statuses(FOREIGN, adopting, ELSEWHERE, adopted)[:3] == [
        "in force",
        "in force: it adopts prod/foreign",
        "not in force: harbour/adopted comes first",
    ]
    assert is_in_force("in force: it adopts prod/foreign")
    assert "config adopt prod/other" in status_text(adopted, choice, NAMESPACES)


def test_without_the_adopted_one_the_defaults_apply():
    adopting = config("adopted", adopts="prod/absent", blockDeployment=False)
    assert choose_config([adopting, FOREIGN, ELSEWHERE], NAMESPACES).counts is None
    (status,) = statuses(adopting)
    assert status == "not in force: it adopts prod/absent, which does not exist; the defaults apply"
    assert not is_in_force(status)


@pytest.mark.claim("R15")
@pytest.mark.parametrize("namespace", ["keptn-system", "prod"])
def test_nobody_else_can_adopt(namespace):
    foreign = config("a", namespace, adopts="prod/foreign", observabilityTimeout="1m")
    assert choose_config([foreign, FOREIGN], NAMESPACES).counts is not FOREIGN


def test_one_of_ours_that_is_older_comes_before_an_adoption():
    adopting = config("adopted", created="2026-03-02T00:00:00Z", adopts="prod/foreign")
    assert choose_config([adopting, FOREIGN, OWN], NAMESPACES) == ChosenConfig(OWN, OWN)


def test_one_may_adopt_itself():
    itself = config("own", adopts="harbour/own", blockDeployment=False)
    assert statuses(itself) == ["in force"]
