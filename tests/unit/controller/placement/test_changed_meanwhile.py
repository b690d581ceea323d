"""Objects that others change, and Jobs that end, between two requests of placement (7.8)."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.resources import APPLICATIONS, DEPLOYMENTS, JOBS
from harbourmaster.placement.apply_rules import REPLACE
from harbourmaster.placement.manifests import ADOPTED_ANNOTATION
from helpers.field_owners import PLACE, AppliedObjects
from helpers.logs import captured_log
from helpers.placement_flow import config_map, deployment, is_true

TTL = "ttlSecondsAfterFinished"


@pytest.fixture
def member(member):
    member.objects = AppliedObjects(member._notify_watches)
    return member


def image_of(member):
    (container,) = member.get(DEPLOYMENTS, "web", PLACE)["spec"]["template"]["spec"]["containers"]
    return container["image"]


def replicas_of(member):
    return member.get(DEPLOYMENTS, "web", PLACE)["spec"]["replicas"]


@pytest.mark.parametrize("policy", ["Force", "Abort"])
async def test_an_autoscaler_may_act_between_the_read_and_the_apply(env, member, policy):
    """krake-spec 7.8."""
    async with env.deploying():
        await env.deploy(member, deployment("web", replicas=2), conflictPolicy=policy)
        before = len(member.seen("patch", "deployments"))
        member.fail_next("patch", "deployments", kind="hang")
        await env.update(deployment("web", replicas=2, image="example.com/web:2"))
        await member.until_seen("patch", "deployments", before + 1)
        member.objects.scale(DEPLOYMENTS, "web", 7)
        member.release()
        await env.until_running("one")
    assert (replicas_of(member), image_of(member)) == (7, "example.com/web:2")


async def test_a_status_that_changes_meanwhile_delays_no_apply(env, member):
    async with env.deploying():
        await env.deploy(member, deployment("web", replicas=2))
        before = len(member.seen("patch", "deployments"))
        member.fail_next("patch", "deployments", kind="hang")
        await env.update(deployment("web", replicas=2, image="example.com/web:2"))
        await member.until_seen("patch", "deployments", before + 1)
        obj = {**member.get(DEPLOYMENTS, "web", PLACE), "status": {"replicas": 1}}
        member.objects.replace(DEPLOYMENTS, PLACE, "web", obj, subresource="status")
        member.release()
        await env.until_running("one")
    assert len(member.seen("patch", "deployments")) == before + 1
    assert image_of(member) == "example.com/web:2"


async def test_what_is_forced_for_another_field_overwrites_no_autoscaler(env, member):
    """krake-spec 7.8."""
    web = deployment("web", replicas=2)
    async with env.deploying():
        await env.deploy(member, web)
        before = len(member.seen("patch", "deployments"))
        member.fail_next("patch", "deployments/web", 2, kind="hang")
        edited = {**web, "spec": {**web["spec"], "template": None}}
        edited["spec"]["template"] = deployment("web", image="example.com/web:3")["spec"][
            "template"
        ]
        del edited["spec"]["replicas"]
        member.objects.patch(
            DEPLOYMENTS, PLACE, "web", json.dumps(edited).encode(), APPLY, BY_KUBECTL
        )
        await member.until_seen("patch", "deployments", before + 1)
        member.release()
        await member.until_seen("patch", "deployments", before + 2)
        member.objects.scale(DEPLOYMENTS, "web", 7)
        member.release()
        await member.until_seen("patch", "deployments", before + 3)
        await env.until_running("one")
    assert (replicas_of(member), image_of(member)) == (7, "example.com/web:1")


APPLY = "application/apply-patch+yaml"
BY_KUBECTL = {"fieldManager": "kubectl", "force": "true"}


async def test_an_object_in_the_place_of_the_one_that_was_read_is_adopted(env, member):
    """krake-spec 7.9: the difference of their uids is no change of an immutable field."""
    web = deployment("web", replicas=2)
    web["metadata"]["annotations"] = {REPLACE: "true"}
    async with env.deploying():
        await env.deploy(member, web)
        before = len(member.seen("patch", "deployments"))
        member.fail_next("patch", "deployments", kind="hang")
        await env.update(web, config_map("more"))
        await member.until_seen("patch", "deployments", before + 1)
        member.remove(DEPLOYMENTS, "web", PLACE)
        member.put(DEPLOYMENTS, deployment("web", PLACE, replicas=3))
        member.release()
        await env.until_running("one")
    annotations = member.get(DEPLOYMENTS, "web", PLACE)["metadata"]["annotations"]
    assert annotations[ADOPTED_ANNOTATION] == "true"
    assert not member.seen("delete", "deployments")


async def test_an_object_that_changes_all_the_time_is_tried_again(env, member):
    async with env.deploying():
        await env.add_member(member)
        await env.until_online("one")
        member.fail_next("patch", "deployments", 3, status=409)
        await env.application(deployment("web"), to="one")
        message = "Deployment default/web: is changed by other clients meanwhile"
        await env.until(lambda status: message in {entry.message for entry in status.conditions})
        await env.until_running("one")
    assert len(member.seen("patch", "deployments")) == 4


def job(ttl=0):
    container = {"name": "a", "image": "example.com/migrate:1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "migrate"},
        "spec": {
            TTL: ttl,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def finish(member):
    """Let the Job finish, and go if it has a TTL."""
    done = {"conditions": [{"type": "Complete", "status": "True"}]}
    obj = {**member.get(JOBS, "migrate", PLACE), "status": done}
    member.objects.replace(JOBS, PLACE, "migrate", obj, subresource="status")
    if TTL in obj["spec"]:
        member.remove(JOBS, "migrate", PLACE)


def creations(member):
    changes = member.objects.history
    return sum(change.resource == JOBS and change.before is None for change in changes)


async def test_a_job_gets_its_ttl_when_its_end_is_recorded(env, member):
    """krake-spec 7.8."""
    recorded = []

    def note(change):
        if change.resource == JOBS and change.after and TTL in change.after["spec"]:
            status = env.api.get(APPLICATIONS, "app", "team")["status"]
            recorded.append([seen["cluster"] for seen in status["observations"]])
        member._notify_watches(change)

    member.objects = AppliedObjects(note)
    async with env.deploying():
        await env.deploy(member, job(30))
        assert TTL not in member.get(JOBS, "migrate", PLACE)["spec"]
        finish(member)
        await member.until_seen("patch", "jobs", 2)
        await env.until(lambda status: is_true(status, "Ready"))
        assert recorded == [["one"]]
        assert member.get(JOBS, "migrate", PLACE)["spec"][TTL] == 30
        member.remove(JOBS, "migrate", PLACE)
        await env.update(job(30), config_map("more"))
        await env.until_running("one")
        assert creations(member) == 1
        assert "Drift" not in env.reasons_of()


async def test_a_status_that_cannot_be_written_says_nothing_of_the_cluster(env, member):
    with captured_log() as log:
        async with env.deploying():
            await env.deploy(member, job(30))
            await env.until(lambda status: status.phase == "Running")
            env.api.fail_next("patch", "applications/app/status", kind="reset")
            finish(member)
            await member.until_seen("patch", "jobs", 2)
            await env.until(lambda status: is_true(status, "Ready"))
    assert b"cluster did not answer" not in log.getvalue()


async def test_a_job_whose_creation_got_no_answer_runs_once(env, member):
    """krake-spec 7.8."""
    async with env.deploying():
        await env.add_member(member)
        await env.until_online("one")
        member.fail_next("patch", "jobs", kind="torn")
        await env.application(job(), to="one")
        await member.until_seen("patch", "jobs")
        member.fail_next("*", "jobs", None, kind="reset")
        await env.until_fault("NoAnswer")
        finish(member)
    member.heal()
    async with env.deploying():
        await env.until_running("one")
        await env.until(lambda status: is_true(status, "Ready"))
    assert creations(member) == 1


async def test_a_job_that_goes_between_the_read_and_the_apply_is_not_created(env, member):
    """krake-spec 7.8."""
    async with env.deploying():
        await env.deploy(member, job(600))
        finish(member)
        await member.until_seen("patch", "jobs", 2)
        await env.until(lambda status: is_true(status, "Ready"))
        member.fail_next("patch", "jobs", kind="hang")
        await env.update(job(600), config_map("more"))
        await member.until_seen("patch", "jobs", 3)
        member.remove(JOBS, "migrate", PLACE)
        member.release()
        await env.until_running("one")
    assert creations(member) == 1
