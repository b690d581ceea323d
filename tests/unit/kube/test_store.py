"""Objects by key, and by what indexes say of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from harbourmaster.kube.store import Store
from helpers.virtual_time import lines


class Thing(Struct, frozen=True):
    value: int
    tags: tuple[str, ...] = ()


KEYS = st.sampled_from(["a/x", "a/y", "b/x", "c"])
THINGS = st.builds(
    Thing, st.integers(0, 2), st.lists(st.sampled_from("pqr"), max_size=4).map(tuple)
)


def test_what_is_put_is_found():
    store = Store()
    assert store.put("a/x", Thing(1))
    assert store.get("a/x") == Thing(1)
    assert store.get("a/y") is None
    assert "a/x" in store
    assert "a/y" not in store
    assert len(store) == 1
    assert list(store) == list(store.keys()) == ["a/x"]
    assert list(store.values()) == [Thing(1)]


def test_what_is_the_same_changes_nothing_and_stays_the_same_object():
    store = Store()
    first = Thing(1)
    store.put("a", first)
    assert not store.put("a", Thing(1))
    assert store.get("a") is first
    assert store.put("a", Thing(2))
    assert store.get("a") == Thing(2)


def test_what_is_removed_is_gone_once():
    store = Store()
    store.put("a", Thing(1))
    assert store.remove("a")
    assert not store.remove("a")
    assert len(store) == 0


def test_replacing_all_tells_what_came_went_and_changed():
    store = Store()
    for key in ("same", "changed", "gone"):
        store.put(key, Thing(1))
    after = {"same": Thing(1), "changed": Thing(2), "new": Thing(3)}
    assert store.replace_all(after) == {"changed", "gone", "new"}
    assert dict(zip(store.keys(), store.values(), strict=True)) == after
    assert store.replace_all(after) == set()


def test_an_object_is_found_under_all_values_of_an_index():
    store = Store({"tag": lambda thing: thing.tags, "value": lambda thing: [thing.value]})
    store.put("a", Thing(1, ("p", "q")))
    store.put("b", Thing(1, ("q", "q")))
    assert store.by_index("tag", "p") == (Thing(1, ("p", "q")),)
    assert set(store.by_index("tag", "q")) == {Thing(1, ("p", "q")), Thing(1, ("q", "q"))}
    assert len(store.by_index("value", 1)) == 2
    assert store.by_index("value", 9) == ()


def test_an_index_that_does_not_exist_is_an_error():
    with pytest.raises(KeyError):
        Store().by_index("tag", "p")


def test_values_that_nothing_has_any_more_leave_the_memory():
    store = Store({"value": lambda thing: [thing.value]})
    for value in range(1000):
        store.put("a", Thing(value))
    store.remove("a")
    assert store._indexes == {"value": {}}


def test_four_times_as_many_objects_with_an_index_are_four_times_the_work():
    def work(count):
        things = {f"ns-{n % 100}/thing-{n}": Thing(n, ("p",)) for n in range(count)}
        store = Store({"tag": lambda thing: thing.tags})
        done = lines(lambda: (store.replace_all(things), store.replace_all(things)))
        assert len(store.by_index("tag", "p")) == count
        return done

    assert work(2000) < 5 * work(500)


@given(
    st.lists(
        st.tuples(st.just("put"), KEYS, THINGS)
        | st.tuples(st.just("remove"), KEYS)
        | st.tuples(st.just("all"), st.dictionaries(KEYS, THINGS)),
        max_size=30,
    )
)
def test_indexes_equal_a_search_through_everything(steps):
    store = Store({"tag": lambda thing: thing.tags, "value": lambda thing: [thing.value]})
    model = {}
    for step in steps:
        before = dict(model)
        match step:
            case "put", key, thing:
                model[key] = thing
                changed = {key} if store.put(key, thing) else set()
            case "remove", key:
                model.pop(key, None)
                changed = {key} if store.remove(key) else set()
            case "all", things:
                model = dict(things)
                changed = store.replace_all(things)
        either = before.keys() | model.keys()
        assert changed == {key for key in either if before.get(key) != model.get(key)}
    assert {key: store.get(key) for key in store} == model
    for tag in "pqr":
        expected = [thing for thing in model.values() if tag in thing.tags]
        assert sorted(store.by_index("tag", tag), key=repr) == sorted(expected, key=repr)
    for value in range(3):
        expected = [thing for thing in model.values() if thing.value == value]
        assert sorted(store.by_index("value", value), key=repr) == sorted(expected, key=repr)
