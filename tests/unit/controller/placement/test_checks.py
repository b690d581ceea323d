"""Checks of Applications: what is bound, what is kept, and what happens at deaths."""

from __future__ import annotations

from harbourmaster.api.resources import APPLICATIONS, CONTROLLER_REVISIONS
from helpers.placement_checks import CHECKS, CheckedEnv
from helpers.placement_environment import weights


async def test_an_update_is_checked_and_kept():
    env = CheckedEnv()
    env.add_cluster("one")
    env.apply()
    await env.run()
    assert (env.on(), env.reason(), env.revisions()) == ("one", "Passed", [1])
    env.verdicts[2, "one", "pre"] = False
    env.apply(turn=1)
    await env.run()
    assert (env.status()["scheduledGeneration"], env.reason()) == (1, "CheckFailed")
    env.apply(turn=2)
    await env.run()
    assert env.status()["scheduledGeneration"] == 3
    assert env.revisions() == [1, 3]
    assert len(env.versions()) == 2
    assert [record["result"] for record in env.status()["checked"]] == ["Passed", "Passed"]
    env.apply(turn=3, checks=None)
    await env.run()
    assert (env.status()["scheduledGeneration"], env.revisions()) == (4, [])
    assert env.versions() == {}
    assert "checked" not in env.status()
    assert env.faults_seen == []


def two_clusters(**checks):
    """Return an environment with an Application on ``one``, which has the better score."""
    env = CheckedEnv()
    env.static(one=0.5, two=0.4)
    for name in ("one", "two"):
        env.add_cluster(name, metrics=weights(**{name: 1}))
    env.apply(checks={**CHECKS, **checks})
    return env


def lose(env, name):
    env.add_cluster(name, metrics=weights(**{name: 1}), status={"state": "Offline"})


def change(env):
    env.apply(turn=env.generation(), checks=env.fetch()["spec"]["checks"])


def told(env):
    """The messages of the events about checks, without those that pass."""
    return [text for *_, reason, text in env.events.sent if reason in {"Reverted", "CheckFailed"}]


async def test_a_revert_is_told_although_a_newer_generation_waits():
    env = two_clusters(onFailure="Revert")
    await env.run()
    change(env)
    await env.run_until(lambda: env.status()["scheduledGeneration"] == 2)
    env.verdicts |= {(2, "one", "post"): False, (3, "one", "pre"): False}
    change(env)
    await env.run()
    assert env.status()["scheduledGeneration"] == 1
    assert env.reverts == [("app", 2, "one")]
    assert env.reason() == "CheckFailed"
    waits = "generation 3 is not deployed to 'one': evaluation few-errors: failed"
    reverted = (
        "generation 2 on 'one' failed (evaluation few-errors: failed): "
        "generation 1 is deployed to 'one' again"
    )
    assert told(env) == [waits, reverted, waits]
    assert env.faults_seen == []


async def test_it_is_reverted_once_and_deployed_again_by_a_rerun():
    env = two_clusters(onFailure="Revert")
    await env.run()
    env.verdicts[2, "one", "post"] = False
    change(env)
    await env.run()
    writes = len(env.writes)
    env.begin()
    for _ in range(3):
        await env.run()
    assert len(env.writes) == writes
    assert (env.status()["scheduledGeneration"], env.reason()) == (1, "Reverted")
    env.verdicts.clear()
    env.rerun()
    await env.run()
    assert (env.status()["scheduledGeneration"], env.reason()) == (2, "Passed")
    assert env.status()["checked"][0]["result"] == "Passed"


async def test_one_that_is_not_ready_any_more_is_reverted_after_a_death():
    env = two_clusters(onFailure="Revert")
    await env.run()
    env.verdicts[2, "one", "post"] = False
    change(env)
    await env.run_until(lambda: [*env.versions().values()][-1]["status"].get("status") == "Failed")
    env.writes_left = 0
    env.dies_after = True
    await env.live()
    assert env.writes[-2][0].startswith("mark")
    env.not_ready()
    await env.live()
    assert env.status()["scheduledGeneration"] == 1


async def test_nothing_is_remembered_of_a_deleted_application_or_an_earlier_term():
    env = two_clusters()
    await env.run()
    env.verdicts[2, "one", "pre"] = False
    change(env)
    await env.run()
    # Another leader kept one that no status names.
    kept = env.objects[CONTROLLER_REVISIONS, "application-uid-app-1"]
    other = {**kept, "metadata": {**kept["metadata"], "name": "other"}, "revision": 7}
    await env.create(CONTROLLER_REVISIONS, other)
    env.begin()
    await env.run()
    assert env.revisions() == [1]
    checks = env.schedulers[APPLICATIONS]._checks
    assert checks._specs and checks._kept
    env.remove(APPLICATIONS, "app")
    await env.reconcile()
    assert (checks._specs, checks._kept) == ({}, {})
