"""Flows on a real control plane: a namespace with gates, every version of what is in it, and waits.

What a flow waits for comes by a watch. What must *not* happen is looked at after a signal that it
would have happened by then, see ``Flow.stay_gated``.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import uuid
from datetime import UTC, datetime

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    ANALYSES,
    APP_CREATION_REQUESTS,
    APP_VERSIONS,
    APPS,
    CONFIG_MAPS,
    EVALUATIONS,
    EVENTS,
    JOBS,
    KEPTN_METRICS,
    METRICS_PROVIDERS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.kube.client import Client
from harbourmaster.kube.reflector import Reflector
from helpers.flow.manifests import (
    GATE,
    OUTCOME,
    PROVIDER,
    RESOURCES,
    deployment,
    keptn,
    metric,
    of_kind,
    without_outcome,
)
from helpers.patience import PATIENCE, Changes

RELEASED = "keptn.sh/scheduling-gate-removed"
OPT_IN = {"keptn.sh/lifecycle-toolkit": "enabled"}
PASSER_BY = "passer-by"
WATCHED = (
    ANALYSES,
    APP_CREATION_REQUESTS,
    APP_VERSIONS,
    APPS,
    CONFIG_MAPS,
    EVALUATIONS,
    EVENTS,
    JOBS,
    KEPTN_METRICS,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)


def differences(expected, actual, path=""):
    """The differences of ``actual`` from ``expected``, a line each.

    Maps may hold more; lists have the same length and are alike index by index; a function says
    itself whether it likes what is there.
    """
    if callable(expected):
        return [] if expected(actual) else [f"{path} is {actual!r}"]
    if isinstance(expected, dict) and isinstance(actual, dict):
        return [
            line
            for key, value in expected.items()
            for line in differences(value, actual.get(key), f"{path}.{key}")
        ]
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = enumerate(zip(expected, actual, strict=True))
        return [line for at, pair in pairs for line in differences(*pair, f"{path}[{at}]")]
    return [] if expected == actual else [f"{path} is {actual!r}, not {expected!r}"]


def gates(pod):
    """The names of a pod's scheduling gates."""
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]


def is_released(pod):
    """Whether the pod went through its gate and was bound to a node."""
    annotations = pod["metadata"].get("annotations", {})
    return not gates(pod) and annotations.get(RELEASED) == "true" and "nodeName" in pod["spec"]


def phases(status):
    """The states of a version, without times and children."""
    states = {key: value for key, value in status.items() if key.lower().endswith("status")}
    states = {key: value for key, value in states.items() if isinstance(value, str)}
    return {**states, "currentPhase": status.get("currentPhase", "")}


class Flow:
    """A namespace of one test, with all that happens in it."""

    def __init__(self, client, namespace, *, enabled=True, stays=False):
        self.client = client
        self.namespace = namespace
        self._stays = stays
        self._annotations = OPT_IN if enabled else {}
        self._seen = {}
        self._changes = Changes()
        self._numbers = itertools.count(1)
        self._tasks = []
        self._watching = Client(client.connection)
        self._reflectors = {
            resource: Reflector(
                self._watching,
                resource,
                lambda raw, resource=resource: self._note(resource, raw),
                namespace=namespace,
                on_change=self._changes.tell,
            )
            for resource in WATCHED
        }

    async def __aenter__(self):
        metadata = {"name": self.namespace, "annotations": self._annotations}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        await self.client.create(NAMESPACES, body)
        await self._watching.__aenter__()
        self._tasks = [
            asyncio.create_task(reflector.run()) for reflector in self._reflectors.values()
        ]
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        await self.until(lambda: self.find(SERVICE_ACCOUNTS, "default"))
        return self

    async def __aexit__(self, *error):
        # Connections of cancelled requests would end at any time later.
        await self._watching.__aexit__(*error)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._stays:
            await self.client.delete(NAMESPACES, self.namespace, missing_ok=True)

    def _note(self, resource, raw):
        obj = msgspec.json.decode(raw)
        self._seen.setdefault((resource, obj["metadata"]["name"]), []).append(obj)
        return obj

    # What there is.

    def find(self, resource, name):
        """An object; None where there is none now."""
        return self._reflectors[resource].store.get(f"{self.namespace}/{name}")

    def all(self, resource, like=None):
        """The objects now that are like this, by name."""
        matching = self._reflectors[resource].store.values()
        matching = [obj for obj in matching if not differences(like or {}, obj)]
        return sorted(matching, key=lambda obj: obj["metadata"]["name"])

    def history(self, resource, name):
        """Every version of an object that there was, the oldest first."""
        return self._seen.get((resource, name), [])

    def writes(self, *resources):
        """Every version of all objects of these kinds, in the order of their writes."""
        seen = (obj for (resource, _), objs in self._seen.items() if resource in resources
                for obj in objs)  # fmt: skip
        return sorted(seen, key=lambda obj: int(obj["metadata"]["resourceVersion"]))

    def pods(self, part):
        """The pods of an owner that are not being deleted."""
        pods = self.all(PODS, {"metadata": {"labels": {"example.com/part": part}}})
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def events(self, name=None, **fields):
        """The events, regarding the object of that name only, in the order of their times."""
        like = fields if name is None else {**fields, "regarding": {"name": name}}
        return sorted(self.all(EVENTS, like), key=lambda obj: obj["eventTime"] or "")

    def reasons(self, name):
        """The reasons told of an object, in order."""
        return [event["reason"] for event in self.events(name)]

    def describe(self):
        """The state of everything, for who has to find out what is wrong."""
        lines = [
            f"{resource.kind} {obj['metadata']['name']}: {json.dumps(_outline(obj))}"
            for resource in WATCHED
            if resource not in {EVENTS, CONFIG_MAPS, SERVICE_ACCOUNTS, TASK_DEFINITIONS}
            for obj in self.all(resource)
        ]
        for event in self.events():
            when = (event["eventTime"] or "").partition("T")[2]
            about = f"{event['regarding']['kind']} {event['regarding']['name']}"
            text = event["note"].partition(" / ")[0]
            lines.append(f"{when} {about} {event['reason']}: {text}")
        lines = [line for line in lines if PASSER_BY not in line]
        return "\n".join(lines)

    # What is done.

    async def create(self, *manifests, namespace=None):
        """Create objects in their order; return the last one as it is stored."""
        stored = None
        for manifest in manifests:
            resource = RESOURCES[manifest["kind"]]
            space = namespace or self.namespace
            stored = msgspec.json.decode(await self.client.create(resource, manifest, space))
        return stored

    async def change(self, kind, name, value, *, subresource=None, namespace=None):
        """Change an object by a merge patch."""
        resource, space = RESOURCES[kind], namespace or self.namespace
        await self.client.patch(resource, name, MergePatch(value), space, subresource=subresource)

    async def delete(self, kind, name, **options):
        """Delete an object."""
        await self.client.delete(RESOURCES[kind], name, self.namespace, **options)

    async def let_end(self, count=1):
        """Let the Jobs' pods end that hang, once there are so many of them."""

        def hanging():
            like = {"metadata": {"labels": {OUTCOME: "hang"}}, "status": {"phase": "Running"}}
            return self.all(PODS, like)

        await self.until(lambda: len(hanging()) == count, why=lambda: f"{count} pods do not hang")
        for pod in hanging():
            await self.change("Pod", pod["metadata"]["name"], without_outcome())

    async def measure(self, name, value):
        """Let a metric have a value, from a provider of its namespace."""
        values = {"static": {"metrics": {name: value}}}
        if await self._is_there(METRICS_PROVIDERS, PROVIDER):
            await self.change("KeptnMetricsProvider", PROVIDER, {"spec": values})
        else:
            spec = {"type": "static", **values}
            await self.create(of_kind("KeptnMetricsProvider", PROVIDER, spec))
        if not await self._is_there(KEPTN_METRICS, name):
            await self.create(metric(name))
        await self.until_like(KEPTN_METRICS, name, {"status": {"value": value}})

    async def measure_by_hand(self, name, value):
        """Write a measurement as the controller of metrics would, if none runs."""
        await self.create(metric(name))
        raw = base64.b64encode(value.encode()).decode()
        stamped = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"value": value, "rawValue": raw, "lastUpdated": stamped}
        await self.change("KeptnMetric", name, {"status": status}, subresource="status")

    async def _is_there(self, resource, name):
        page = await self.client.list(resource, self.namespace)
        obj = (msgspec.json.decode(bytes(raw)) for raw in page.items)
        return any(item["metadata"]["name"] == name for item in obj)

    # What is waited for.

    async def until(self, condition, patience=PATIENCE, *, why=lambda: ""):
        """Wait until the condition holds; return what it gave."""
        try:
            return await self._changes.until(condition, patience)
        except TimeoutError:
            raise AssertionError(f"in vain: {why()}\n{self.describe()}") from None

    async def until_like(self, resource, name, expected, patience=PATIENCE):
        """Wait until an object is like this; return it."""

        def wrong():
            stored = self.find(resource, name)
            return (
                [f"no {resource.kind} {name}"] if stored is None else differences(expected, stored)
            )

        await self.until(lambda: not wrong(), patience, why=lambda: "; ".join(wrong()))
        return self.find(resource, name)

    async def until_all(self, resource, expected, count=1, patience=PATIENCE):
        """Wait until so many objects are like this; return them."""

        def current_objects():
            return self.all(resource, expected)

        def why():
            unlike = [differences(expected, obj) for obj in self.all(resource)]
            return f"{len(current_objects())} of {count} {resource.plural}, others: {unlike}"

        await self.until(lambda: len(current_objects()) == count, patience, why=why)
        return current_objects()

    async def until_told(self, reason, name=None, **fields):
        """Wait for an event; return it."""
        why = f"no event {reason} of {name or 'anything'} with {fields}"
        value = await self.until(
            lambda: self.events(name, reason=reason, **fields), why=lambda: why
        )
        return value[0]

    async def until_ended(self, resource, name, status="Succeeded", **states):
        """Wait until a version has ended so; return it."""
        return await self.until_like(resource, name, {"status": {"status": status, **states}})

    async def until_released(self, part, count=1, patience=PATIENCE):
        """Wait until an owner has so many pods, all of them let go; return them."""

        def current_objects():
            pods = self.pods(part)
            return pods if len(pods) == count and all(map(is_released, pods)) else None

        why = f"{count} pods of {part} are not released"
        return await self.until(current_objects, patience, why=lambda: why)

    async def until_gated(self, part, count=1):
        """Wait until an owner has so many pods that wait at our gate; return them."""

        def current_objects():
            pods = [pod for pod in self.pods(part) if GATE in gates(pod)]
            return pods if len(pods) == count else None

        return await self.until(
            current_objects, why=lambda: f"{count} pods of {part} are not gated"
        )

    async def stay_gated(self, *parts):
        """Assert that all pods of these owners wait, though the controller lets others go.

        Each is changed and looked at again, before another workload without checks is let
        through; and no version of any of them ever was without its gate.
        """
        held = [pod for part in parts for pod in self.pods(part)]
        assert held, f"no pods of {parts}"
        await self.stay_gated_pods(*held)

    async def stay_gated_pods(self, *held):
        """Assert that these single pods wait, though the controller lets others go."""
        note = {"metadata": {"annotations": {"example.com/touched": uuid.uuid4().hex}}}
        for pod in held:
            await self.change("Pod", pod["metadata"]["name"], note)
        await self.pass_through()
        for pod in held:
            assert self.find(PODS, pod["metadata"]["name"]) is not None, self.describe()
            self.assert_never_bound(pod)

    def assert_never_bound(self, pod):
        """Assert that no version of a pod was ever without its gate."""
        # One of a StatefulSet has the name of the one before.
        versions = self.history(PODS, pod["metadata"]["name"])
        uid = pod["metadata"]["uid"]
        for version in (state for state in versions if state["metadata"]["uid"] == uid):
            assert GATE in gates(version), self.describe()
            assert "nodeName" not in version["spec"]
            assert version["status"]["phase"] == "Pending"

    async def pass_through(self):
        """Let a workload without checks through: what was due before it has been done."""
        name = f"{PASSER_BY}-{next(self._numbers)}"
        await self.create(deployment(name, keptn(name)))
        await self.until_released(name)
        await self.until_ended(WORKLOAD_VERSIONS, f"{name}-{name}-1.0")


def _outline(obj):
    """The fields of an object that tell how it stands."""
    if obj["kind"] == "Pod":
        return {
            "gates": gates(obj),
            "node": obj["spec"].get("nodeName"),
            "phase": obj["status"].get("phase"),
            "owners": [
                reference["kind"] for reference in obj["metadata"].get("ownerReferences", ())
            ],
        }
    status = obj.get("status") or obj.get("spec", {})
    left_out = ("Time", "Trace", "conditions")
    return {key: value for key, value in status.items() if not any(map(key.count, left_out))}
