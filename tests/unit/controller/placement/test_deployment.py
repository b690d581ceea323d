"""The shell before API servers that fail on demand; what real ones do is in the cluster tests."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import trustme

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import (
    CLUSTERS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    Resource,
)
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.placement import deployment_pass
from harbourmaster.controller.placement.deployment_pass import DeploymentPass
from harbourmaster.controller.placement.revisions import Revisions
from harbourmaster.placement.deployed import ALLOW_COPY
from harbourmaster.placement.manifests import UID_LABEL
from helpers.patience import PATIENCE
from helpers.placement_flow import config_map, deployment, is_true, reason_of
from helpers.placement_members import server_context


def report_replicas(member, available=1):
    """Write the status of the only Deployment, as its controller does."""
    (workload,) = member.objects.all(DEPLOYMENTS).values()
    status = {"observedGeneration": workload["metadata"]["generation"]}
    status |= {"replicas": 1, "updatedReplicas": 1, "availableReplicas": available}
    member.put(DEPLOYMENTS, {**workload, "status": status})


def message_of(status, name):
    return next(
        (condition.message for condition in status.conditions if condition.type == name), ""
    )


def count(api, resource=CONFIG_MAPS):
    return len(api.objects.all(resource))


@pytest.mark.claim("P6")
async def test_a_cluster_that_hangs_delays_no_other(env, member, second_member):
    async with env.deploying(concurrency=2, workers=4, request_timeout_seconds=2 * PATIENCE):
        await env.add_member(member, "hung")
        await env.add_member(second_member, "good")
        await env.until_online("hung", "good")
        member.fail_next("*", "configmaps|/api/v1$", None, kind="hang")
        for number in range(8):
            await env.application(config_map(f"a{number}"), name=f"a{number}", to="hung")
        await member.until_seen("get", "/api/v1$")
        # What hangs is not given up before.
        await env.application(config_map("fine"), name="fine", to="good")
        await env.until_running("good", "fine")
        member.heal()
        for number in range(8):
            await env.until_running("hung", f"a{number}")


async def test_a_kubeconfig_that_changes_ends_the_session(env, member, second_member):
    async with env.deploying():
        await env.deploy(member, config_map("a"))
        member.tokens = {"newer"}
        message = await env.until_offline()
        assert count(member) == 1
        await env.kubeconfig("one", env.kubeconfig_of(member, token="newer"))  # noqa: S106 - not a real token
        await env.until_online("one")
        await env.until(lambda status: is_true(status, "Deployed"))
        await env.client.delete(SECRETS, "one", "team")
        message = await env.until_offline()
        assert message == "Secret team/one, key kubeconfig: the Secret does not exist"


async def test_secrets_are_neither_listed_nor_watched(env, member):
    for verb in ("list", "watch"):
        env.api.forbid(verb, SECRETS)
    async with env.deploying():
        await env.add_member(member)
        await env.until_online("one")
    assert not env.api.seen("list", "/secrets")
    assert not env.api.seen("watch", "/secrets")
    assert len(env.api.seen("get", "/secrets/one$")) <= 4


async def test_a_certificate_that_is_trusted_no_more_has_the_kubeconfig_read_anew(env, member):
    authority = trustme.CA()
    async with env.deploying(kubeconfig_interval_seconds=3600):
        await env.add_member(member)
        await env.until_online("one")
        await member.stop()
        member.tls = server_context(authority)
        await member.start()
        await env.until_offline()
        await env.kubeconfig("one", env.kubeconfig_of(member, authorities=(authority,)))
        await env.accept(await env.until_bound("ServerChanged"))
        await env.until_online("one")


async def test_a_namespace_that_goes_leaves_nothing_on_its_cluster(env, member):
    async with env.deploying():
        await env.deploy(member, config_map("a"))
        member.fail_next("delete", "configmaps", None, kind="hang")
        await env.delete(CLUSTERS, "one")
        await env.delete()
        await env.client.delete(SECRETS, "one", "team")
        await member.until_seen("delete", "configmaps")
        # Long enough for a look at the Secret that is gone.
        seen = len(env.api.seen("get", "/secrets/one$"))
        await env.api.until_seen("get", "/secrets/one$", seen + 2)
        member.heal()
        await env.until_gone()
        await env.until_gone(CLUSTERS, "one")
        assert count(member) == 0


async def test_a_dead_cluster_and_its_application_go_together(env, member):
    async with env.deploying():
        await env.deploy(member, config_map("a"))
        member.fail_next("*", "", None, kind="reset")
        await env.until_offline("NoAnswer")
        await env.delete()
        await env.delete(CLUSTERS, "one")
        await env.until_gone(CLUSTERS, "one")
        await env.until_gone()
        assert "ClusterNotFound" in env.reasons_of()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254"])
@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_addresses_where_machines_trust_anybody_are_not_connected_to(env, member, host):
    text = env.kubeconfig_of(member).replace("127.0.0.1", host)
    async with env.deploying(allowed_addresses=()):
        await env.cluster("one", text=text)
        message = await env.until_offline()
    place = f"https://{host}:{member.port} (Secret team/one, key kubeconfig)"
    assert message.startswith(f"cannot connect to {place}: ")
    what = "a link-local address" if host.startswith("169") else "a loopback address"
    assert message.endswith(f" {what} (placement.members.allowedAddresses)")
    assert member.requests == []


async def test_what_two_clusters_share_is_not_deleted_by_one_of_them(env, member):
    async with env.deploying():
        for name in ("one", "two"):
            await env.add_member(member, name)
        await env.application(config_map("a"), to="one", migrationOrder="CreateFirst")
        await env.until_running("one")
        await env.schedule("two")
        await env.until_running("two")
        assert not member.seen("delete", "configmaps")
        await env.delete()
        await env.until_gone()
        assert count(member) == 0


async def test_credentials_that_ended_are_told(env, member, authority):
    ends = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    issued = authority.issue_cert("me@example.com", not_after=ends)
    pair = {
        "client-certificate-data": issued.cert_chain_pems[0].bytes(),
        "client-key-data": issued.private_key_pem.bytes(),
    }
    user = {name: base64.b64encode(pem).decode() for name, pem in pair.items()}
    async with env.deploying():
        await env.add_member(member, **user)
        message = await env.until_offline()
        assert message.startswith("Secret team/one, key kubeconfig: its credentials expired on ")
        assert message.endswith(" UTC: renew them")
        assert member.requests == []


@pytest.mark.slow
@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_session_ends_with_its_credentials_and_the_next_ones_open_another(env, member):
    def token(seconds):
        ends = (datetime.now(UTC) + timedelta(seconds=seconds)).timestamp()
        claims = base64.urlsafe_b64encode(json.dumps({"exp": int(ends)}).encode()).decode()
        return f"e30.{claims.rstrip('=')}.c2ln"

    async with env.deploying(kubeconfig_interval_seconds=3600):
        await env.add_member(member, token=token(4))
        await env.until_online("one")
        message = await env.until_offline()
        assert "its credentials expired on " in message
        await env.kubeconfig("one", env.kubeconfig_of(member, token=token(600)))
        await env.until_online("one")


async def test_a_restart_takes_nothing_for_lost(env, member, second_member):
    async with env.deploying():
        await env.add_member(member)
        await env.add_member(second_member, "two")
        await env.application(config_map("a"), to="one")
        await env.until_running("one")
    await env.schedule("two")
    # The old cluster is slow to answer: that is no reason to leave things behind.
    member.fail_next("list", "nodes", 1, kind="hang")
    async with env.deploying(request_timeout_seconds=0.3):
        await env.until_running("two")
        assert count(member) == 0
        assert "CleanupPending" not in env.reasons_of()


async def test_a_cluster_without_a_kubeconfig_is_left_alone(env):
    async with env.deploying():
        await env._create(CLUSTERS, "wanted", {})
        await env.cluster("bad", text="x")
        await env.until_offline(name="bad")
        assert "status" not in await env.fetch("wanted", CLUSTERS)
        await env.delete(CLUSTERS, "wanted")
        await env.until_gone(CLUSTERS, "wanted")


async def test_an_origin_whose_write_conflicts_is_written_by_the_next_pass(env, member):
    async with env.deploying():
        await env.add_member(member)
        await env.until_online("one")
        member.fail_next("patch", "configmaps", kind="hang")
        await env.application(config_map("a"), to="one")
        await member.until_seen("patch", "configmaps")
        env.api.fail_next("patch", "/applications/app/status$", status=409)
        member.release()
        status = await env.until(
            lambda status: any(obj.origin for group in status.inventory for obj in group.objects)
        )
        await env.until_running("one")
    ((recorded,),) = [group.objects for group in status.inventory]
    assert recorded.origin == "Made"
    assert recorded.uid
    assert len(member.seen("patch", "configmaps")) == 1


async def test_what_lost_its_label_is_left_when_the_application_goes(env, member):
    async with env.deploying():
        await env.deploy(member, config_map("a"))
        # A watch that is forbidden mends nothing.
        member.forbid("list", CONFIG_MAPS)
        (config,) = member.objects.all(CONFIG_MAPS).values()
        labels = {UID_LABEL: "somebody"}
        member.put(CONFIG_MAPS, {**config, "metadata": {**config["metadata"], "labels": labels}})
        await env.delete()
        await env.until_gone()
        assert count(member) == 1


async def test_a_namespace_that_may_hold_what_nobody_may_see_is_kept(env, member):
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "made"}}
    async with env.deploying():
        await env.cluster("one", text=env.kubeconfig_of(member), allowClusterScoped=True)
        await env.application(team, config_map("a", "made"), to="one")
        await env.until_running("one")
        member.forbid("list", SECRETS)
        # Not knowing for a while is no answer.
        member.fail_next("get", "/apis$", status=503)
        await env.delete()
        await env.until_gone()
    assert count(member) == 0
    assert count(member, NAMESPACES) == 1
    ((reason, text),) = [event[-2:] for event in env.events.sent if event[-1].startswith("Names")]
    assert reason == "NamespaceKept"
    assert "it holds perhaps secrets (" in text


async def test_pods_that_cannot_be_listed_are_held_at_their_gate_still(env, member):
    """krake-spec 7.7: another reason could move the application to a cluster without the gate."""
    async with env.deploying():
        metadata = {"name": "web-1", "namespace": "default", "labels": {"app": "web"}}
        spec = {"schedulingGates": [{"name": "example.com/hold"}]}
        member.put(PODS, {"metadata": metadata, "spec": spec})
        await env.deploy(member, deployment("web"))
        await env.until(lambda status: reason_of(status, "Ready") == "WaitingAtGate")
        seen = len(member.seen("list", "pods"))
        member.fail_next("list", "pods", None, status=500)
        report_replicas(member, available=0)
        await member.until_seen("list", "pods", seen + 1)
        # A change of the text is written by the next pass.
        member.heal()
        member.remove(PODS, "web-1", "default")
        (web,) = member.objects.all(DEPLOYMENTS).values()
        member.put(DEPLOYMENTS, {**web, "status": {"observedGeneration": 1, "replicas": 1}})
        await env.until(lambda status: reason_of(status, "Ready") == "ObjectsNotReady")
    patches = [request.body.decode() for request in env.api.seen("patch", "app/status$")]
    assert sum("ObjectsNotReady" in patch for patch in patches) == 1


async def test_pods_that_a_hung_cluster_does_not_list_delay_no_other(env, member, second_member):
    async with env.deploying(workers=1, request_timeout_seconds=1000.0):
        await env.add_member(member)
        await env.add_member(second_member, "good")
        await env.until_online("one", "good")
        member.fail_next("list", "pods", None, kind="hang")
        await env.application(deployment("web"), to="one")
        await member.until_seen("list", "pods")
        await env.application(config_map("a"), name="fine", to="good")
        await env.until_running("good", "fine")
        assert len(member.seen("list", "pods")) == 1
        member.heal()
        await env.until_running("one")


async def test_definitions_among_the_manifests_change_no_scope_of_what_is_served(env, member):
    extensions, rbac = "apiextensions.k8s.io", "rbac.authorization.k8s.io"

    def definition(group, kind):
        names = {"kind": kind, "plural": f"{kind.lower()}s"}
        return {
            "apiVersion": f"{extensions}/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{names['plural']}.{group}"},
            "spec": {
                "group": group,
                "names": names,
                "scope": "Namespaced",
                "versions": [{"name": "v1"}],
            },
        }

    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "all"}}
    false = (definition(extensions, "CustomResourceDefinition"), definition(rbac, "ClusterRole"))
    async with env.deploying():
        await env.add_member(member)
        await env.application(*false, role, to="one")
        message = await env.until_fault("InvalidManifests")
        assert "is cluster-scoped, which its Cluster does not allow" in message


async def test_it_is_recorded_that_an_application_was_ready_on_its_cluster(env, member):
    async with env.deploying():
        await env.deploy(member, deployment("web"))
        status = await env.until(lambda status: reason_of(status, "Ready") == "ObjectsNotReady")
        assert status.awaits_ready
        report_replicas(member)
        status = await env.until(lambda status: is_true(status, "Ready"))
        assert not status.awaits_ready
        # What happens to it later does not matter.
        report_replicas(member, available=0)
        status = await env.until(lambda status: not is_true(status, "Ready"))
        assert not status.awaits_ready


async def test_an_invalid_pod_hides_no_pod_at_a_gate(env, member):
    gated = {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}
    for name, rest in (("web-1", {"spec": {"schedulingGates": "none"}}), ("web-2", gated)):
        metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}}
        member.put(PODS, {"metadata": metadata, **rest})
    async with env.deploying():
        await env.deploy(member, deployment("web"))
        await env.until(lambda status: reason_of(status, "Ready") == "WaitingAtGate")


async def test_where_it_failed_nothing_is_kept_until_it_is_ready_elsewhere(
    env, member, second_member
):
    async with env.deploying():
        await env.add_member(member)
        await env.add_member(second_member, "two")
        await env.application(deployment("web"), to="one", migrationOrder="CreateFirst")
        await env.until_running("one")
        await env.schedule("two", failedClusters=[{"name": "one"}])
        await env.until_running("two")
        assert count(member, DEPLOYMENTS) == 0
        assert count(second_member, DEPLOYMENTS) == 1
        status = await env.until(lambda status: status.running_on.name == "two")
        assert status.awaits_ready


async def test_a_custom_resource_is_ready_when_its_users_say_so(env, member, second_member):
    """krake-spec 7.6: the old copy stays until the new one is what ``spec.readiness`` says."""
    boats = Resource("example.com", "v1", "boats", "Boat")

    def report_health(api, health):
        (boat,) = api.objects.all(boats).values()
        api.put(boats, {**boat, "status": {"health": health}})

    boat = {"apiVersion": boats.api_version, "kind": "Boat", "metadata": {"name": "main"}}
    tests = [{"kind": "Boat", "field": "status.health", "values": ["green", "yellow"]}]
    for api in (member, second_member):
        api.define(boats)
    async with env.deploying():
        await env.add_member(second_member, "two")
        await env.deploy(member, boat, migrationOrder="CreateFirst", readiness=tests)
        text = "Boat default/main: status.health is not green or yellow"
        await env.until(lambda status: message_of(status, "Ready") == text)
        report_health(member, "yellow")
        await env.until(lambda status: is_true(status, "Ready"))
        await env.schedule("two")
        await second_member.until_seen("patch", "/boats/main")
        report_health(second_member, "launching")
        waiting = "waiting for it to be ready"
        await env.until(lambda status: message_of(status, "Deployed") == waiting)
        assert count(member, boats) == 1
        report_health(second_member, "green")
        await env.until_running("two")
        assert count(member, boats) == 0
        # Without a change of the object, its last answer is judged again.
        await env.update(boat, readiness=[{"kind": "Boat", "condition": "Afloat"}])
        text = "Boat default/main: condition Afloat is missing"
        await env.until(lambda status: message_of(status, "Ready") == text)


async def test_readiness_is_seen_also_where_nothing_may_be_watched(env, member):
    member.forbid("list", DEPLOYMENTS)
    async with env.deploying():
        await env.deploy(member, deployment("web"))
        report_replicas(member)
        await env.until(lambda status: is_true(status, "Ready"))


async def test_nothing_is_written_for_an_application_that_waits_for_a_confirmation(env, member):
    since = lambda: format_rfc3339(datetime.now(UTC) + timedelta(days=1))  # noqa: E731 - a clock
    async with env.deploying(since=since):
        await env.add_member(member)
        await env.until_online("one")
        await env.application(config_map("a"))
        await env.application(config_map("b"), name="bound", to="one")
        await env.until_running("one", "bound")
        assert not env.api.seen("patch", "/applications/app")
        assert count(member) == 1
        # Nor when it ends: nothing of ours holds it.
        await env.delete()
        await env.until_gone()
        assert not env.api.seen("patch", "/applications/app")


def secret(name, value, allowed=""):
    notes = {"annotations": {ALLOW_COPY: allowed}} if allowed else {}
    metadata = {"name": name, "namespace": "team", **notes}
    return {"metadata": metadata, "data": {"password": base64.b64encode(value).decode()}}


@pytest.mark.claim("P7")
async def test_a_secret_is_copied_only_with_its_consent_and_again_when_it_changes(env, member):
    def passwords():
        secrets = member.objects.all(SECRETS).values()
        return {secret["metadata"]["name"]: secret["data"]["password"] for secret in secrets}

    async with env.deploying(kubeconfig_interval_seconds=0.05):
        await env.add_member(member)
        env.api.put(SECRETS, secret("db", b"first"))
        given = [{"name": "db", "targetName": "login"}]
        await env.application(config_map("a"), to="one", secrets=given)
        message = await env.until_fault("SecretNotCopied")
        assert message.startswith("secrets[0]: Secret team/db does not allow this application to ")
        assert message.endswith(f"secret db -n team {ALLOW_COPY}=app")
        assert passwords() == {}
        assert count(member) == 0
        env.api.put(SECRETS, secret("db", b"first", "app"))
        await env.until_running("one")
        assert passwords() == {"login": base64.b64encode(b"first").decode()}
        seen = len(member.seen("patch", "/secrets"))
        env.api.put(SECRETS, secret("db", b"second", "app"))
        await member.until_seen("patch", "/secrets", seen + 1)
        await env.until_running("one")
        assert passwords() == {"login": base64.b64encode(b"second").decode()}
        # What is not allowed any more is not updated, and stays.
        env.api.remove(SECRETS, "db", "team")
        text = "secrets[0]: Secret team/db does not exist: "
        assert (await env.until_fault("SecretNotCopied")).startswith(text)
        assert len(passwords()) == 1
        await env.delete()
        await env.until_gone()
        assert passwords() == {}


@pytest.mark.claim("P7")
async def test_the_kubeconfig_of_a_cluster_is_not_copied_whatever_its_secret_says(env, member):
    async with env.deploying():
        await env.add_member(member)
        (secret,) = env.api.objects.all(SECRETS).values()
        metadata = {**secret["metadata"], "annotations": {ALLOW_COPY: "*"}}
        env.api.put(SECRETS, {**secret, "metadata": metadata})
        await env.application(config_map("a"), to="one", secrets=[{"name": "one"}])
        message = await env.until_fault("SecretNotCopied")
        assert "Secret team/one has the kubeconfig of Cluster one, which is never copied" in message
        assert count(member, SECRETS) == 0


async def test_a_move_that_is_taken_back_says_what_it_deletes(env, member, second_member):
    async with env.deploying(ready_timeout_seconds=0.5):
        await env.add_member(member)
        await env.add_member(second_member, "two")
        await env.application(deployment("web"), to="one", migrationOrder="CreateFirst")
        await env.until_running("one")
        await env.schedule("two")
        await env.until(lambda status: status.migration_retries == 1)
        await env.until_running("one")
    ((text,),) = [event[-1:] for event in env.events.sent if event[-2] == "RolledBack"]
    assert text.endswith("(failure 1); on two: deletes Deployment default/web")
    assert count(second_member, DEPLOYMENTS) == 0


async def test_a_copied_secret_is_read_again_after_a_pass_longer_than_the_interval(
    env, member, monkeypatch
):
    read = deployment_pass.read_copies

    async def slow(*given):
        copies = await read(*given)
        time.sleep(0.02)  # noqa: ASYNC251 - a pass is longer than the interval
        return copies

    monkeypatch.setattr(deployment_pass, "read_copies", slow)
    async with env.deploying(kubeconfig_interval_seconds=0.01):
        await env.add_member(member)
        env.api.put(SECRETS, secret("db", b"first", "app"))
        await env.application(config_map("a"), to="one", secrets=[{"name": "db"}])
        await env.until_running("one")
        await asyncio.sleep(1)
        patches = len(member.seen("patch", "/secrets"))
        env.api.put(SECRETS, secret("db", b"second", "app"))
        async with asyncio.timeout(60):
            await member.until_seen("patch", "/secrets", patches + 1)


async def test_an_application_with_secrets_whose_cluster_is_away_waits_for_a_change(
    env, member, monkeypatch
):
    passes = []
    run = DeploymentPass.run

    async def record_pass(self):
        passes.append(self)
        return await run(self)

    monkeypatch.setattr(DeploymentPass, "run", record_pass)
    async with env.deploying(kubeconfig_interval_seconds=0.05):
        await env.add_member(member)
        env.api.put(SECRETS, secret("db", b"first", "app"))
        await env.application(config_map("a"), to="one", secrets=[{"name": "db"}])
        await env.until_running("one")
        await member.stop()
        await env.until_cluster(lambda status: status.state == "Offline", "one")
        await asyncio.sleep(1)
        before = len(passes)
        await asyncio.sleep(10)
        assert len(passes) == before


async def test_a_secret_whose_name_no_object_can_have_is_said_not_to_exist(env, member):
    async with env.deploying():
        await env.add_member(member)
        await env.application(config_map("a"), to="one", secrets=[{"name": ".."}])
        message = await env.until_fault("SecretNotCopied")
        assert message.startswith("secrets[0]: Secret team/.. does not exist: ")


async def test_a_cluster_that_does_not_say_what_it_serves_refuses_nothing(env, member):
    async with env.deploying():
        await env.add_member(member)
        await env.until_online("one")
        member.fail_next("get", "/apis/apps/v1$", None, status=500)
        await env.application(deployment("web"), to="one")
        await env.until_fault("CheckFailed")
        member.heal()
        await env.until(lambda status: is_true(status, "Deployed"))


async def test_a_move_that_is_taken_back_leaves_the_generation_that_was_checked_there(
    env, member, second_member
):
    async with env.deploying(ready_timeout_seconds=0):
        await env.add_member(member)
        await env.add_member(second_member, "two")
        checks = {"preDeployment": {"tasks": ["smoke"]}}
        await env.application(deployment("web"), migrationOrder="CreateFirst", checks=checks)
        first = msgspec.convert((await env.fetch())["metadata"], Metadata)
        assert await Revisions(env.client).keep(first) == ""
        record = {"generation": first.generation, "name": "one", "result": "Passed"}
        await env.schedule("one", checked=[record])
        await env.until_running("one")
        await env.update(deployment("other"), approve=False)
        await env.schedule("two", checked=[{**record, "generation": 2, "name": "two"}, record])

        def is_back(status):
            reasons = {event[-2] for event in env.events.sent}
            return "RolledBack" in reasons and status.scheduled_to.name == "one"

        status = await env.until(is_back)
    assert status.scheduled_generation == first.generation
    assert [ref.name for objects in status.inventory for ref in objects.objects] == ["web"]
