"""Members that take long for a write, or do not answer it; and credentials that are renewed."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from harbourmaster.api.resources import CONFIG_MAPS
from harbourmaster.kube.deadline import run_while
from helpers.placement_flow import config_map


def running_objects(member):
    return len(member.objects.all(CONFIG_MAPS))


async def test_a_write_may_take_longer_than_a_read(env, member):
    async with env.deploying():
        await env.add_member(member)
        await env.until_online("one")
        member.fail_next("patch", "configmaps", kind="hang")
        await env.application(config_map("a"), to="one")
        await member.until_seen("patch", "configmaps")
        # As long as two webhooks may take, and much longer than a read.
        await asyncio.sleep(50)
        member.release()
        await env.until_running("one")
    assert len(member.seen("patch", "configmaps")) == 1
    assert "NoAnswer" not in env.reasons_of()


async def test_an_apply_without_an_answer_is_reported_once_and_tried_again(env, member):
    async with env.deploying(probe_interval_seconds=30.0):
        await env.add_member(member)
        await env.until_online("one")
        member.fail_next("patch", "configmaps", None, kind="hang")
        await env.application(config_map("a"), config_map("b"), to="one")
        with capture_logs() as logs:
            message = await env.until_fault("NoAnswer")
        assert message.startswith("no answer from cluster one, trying again: patch ")
        assert "/configmaps/" in message
        assert message.endswith(" did not answer in time")
        assert any(log["event"] == "cluster did not answer" for log in logs)
        status = (await env.fetch())["status"]
        tried = len(member.seen("patch", "configmaps"))
        written = len(env.api.seen("patch", "/applications/"))
        # Which object comes last changes from one attempt to the next.
        member.heal()
        member.fail_next("patch", "configmaps/b", None, kind="hang")
        await asyncio.sleep(600)
        assert len(env.api.seen("patch", "/applications/")) == written
        assert tried < len(member.seen("patch", "configmaps/b")) < 20
        assert (await env.fetch())["status"] == status
        assert env.reasons_of().count("NoAnswer") == 1
        member.heal()
        await env.until_running("one")
        assert running_objects(member) == 2


async def test_an_api_server_that_gives_up_on_its_webhooks_is_reported(env, member):
    async with env.deploying():
        await env.add_member(member)
        await env.until_online("one")
        # API servers answer so after half a minute, whatever the failure policies are.
        member.fail_next("patch", "configmaps", 2, status=504)
        await env.application(config_map("a"), to="one")
        message = await env.until_fault("ApplyFailed")
        assert message.startswith("ConfigMap default/a: ")
        await env.until_running("one")
        assert env.reasons_of().count("ApplyFailed") == 1


async def test_a_delete_without_an_answer_is_reported(env, member):
    async with env.deploying():
        await env.deploy(member, config_map("a"))
        member.fail_next("delete", "configmaps", None, kind="hang")
        await env.delete()
        message = await env.until_fault("Deleting")
        assert message.startswith("no answer from cluster one, trying again: delete ")
        member.heal()
        await env.until_gone()


@pytest.mark.claim("P6")
async def test_any_number_of_slow_members_delays_no_other(env, member, second_member):
    slow = [f"slow-{number}" for number in range(6)]
    async with env.deploying(concurrency=2, workers=4):
        for name in slow:
            await env.add_member(member, name)
        await env.add_member(second_member, "good")
        await env.until_online(*slow, "good")
        member.fail_next("patch", "configmaps", None, kind="hang")
        for cluster in slow:
            for number in range(3):
                name = f"{cluster}-{number}"
                await env.application(config_map(name), name=name, to=cluster)
        await member.until_seen("patch", "configmaps", 2 * len(slow))
        begun = asyncio.get_running_loop().time()
        for number in range(3):
            await env.application(config_map(f"a{number}"), name=f"fine-{number}", to="good")
            await env.until_running("good", f"fine-{number}")
        assert asyncio.get_running_loop().time() - begun < 5
        # No more than two at once in each, whoever waits.
        assert len(member.seen("patch", "configmaps")) == 2 * len(slow)
        member.heal()
        for cluster in slow:
            for number in range(3):
                await env.until_running(cluster, f"{cluster}-{number}")


async def test_those_that_wait_for_a_slow_member_do_not_ask_again_and_again(env, member):
    async with env.deploying(concurrency=1):
        await env.add_member(member)
        await env.until_online("one")
        member.fail_next("patch", "configmaps", kind="hang")
        for number in range(5):
            await env.application(config_map(f"a{number}"), name=f"a{number}", to="one")
        await member.until_seen("patch", "configmaps")
        await asyncio.sleep(1)
        before = len(member.requests), len(env.api.seen("patch", "/applications/"))
        probes = len(member.seen("list", "nodes"))
        await asyncio.sleep(50)
        asked = len(member.requests) - len(member.seen("list", "nodes"))
        assert (asked + probes, len(env.api.seen("patch", "/applications/"))) == before
        member.release()
        for number in range(5):
            await env.until_running("one", f"a{number}")


async def test_a_cluster_that_goes_offline_during_a_write_is_not_waited_for(env, member):
    async with env.deploying(probe_interval_seconds=1.0):
        await env.add_member(member)
        await env.until_online("one")
        member.fail_next("patch", "configmaps", None, kind="hang")
        await env.application(config_map("a"), to="one")
        await member.until_seen("patch", "configmaps")
        begun = asyncio.get_running_loop().time()
        member.fail_next("list", "nodes", None, kind="hang")
        await env.until_fault("ClusterUnreachable")
        assert asyncio.get_running_loop().time() - begun < 15
        member.heal()
        await env.until_running("one")


async def test_a_slow_write_delays_no_end_of_leading(env, member):
    loop, leads = asyncio.get_running_loop(), True
    async with env.deploying(guard=lambda coroutine: run_while(lambda: leads, coroutine)):
        await env.add_member(member)
        await env.until_online("one")
        member.fail_next("patch", "configmaps", None, kind="hang")
        await env.application(config_map("a"), to="one")
        await member.until_seen("patch", "configmaps")
        written = len(env.api.seen("patch"))
        # What an election does when the Lease is lost, and when the process stops.
        begun, leads = loop.time(), False
    assert loop.time() - begun < 1
    member.heal()
    assert len(env.api.seen("patch")) == written


def pair(authority, days=1):
    ends = datetime.now(UTC).replace(tzinfo=None) + timedelta(days=days)
    issued = authority.issue_cert("me@example.com", not_after=ends)
    fields = {
        "client-certificate-data": issued.cert_chain_pems[0].bytes(),
        "client-key-data": issued.private_key_pem.bytes(),
    }
    return {name: base64.b64encode(pem).decode() for name, pem in fields.items()}


def object_requests(member):
    """The requests for objects that are deployed, also the lists of watches."""
    return [(seen.verb, seen.path) for seen in member.seen("*", "configmaps")]


@pytest.mark.parametrize("kind", ["token", "certificate"])
async def test_renewed_credentials_interrupt_nothing(env, member, authority, kind):
    first, second = (
        ({"token": "first"}, {"token": "second"})
        if kind == "token"
        else (pair(authority, 1), pair(authority, 2))
    )
    async with env.deploying():
        await env.add_member(member, **first)
        await env.application(config_map("a"), to="one")
        await env.until_running("one")
        await env.until_online("one")
        applied = len(member.seen("patch", "configmaps"))
        watches, states = member.watches, []
        cache = env.deployment.caches.clusters
        cache.subscribe(lambda _keys: states.append(cache.store.get("team/one").status.state))
        # A write that began with the old credentials ends with them.
        member.fail_next("patch", "configmaps", kind="hang")
        await env.update(config_map("a", k="v"))
        await member.until_seen("patch", "configmaps", applied + 1)
        before = object_requests(member)
        await env.kubeconfig("one", env.kubeconfig_of(member, **second))
        await asyncio.sleep(20)
        member.release()
        await env.until_running("one")
        if kind == "token":
            # The old ones are refused from now on; watches outlive them.
            member.tokens = {"second"}
        await asyncio.sleep(60)
        # Also a session that crashes and starts again connects to allowed addresses only.
        assert env.deployment.members.session("team/one").client.connection.connector is not None
        assert member.watches == watches
        assert object_requests(member) == before
        assert set(states) <= {"Online"}
        assert "NoAnswer" not in env.reasons_of()


@pytest.mark.full
@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_credentials_that_are_renewed_shortly_before_their_end_interrupt_nothing(env, member):
    def token(seconds):
        ends = datetime.now(UTC) + timedelta(seconds=seconds)
        claims = base64.urlsafe_b64encode(json.dumps({"exp": int(ends.timestamp())}).encode())
        return f"e30.{claims.decode().rstrip('=')}.c2ln"

    async with env.deploying(kubeconfig_interval_seconds=3600):
        await env.add_member(member, token=token(13))
        await env.until_online("one")
        session = env.deployment.members.session("team/one")
        await env.kubeconfig("one", env.kubeconfig_of(member, token=token(600)))
        await asyncio.sleep(15)
        assert env.deployment.members.session("team/one") is session
