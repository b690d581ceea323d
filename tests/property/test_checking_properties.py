"""Properties of checked Applications, whatever happens to them, their checks and the process."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api.resources import APPLICATIONS
from helpers.placement_checks import CHECKS, CheckedEnv
from helpers.placement_environment import weights
from helpers.properties import TIMEOUT, cases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]

CLUSTERS = ("one", "two")
CAUSES = ["Deploy", "Update", "Move"]

chances = st.integers(0, 2**32).map(random.Random)
kinds = st.fixed_dictionaries(
    {
        "when": st.lists(st.sampled_from(CAUSES), unique=True, min_size=1),
        "forcedMoves": st.sampled_from(["Skip", "Check"]),
        "onFailure": st.sampled_from(["Keep", "Revert"]),
    }
)


def environment(checks):
    env = CheckedEnv()
    env.static(one=0.5, two=0.4)
    for name in CLUSTERS:
        env.add_cluster(name, metrics=weights(**{name: 1}))
    env.apply(checks=checks)
    return env


def event_of(chance, generation):
    """Something that happens; lists of it are as long and as mixed as chance has it."""
    cluster, flag = chance.choice(CLUSTERS), chance.random() < 0.4
    verdict = ("verdict", generation + chance.randint(0, 1), cluster)
    events = {
        ("reconcile",): 5,
        ("check",): 4,
        ("deploy",): 3,
        ("run",): 3,
        ("change",): 3,
        (*verdict, chance.choice(["pre", "post"]), flag): 6,
        (chance.choice(["lose", "return", "return"]), cluster): 2,
        ("score", cluster): 2,
        ("later", 70): 2,
        ("rerun",): 1,
        ("cancel",): 1,
        ("define",): 0.5,
        ("die", chance.randint(0, 3), flag): 2,
    }
    return chance.choices(list(events), list(events.values()))[0]


async def happen(env, checks, event, *details):
    def set_verdict(*place_and_result):
        env.verdicts[place_and_result[:-1]] = place_and_result[-1]

    def set_state(name, state):
        env.add_cluster(name, metrics=weights(**{name: 1}), status={"state": state})

    def plan_death(writes_left, dies_after):
        env.writes_left, env.dies_after = writes_left, dies_after

    def pass_time(seconds):
        env.time += seconds

    acts = {
        "reconcile": env.live,
        "check": env.check,
        "deploy": env.deploy,
        "run": env.run,
        "change": lambda: env.apply(turn=env.generation(), checks=checks),
        "verdict": set_verdict,
        "lose": lambda name: set_state(name, "Offline"),
        "return": lambda name: set_state(name, "Online"),
        "score": lambda best: env.static(**{name: 0.9 if name == best else 0.1
                                            for name in CLUSTERS}),
        "later": pass_time,
        "cancel": env.cancel,
        "rerun": env.rerun,
        "define": lambda: env.define("few-errors"),
        "die": plan_death,
    }  # fmt: skip
    result = acts[event](*details)
    if inspect.isawaitable(result):
        await result


async def play(checks, chance):
    """Return the environment at the end, in which all checks pass."""
    env = environment(checks)
    again = 0
    for _ in range(chance.randint(20, 90)):
        event = event_of(chance, env.generation())
        again += event[0] in {"rerun", "define"}
        await happen(env, checks, *event)
        assert env.faults_seen == [], event
    for name in CLUSTERS:
        await happen(env, checks, "return", name)
    await env.run()
    env.time += 70
    await env.run()
    assert env.faults_seen == []
    status = env.fetch(resource=APPLICATIONS)["status"]
    records = [*status.get("checked", ()), *filter(None, [status.get("proposed")])]
    assert set(env.versions()) <= {record.get("check") for record in records}
    kept = {record["generation"] for record in records}
    assert set(env.revisions()) <= kept
    assert len(env.revisions()) <= 2
    placed = status.get("scheduledGeneration", 0)
    assert placed in {0, env.generation(), *env.revisions()}
    for count in Counter(generation for _, generation, _ in env.reverts).values():
        assert count <= 1 + again
    env.verdicts.clear()
    env.rerun()
    await env.run()
    env.time += 70
    await env.run()
    assert env.faults_seen == []
    return env


@settings(max_examples=cases(2000))
@given(kinds, chances)
def test_nothing_is_bound_without_its_checks(checks, chance):
    env = asyncio.run(play({**CHECKS, **checks}, chance))
    # Once all checks pass, the newest generation is deployed, and nothing is left to be said.
    status = env.status()
    assert status["scheduledGeneration"] == env.generation()
    assert "proposed" not in status
    assert env.condition("Checked")["status"] == "True"
