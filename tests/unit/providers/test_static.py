"""Constant values in the provider's object."""

from __future__ import annotations

import pytest

from harbourmaster.providers.errors import BadAnswerError, NotFiniteError, NoValuesError
from harbourmaster.providers.model import Question, Sample, Target
from harbourmaster.providers.static import Static

NOW = 1772366400.5


async def ask(metrics, query="up", **options):
    target = Target("static", "", static=metrics)
    return await Static(now=lambda: NOW).ask(None, target, Question(query, **options))


@pytest.mark.parametrize(
    ("given", "value", "number"),
    [(4, "4", 4.0), (0.25, "0.25", 0.25), ("500m", "0.5", 0.5), ("2Ki", "2048", 2048.0)],
)
async def test_numbers_and_quantities_are_values_of_now(given, value, number):
    result = await ask({"up": given})
    assert (result.value, result.raw) == (value, f'"{value}"'.encode())
    assert result.samples == (Sample(NOW, number),)


async def test_a_range_has_the_value_at_its_end():
    assert (await ask({"up": 4}, start=1.0, end=2.0, step=0.5)).samples == (Sample(2.0, 4.0),)


@pytest.mark.parametrize("metrics", [None, {}, {"down": 4}, {"UP": 4}])
async def test_a_missing_key_has_no_value(metrics):
    with pytest.raises(NoValuesError, match=r"^the provider has no value 'up'$") as caught:
        await ask(metrics)
    assert not caught.value.is_unreachable


async def test_a_similar_key_is_named():
    with pytest.raises(NoValuesError, match=r"no value 'latncy': did you mean \"latency\"\?$"):
        await ask({"latency": 4, "errors": 0}, "latncy")


async def test_a_key_is_quoted_in_one_short_line():
    with pytest.raises(NoValuesError) as caught:
        await ask({}, "x\n\x1b" * 1000)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("given", ["abc", "", True, None, "1 m"])
async def test_an_invalid_number_is_an_error(given):
    with pytest.raises((BadAnswerError, NoValuesError)):
        await ask({"up": given})


@pytest.mark.parametrize("given", ["NaN", "inf", float("nan"), 10**400])
async def test_a_value_must_be_finite(given):
    with pytest.raises(NotFiniteError):
        await ask({"up": given})
