"""Metadata of an object as caches keep it."""

from __future__ import annotations

import pytest

from harbourmaster.api.metadata import LAST_APPLIED, MAX_ANNOTATIONS, Metadata, compact


def keep(annotations):
    return compact(Metadata(name="a", annotations=annotations)).annotations


def test_metadata_of_an_ordinary_size_is_kept_as_it_is():
    metadata = Metadata(name="a", labels={"a": "b"}, annotations={"a": "x" * (MAX_ANNOTATIONS - 1)})
    assert compact(metadata) is metadata
    assert compact(Metadata()) == Metadata()


@pytest.mark.claim("O11")
def test_the_object_that_kubectl_noted_is_not_kept():
    assert keep({"a": "b", LAST_APPLIED: "{}"}) == {"a": "b", LAST_APPLIED: ""}


@pytest.mark.claim("O11")
def test_of_too_many_annotations_the_shortest_are_kept():
    annotations = keep(
        {"long": "x" * 200_000, "a": "b", "more": "x" * 16_000, "middle": "x" * 16_000}
    )
    assert annotations == {"a": "b", "more": "x" * 16_000, LAST_APPLIED: ""}


def test_an_object_with_one_huge_annotation_has_annotations():
    assert keep({"long": "x" * 200_000}) == {LAST_APPLIED: ""}


def test_labels_are_kept():
    metadata = compact(Metadata(labels={"a": "b"}, annotations={"long": "x" * 200_000}))
    assert metadata.labels == {"a": "b"}
