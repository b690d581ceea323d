"""The history limit: the newest and unfinished versions always stay (keptn-spec 3.13)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harbourmaster.lifecycle.history import surplus_versions
from harbourmaster.lifecycle.model import COMPLETED, AppVersionStatus
from helpers.phased import app_version
from helpers.properties import cases

STATES = st.sampled_from([*sorted(COMPLETED), "Pending", "Progressing"])
TIMES = st.integers(0, 9).map(lambda minute: f"2026-03-01T12:0{minute}:00Z")


@st.composite
def versions(draw):
    """Draw versions of one app; those without owner are of a person."""
    drawn = []
    for number in range(draw(st.integers(0, 8))):
        state = draw(STATES)
        end = draw(st.just("") | TIMES) if state in COMPLETED else ""
        version = app_version(f"shop-{number}", status=AppVersionStatus(status=state, end_time=end))
        metadata = replace(version.metadata, creation_timestamp=draw(TIMES))
        if draw(st.integers(0, 4)) == 0:
            metadata = replace(metadata, owner_references=())
        drawn.append(replace(version, metadata=metadata))
    return drawn


def last_change(version):
    return max(version.metadata.creation_timestamp, version.status.end_time)


@given(versions(), st.integers(1, 4))
@settings(max_examples=cases(2_000))
def test_the_newest_and_the_unfinished_versions_stay(drawn, limit):
    surplus = surplus_versions(drawn, limit)
    left = [version for version in drawn if version not in surplus]
    generated = [version for version in left if version.metadata.owner_references]
    assert all(version.status.is_finished for version in surplus)
    assert all(version.metadata.owner_references for version in surplus)
    assert not surplus or len(generated) >= limit
    newer = [v for v in generated if v.status.is_finished]
    assert all(last_change(old) <= last_change(new) for old in surplus for new in newer)
    assert len(newer) <= limit
    assert surplus == sorted(surplus, key=last_change)


@given(versions(), st.integers(1, 4), st.randoms())
@settings(max_examples=cases(2_000))
def test_a_second_pass_finds_nothing_in_any_order(drawn, limit, chance):
    surplus = surplus_versions(drawn, limit)
    shuffled = chance.sample(drawn, len(drawn))
    assert surplus_versions(shuffled, limit) == surplus
    left = [version for version in shuffled if version not in surplus]
    assert not surplus_versions(left, limit)


@given(versions(), st.integers(1, 4))
@settings(max_examples=cases(500))
def test_a_version_that_is_being_deleted_is_not_deleted_again(drawn, limit):
    ending = [
        replace(v, metadata=replace(v.metadata, deletion_timestamp="2026-03-01T13:00:00Z"))
        for v in drawn
    ]
    assert not surplus_versions(ending, limit)
