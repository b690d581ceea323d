"""Properties of stages: how many pods each one allows, whatever was written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.gates.stages import parse_stages
from helpers.properties import TIMEOUT, cases

many = settings(max_examples=cases(4000))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]

counts = st.integers(0, 10**9)


@st.composite
def stages(draw):
    numbers = sorted(draw(st.sets(st.integers(1, 50), max_size=8)))
    percentages = sorted(draw(st.sets(st.integers(1, 99), max_size=8)))
    steps = []
    while numbers or percentages:
        takes_number = numbers and (not percentages or draw(st.booleans()))
        steps.append(str(numbers.pop(0)) if takes_number else f"{percentages.pop(0)}%")
    return parse_stages(", ".join([*steps, "100%"]))


@many
@given(stages(), st.one_of(st.integers(0, 60), counts))
def test_allowances_grow_up_to_the_wanted_pods(written, wanted):
    last = len(written.steps)
    allowed = [written.allowance(number, wanted) for number in range(last + 2)]
    assert allowed == sorted(allowed)
    assert allowed[0] == 0
    assert allowed[last:] == [wanted, wanted]
    for step, number in zip(written.steps, allowed[1:], strict=False):
        asked = step.number * wanted / 100 if step.is_percent else step.number
        assert number >= min(asked, wanted)


@many
@given(stages(), st.one_of(st.integers(0, 60), counts))
def test_the_next_stage_adds_pods_and_those_skipped_add_none(written, wanted):
    number, allowed = 0, 0
    while (following := written.next(number, wanted)) is not None:
        skipped = range(number + 1, following)
        assert all(written.allowance(stage, wanted) == allowed for stage in skipped)
        assert written.allowance(following, wanted) > allowed
        number, allowed = following, written.allowance(following, wanted)
    assert allowed == wanted


@many
@given(stages(), counts, st.integers(0, 1000))
def test_more_wanted_pods_never_lower_an_allowance(written, wanted, more):
    numbers = range(1, len(written.steps) + 1)
    fewer = [written.allowance(number, wanted) for number in numbers]
    allowed = [written.allowance(number, wanted + more) for number in numbers]
    assert list(map(max, fewer, allowed)) == allowed


@many
@given(st.text(max_size=30) | st.text("0123456789%, ٣\n", max_size=30), st.text(max_size=12))
def test_any_text_is_parsed_or_refused_in_one_line(text, pause):
    told, written = "", None
    try:
        written = parse_stages(text, pause)
    except ValueError as error:
        told = str(error)
    assert told.isprintable()
    assert len(told) < 240
    if written is not None:
        again = [f"{step.number}{'%' if step.is_percent else ''}" for step in written.steps]
        assert parse_stages(",".join(again), pause) == written
