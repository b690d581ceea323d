from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harbourmaster.api.times import format_rfc3339, parse_rfc3339


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01T12:00:00Z", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01T14:00:00+02:00", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01T12:00:00", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_a_stamp_is_a_moment_in_utc(text, expected):
    assert parse_rfc3339(text) == expected
    assert parse_rfc3339(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text", ["", "now", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
)
def test_what_is_no_moment_in_utc_is_refused(text):
    with pytest.raises(ValueError, match=r"year|isoformat|range"):
        parse_rfc3339(text)


def test_a_moment_is_cut_to_its_second():
    assert (
        format_rfc3339(datetime(2026, 3, 1, 12, 0, 0, 999_999, tzinfo=UTC))
        == "2026-03-01T12:00:00Z"
    )
