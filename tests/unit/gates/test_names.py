"""Tests of the names of Keptn's objects, with the vectors of Keptn (keptn-spec 2.6, 3.1)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.gates.names import (
    app_version_name,
    digits,
    generation_hash,
    resource_name,
    sanitise,
    version_name,
    version_part,
    workload_name,
)
from harbourmaster.lifecycle.functions import is_name


@pytest.mark.parametrize(
    ("least", "parts", "expected"),
    [
        (5, ("str1111111111111111111111", "str2", "str3"), "str1111111-str2-str3"),
        (5, ("str1", "str222222222222222222222222", "str3"), "str1-str2222222-str3"),
        (5, ("str111111111111111111111", "str22222222", "str3"), "str11-str222222-str3"),
        (100, ("str111111111111111111111", "str22222222", "str3"), "str111-str22222-str3"),
    ],
)
def test_parts_are_cut_as_keptn_cuts_them(least, parts, expected):
    assert resource_name(20, least, *parts) == expected


def test_a_long_app_leaves_room_for_workload_and_version():
    name = resource_name(253, 80, "a" * 300, "w", "1.0")
    assert len(name) == 253
    assert name.endswith("aa-w-1.0")
    assert resource_name(253, 80, "a" * 200, "w" * 200, "1.0") == f"{'a' * 80}-{'w' * 168}-1.0"


@pytest.mark.parametrize("parts", [("a" * 300,), ("a" * 300, "b" * 300, "c" * 300)])
def test_what_can_not_be_cut_ends_in_a_hash(parts):
    name = resource_name(253, 80, *parts)
    similar_name = resource_name(253, 80, *parts[:-1], parts[-1][:-1] + "x")
    assert len(name) == 253
    assert re.fullmatch(r"[a-c-]+-[0-9a-f]{8}", name)
    assert similar_name != name


@given(
    st.integers(20, 253),
    st.lists(
        st.text("aB_1.", min_size=1, max_size=300).filter(lambda text: text[0] in "aB1"),
        min_size=1,
        max_size=4,
    ),
)
def test_a_name_fits_always(limit, parts):
    name = resource_name(limit, 80, *parts)
    assert 0 < len(name) <= limit
    assert name == sanitise(name)


def test_names_of_workloads_and_versions():
    assert workload_name("My_App", "Front_End") == "my-app-front-end"
    assert version_name("my-app-front-end", "v1_rc") == "my-app-front-end-v1-rc"
    assert app_version_name("podtato-head", "1.3", 1) == "podtato-head-1.3-6b86b273"


@pytest.mark.parametrize(
    ("version", "part"),
    [
        ("1.0.0", "1.0.0"),
        ("1.0.0-RC1", "1.0.0-rc1"),
        ("V1_RC", "v1-rc"),
        ("1.0.0+build.5", "1.0.0-build.5-b653a5d7"),
        ("1.0.0-build.5", "1.0.0-build.5"),
        ("release/2.0", ""),
        ("2.0 (beta)", ""),
        ("1.0_", ""),
        ("1..2", ""),
        ("1.-2", ""),
        ("~1", ""),
        ("+", ""),
        ("ü", ""),
    ],
)
def test_a_version_is_part_of_a_name(version, part):
    assert is_name(version_name("w", version))
    assert is_name(app_version_name("a", version, 1))
    assert version_part(version) == part or not part


@given(st.text(st.characters(min_codepoint=32), min_size=1, max_size=300))
def test_every_version_gives_a_name(version):
    assert is_name(version_name("w", version))


@given(st.lists(st.text("aA1+.-_", min_size=1, max_size=6), min_size=2, max_size=2))
def test_versions_share_a_part_only_if_case_and_underscores_differ(versions):
    first, second = versions
    assert (version_part(first) == version_part(second)) == (sanitise(first) == sanitise(second))


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        (1, "6b86b273"),
        (2, "d4735e3a"),
        (3, "4e074085"),
        (4, "4b227777"),
        (5, "ef2d127d"),
        (10, "4a44dc15"),
    ],
)
def test_generations(generation, expected):
    assert generation_hash(generation) == expected


def test_digits_are_five_and_the_same_for_the_same_seed():
    numbers = {digits(f"seed {number}") for number in range(500)}
    assert all(re.fullmatch(r"[1-9]\d{4}", digit_string) for digit_string in numbers)
    assert len(numbers) > 490
    assert digits("a") == digits("a")
