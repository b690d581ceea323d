"""Checks of Applications: what is bound, what is kept, and what happens at deaths."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import APP_VERSIONS, APPLICATIONS, CONTROLLER_REVISIONS
from harbourmaster.kube.errors import ConflictError
from helpers.placement_checks import CHECKS, CheckedEnv
from helpers.placement_environment import NAMESPACE, weights


async def test_an_update_is_checked_and_kept():
    env = CheckedEnv()
    env.add_cluster("one")
    env.apply()
    await env.run()
    assert (env.on(), env.reason(), env.revisions()) == ("one", "Passed", [1])
    reasons = [reason for *_, reason, _ in env.events.sent]
    assert reasons == ["Checking", "Scheduled", "Deploying", "Passed"]
    env.verdicts[2, "one", "pre"] = False
    env.apply(turn=1)
    await env.run()
    assert (env.status()["scheduledGeneration"], env.reason()) == (1, "CheckFailed")
    # Another definition has it checked again.
    (*_, failed) = env.versions()
    env.define("few-errors")
    await env.run()
    assert env.reason() == "CheckFailed"
    assert failed not in env.versions()
    env.apply(turn=2)
    await env.run()
    assert env.status()["scheduledGeneration"] == 3
    assert env.revisions() == [1, 3]
    assert len(env.versions()) == 1
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
    env.faults["app"] = ConflictError("it has changed")
    with pytest.raises(ConflictError):
        await env.live()
    env.faults.clear()
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
    strange = {**kept, "metadata": {**kept["metadata"], "name": "other"}, "revision": 7}
    await env.create(CONTROLLER_REVISIONS, strange)
    env.begin()
    await env.run()
    assert env.revisions() == [1]
    revisions = env.schedulers[APPLICATIONS]._checks._revisions
    assert revisions._specs.keys() == revisions._kept.keys() == {"ns/app"}
    env.remove(APPLICATIONS, "app")
    await env.reconcile()
    assert (revisions._specs, revisions._kept) == ({}, {})


async def test_an_old_answer_moves_nothing():
    env = two_clusters()
    await env.run()
    env.time += 70
    env.static(one=0.1, two=0.9)
    await env.live()
    assert (env.reason(), env.status()["proposed"]["name"]) == ("Checking", "two")
    env.static(one=0.9, two=0.1)
    await env.run()
    assert (env.on(), env.reason()) == ("one", "Passed")
    assert "proposed" not in env.status()
    env.verdicts[1, "two", "pre"] = False
    env.static(one=0.1, two=0.9)
    await env.run()
    assert (env.on(), env.reason()) == ("one", "CheckFailed")
    # One that failed is not repeated by values that change.
    env.static(one=0.9, two=0.1)
    await env.run()
    writes = len(env.writes)
    env.static(one=0.1, two=0.9)
    await env.run()
    assert len(env.writes) == writes
    assert env.faults_seen == []


async def test_one_that_returns_to_a_cluster_is_checked_there_again():
    env = two_clusters()
    await env.run()
    env.time += 70
    env.static(one=0.1, two=0.9)
    await env.run()
    assert env.on() == "two"
    env.verdicts |= {(1, "one", "pre"): False, (1, "one", "post"): False}
    env.time += 70
    env.static(one=0.9, two=0.1)
    await env.run()
    assert (env.on(), env.reason()) == ("two", "CheckFailed")
    env.verdicts[1, "one", "pre"] = True
    env.rerun()
    await env.run()
    assert (env.on(), env.reason()) == ("one", "PostCheckFailed")


async def test_a_new_generation_is_checked_where_the_deployed_one_may_not_go():
    env = two_clusters(forcedMoves="Check")
    await env.run()
    env.verdicts[1, "two", "pre"] = False
    lose(env, "one")
    await env.run()
    assert (env.on(), env.reason()) == ("one", "CheckFailed")
    change(env)
    await env.run()
    assert (env.on(), env.status()["scheduledGeneration"]) == ("two", 2)
    assert env.faults_seen == []


async def test_a_forced_move_takes_the_generation_that_passed():
    for how in ("Check", "Skip"):
        env = two_clusters(forcedMoves=how)
        await env.run()
        env.verdicts |= {(2, "one", "pre"): False, (2, "two", "pre"): False}
        change(env)
        await env.run()
        lose(env, "one")
        await env.run()
        assert (env.on(), env.status()["scheduledGeneration"], env.reason()) == (
            "two",
            1,
            "CheckFailed",
        )
        assert [version["spec"]["metadata"]["cause"] for version in env.versions().values()] == (
            ["Move", "Update"] if how == "Check" else ["Deploy", "Update"]
        )
        assert env.faults_seen == []


async def test_a_forced_move_repeats_no_check_of_its_cluster():
    env = two_clusters()
    await env.run()
    env.verdicts[2, "two", "pre"] = False
    env.time += 70
    env.static(one=0.1, two=0.9)
    change(env)
    await env.run()
    lose(env, "one")
    await env.run()
    assert (env.on(), env.status()["scheduledGeneration"]) == ("two", 1)
    assert env.status()["proposed"]["name"] == "two"
    made = [text for text, *_ in env.writes if text.startswith("create application-app-2")]
    assert len(made) == 1
    assert told(env) == ["generation 2 is not deployed to 'two': evaluation few-errors: failed"]


async def test_one_too_large_to_keep_is_deployed_nowhere(monkeypatch):
    monkeypatch.setattr("harbourmaster.controller.placement.revisions.MOST_BYTES", 10)
    for when in ("Deploy", "Update"):
        env = two_clusters(when=[when])
        await env.run()
        assert (env.on(), env.reason(), env.revisions()) == ("", "TooLarge", [])
        assert "at most 10 can be kept for a revert" in env.condition("Checked")["message"]


async def live_through(env):
    """Deploy, update, revert, deploy again, move and return an Application."""
    await env.run()
    env.verdicts[2, "one", "post"] = False
    change(env)
    await env.run()
    assert env.reason() == "Reverted"
    env.verdicts.clear()
    env.rerun()
    await env.run()
    env.time += 70
    env.static(one=0.1, two=0.9)
    await env.run()
    env.verdicts[3, "two", "pre"] = False
    change(env)
    await env.run()
    assert (env.on(), env.reason()) == ("two", "CheckFailed")
    lose(env, "two")
    await env.run()
    assert (env.on(), env.status()["scheduledGeneration"]) == ("one", 3)


def outcome(env):
    status = env.status()
    records = [(record["generation"], record["name"], record["result"])
               for record in status["checked"]]  # fmt: skip
    return records, env.reason(), env.revisions(), sorted(env.versions())


async def test_whoever_dies_at_any_write_ends_alike():
    env = two_clusters(onFailure="Revert")
    await live_through(env)
    whole, count = outcome(env), len(env.writes)
    assert whole[0] == [(3, "one", "Passed"), (2, "one", "Passed")]
    for number in range(count):
        for dies_after in (False, True):
            env = two_clusters(onFailure="Revert")
            env.writes_left, env.dies_after = number, dies_after
            await live_through(env)
            assert ("death", None, None) in env.writes
            assert outcome(env) == whole, number
            assert env.faults_seen == []
            assert env.reverts == [("app", 2, "one")]


async def test_a_check_that_the_watch_shows_too_late_is_deleted():
    env = two_clusters()
    env.writes_left, env.dies_after = 0, True
    await env.live()
    (check,) = env.versions()
    assert "proposed" not in env.status()
    env.apply(turn=1, checks=None)
    await env.run()
    assert (env.status()["scheduledGeneration"], env.versions()) == (2, {})
    assert ("delete " + check, None, None) in env.writes


async def test_one_without_checks_asks_for_nothing_more(monkeypatch):
    def refuse(*_arguments, **_options):
        raise AssertionError

    env = two_clusters()
    for method in ("get", "list", "create", "delete", "define"):
        monkeypatch.setattr(env, method, refuse)
    env.apply("plain", checks=None)
    env.apply("plain", checks=None, turn=1)
    await env.run("plain")
    lose(env, "one")
    await env.run("plain")
    assert env.on("plain") == "two"
    assert {name for name, _, subresource in env.writes if subresource} == {"plain"}
    assert len(env.writes) == 2


async def test_a_cache_of_the_lifecycle_that_is_not_filled_stops_only_checked_ones(monkeypatch):
    env, woken = two_clusters(), []
    synced = env.controller._lifecycle["task_definitions"].synced
    synced.clear()
    env.apply("plain", checks=None)
    for name in ("app", "plain"):
        await env.run(name)
    assert (env.on(), env.on("plain")) == ("", "one")
    monkeypatch.setattr(env.controller._scheduler, "enqueue_all", lambda: woken.append("all"))
    waiting = asyncio.create_task(env.controller.await_lifecycle())
    await asyncio.sleep(0)
    assert woken == []
    synced.set()
    await waiting
    assert woken == ["all"]
    await env.run()
    assert env.on() == "one"


async def test_a_check_that_a_user_deletes_is_created_again(monkeypatch):
    env, woken = two_clusters(), []
    monkeypatch.setattr(env.controller._scheduler, "enqueue", woken.extend)
    env.apply("other")
    for name in ("app", "other"):
        await env.live(name)
    (check,) = env.versions()
    env._remove(APP_VERSIONS, check)
    env.controller._versions_changed(frozenset({f"{NAMESPACE}/{check}"}))
    assert woken == [f"{NAMESPACE}/app"]
    await env.live()
    assert list(env.versions()) == [check]
    await env.run()
    assert env.reason() == "Passed"


async def test_one_whose_check_failed_lets_others_move():
    env = CheckedEnv(moves_per_target=1)
    env.static(one=0.5, two=0.4)
    for name in ("one", "two"):
        env.add_cluster(name, metrics=weights(**{name: 1}))
    env.apply()
    env.apply("plain", checks=None)
    for name in ("app", "plain"):
        await env.run(name)
    env.verdicts[1, "two", "pre"] = False
    env.static(one=0.1, two=0.9)
    for _ in range(2):
        env.time += 70
        for name in ("app", "plain"):
            await env.run(name)
    assert (env.on(), env.reason(), env.on("plain")) == ("one", "CheckFailed", "two")


async def test_a_generation_that_is_not_kept_is_not_read(monkeypatch):
    env, read = two_clusters(), []
    env.apply(checks=None)
    await env.run()
    env.apply(turn=1, checks=CHECKS)
    env.verdicts[3, "one", "pre"] = False
    await env.run()
    assert env.reason() == "CheckFailed"
    monkeypatch.setattr(env, "get", lambda *names: read.append(names))
    await env.live()
    assert read == []


async def test_nothing_is_remembered_of_a_version_that_garbage_collection_deletes():
    env = two_clusters()
    await env.run()
    assert env.schedulers[APPLICATIONS]._checks._own_writes._replaced == {}


def roll_back(env, name, cluster):
    """Have the deployer cancel a move."""
    stored = env.fetch(name)
    placed = {"name": cluster, "uid": f"uid-{cluster}"}
    status = {**stored["status"], "scheduledTo": placed, "suspendedUntil": "2100-01-01T00:00:00Z"}
    env._store(APPLICATIONS, name, {**stored, "status": status})


async def test_a_cancelled_move_is_told():
    for how in ("elective", "forced"):
        env = two_clusters()
        await env.run()
        env.time += 70
        env.static(one=0.1, two=0.9)
        if how == "forced":
            lose(env, "one")
        await env.run_until(lambda env=env: env.on() == "two")
        roll_back(env, "app", "one")
        await env.run()
        assert env.on() == "one"
        assert "is deployed to 'one'" in env.condition("Checked")["message"]
        assert env.condition("Checked")["status"] == "True"


async def test_an_update_whose_move_is_cancelled_is_checked_where_it_stays():
    env = two_clusters()
    await env.run()
    env.verdicts[2, "one", "pre"] = False
    env.static(one=0.1, two=0.9)
    env.time += 70
    change(env)
    await env.run_until(lambda: env.on() == "two")
    env.cancel(suspendedUntil="2100-01-01T00:00:00Z")
    await env.run()
    assert (env.on(), env.status()["scheduledGeneration"], env.reason()) == (
        "one",
        1,
        "CheckFailed",
    )
    assert [record["generation"] for record in env.status()["checked"]] == [1]
    env.verdicts.clear()
    env.rerun()
    await env.run()
    assert (env.on(), env.status()["scheduledGeneration"], env.reason()) == ("one", 2, "Passed")
    assert env.faults_seen == []


async def test_an_update_that_failed_is_not_repeated_by_values_that_change():
    env = two_clusters()
    await env.run()
    env.verdicts |= {(2, "one", "pre"): False, (2, "two", "pre"): False}
    change(env)
    await env.run()
    for turn in range(4):
        env.time += 70
        env.static(one=turn % 2, two=(turn + 1) % 2)
        await env.run()
    created = [text for text, *_ in env.writes if text.startswith("create application-app-2-")]
    assert (len(created), env.reason()) == (1, "CheckFailed")
