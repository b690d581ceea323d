"""Settings of the rescheduler: off by default, and refused where they would do harm."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.controller.names import RESCHEDULING
from harbourmaster.controller.rescheduling.caches import Switch
from harbourmaster.controller.rescheduling.settings import (
    ReschedulingSettings,
    criteria_of,
    planner_settings,
)
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.controller.validation import validate


def settings(**values):
    return msgspec.convert({"rescheduling": values}, ControllerSettings)


def test_installing_us_evicts_nobody():
    assert not ReschedulingSettings().enabled
    assert RESCHEDULING not in ControllerSettings().running
    assert RESCHEDULING in settings(enabled=True).running
    chosen = {"controllers": ["namespaces"], "rescheduling": {"enabled": True}}
    assert RESCHEDULING not in msgspec.convert(chosen, ControllerSettings).running


def test_no_grace_at_all_is_refused():
    with pytest.raises(
        msgspec.ValidationError, match="gracePeriodLimitSeconds: must be at least 1"
    ):
        settings(gracePeriodLimitSeconds=0)
    assert settings(gracePeriodLimitSeconds=-1).rescheduling.times.adds_grace


def test_the_defaults_are_right():
    assert validate(settings(enabled=True)) == []


@pytest.mark.parametrize(
    ("values", "settle", "gone"),
    [
        ({}, 10, 40),
        ({"mode": "standalone"}, 0, 40),
        ({"gracePeriodLimitSeconds": 4}, 10, 34),
        ({"gracePeriodLimitSeconds": -1}, 10, 30),
        ({"victimGoneTimeoutSeconds": 7}, 10, 7),
    ],
)
def test_times_follow_from_the_settings(values, settle, gone):
    times = settings(**values).rescheduling.times
    assert (times.settle, times.gone) == (settle, gone)


def test_plans_go_by_the_settings_and_spare_us():
    plan_settings = planner_settings(
        ReschedulingSettings(protected_namespaces=("prod",), score_order="random"), "ours"
    )
    assert plan_settings.protected_namespaces == {"prod", "ours"}
    assert plan_settings.score_order == "random"
    assert planner_settings(ReschedulingSettings(), "ours").seed == 0


def test_what_is_critical_follows_from_the_settings():
    labels = {"matchLabels": {"k8s-app": "dns"}}
    criteria = criteria_of(
        ReschedulingSettings(
            system_namespaces=("a", "b"), critical_classes=("c",), critical_selector=labels
        )
    )
    assert (criteria.namespaces, criteria.classes) == ({"a", "b"}, {"c"})
    assert criteria.selector is not None
    assert criteria.selector.matches({"k8s-app": "dns"})


def test_whoever_draws_from_the_same_number_draws_the_same():
    def seed_of(**values):
        return planner_settings(ReschedulingSettings(**values), "ours").seed

    assert seed_of(score_order="random", seed=7) == 7
    assert seed_of(seed=7) == 0
    assert len({seed_of(score_order="random") for _ in range(4)}) > 1


@pytest.mark.parametrize(
    ("data", "is_on"),
    [
        (None, True),
        ({}, True),
        ({"other": "false"}, True),
        ({"enabled": " True "}, True),
        ({"enabled": "1"}, True),
        ({"enabled": "false"}, False),
        ({"enabled": "flase"}, False),
        ({"enabled": ""}, False),
        ({"enabled": "disabled"}, False),
    ],
)
def test_what_is_no_plain_yes_stops_everything(data, is_on):
    assert Switch(data).is_on is is_on
