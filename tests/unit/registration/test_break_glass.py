"""Tests of break-glass mode: its annotation, what it writes, and that it restores everything."""

from __future__ import annotations

import copy

import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from harbourmaster.registration.break_glass import (
    ANNOTATION,
    BreakGlass,
    break_glass_of,
    with_break_glass,
    with_open_webhooks,
    without_break_glass,
)
from harbourmaster.registration.desired import Home, desired_configurations
from harbourmaster.registration.drift import compare
from harbourmaster.registration.settings import RegistrationSettings

RESOURCES = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
GLASS = BreakGlass(by="ada", at="2026-03-01T12:00:00Z", reason="incident 4711")


def configuration(resource=MUTATING_WEBHOOKS, **annotations):
    desired = desired_configurations(RegistrationSettings(), Home("harbour"), b"x")[resource]
    if annotations:
        desired["metadata"]["annotations"] = annotations
    return desired


def policies(webhook_configuration):
    return {entry["name"]: entry["failurePolicy"] for entry in webhook_configuration["webhooks"]}


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
@pytest.mark.parametrize("annotations", [{}, {"example.com/theirs": "stays"}], ids=repr)
@pytest.mark.claim("B1")
def test_what_is_broken_fails_open_and_is_mended_to_the_letter(resource, annotations):
    before = configuration(resource, **annotations)
    assert "Fail" in policies(before).values()
    opened = with_break_glass(copy.deepcopy(before), GLASS)
    assert set(policies(opened).values()) == {"Ignore"}
    glass = break_glass_of(opened)
    assert (glass.by, glass.at, glass.reason) == ("ada", "2026-03-01T12:00:00Z", "incident 4711")
    assert glass.before == policies(before)
    assert without_break_glass(opened, glass) == before


def test_broken_twice_what_was_first_is_remembered():
    before = configuration()
    twice = with_break_glass(with_break_glass(before, GLASS), BreakGlass(by="bob"))
    assert break_glass_of(twice).before == policies(before)
    assert break_glass_of(twice).by == "bob"
    assert without_break_glass(twice, break_glass_of(twice)) == before


def test_annotated_by_hand_what_the_controller_opened_is_not_taken_for_what_was():
    before = configuration()
    by_hand = with_open_webhooks(configuration(**{ANNOTATION: "fire"}))
    for entry in by_hand["webhooks"][:1]:
        entry["failurePolicy"] = "Fail"
    twice = with_break_glass(by_hand, GLASS)
    assert break_glass_of(twice).before == {by_hand["webhooks"][0]["name"]: "Fail"}
    restored = policies(without_break_glass(twice, break_glass_of(twice)))
    assert restored["gated-pods.harbourmaster.dev"] == "Fail"
    assert restored["pods.harbourmaster.dev"] == policies(before)["pods.harbourmaster.dev"]


@pytest.mark.parametrize("forged", ["", "Nonsense", "fail"])
def test_what_was_noted_and_is_no_policy_opens_no_gate(forged):
    glass = BreakGlass(before={"gated-pods.harbourmaster.dev": forged})
    policies_after = policies(without_break_glass(with_break_glass(configuration(), GLASS), glass))
    assert policies_after["gated-pods.harbourmaster.dev"] == "Fail"
    assert set(policies_after.values()) <= {"Fail", "Ignore"}


def test_a_webhook_that_came_meanwhile_stays_as_it_is():
    opened = with_break_glass(configuration(), GLASS)
    opened["webhooks"].append({"name": "new.harbourmaster.dev", "failurePolicy": "Ignore"})
    assert (
        policies(without_break_glass(opened, break_glass_of(opened)))["new.harbourmaster.dev"]
        == "Ignore"
    )


@pytest.mark.parametrize(
    ("text", "glass"),
    [
        ("", BreakGlass()),
        ("all is on fire\n  please wait", BreakGlass(reason="all is on fire please wait")),
        ("true", BreakGlass(reason="true")),
        ('{"by": 1}', BreakGlass(reason='{"by": 1}')),
        ("[" * 5000, BreakGlass(reason="[" * 5000)),
        ('{"reason": "r"}', BreakGlass(reason="r")),
    ],
    ids=lambda value: str(value)[:20],
)
def test_whatever_stands_there_counts(text, glass):
    assert break_glass_of(configuration(**{ANNOTATION: text})) == glass


@pytest.mark.parametrize("observed", [None, {}, {"metadata": None}, configuration()], ids=repr)
def test_without_it_nobody_broke_it(observed):
    assert break_glass_of(observed) is None


def test_meanwhile_a_failure_policy_is_no_drift_and_all_else_is():
    wanted = configuration()
    opened = with_break_glass(copy.deepcopy(wanted), GLASS)
    assert compare(opened, with_open_webhooks(wanted)) == []
    assert {difference.field for difference in compare(opened, wanted)} == {"failurePolicy"}
    opened["webhooks"][0]["timeoutSeconds"] = 30
    assert [difference.field for difference in compare(opened, with_open_webhooks(wanted))] == [
        "timeoutSeconds"
    ]


@pytest.mark.parametrize(
    ("glass", "text"),
    [
        (BreakGlass(), "by an unknown user"),
        (BreakGlass(reason="fire"), "by an unknown user: fire"),
        (BreakGlass(by="a\x1b[2J", reason="b\nc"), "by a\\x1b[2J: b\\nc"),
        (GLASS, "by ada at 2026-03-01T12:00:00Z: incident 4711"),
    ],
)
def test_it_is_told_in_one_line(glass, text):
    assert str(glass) == text
