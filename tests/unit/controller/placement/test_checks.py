"""Checks of Applications: what is bound, what is kept, and what happens at deaths."""

from __future__ import annotations

from helpers.placement_checks import CHECKS, CheckedEnv


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
