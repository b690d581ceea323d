"""Tests of the stages of a version: their annotations, and the pods that they allow."""

from __future__ import annotations

import pytest

from harbourmaster.gates.stages import MAX_STAGES, STAGE_PAUSE_KEY, STAGES_KEY, parse_stages


def shown(stages):
    return [f"{step.number}{'%' if step.is_percent else ''}" for step in stages.steps]


def allowances(text, wanted):
    stages = parse_stages(text)
    return [stages.allowance(number, wanted) for number in range(1, len(stages.steps) + 1)]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("1, 25%, 100%", ["1", "25%", "100%"]),
        ("1,25%", ["1", "25%", "100%"]),
        (" \t1 ,\n 25% ", ["1", "25%", "100%"]),
        ("100%", ["100%"]),
        ("50%, 3, 4", ["50%", "3", "4", "100%"]),
        ("999999999", ["999999999", "100%"]),
    ],
)
def test_stages_are_read_and_the_last_one_is_all(text, steps):
    assert shown(parse_stages(text)) == steps


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        ("1, 25%", 12, [1, 3, 12]),
        ("1, 25%", 13, [1, 4, 13]),
        ("1%", 1, [1, 1]),
        ("1, 25%", 0, [0, 0, 0]),
        ("20", 12, [12, 12]),
        ("5, 10%, 50%", 12, [5, 5, 6, 12]),
        ("33%", 1_000_000_007, [330_000_003, 1_000_000_007]),
    ],
)
def test_percentages_are_rounded_up_and_a_stage_never_allows_fewer_pods(text, wanted, expected):
    assert allowances(text, wanted) == expected


def test_a_stage_that_adds_no_pod_is_skipped():
    stages = parse_stages("1, 5%, 10%, 50%")
    assert [stages.next(number, 12) for number in range(6)] == [1, 3, 3, 4, 5, None]
    assert stages.next(0, 0) is None
    assert stages.next(1, 1) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("", 0), ("0", 0), ("10m", 600), ("1h30m", 5400), ("Manual", None)]
)
def test_a_pause_is_a_duration_or_manual(text, seconds):
    assert parse_stages("1", text).pause == seconds


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", '"" is not a number'),
        (" \t", '"" is not a number'),
        ("0", '"0" is not a number'),
        ("0%", '"0%" is not a number'),
        ("-1", '"-1" is not a number'),
        ("1.5", '"1.5" is not a number'),
        ("25 %", '"25 %" is not a number'),
        ("101%", '"101%" is not a number'),
        ("999999999%", '"999999999%" is not a number'),
        ("1000000000", '"1000000000" is not a number'),
        ("9" * 4000, "is not a number"),
        ("٣", '"٣" is not a number'),
        ("²", '"²" is not a number'),
        ("1,", '"" is not a number'),
        (",", '"" is not a number'),
        ("1\u00a0", '"1?" is not a number'),
        ("1\x1b[0m", '"1?[0m" is not a number'),
        ("100%, 50%", "stage 50% adds no pods"),
        ("100%, 5", "stage 100% adds no pods"),
        ("50%, 3, 50%", "stage 50% adds no pods"),
        ("2, 50%, 1", "stage 1 adds no pods"),
        (",".join(map(str, range(1, 21))), "21 stages"),
        ("1," * 2049, "more than 4096 characters"),
    ],
)
def test_other_stages_are_refused_in_one_short_line(text, told):
    with pytest.raises(ValueError, match=r"\A[^\n]{1,240}\Z") as raised:
        parse_stages(text)
    assert told in str(raised.value)
    assert f": metadata.annotations[{STAGES_KEY}]: write " in str(raised.value)


def test_as_many_stages_as_allowed():
    assert len(parse_stages(",".join(map(str, range(1, MAX_STAGES)))).steps) == MAX_STAGES


@pytest.mark.parametrize("text", ["10", "manual", "-1m", "9" * 5000, "999999999h", " 10m", "1٣m"])
def test_another_pause_is_refused_in_one_short_line(text):
    with pytest.raises(ValueError, match=r"\A[^\n]{1,240}\Z") as raised:
        parse_stages("1", text)
    told = f": metadata.annotations[{STAGE_PAUSE_KEY}]: write for example 10m, or Manual"
    assert told in str(raised.value)
