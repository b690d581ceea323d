"""Items that admission policies compare by a string: equal exactly where the engine's keys are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.policies import cel, keys
from harbourmaster.policies.compiled import SLOTS
from helpers.delegation import Chance
from helpers.properties import TIMEOUT, cases

many = settings(max_examples=cases(1000))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]
MAKE = {
    "requirement": (Chance.requirement, keys.requirement_key, cel.requirement),
    "term": (Chance.term, keys.node_term_key, lambda item: tuple(cel.term(item))),
    "toleration": (Chance.toleration, keys.toleration_key, cel.toleration),
    "preference": (Chance.preference, keys.preferred_key, cel.preferred_key),
    "pod term": (Chance.pod_term, keys.pod_term_key, cel.pod_term),
    "weighted": (Chance.weighted_term, keys.weighted_pod_term_key, cel.weighted_key),
}


@many
@given(kind=st.sampled_from(sorted(MAKE)), seed=st.integers(0, 2**32))
def test_two_items_have_one_string_exactly_where_they_have_one_key(kind, seed):
    make, key, text = MAKE[kind]
    chance = Chance(seed)
    items = [make(chance) for _ in range(12)]
    for obj in items:
        for item in items:
            assert (key(obj) == key(item)) == (text(obj) == text(item)), (obj, item)


def test_every_list_that_is_appended_to_has_its_key():
    assert {slot: item.key for slot, item in cel.ITEMS.items()} == {
        slot: {
            keys.preferred_key: cel.preferred_key,
            keys.pod_term_key: cel.pod_term,
            keys.weighted_pod_term_key: cel.weighted_key,
        }[key]
        for slot, key in SLOTS.items()
    }
