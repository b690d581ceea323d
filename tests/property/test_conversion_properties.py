"""Conversion loses nothing: whatever way an object takes, it comes back as it was.

``make test`` runs 50 cases of each property and pair of versions, ``make fuzz`` many more.
"""

from __future__ import annotations

import copy
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.lifecycle.conversion import UNCONVERTED, VERSIONS, convert
from helpers.properties import TIMEOUT, cases
from helpers.schemas import objects, versions

PLURALS = ("keptnapps", "keptnappversions")
GROUP = "lifecycle.keptn.sh"
PAIRS = list(itertools.permutations(VERSIONS, 2))

MANY = settings(max_examples=cases(50, least=10))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]


def to(obj, version):
    return convert(obj, f"{GROUP}/{version}")


@pytest.mark.parametrize("plural", PLURALS)
def test_every_version_is_converted(plural):
    assert set(versions(plural)) == set(VERSIONS)


@pytest.mark.parametrize("plural", PLURALS)
@pytest.mark.parametrize(("source", "target"), PAIRS)
@MANY
@given(data=st.data())
def test_there_and_back_is_the_identity(plural, source, target, data):
    obj = data.draw(objects(plural, source))
    before = copy.deepcopy(obj)
    there = to(obj, target)
    assert to(there, source) == obj == before


@pytest.mark.parametrize("plural", PLURALS)
@MANY
@given(data=st.data(), way=st.lists(st.sampled_from(VERSIONS), min_size=1, max_size=5))
def test_any_way_round_is_the_identity(plural, data, way):
    source = data.draw(st.sampled_from(VERSIONS))
    obj = data.draw(objects(plural, source))
    converted = obj
    for version in way:
        converted = to(converted, version)
    assert to(converted, source) == obj


@pytest.mark.parametrize("plural", PLURALS)
@pytest.mark.parametrize(("source", "target"), PAIRS)
@MANY
@given(data=st.data())
def test_the_result_has_only_what_its_version_has(plural, source, target, data):
    converted = to(data.draw(objects(plural, source)), target)
    assert converted["apiVersion"] == f"{GROUP}/{target}"
    schema = versions(plural)[target]["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        assert unknown(converted.get(part, {}), schema[part], part) == []


@pytest.mark.parametrize("plural", PLURALS)
@MANY
@given(data=st.data())
def test_of_the_metadata_only_our_annotation_changes(plural, data):
    source, target = data.draw(st.sampled_from(PAIRS))
    obj = data.draw(objects(plural, source))
    metadata = to(obj, target)["metadata"]
    annotations = dict(metadata.pop("annotations", {}))
    annotations.pop(UNCONVERTED, None)
    if annotations:
        metadata["annotations"] = annotations
    assert metadata == obj["metadata"]


def unknown(value, schema, path):
    """The paths of a value that a schema would prune."""
    if isinstance(value, list):
        return [
            pruned_path
            for index, item in enumerate(value)
            for pruned_path in unknown(item, schema["items"], f"{path}[{index}]")
        ]
    if not isinstance(value, dict) or "additionalProperties" in schema:
        return []
    pruned_paths = [f"{path}.{name}" for name in value if name not in schema["properties"]]
    for name, below in value.items():
        if name in schema["properties"]:
            pruned_paths += unknown(below, schema["properties"][name], f"{path}.{name}")
    return pruned_paths
