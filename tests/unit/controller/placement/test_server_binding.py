"""A Secret that leads elsewhere opens no connection there (krake-spec 7.10, P5)."""

from __future__ import annotations

import pytest
import trustme

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import CLUSTERS, SECRETS
from harbourmaster.controller.placement import secret_reads
from helpers.fake_api import FakeApi
from helpers.placement_flow import config_map
from helpers.placement_members import listening, server_context


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    monkeypatch.setattr(secret_reads, "SHORTEST", 0.02)


@pytest.fixture
def stranger():
    return trustme.CA()


async def bound_server(env, name="one"):
    return (await env.fetch(name, CLUSTERS))["status"].get("server")


async def set_spec(env, **fields):
    await env.client.patch(CLUSTERS, "one", MergePatch({"spec": fields}), env.namespace)


async def looks(env, count=2):
    """Wait for further looks at the Secret."""
    seen = len(env.api.seen("get", "/secrets/one$"))
    await env.api.until_seen("get", "/secrets/one$", seen + count)


@pytest.mark.claim("P8")
async def test_a_secret_that_names_another_server_leads_nowhere(env, member, stranger):
    async with listening() as listener, env.deploying(kubeconfig_interval_seconds=0.1):
        await env.deploy(member, config_map("a"))
        await env.until_bound()
        before = await bound_server(env)
        assert before["url"] == member.url
        await env.kubeconfig("one", env.kubeconfig_of(listener, authorities=(stranger,)))
        fault = await env.until_bound("ServerChanged")
        assert f"server is {listener.url}, not {member.url}, certificate authority is" in fault
        assert await env.until_offline() == fault.join(("Secret team/one, key kubeconfig: ", ""))
        sent = len(member.requests)
        await looks(env)
        assert (listener.connections, len(member.requests)) == (0, sent)
        assert await bound_server(env) == before
        # The Secret deleted and created again.
        await env.client.delete(SECRETS, "one", "team")
        await looks(env)
        await env.kubeconfig("one", env.kubeconfig_of(listener))
        await env.until_bound("ServerChanged")
        await env.kubeconfig("one", env.kubeconfig_of(member))
        await env.until_bound()
        await env.until_online("one")
    # Neither a restart nor the name of another Secret is a consent.
    await env.kubeconfig("two", env.kubeconfig_of(listener, authorities=(stranger,)))
    await set_spec(env, kubeconfigSecretRef={"name": "two"})
    async with listening() as second, env.deploying(kubeconfig_interval_seconds=0.1):
        await env.until_bound("ServerChanged")
        await env.kubeconfig("two", env.kubeconfig_of(second))
        await env.until_bound("ServerChanged", second.url)
        assert (listener.connections, second.connections) == (0, 0)
        assert await bound_server(env) == before


@pytest.mark.claim("P8")
async def test_the_command_of_the_condition_accepts_what_was_refused(env, member, stranger):
    async with (
        FakeApi(tls=server_context(stranger)) as moved,
        env.deploying(kubeconfig_interval_seconds=0.1),
    ):
        await env.add_member(member)
        await env.until_bound()
        await env.until_online("one")
        await env.kubeconfig("one", env.kubeconfig_of(moved, authorities=(stranger,)))
        fault = await env.until_bound("ServerChanged")
        # Meanwhile the Secret says something else: that is not what was accepted.
        async with listening() as listener:
            await env.kubeconfig("one", env.kubeconfig_of(listener, authorities=(stranger,)))
            await env.until_bound("ServerChanged", listener.url)
            await env.accept(fault)
            await looks(env)
            assert listener.connections == 0
        await env.kubeconfig("one", env.kubeconfig_of(moved, authorities=(stranger,)))
        await env.until_bound()
        await env.until_online("one")
        assert (await bound_server(env))["url"] == moved.url
        # The way back needs another consent.
        await env.kubeconfig("one", env.kubeconfig_of(member))
        await env.until_bound("ServerChanged")


@pytest.mark.parametrize(
    "fields",
    [
        {"tls-server-name": "127.0.0.1"},
        {"certificate-authority-data": ""},
        {"server": "https://127.0.0.1:1/x"},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_each_part_of_the_server_is_bound(env, member, fields):
    async with env.deploying(kubeconfig_interval_seconds=0.1):
        await env.add_member(member)
        await env.until_bound()
        await env.until_online("one")
        await env.kubeconfig("one", env.kubeconfig_of(member, fields=fields, token="n"))  # noqa: S106 - not a real token
        fault = await env.until_bound("ServerChanged")
        await env.until_offline()
        await env.kubeconfig("one", env.kubeconfig_of(member, token="renewed"))  # noqa: S106 - not a real token
        await env.until_bound()
        await env.until_online("one")
        assert "accept-server=" in fault
        assert not [seen for seen in member.requests if seen.headers["Authorization"] == "Bearer n"]


async def test_an_authority_is_rotated_with_one_consent_and_without_an_interruption(
    env, member, authority, stranger
):
    async with env.deploying(kubeconfig_interval_seconds=0.1):
        await env.deploy(member, config_map("a"))
        await env.until_bound()
        session = env.deployment.members.session("team/one")
        both = env.kubeconfig_of(member, authorities=(stranger, authority))
        await env.kubeconfig("one", both)
        fault = await env.until_bound("AuthoritiesAdded")
        assert env.deployment.members.session("team/one") is session
        # A server with a certificate of the new one only is not trusted yet.
        await member.stop()
        member.tls = server_context(stranger)
        await member.start()
        assert "is not trusted" in await env.until_offline()
        await env.accept(fault)
        await env.until_bound()
        await env.until_online("one")
        await env.kubeconfig("one", env.kubeconfig_of(member, authorities=(stranger,)))
        while len((await bound_server(env))["authorities"]) > 1:
            await looks(env, 1)
        await env.until_online("one")
        await env.kubeconfig("one", both)
        await env.until_bound("AuthoritiesAdded")


async def test_the_server_of_the_spec_counts_from_the_first_use_on(env, member, stranger):
    async with listening() as listener, env.deploying(kubeconfig_interval_seconds=0.1):
        text = env.kubeconfig_of(listener, authorities=(stranger,))
        # Written in another way.
        await env.cluster("one", text=text, server=f"{member.url}/")
        fault = await env.until_bound("ServerChanged")
        assert f"server is {listener.url}, not spec.server" in fault
        await looks(env)
        assert listener.connections == 0
        assert await bound_server(env) is None
        await env.kubeconfig("one", env.kubeconfig_of(member))
        await env.until_online("one")
        await env.kubeconfig("one", text)
        await env.accept(await env.until_bound("ServerChanged"))
        await env.until_bound()
        assert (await bound_server(env))["url"] == listener.url
        await env.until_found(lambda: listener.connections)
        await set_spec(env, server="http://one")
        fault = 'Cluster team/one, spec.server: server "http://one" is not like'
        await env.until_cluster(
            lambda status: any(state.message.startswith(fault) for state in status.conditions),
            "one",
        )


async def test_a_cluster_that_is_created_again_is_bound_again(env, member, second_member):
    async with env.deploying(kubeconfig_interval_seconds=3600):
        await env.add_member(member)
        await env.until_bound()
        await env.until_online("one")
        await env.delete(CLUSTERS, "one")
        await env.until_gone(CLUSTERS, "one")
        await env.add_member(second_member)
        await env.until_bound()
        await env.until_online("one")
        assert (await bound_server(env))["url"] == second_member.url
