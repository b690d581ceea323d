"""A change of the enforcing component under load: no pod is missed or changed twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import msgspec
import pytest

from harbourmaster.api.resources import PODS
from harbourmaster.playground import api
from harbourmaster.policies.enforcement import ENFORCEMENT_KEY, QUIET
from helpers.delegation import FIRST, MODED, RULES, SECOND, TOLERATION, binding, hash_of, mutation
from helpers.objects import cluster_policy
from helpers.patience import WAIT
from helpers.processes import client_of

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

CLIENTS = 8
PODS_IN_ALL = 5000
POLICY = cluster_policy(MODED.replace("example.com/", ""), pods={MODED: "yes"}, **RULES)
REFERENCE = "ClusterPodSchedulingPolicy moded"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "moded-", "labels": {MODED: "yes"}},
    "spec": {"containers": [{"name": "moded", "image": "registry.example.com/moded:1"}]},
}


class Creations:
    """Clients that create pods until they are stopped; what is wrong with any pod is kept."""

    def __init__(self, client):
        self.client = client
        self.phase = "Webhook"
        self.created = Counter()
        self.wrong = Counter()
        self.is_over = asyncio.Event()
        self.has_all = asyncio.Event()

    async def run(self):
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._create())

    async def _create(self):
        while not self.is_over.is_set():
            phase = self.phase
            raw = await self.client.create(PODS, POD, "default")
            spec = msgspec.json.decode(raw)["spec"]
            times = spec["tolerations"].count(TOLERATION), spec.get("nodeSelector")
            if times != (1, RULES["nodeSelector"]):
                self.wrong[phase, str(times)] += 1
            self.created[phase] += 1
            if self.created.total() >= PODS_IN_ALL:
                self.has_all.set()
            await asyncio.sleep(0.1)


class Modes:
    """Changes who enforces the policy, as a person does by kubectl."""

    def __init__(self, plane):
        self._kubectl = plane.kubectl

    async def kubectl(self, *arguments, objects=()):
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return await asyncio.to_thread(self._kubectl, *arguments, stdin=given)

    async def set(self, mode, reason):
        change = f"{ENFORCEMENT_KEY}={mode}"
        await self.kubectl("annotate", "--overwrite", "clusterpodschedulingpolicy/moded", change)
        path = "{.status.conditions[0].reason}"
        told = f"--for=jsonpath={path}={reason}"
        await self.kubectl("wait", "clusterpodschedulingpolicy/moded", told, WAIT)


def count_matches(installed):
    """Return the number of reviews that the policy has selected in all webhooks."""
    texts = [api.ask(f"{webhook.health}/metrics")[1] for webhook in installed.installation.webhooks]
    lines = [line for text in texts for line in text.splitlines() if REFERENCE in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines if "matches" in line)


async def test_no_pod_is_missed_or_changed_twice_while_the_mode_changes(harbour):
    hashes = {REFERENCE: hash_of(POLICY)}
    async with harbour(webhooks=2) as installed, client_of(installed.plane.kubeconfig) as client:
        modes, load = Modes(installed.plane), Creations(client)
        await modes.kubectl("apply", "-f=-", objects=[POLICY])
        first = await client.create(PODS, POD, "default", dry_run=True)
        assert RULES["nodeSelector"] == msgspec.json.decode(first)["spec"]["nodeSelector"]
        running = asyncio.create_task(load.run())
        await modes.set("Both", "NotCompiled")

        load.phase = "Both"
        await modes.kubectl("apply", "-f=-", objects=[mutation(hashes)])
        await modes.kubectl("apply", "-f=-", objects=[binding()])
        await modes.set("Both", "ModeIsBoth")
        await asyncio.sleep(QUIET)
        await modes.set("APIServer", "Enforced")

        load.phase = "APIServer"
        await asyncio.sleep(5.0)
        before = await asyncio.to_thread(count_matches, installed)
        name = installed.installation.webhooks[0].name
        await asyncio.sleep(5.0)
        assert await asyncio.to_thread(count_matches, installed) == before
        # One that starts again knows nothing of the past 30 s.
        await asyncio.to_thread(installed.installation.kill, name)
        await asyncio.to_thread(installed.installation.launch, name)
        await installed.all_ready()

        load.phase = "a new set"
        await modes.kubectl("apply", "-f=-", objects=[mutation(hashes, SECOND)])
        await modes.kubectl("apply", "-f=-", objects=[binding(SECOND)])
        gone = f"mutatingadmissionpolicy/{mutation(hashes, FIRST)['metadata']['name']}"
        await modes.kubectl("delete", gone)
        await asyncio.sleep(QUIET + 5.0)

        load.phase = "Both again"
        await modes.set("Both", "ModeIsBoth")
        await asyncio.sleep(QUIET)
        await modes.kubectl("delete", "-f=-", objects=[binding(SECOND), mutation(hashes, SECOND)])
        await modes.set("Webhook", "ModeIsWebhook")

        load.phase = "Webhook again"
        await load.has_all.wait()
        load.is_over.set()
        await running
    print(dict(load.created))  # noqa: T201 - figures to note
    assert load.wrong == {}
