"""Our verdicts beside those of the real kube-scheduler: a node for each case, all at once.

Nobody plays these nodes: what is on them stays as it was written. Without a kubelet they count as
ready for less than a minute, in which all is done.
"""

from __future__ import annotations

import asyncio
import json
import time

import msgspec
import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import NODES, PODS
from harbourmaster.kube.reflector import Reflector
from helpers.fit_cases import (
    AMONG_DOMAINS,
    CASES,
    NAMESPACES,
    OVERHEAD,
    OWN,
    PLENTY,
    RUNTIME_CLASS,
    pod,
    verdict,
)
from helpers.patience import WAIT, Changes
from helpers.processes import client_of

PIN = "example.com/fit-case"
WIDTH = 16
SENTINEL = "fit-sentinel"
TOGETHER_SECONDS = 60


@pytest.fixture(scope="module")
def plane(control_plane):
    """The shared control plane with the namespaces of the cases."""
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        for name, labels in NAMESPACES.items()
    ]
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": RUNTIME_CLASS},
        "handler": "fit",
        "overhead": {"podFixed": OVERHEAD},
    }
    everything = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects, runtime]})
    control_plane.kubectl("create", "-f=-", stdin=everything)
    for name in NAMESPACES:
        control_plane.kubectl(
            "wait", "--for=create", WAIT, "serviceaccount/default", f"--namespace={name}"
        )
    yield control_plane
    control_plane.kubectl("delete", "--wait=false", "-f=-", stdin=everything)


class Batch:
    """All cases at once, on one API server."""

    def __init__(self, client):
        self._client = client
        self._width = asyncio.Semaphore(WIDTH)
        self._changes = Changes()
        self._pods = Reflector(
            client,
            PODS,
            msgspec.json.decode,
            namespace=OWN,
            on_change=self._changes.tell,
        )

    async def run(self, cases):
        """The cases as they are stored once the scheduler has seen each of their pods."""
        watch = asyncio.create_task(self._pods.run())
        try:
            settings = {name: case.on(name) for name, case in cases.items()}
            nodes = await self._all(self._node(node, node) for node, _, _ in settings.values())
            others = await self._all(
                self._node(neighbour, settings[name][0])
                for name, case in cases.items()
                for neighbour in case.others_on(name)
            )
            present = await self._all(
                self._present(name, pods) for name, (_, pods, _) in settings.items()
            )
            await self._until_noticed()
            await self._all(self._incoming(name, pod) for name, (_, _, pod) in settings.items())
            incoming = await self._until_judged(settings)
            beside = [
                [pod for pod in others if pod["metadata"]["labels"][PIN] == name]
                for name in settings
            ]
            return list(zip(nodes, beside, present, incoming, strict=True))
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await self._clear()

    async def _clear(self):
        at_once = msgspec.json.encode({"gracePeriodSeconds": 0})
        paths = [(PODS.path(name), {}) for name in NAMESPACES]
        for path, query in (*paths, (NODES.path(), {"labelSelector": PIN})):
            await self._client.request(
                "DELETE", path, query=query, body=at_once, content_type="application/json"
            )

    async def _all(self, several):
        async def create(work):
            async with self._width:
                return await work

        return await asyncio.gather(*map(create, several))

    async def _node(self, node, first):
        """A node that is ready from the first; the taint of new ones is taken away."""
        name = node["metadata"]["name"]
        node["metadata"]["labels"][PIN] = first["metadata"]["name"]
        await self._client.create(NODES, node)
        taints = MergePatch({"spec": {"taints": node["spec"]["taints"] or None}})
        return msgspec.json.decode(await self._client.patch(NODES, name, taints))

    async def _present(self, node, pods):
        return [await self._there(node, index, pod) for index, pod in enumerate(pods)]

    async def _there(self, node, index, given):
        """A pod on its node, in the state that the case gives."""
        is_leaving, status = given.pop("leaving", False), given.pop("status", None)
        name, namespace = f"{node}-{index}", given["metadata"]["namespace"]
        given["metadata"]["name"] = name
        given["spec"].setdefault("nodeName", node)
        stored = await self._client.create(PODS, given, namespace)
        if status is not None:
            patch = MergePatch({"status": status})
            stored = await self._client.patch(PODS, name, patch, namespace, subresource="status")
        if is_leaving:
            await self._client.delete(PODS, name, namespace)
            stored = await self._client.get(PODS, name, namespace)
        return msgspec.json.decode(stored)

    async def _incoming(self, name, given):
        given["metadata"]["name"] = name
        given["spec"]["nodeSelector"] = {**given["spec"].get("nodeSelector", {}), PIN: name}
        return await self._client.create(PODS, given, OWN)

    async def _until_noticed(self):
        """Wait until the scheduler knows all that there is: it uses what came last."""
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": SENTINEL, "labels": {}},
            "spec": {"taints": []},
            "status": {
                "allocatable": PLENTY,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        await self._incoming(SENTINEL, pod())
        await self._node(node, node)
        await self._changes.until(lambda: self._find_bound(SENTINEL))

    async def _until_judged(self, names):
        def judged_pods():
            stored = [self._pods.store.get(f"{OWN}/{name}") for name in names]
            return all(pod and (_is_bound(pod) or _is_refused(pod)) for pod in stored) and stored

        return await self._changes.until(judged_pods)

    def _find_bound(self, name):
        pod = self._pods.store.get(f"{OWN}/{name}")
        return pod and _is_bound(pod)


def _is_bound(pod):
    return "nodeName" in pod["spec"]


def _is_refused(pod):
    conditions = pod["status"].get("conditions", ())
    return any(
        condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
        for condition in conditions
    )


async def test_verdicts_are_those_of_the_scheduler(plane):
    everything = [*CASES, *AMONG_DOMAINS]
    cases = {f"fit-{number}": case for number, case in enumerate(everything)}
    result = plane.kubectl("get", "namespaces", "--output=json")
    namespaces = json.loads(result.stdout)["items"]
    begun = time.monotonic()
    async with client_of(plane.kubeconfig) as client:
        stored = await Batch(client).run(cases)
    seconds = time.monotonic() - begun
    differing = {}
    for case, (node, others, present, incoming) in zip(cases.values(), stored, strict=True):
        # Our check does not see where the pod went.
        waiting = {**incoming, "spec": {**incoming["spec"], "nodeName": ""}}
        ours = verdict(node, others, present, waiting, namespaces)
        theirs = _is_bound(incoming)
        if not ours.fits is theirs is case.fits:
            said = [
                condition.get("message") for condition in incoming["status"].get("conditions", ())
            ]
            differing[case.name] = {
                "expected": case.fits,
                "ours": (ours.fits, ours.reasons),
                "theirs": (theirs, said),
            }
    print(f"\n{len(cases)} verdicts of the scheduler in {seconds:.1f} s")  # noqa: T201
    assert differing == {}
    assert len(cases) >= 300
    assert seconds < TOGETHER_SECONDS
