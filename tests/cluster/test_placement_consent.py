"""Placement acts only with consent on existing applications, and on Secrets."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime

import pytest

from harbourmaster.api.resources import APPLICATIONS, CONFIG_MAPS, LEASES, SECRETS
from harbourmaster.api.times import format_rfc3339
from harbourmaster.cli import main as cli
from harbourmaster.controller.manager import PLACEMENT_SINCE
from harbourmaster.placement.deployed import ALLOW_COPY
from helpers.placement_flow import config_map, flow_in, is_true, theirs

pytestmark = pytest.mark.gate


@pytest.fixture
async def flow(request, control_plane):
    async with flow_in(control_plane, request.node.name) as flow, flow.watching():
        yield flow


async def until_older(flow, name):
    """Wait until what is switched on now is switched on later than an application was created."""
    created = (await flow.fetch(name))["metadata"]["creationTimestamp"]
    while format_rfc3339(datetime.now(UTC)) <= created:  # noqa: ASYNC110 - a clock
        await asyncio.sleep(0.05)


def message_of(status):
    return next(
        (condition.message for condition in status.conditions if condition.type == "Scheduled"), ""
    )


def confirm(flow, *names):
    arguments = ["placement", "confirm", *names, f"--kubeconfig={flow._kubeconfig}"]
    return asyncio.to_thread(cli.main, [*arguments, f"--namespace={flow.namespace}"])


async def is_untouched(flow, name):
    """Whether an application has nothing of ours but one condition."""
    stored = await flow.fetch(name)
    (condition,) = stored["status"].pop("conditions")
    assert not stored["status"]
    return condition["reason"] == "NotConfirmed" and "finalizers" not in stored["metadata"]


async def test_existing_applications_are_untouched_until_a_person_confirms_them(
    flow, planes, members, capsys
):
    first, two = members
    await theirs(first, "old", theirs="precious")
    before = await first.get(CONFIG_MAPS, "old")
    for name in ("old", "other"):
        await flow.application(config_map(name, first.namespace, a="ours"), name=name)
    await until_older(flow, "other")
    async with flow.placing() as process:
        await flow.cluster("one", planes[0])
        await flow.until_online("one")
        where = "it would be placed on 'one': to have it placed, run harbourmaster placement "
        for name in ("old", "other"):
            await flow.until(lambda status: where in message_of(status), name)
        await flow.application(config_map("new", first.namespace), name="new")
        await flow.until_running("one", "new")
        assert await first.names() == {"old", "new"}
        assert await first.get(CONFIG_MAPS, "old") == before
        assert await is_untouched(flow, "old")
        marks = (await flow.get(LEASES, "harbourmaster-controller"))["metadata"]["annotations"]
        await asyncio.to_thread(process.kill)
    async with flow.placing():
        # The next leader goes on: what runs is updated, and what waits still waits.
        await flow.update(config_map("newer", first.namespace), name="new", approve=False)
        await flow.until_running("one", "new")
        lease = await flow.get(LEASES, "harbourmaster-controller")
        assert lease["metadata"]["annotations"] == marks
        assert PLACEMENT_SINCE in marks
        assert await first.names() == {"old", "newer"}
        assert await first.get(CONFIG_MAPS, "old") == before
        assert await is_untouched(flow, "old")
        capsys.readouterr()
        assert await confirm(flow) == 1
        told = capsys.readouterr().out.splitlines()
        assert [line.partition(": ")[0] for line in told] == [
            f"{flow.namespace}/old",
            f"{flow.namespace}/other",
        ]
        assert await confirm(flow, "old") == 0
        await flow.until_running("one", "old")
        assert (await first.get(CONFIG_MAPS, "old"))["data"] == {"theirs": "precious", "a": "ours"}
        assert await is_untouched(flow, "other")
        assert await first.names() == {"old", "newer"}
        await flow.delete(name="other")
        await flow.until_gone(name="other")
    # Without the mark, what was placed once needs no confirmation.
    await flow.client.delete(LEASES, "harbourmaster-controller", flow.namespace)
    async with flow.placing():
        await flow.update(config_map("newest", first.namespace), name="new", approve=False)
        await flow.until_running("one", "new")
        for name in ("new", "old"):
            await flow.delete(name=name)
            await flow.until_gone(name=name)
    # It was there before.
    assert await first.names() == {"old"}
    assert await two.names() == set()


async def test_an_imported_application_stays_where_it_runs_once_it_is_confirmed(
    flow, planes, members
):
    first, two = members
    notes = {
        "placement.harbourmaster.dev/confirmed": "false",
        "placement.harbourmaster.dev/current-cluster": "two",
    }
    await theirs(two, "app", made="by Krake")
    async with flow.placing():
        for name, plane in zip(("one", "two"), planes, strict=True):
            await flow.cluster(name, plane)
        await flow.until_online("one", "two")
        obj = {
            "apiVersion": APPLICATIONS.api_version,
            "kind": APPLICATIONS.kind,
            "metadata": {"name": "app", "annotations": notes},
            "spec": {"manifests": [config_map("app", first.namespace, a="ours")]},
        }
        await flow.client.create(APPLICATIONS, obj, flow.namespace)
        await flow.until(lambda status: "it would be placed on 'two'" in message_of(status))
        assert await is_untouched(flow, "app")
        assert (await two.get(CONFIG_MAPS, "app"))["data"] == {"made": "by Krake"}
        assert await confirm(flow, "--all") == 0
        await flow.until_running("two")
        assert (await two.get(CONFIG_MAPS, "app"))["data"] == {"made": "by Krake", "a": "ours"}
        assert await first.names() == set()


async def test_a_secret_is_copied_with_its_consent_and_a_kubeconfig_never(flow, planes, members):
    first, _ = members

    async def secret(value, **annotations):
        metadata = {"annotations": annotations}
        data = {"password": base64.b64encode(value).decode()}
        await flow.change(SECRETS, "db", {"metadata": metadata, "data": data})

    async def until_copied(value):
        data = {"password": base64.b64encode(value).decode()}
        await first.until(SECRETS, "login", lambda obj: obj and obj["data"] == data)

    empty = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}}
    await flow.client.create(SECRETS, empty, flow.namespace)
    target = {"targetNamespace": first.namespace}
    async with flow.placing("--placement-members-kubeconfig-interval-seconds=1"):
        await flow.cluster("one", planes[0])
        await flow.until_online("one")
        await secret(b"first")
        given = [{"name": "db", "targetName": "login", **target}]
        await flow.application(config_map("a", first.namespace), secrets=given)
        message = await flow.until_fault("SecretNotCopied")
        assert f"run kubectl annotate --overwrite secret db -n {flow.namespace} " in message
        assert message.endswith(f"{ALLOW_COPY}=app")
        assert await first.names(SECRETS) == await first.names() == set()
        await secret(b"first", **{ALLOW_COPY: "app"})
        await flow.until_running("one")
        await until_copied(b"first")
        await secret(b"second")
        await until_copied(b"second")
        kubeconfig = {"metadata": {"annotations": {ALLOW_COPY: "*"}}}
        await flow.change(SECRETS, "one", kubeconfig)
        stolen = [{"name": "one", **target}]
        await flow.application(config_map("b", first.namespace), name="thief", secrets=stolen)
        message = await flow.until_fault("SecretNotCopied", "thief")
        assert "has the kubeconfig of Cluster one, which is never copied" in message
        assert await first.names(SECRETS) == {"login"}
        await flow.until(lambda status: is_true(status, "Deployed"))
        for name in ("app", "thief"):
            await flow.delete(name=name)
            await flow.until_gone(name=name)
        assert await first.names(SECRETS) == set()
