"""The headers of W3C Trace Context, as the recommendation has them."""

from __future__ import annotations

import pytest

from harbourmaster.telemetry.trace_context import MAX_STATE, caller_from

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("01", True), ("03", True)])
def test_a_caller_is_read_whole(flags, is_sampled):
    caller = caller_from(f"00-{TRACE}-{SPAN}-{flags}", "vendor=value")
    assert (caller.trace_id, caller.span_id) == (int(TRACE, 16), int(SPAN, 16))
    assert caller.state == "vendor=value"
    assert caller.is_sampled is is_sampled


@pytest.mark.parametrize(
    "header",
    [f"cc-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-01-what-comes"],
    ids=["as long", "longer"],
)
def test_a_later_version_is_read_as_far_as_it_is_known(header):
    assert caller_from(header).is_sampled


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01.",
        f"cc-{TRACE}-{SPAN}-01.",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}0-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-\N{ARABIC-INDIC DIGIT ONE}1",
        f"00_{TRACE}_{SPAN}_01",
        "0" * 8000,
    ],
)
def test_what_is_malformed_is_no_caller(header):
    assert caller_from(header, "vendor=value") is None


def test_a_state_too_long_is_left_out_and_the_caller_stays():
    longest = "a=" + "b" * (MAX_STATE - 2)
    assert caller_from(f"00-{TRACE}-{SPAN}-01", longest).state == longest
    assert caller_from(f"00-{TRACE}-{SPAN}-01", longest + "b").state == ""
