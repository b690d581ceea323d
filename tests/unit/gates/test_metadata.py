"""Tests of the precedence of keys, and of reading lists and pairs (keptn-spec 2.2, 11.1)."""

from __future__ import annotations

import pytest

from harbourmaster.gates.metadata import (
    APP_KEY,
    CONTAINER_KEY,
    PRE_TASKS_KEY,
    VERSION_KEY,
    WORKLOAD_KEY,
    lookup,
    names_of,
    pairs_of,
)

FALLBACKS = {
    WORKLOAD_KEY: "app.kubernetes.io/name",
    VERSION_KEY: "app.kubernetes.io/version",
    APP_KEY: "app.kubernetes.io/part-of",
}


def test_c11_an_annotation_beats_the_label_of_the_same_key():
    assert lookup({WORKLOAD_KEY: "b"}, {WORKLOAD_KEY: "a"}, WORKLOAD_KEY) == "b"


def test_c12_keptns_key_beats_the_fallback_whether_annotation_or_label():
    annotations = {"app.kubernetes.io/name": "a"}
    assert lookup(annotations, {WORKLOAD_KEY: "b"}, WORKLOAD_KEY) == "b"


def test_c13_an_empty_value_is_an_absent_one():
    labels = {"app.kubernetes.io/name": "x"}
    assert lookup({WORKLOAD_KEY: ""}, labels, WORKLOAD_KEY) == "x"
    assert lookup({WORKLOAD_KEY: ""}, {WORKLOAD_KEY: ""}, WORKLOAD_KEY) == ""


@pytest.mark.parametrize("key", FALLBACKS)
def test_the_four_places_are_looked_at_in_order(key):
    fallback = FALLBACKS[key]
    places = [({key: "1"}, {}), ({}, {key: "2"}), ({fallback: "3"}, {}), ({}, {fallback: "4"})]
    for first in range(len(places)):
        annotations, labels = {}, {}
        for more_annotations, more_labels in places[first:]:
            annotations.update(more_annotations)
            labels.update(more_labels)
        assert lookup(annotations, labels, key) == str(first + 1)


@pytest.mark.parametrize("key", [CONTAINER_KEY, PRE_TASKS_KEY])
def test_other_keys_have_no_fallback(key):
    labels = dict.fromkeys(FALLBACKS.values(), "x")
    assert lookup(labels, labels, key) == ""
    assert lookup({}, {key: "y"}, key) == "y"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t1, t2", ("t1", "t2")),
        (" t1 ,,\tt2,", ("t1", "t2")),
        ("", ()),
        (" , ", ()),
        ("b,a,b", ("b", "a")),
    ],
)
def test_c21_lists_are_trimmed_and_the_empty_dropped(text, expected):
    assert names_of(text) == expected


@pytest.mark.claim("O27")
def test_a_list_that_is_too_long_names_no_check_that_can_exist():
    fits = ",".join(["name"] * 819)
    assert names_of(fits) == ("name",)
    assert names_of(fits + ",other") == ("more than 4096 characters",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1,b=2=3,c,d=", {"a": "1", "d": ""}),
        ("a=1, b=2", {"a": "1", "b": "2"}),
        ("", {}),
        ("no pairs", {}),
        ("a=1,a=2", {"a": "2"}),
    ],
)
def test_c20_pairs_have_exactly_one_sign_between(text, expected):
    assert pairs_of(text) == expected
