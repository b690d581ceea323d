"""What must hold for applications that move, whatever dies, fails or changes its mind meanwhile."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.placement.rollout import Reach
from helpers.berths import Berths, DiedError, ref
from helpers.properties import TIMEOUT, cases

NAMES = ("a", "b", "c")
REFS = tuple(ref(name) for name in ("one", "two", "three"))

many = settings(max_examples=cases(1000))
seeds = st.integers(0, 2**32).map(random.Random)
orders = st.sampled_from(["DeleteFirst", "CreateFirst"])
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]


def passed(berths):
    with contextlib.suppress(DiedError):
        berths.run()


def disturb(berths, chance):
    """Something that people, networks and clusters do."""
    match chance.randrange(8):
        case 0 | 1:
            berths.schedule(chance.choice(NAMES))
        case 2:
            berths.update(*chance.sample(REFS, chance.randint(1, 3)))
        case 3:
            berths.reach[chance.choice(NAMES)] = chance.choice(list(Reach))
        case 4:
            name = chance.choice(NAMES)
            berths.ready[name] = not berths.ready[name]
        case 5:
            berths.now += chance.choice([1, 30, 100])
        case 6:
            berths.order = chance.choice(["DeleteFirst", "CreateFirst"])
        case 7:
            berths.fault = "wrong" if not berths.fault else ""


def calm(berths):
    """From here on all is well."""
    berths._chance = None
    berths.fault = ""
    berths.released = True
    berths.reach = dict.fromkeys(NAMES, Reach.YES)
    berths.ready = dict.fromkeys(NAMES, True)


def stormy(chance, order):
    berths = Berths(NAMES, order=order, chance=chance.random)
    berths.schedule(chance.choice(NAMES))
    for _ in range(chance.randint(1, 25)):
        disturb(berths, chance)
        passed(berths)
        berths.check()
    return berths


@many
@given(chance=seeds, order=orders)
def test_at_rest_exactly_one_cluster_has_exactly_what_is_desired(chance, order):
    berths = stormy(chance, order)
    calm(berths)
    berths.settle()
    assert berths.holders == {berths.record.scheduled_to}
    held = berths.objects[berths.record.scheduled_to]
    assert held.keys() == {each.key for each in berths.desired}
    assert berths.record.running_on == berths.record.scheduled_to
    assert set(berths.record.inventory) == berths.holders
    assert berths.record.pending == {}
    assert berths.record.migration.to == ""


@many
@given(chance=seeds, order=orders)
def test_a_rest_is_one_and_costs_nothing(chance, order):
    berths = stormy(chance, order)
    calm(berths)
    berths.settle()
    before = berths.record
    berths.log.clear()
    assert berths.run().reason == ""
    assert len(berths.log) == 1
    assert berths.record is before


@many
@given(chance=seeds, order=orders)
def test_what_is_deleted_is_gone_everywhere_before_the_finalizer(chance, order):
    berths = stormy(chance, order)
    berths.ending = True
    for _ in range(10):
        berths.reach[chance.choice(NAMES)] = chance.choice(list(Reach))
        passed(berths)
        assert berths.finalizer or not berths.holders
    calm(berths)
    berths.settle()
    assert berths.holders == set()
    assert not berths.finalizer


@many
@given(chance=seeds)
def test_with_create_first_a_ready_application_never_goes_before_its_successor(chance):
    berths = Berths(NAMES, order="CreateFirst")
    berths.schedule("a")
    berths.settle()
    assert berths.record.running_on in NAMES
    berths._chance = chance.random
    for _ in range(chance.randint(1, 15)):
        match chance.randrange(3):
            case 0:
                berths.schedule(chance.choice(NAMES))
            case 1:
                berths.ready[chance.choice(NAMES)] = chance.random() < 0.5
            case 2:
                berths.now += chance.choice([1, 30, 100])
        passed(berths)
        whole = {each.key for each in berths.desired}
        running = berths.record.running_on
        assert berths.objects[running].keys() == whole
