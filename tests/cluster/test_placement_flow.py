"""From the manifest to the member: one management cluster, two members and a real Prometheus."""

from __future__ import annotations

import asyncio
import base64
import shlex
import uuid

import pytest
import yaml

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    APPLICATIONS,
    CLOUDS,
    CLUSTERS,
    CONFIG_MAPS,
    GLOBAL_CLOUDS,
    GLOBAL_METRICS,
    GLOBAL_PROVIDERS,
    NODES,
    SECRETS,
)
from harbourmaster.api.times import moment
from harbourmaster.cli import main as cli
from helpers.cluster import create, role_binding, role_of, why_refused
from helpers.manifests import DEPLOY
from helpers.patience import PATIENCE
from helpers.placement_flow import (
    FLAGS,
    Flow,
    Member,
    changed_kubeconfig,
    config_map,
    flow_in,
    is_true,
    reason_of,
)
from helpers.placement_members import listening
from helpers.processes import Controller, client_of
from helpers.schemas import apply_definitions

pytestmark = pytest.mark.gate

CLUSTER_GUARD = DEPLOY / "components/guards/cluster-guard.yaml"


@pytest.fixture
async def flow(request, control_plane):
    async with flow_in(control_plane, request.node.name) as flow, flow.watching():
        yield flow


@pytest.mark.full
async def test_it_is_placed_by_a_metric_moved_by_it_updated_and_deleted(
    flow, planes, members, gauges, capsys
):
    first, two = members
    await flow.prometheus(gauges, green=0.9, coal=0.3)
    async with flow.placing():
        await flow.cluster("one", planes[0], metrics=flow.weights(green=1))
        await flow.cluster("two", planes[1], metrics=flow.weights(coal=1))
        await flow.until_online("one", "two")
        await flow.application(config_map("first", first.namespace, a="1"))
        await flow.until_running("one")
        assert await first.names() == {"first"}
        assert await two.names() == set()
        placed = moment((await flow.stored())["status"]["scheduledTime"])
        await asyncio.to_thread(gauges.set, flow.query("green"), 0.1)
        await flow.until_running("two")
        status = (await flow.fetch())["status"]
        assert (moment(status["scheduledTime"]) - placed).total_seconds() >= 4
        assert await first.names() == set()
        assert await two.names() == {"first"}
        record = status["lastDecision"]
        assert (record["outcome"], record["chosen"]) == ("Moved", "two")
        term = record["candidates"][0]["terms"][0]
        assert (term["value"], term["normalised"]) == (0.3, 0.3)
        assert await asyncio.to_thread(cli.main, flow.why()) == 0
        told = capsys.readouterr().out
        assert ", which is placed on 'two'" in told
        assert "  * two: 0.3\n" in told
        assert "runner-up: one, 0.18" in told
        # A user's update is applied where it is, for the hold-off is not over.
        await flow.update(
            config_map("first", first.namespace, b="2"),
            config_map("second", first.namespace),
            approve=False,
        )
        await flow.until_running("two")
        assert await two.names() == {"first", "second"}
        assert (await two.get(CONFIG_MAPS, "first"))["data"] == {"b": "2"}
        await flow.delete()
        await flow.until_gone()
        assert await two.names() == set()
        moved = '_placement_decisions_total{kind="Application",outcome="Moved"} 1.0'
        assert moved in await flow.process.metrics()


@pytest.mark.full
async def test_a_constraint_on_a_metric_and_a_label_is_kept(flow, planes, members, gauges):
    first, two = members
    await flow.prometheus(gauges, load=0.8, calm=0.2)
    async with flow.placing():
        await flow.cluster("one", planes[0], metrics=flow.weights(load=1))
        await flow.cluster("two", planes[1], metrics=flow.weights(load=1, calm=1))
        for name, place in (("one", "DE"), ("two", "SK")):
            await flow.change(CLUSTERS, name, {"metadata": {"labels": {"location": place}}})
        await flow.until_online("one", "two")
        constraints = {
            "cluster": {
                "labels": ["location in (DE, SK)"],
                "metrics": [f"{flow.metric_name('calm')} less than 0.5"],
            }
        }
        await flow.application(config_map("first", first.namespace), constraints=constraints)
        await flow.until_running("two")
        assert await first.names() == set()
        # Nothing else suits: it stays where it is, and says so.
        await asyncio.to_thread(gauges.set, flow.query("calm"), 0.9)
        await flow.until(lambda status: reason_of(status, "Scheduled") == "NoSuitableTarget")
        assert await two.names() == {"first"}
        await flow.change(APPLICATIONS, "app", {"spec": {"constraints": {"cluster": None}}})
        await flow.until(lambda status: is_true(status, "Scheduled"))


async def only_new_ones_avoid(flow, cluster, elsewhere):
    """A new application goes to the other cluster; the one that is there stays."""
    before = (await flow.fetch())["status"]
    assert before["scheduledTo"]["name"] == cluster
    name = f"new-{uuid.uuid4().hex[:8]}"
    await flow.application(config_map(name, "default"), name=name)
    await flow.until_running(elsewhere, name)
    after = (await flow.fetch())["status"]
    assert after["scheduledTo"] == before["scheduledTo"]
    assert after["scheduledTime"] == before["scheduledTime"]
    assert after["runningOn"]["name"] == cluster
    assert "pendingCleanup" not in after
    await flow.delete(name=name)
    await flow.until_gone(name=name)


async def test_a_member_that_goes_down_keeps_its_applications(flow, planes, members):
    lost, two = members
    plane = planes[0]
    name = f"kept-{uuid.uuid4().hex[:8]}"
    async with flow.placing():
        await flow.cluster("lost", plane)
        await flow.until_online("lost")
        await flow.application(config_map(name, "default"))
        await flow.until_running("lost")
        await flow.cluster("two", planes[1])
        await flow.until_online("two")
        await asyncio.to_thread(plane.kill, "kube-apiserver")
        await flow.until_cluster(lambda status: status.state == "Offline", "lost")
        await only_new_ones_avoid(flow, "lost", "two")
        await flow.until(lambda status: reason_of(status, "Ready") == "ClusterUnreachable")
        await asyncio.to_thread(plane.restart, "kube-apiserver")
        await flow.until_online("lost")
        await flow.until(lambda status: is_true(status, "Ready"))
        assert await lost.get(CONFIG_MAPS, name, "default") is not None
        assert await two.get(CONFIG_MAPS, name, "default") is None


async def test_a_node_that_is_not_ready_stops_new_placements_only(flow, planes, members):
    first, two = members
    node = f"node-{uuid.uuid4().hex[:8]}"
    async with flow.placing():
        await flow.cluster("one", planes[0])
        await flow.until_online("one")
        await flow.application(config_map("first", first.namespace))
        await flow.until_running("one")
        await flow.cluster("two", planes[1])
        await flow.until_online("two")
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
        await first.client.create(NODES, body)
        try:
            conditions = [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]
            patch = MergePatch({"status": {"conditions": conditions}})
            await first.client.patch(NODES, node, patch, subresource="status")
            await flow.until_cluster(lambda status: status.state == "NotReady", "one")
            await only_new_ones_avoid(flow, "one", "two")
            # With another one, half of them are ready.
            body["metadata"]["name"] = second_node = f"{node}-b"
            await first.client.create(NODES, body)
            conditions[0]["status"] = "True"
            patch = MergePatch({"status": {"conditions": conditions}})
            await first.client.patch(NODES, second_node, patch, subresource="status")
            status = await flow.until_cluster(lambda status: status.state == "Online", "one")
            (condition,) = [
                condition for condition in status.conditions if condition.type == "NodesReady"
            ]
            assert condition.message == f"1 of 2 nodes are ready: node {node} is not ready"
        finally:
            for name in (node, f"{node}-b"):
                await first.client.delete(NODES, name, missing_ok=True)
        assert await first.names() == {"first"}
        assert await two.names() == set()


async def test_credentials_that_are_refused_or_gone_are_no_failover(flow, planes, members):
    first, two = members
    text = planes[0].kubeconfig.read_text()

    def mistype_token(config):
        config["users"][0]["user"] = {"token": "mistyped"}

    async with flow.placing(
        "--placement-on-unreachable=Move",
        "--placement-offline-after-seconds=0",
        "--placement-members-kubeconfig-interval-seconds=0.5",
    ):
        await flow.cluster("one", text=text)
        await flow.until_online("one")
        await flow.application(config_map("first", first.namespace))
        await flow.until_running("one")
        await flow.cluster("two", planes[1])
        await flow.until_online("two")
        for wrong, message in (
            (changed_kubeconfig(planes[0], mistype_token), "refuses the credentials"),
            ("no kubeconfig", "key kubeconfig: "),
            ("", "the Secret does not exist"),
        ):
            if wrong:
                await flow.kubeconfig("one", wrong)
            else:
                await flow.client.delete(SECRETS, "one", flow.namespace)
            status = await flow.until_cluster(
                lambda status, message=message: any(
                    condition.type == "Reachable" and message in condition.message
                    for condition in status.conditions
                ),
                "one",
            )
            assert status.state == "Offline"
            assert reason_of(status, "Reachable") == "InvalidCredentials"
            await only_new_ones_avoid(flow, "one", "two")
            await flow.kubeconfig("one", text)
            await flow.until_online("one")
        assert await first.names() == {"first"}
        assert await two.names() == set()


@pytest.mark.full
async def test_a_member_that_goes_down_is_left_where_that_is_set_and_cleaned_when_it_returns(
    flow, planes, members
):
    lost, two = members
    plane = planes[0]
    name = f"left-{uuid.uuid4().hex[:8]}"
    moving = flow.placing("--placement-on-unreachable=Move", "--placement-offline-after-seconds=3")
    async with moving:
        await flow.cluster("lost", plane)
        await flow.until_online("lost")
        await flow.application(config_map(name, "default"))
        await flow.until_running("lost")
        await flow.cluster("two", planes[1])
        await flow.until_online("two")
        await asyncio.to_thread(plane.kill, "kube-apiserver")
        await flow.until_cluster(lambda status: status.state == "Offline", "lost")
        silent = await flow.until_cluster(lambda status: not is_true(status, "Reachable"), "lost")
        # By no choice: the hold-off does not matter.
        status = await flow.until_running("two")
        since = next(condition for condition in silent.conditions if condition.type == "Reachable")
        moved = moment((await flow.fetch())["status"]["scheduledTime"])
        assert (moved - moment(since.last_transition_time)).total_seconds() >= 3
        assert [entry.cluster for entry in status.pending_cleanup] == ["lost"]
        (message,) = [
            condition.message for condition in status.conditions if condition.type == "Deployed"
        ]
        assert message == (
            "on cluster two; what is left on cluster lost may run too until it answers"
        )
        assert await two.get(CONFIG_MAPS, name, "default") is not None
        await asyncio.to_thread(plane.restart, "kube-apiserver")
        await flow.until_online("lost")
        await flow.until(lambda status: not status.pending_cleanup)
        assert await lost.get(CONFIG_MAPS, name, "default") is None
        status = await flow.until_running("two")
        (message,) = [
            condition.message for condition in status.conditions if condition.type == "Deployed"
        ]
        assert message == "on cluster two"
        await flow.delete()
        await flow.until_gone()
        assert await two.get(CONFIG_MAPS, name, "default") is None


@pytest.mark.claim("P8")
async def test_a_secret_leads_nowhere_else_and_users_do_not_write_the_binding(
    flow, planes, control_plane
):
    """The user may edit the namespace and the status of Clusters (krake-spec 7.10)."""
    kubectl, user = control_plane.kubectl, f"tenant-of-{flow.namespace}"
    rule = {"apiGroups": [CLUSTERS.group], "resources": ["clusters/status"], "verbs": ["patch"]}
    role = role_of("Role", {"name": "status", "namespace": flow.namespace}, rule)
    create(
        kubectl,
        role,
        role_binding("status", flow.namespace, user, "status", "Role"),
        role_binding("edit", flow.namespace, user, "edit"),
    )

    def patch(resource, name, value, subresource=None):
        path = resource.path(flow.namespace, name, subresource)
        return why_refused(kubectl, user, "PATCH", path, value, "merge-patch+json")

    try:
        kubectl("apply", f"--filename={CLUSTER_GUARD}")
        async with (
            listening() as listener,
            flow.placing("--placement-members-kubeconfig-interval-seconds=0.5"),
        ):
            await flow.cluster("one", planes[0])
            await flow.until_online("one")
            bound = (await flow.get(CLUSTERS, "one"))["status"]["server"]
            forged = {"status": {"server": {"url": listener.url}}}
            async with asyncio.timeout(PATIENCE):
                # A new policy takes a moment.
                while not (refused := patch(CLUSTERS, "one", forged, "status")):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            assert "only harbourmaster changes status.server of Clusters" in refused
            assert not patch(CLUSTERS, "one", {"status": {"servedKinds": ["a/v1/B"]}}, "status")
            config = yaml.safe_load(planes[0].kubeconfig.read_text())
            config["clusters"][0]["cluster"]["server"] = listener.url
            text = yaml.safe_dump(config)
            data = {"kubeconfig": base64.b64encode(text.encode()).decode()}
            assert not patch(SECRETS, "one", {"data": data})
            status = await flow.until_cluster(
                lambda status: reason_of(status, "ServerBound") == "ServerChanged", "one"
            )
            assert "forbidden" in patch(CLUSTERS, "one", {"spec": {"server": listener.url}})
            assert reason_of(status, "Reachable") == "InvalidCredentials"
            assert (await flow.get(CLUSTERS, "one"))["status"]["server"] == bound
            assert listener.connections == 0
            message = next(
                state.message for state in status.conditions if state.type == "ServerBound"
            )
            command = shlex.split(message.partition("to accept it: ")[2])
            await asyncio.to_thread(kubectl, *command[1:])
            await flow.until_found(lambda: listener.connections)
    finally:
        kubectl("delete", "--ignore-not-found", f"--filename={CLUSTER_GUARD}")


async def test_a_cluster_in_use_goes_when_its_applications_have_left(flow, planes, members):
    first, two = members
    async with flow.placing():
        await flow.cluster("one", planes[0])
        await flow.until_online("one")
        await flow.application(config_map("first", first.namespace))
        await flow.until_running("one")
        await flow.delete(CLUSTERS, "one")
        await flow.until(lambda status: reason_of(status, "Scheduled") == "NoSuitableTarget")
        assert (await flow.fetch("one", CLUSTERS))["metadata"]["finalizers"]
        assert await first.names() == {"first"}
        await flow.cluster("two", planes[1])
        await flow.until_running("two")
        await flow.until_gone(CLUSTERS, "one")
        assert await first.names() == set()
        assert await two.names() == {"first"}


@pytest.mark.full
async def test_a_cluster_that_is_to_be_created_gets_a_cloud_once(flow):
    stem = flow.namespace
    async with flow.placing():
        await flow.make(CLUSTERS, "wanted", {"constraints": {"cloud": {"labels": ["a is b"]}}})
        status = await flow.until_cluster(lambda status: status.state == "Degraded", "wanted")
        assert reason_of(status, "Scheduled") == "NoSuitableTarget"
        values = {"type": "static", "static": {"metrics": {"cost": 0.4}}}
        await flow.make(GLOBAL_PROVIDERS, f"{stem}-p", values)
        source = {"name": f"{stem}-p", "metric": "cost"}
        await flow.make(GLOBAL_METRICS, f"{stem}-m", {"min": 0, "max": 1, "provider": source})
        weights = [{"name": f"{stem}-m", "weight": 1, "scope": "Global"}]
        await flow.make(GLOBAL_CLOUDS, f"{stem}-c", {"metrics": weights}, labels={"a": "b"})
        hub = Member(flow.client, flow.namespace)
        obj = await hub.until(CLUSTERS, "wanted", lambda obj: obj["status"].get("scheduledTo"))
        placed = obj["status"]
        assert (placed["scheduledTo"]["kind"], placed["state"]) == ("GlobalCloud", "Pending")
        await flow.make(CLOUDS, "near", labels={"a": "b"})
        await asyncio.sleep(1)
        stored = await flow.fetch("wanted", CLUSTERS)
        assert stored["status"]["scheduledTime"] == placed["scheduledTime"]


@pytest.mark.full
async def test_it_is_idle_until_the_kinds_are_there(throwaway_control_plane, tmp_path, request):
    plane = await asyncio.to_thread(throwaway_control_plane, optional=())
    async with client_of(plane.kubeconfig) as client:
        process = await asyncio.to_thread(Controller, plane.kubeconfig, "default", *FLAGS)
        try:
            await asyncio.sleep(1)
            apply_definitions(plane.kubectl)
            flow = Flow(client, "default", plane.kubeconfig)
            async with flow.watching():
                await flow.cluster("self", plane)
                await flow.application(config_map("first"))
                await flow.until_running("self")
        finally:
            await asyncio.to_thread(process.stop)
        assert process.errors == []


async def give(flow, scraped, **values):
    """Give members values of the metric, at the same time."""
    await asyncio.gather(
        *(
            asyncio.to_thread(scraped.set, flow.query("carbon"), value, cluster=name)
            for name, value in values.items()
        )
    )


def recorded_values(status):
    """The value of each candidate, as the decision's record has it."""
    return {
        candidate["cluster"]: candidate["terms"][0]["value"]
        for candidate in status["lastDecision"]["candidates"]
    }


@pytest.mark.full
@pytest.mark.parametrize(
    "source",
    [
        {"metric": "avg by (cluster) (CARBON)", "byLabel": "cluster"},
        {"metric": 'avg(CARBON{cluster="$(cluster.name)"})'},
        {"metric": 'avg(CARBON{cluster="$(cluster.labels.site)"})'},
    ],
    ids=["label", "name", "labels"],
)
async def test_it_follows_the_value_of_the_clusters(flow, planes, members, gauges, capsys, source):
    first, two = members
    provider, metric = f"{flow.namespace}-prometheus", flow.metric_name("carbon")
    url = {"type": "prometheus", "prometheus": {"url": gauges.url}}
    await flow.make(GLOBAL_PROVIDERS, provider, url)
    query = source["metric"].replace("CARBON", flow.query("carbon"))
    source = {**source, "name": provider, "metric": query}
    await flow.make(GLOBAL_METRICS, metric, {"min": 0, "max": 1, "provider": source})
    await give(flow, gauges, one=0.9, two=0.2)
    async with flow.placing():
        for name, plane in zip(("one", "two"), planes, strict=True):
            await flow.cluster(name, plane, metrics=flow.weights(carbon=1))
            await flow.change(CLUSTERS, name, {"metadata": {"labels": {"site": name}}})
        await flow.until_online("one", "two")
        await flow.application(config_map("first", first.namespace))
        await flow.until_running("one")
        assert recorded_values((await flow.stored())["status"]) == {"one": 0.9, "two": 0.2}
        await give(flow, gauges, one=0.2, two=0.9)
        await flow.until_running("two")
        status = (await flow.stored())["status"]
        assert status["lastDecision"]["outcome"] == "Moved"
        assert recorded_values(status) == {"one": 0.2, "two": 0.9}
        assert await first.names() == set()
        assert await two.names() == {"first"}
        assert await asyncio.to_thread(cli.main, flow.why()) == 0
        told = capsys.readouterr().out
        assert "  * two: 0.9\n" in told
        assert f"{metric} 0.2" in told
