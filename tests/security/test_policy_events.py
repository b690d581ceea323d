"""The webhook on an API server whose tenants change large policies again and again."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harbourmaster.api.resources import NAMESPACES, POLICIES
from harbourmaster.certs.store import ensure
from helpers.certificates import strict_client
from helpers.fake_api import FakeApi
from helpers.objects import body, policy, workload
from helpers.oracles import NODE_REQUIRED
from helpers.processes import KUBECONFIG, Logged
from helpers.raw_http import Connection, post
from helpers.server import QUICKLY, is_behind

TIMEOUT = 3
"""Seconds that the API server waits for an answer, as it is registered."""
VALUES = [f"v{index}" for index in range(12_000)]
SPEC = {"podSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": VALUES}]}}
CROWD = 60
"""Policies that nothing happens to."""
TERMS = 43_000
CHANGES = 3
"""Changes of each kind before one of the bystander's own policy takes effect."""


def labelled(number):
    """A small policy that changes nothing but its labels."""
    manifest = policy("small", "tenant")
    return {**manifest, "metadata": {**manifest["metadata"], "labels": {"number": str(number)}}}


def small(number):
    return policy("small", "tenant", nodeSelector={"number": str(number)})


def large(number):
    """A policy of as many empty terms as there may be."""
    affinity = {"nodeAffinity": {NODE_REQUIRED: {"nodeSelectorTerms": [{}] * TERMS}}}
    selector = {"number": str(number)}
    return policy("terms", "tenant", pods={"a": "-"}, nodeSelector=selector, affinity=affinity)


def own(number):
    """The bystander's policy, in another namespace."""
    return policy("own", "ns1", nodeSelector={"round": str(number)})


def patch(number):
    """Return the patch of a pod."""
    return [{"op": "add", "path": "/spec/nodeSelector", "value": {"round": str(number)}}]


class Webhook(Logged):
    """A webhook on that API server; it serves when the construction returns."""

    host = "127.0.0.1"

    def __init__(self, directory, api):
        ensure(directory, ("localhost",), datetime.now(UTC))
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(port=api.port))
        command = [Path(sys.executable).with_name("harbourmaster"), "webhook"]
        command += [f"--kubeconfig={kubeconfig}", f"--cert-dir={directory}", *QUICKLY]
        super().__init__([*command, "--gating=schedulingGates"], "serving")
        self.port = int(self.first["reviews"].rpartition(":")[2])
        self.tls = strict_client((directory / "ca.crt").read_bytes())


@pytest.fixture
async def api():
    async with FakeApi() as fake_api:
        for name in ("ns1", "tenant"):
            fake_api.put(NAMESPACES, {"metadata": {"name": name}})
        fake_api.put(POLICIES, own(0))
        for index in range(CROWD):
            fake_api.put(POLICIES, {**policy(f"crowd-{index}", "tenant"), "spec": SPEC})
        yield fake_api


@pytest.fixture
async def asking(api, tmp_path):
    """Return a function that asks as the API server does, and gives the patch."""
    webhook = await asyncio.to_thread(Webhook, tmp_path, api)
    wire = await Connection.open(webhook, webhook.tls)

    request = post(body(workload("Pod"), namespace="ns1"), path="/mutate")

    async def ask():
        async with asyncio.timeout(TIMEOUT):
            # The API server repeats a call that is refused with Retry-After.
            while is_behind(answer := await wire.ask(request)):
                pass
        assert answer.status == 200, answer
        return json.loads(base64.b64decode(json.loads(answer.body)["response"]["patch"]))

    yield ask
    await wire.drop()
    await asyncio.to_thread(webhook.kill)
    assert webhook.errors == []


@pytest.mark.claim("W11")
async def test_changes_of_policies_delay_no_review_of_another_tenant(api, asking):
    for number, changed in enumerate((labelled, small, large) * 2, 1):
        for change in range(CHANGES):
            api.put(POLICIES, changed(number * CHANGES + change))
        api.put(POLICIES, own(number))
        # A change of their own takes effect, and until then each review is answered as before.
        seen = [await asking()]
        while seen[-1] != patch(number):
            seen.append(await asking())
        assert all(answer in (patch(number - 1), patch(number)) for answer in seen)
