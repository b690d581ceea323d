"""Never two at work, and in the end one, whatever the network, the processes and the clocks do.

These tests prove platform-spec 1.2, 1.5.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from helpers.logs import captured_log
from helpers.properties import TIMEOUT, cases
from helpers.simulated_processes import (
    HANG,
    RESET,
    Election,
    Fate,
    connection_reset,
    proxy_page,
    refusal,
)

TROUBLE = 30.0
"""Seconds in which everything may go wrong."""
RECOVERY = 35.0
"""Seconds after it until one must work: a late write may renew a Lease for 4 s, a failure of work
may have kept its candidate away for some more."""

many = settings(
    max_examples=cases(200),
    # Explaining a failure takes longer than finding it.
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]

FAULTS = {
    "lost": lambda _chance: RESET,
    "hangs": lambda _chance: HANG,
    "answer lost": lambda _chance: connection_reset(instead=False),
    "reset": lambda _chance: connection_reset(),
    "late": lambda chance: Fate(there=chance.uniform(0.1, 20), back=chance.uniform(0, 2)),
    "slow": lambda chance: Fate(there=chance.uniform(0, 0.8), back=chance.uniform(0, 0.8)),
    "proxy": lambda _chance: proxy_page(),
    "429": lambda _chance: refusal(429, retry_after=30),
    "503": lambda _chance: refusal(503, retry_after=1),
    "conflict": lambda _chance: refusal(409),
    "missing": lambda _chance: refusal(404),
    "bug": lambda _chance: Fate(refusal=ValueError("unexpected")),
}
instants = st.floats(0, TROUBLE)
troubles = st.lists(
    st.tuples(
        instants,
        st.floats(0.1, 12),
        st.sampled_from(sorted(FAULTS)),
        # Whom it hits: one, or all, and how often.
        st.sampled_from(["a", "b", "c", "d", "abcd"]),
        st.sampled_from([0.3, 1.0]),
    ),
    max_size=12,
)
standstills = st.lists(
    st.tuples(instants, st.floats(0.01, 15), st.sampled_from("abcd")), max_size=5
)
deaths = st.lists(st.tuples(instants, st.sampled_from("bcd")), max_size=2)
ends = st.lists(st.tuples(instants, st.sampled_from("bcd")), max_size=2)
candidates = st.lists(
    st.fixed_dictionaries(
        {
            "offset": st.sampled_from([0.0, -1e4, 1e7]),
            "rate": st.sampled_from([1.0, 1.002, 0.998]),
            "skew": st.sampled_from([0.0, 9.0, -9.0]),
            "unwinds": st.sampled_from([0.0, 0.0, 0.3, 1.1, None]),
            "fails": st.sampled_from([0, 0, 1, 2]),
        }
    ),
    min_size=2,
    max_size=4,
)


@pytest.fixture(scope="module", autouse=True)
def quiet():
    with captured_log("error"):
        yield


@many
@given(candidates, troubles, standstills, deaths, ends, st.integers(0, 2**32))
def test_never_two_work_at_once_and_in_the_end_one_does(
    options, troubles, standstills, deaths, ends, seed
):
    chance = random.Random(seed)  # noqa: S311 - no secret
    world = Election(lambda candidate, call: fate(troubles, chance, candidate.name, call.time))
    for option in options:
        world.add(**option, chance=chance.random)
    by_name = {candidate.name: candidate for candidate in world.candidates}

    def at(instant, name, act):
        if name in by_name:
            world.world.at(instant, lambda: act(by_name[name]))

    for instant, seconds, name in standstills:
        at(instant, name, lambda value, seconds=seconds: value.process.stop_for(seconds))
    for instant, name in deaths:
        at(instant, name, lambda value: value.process.kill())
    for instant, name in ends:
        at(instant, name, lambda value: value.cancel())
    world.run(TROUBLE + RECOVERY)
    alive = [
        candidate
        for candidate in world.candidates
        if candidate.process.alive and not candidate.process.main.done()
    ]
    working = world.working()
    world.end()
    event(f"{len({step.term for step in world.steps})} terms")
    event(f"{sum(candidate.stuck for candidate in world.candidates)} ended hard")
    assert world.overlaps() == []
    assert len(working) == bool(alive)
    most = max(len(world.calls_of(candidate.name)) for candidate in world.candidates)
    assert most <= 3 * (TROUBLE + RECOVERY) / 0.5 + 10


def fate(troubles, chance, name, now):
    usual = Fate(there=chance.uniform(0, 0.05), back=chance.uniform(0, 0.05))
    for begins, seconds, kind, hit, share in troubles:
        if begins <= now < min(begins + seconds, TROUBLE) and name in hit:
            return FAULTS[kind](chance) if chance.random() < share else usual
    return usual
