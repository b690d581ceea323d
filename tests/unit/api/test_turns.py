"""Namespaces take turns at places, and leave places to each other."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api.turns import Turns, namespace_of
from helpers.properties import cases

pytestmark = pytest.mark.claim("O25")

NAMESPACES = st.sampled_from(["a", "b", "c", "d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMESPACES),
        st.tuples(st.just("pop"), st.just("")),
        st.tuples(st.just("leave"), st.integers(0, 7)),
    ),
    max_size=80,
)


@pytest.mark.parametrize(
    ("places", "most"), [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6), (10, 8), (32, 24), (64, 48)]
)
def test_a_namespace_alone_gets_three_quarters_of_the_places(places, most):
    turns = Turns(places)
    for number in range(100):
        turns.put("loud", number)
    while turns.pop() is not None:
        turns.take("loud")
    assert turns.taken == most
    turns.put("quiet", 0)
    assert (turns.pop() is not None) == (places > 1)


class Model:
    """Turns as a list: no bookkeeping, and a look at every item."""

    def __init__(self, places):
        self.places = places
        self.order, self.items, self.taken = deque(), [], Counter()

    def put(self, namespace, item):
        self.items.append((namespace, item))
        if namespace not in self.order:
            self.order.append(namespace)

    def pop(self):
        free = self.places - self.taken.total()
        for namespace in self.order:
            own = self.taken[namespace]
            if free <= 0 or (own and (free == 1 or own >= 3 * free)):
                continue
            item = next(item for item in self.items if item[0] == namespace)
            self.items.remove(item)
            self.order.remove(namespace)
            if any(name == namespace for name, _ in self.items):
                self.order.append(namespace)
            return item
        return None


@settings(max_examples=cases(500))
@given(st.integers(1, 9), STEPS)
def test_turns_are_those_of_the_model(places, steps):
    turns, model, taken = Turns(places), Model(places), []
    for number, (name, argument) in enumerate(steps):
        if name == "put":
            turns.put(argument, (argument, number))
            model.put(argument, number)
        elif name == "pop":
            item = turns.pop()
            assert item == model.pop()
            if item is not None:
                turns.take(item[0])
                model.taken[item[0]] += 1
                taken.append(item[0])
        elif taken:
            namespace = taken.pop(argument % len(taken))
            turns.leave(namespace)
            model.taken[namespace] -= 1
        assert (len(turns), turns.taken) == (len(model.items), len(taken))
        assert turns.taken <= places


@settings(max_examples=cases(500))
@given(st.integers(2, 9), st.lists(NAMESPACES, max_size=60), st.lists(st.integers(0, 7)))
def test_before_an_item_comes_at_most_one_of_each_other_namespace(places, others, leaving):
    turns, taken, before = Turns(places), [], []
    for namespace in others:
        turns.put(namespace, namespace)
        if (item := turns.pop()) is not None:
            turns.take(item)
            taken.append(item)
    turns.put("quiet", "quiet")
    numbers = iter(leaving)
    while (item := turns.pop()) != "quiet":
        if item is None:
            turns.leave(taken.pop(next(numbers, 0) % len(taken)))
        else:
            before.append(item)
            turns.take(item)
            taken.append(item)
    assert max(Counter(before).values(), default=0) <= 1


@settings(max_examples=cases(200))
@given(st.lists(NAMESPACES))
def test_nothing_is_lost_and_items_of_a_namespace_keep_their_order(namespaces):
    turns = Turns()
    for number, namespace in enumerate(namespaces):
        turns.put(namespace, (namespace, number))
    popped = []
    while turns:
        assert turns.count(turns.first[0]) > 0
        popped.append(turns.first)
        assert turns.pop() == popped[-1]
    for name in "abcd":
        own = [number for namespace, number in popped if namespace == name]
        assert own == sorted(own)
    assert sorted(number for _, number in popped) == list(range(len(namespaces)))


class Counted(dict):
    """Counts how many namespaces are looked at."""

    looked = 0

    def items(self):
        for item in super().items():
            self.looked += 1
            yield item


def test_no_more_namespaces_are_looked_at_than_have_places():
    turns = Turns(8)
    turns._waiting = Counted()
    for number in range(10_000):
        turns.put(f"team-{number % 100}", f"team-{number % 100}")
    taken = deque()
    for _ in range(10_000):
        turns._waiting.looked = 0
        item = turns.pop()
        assert turns._waiting.looked <= 9
        if item is None:
            turns.leave(taken.popleft())
        else:
            turns.take(item)
            taken.append(item)


@pytest.mark.parametrize(("key", "namespace"), [("a/b", "a"), ("node", "node"), ("", "")])
def test_a_key_tells_its_namespace(key, namespace):
    assert namespace_of(key) == namespace
