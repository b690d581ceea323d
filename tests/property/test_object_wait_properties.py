"""Pods that wait for objects go if, and only if, all holds of the objects that there are."""

from __future__ import annotations

import asyncio
import contextlib
from unittest.mock import patch

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api import resources
from harbourmaster.controller.lifecycle.wait_watches import BY_ITEM, WaitWatches
from harbourmaster.gates.waits import KINDS, WAIT_FOR_KEY
from harbourmaster.kube.reflector import Reflector
from harbourmaster.lifecycle.gated_pods import decode_whole, items_of_pod
from harbourmaster.lifecycle.wait_items import wait_report
from harbourmaster.lifecycle.wait_targets import SERVICE_LABEL
from helpers.properties import cases

PROD = "prod"
NAMES = ("a", "b")
ITEMS = (
    *(f"{kind}/{name}" for kind in ("job", "deployment", "pod", "svc", "cm") for name in NAMES),
    "pod/app=a",
    "pod/app=b",
    "optional:pod/app=a",
    "optional:job/a",
    "optional:svc/a",
    "job/a#condition=Complete:False",
    "job/a#field=spec.size:2",
    "pod/app=b#condition=Ready:False",
)
STATUSES = ("True", "False")


NOTHING = st.just({})


def conditions(*names):
    """Lists of conditions; some of these may be missing."""
    condition = st.builds(
        lambda name, status: {"type": name, "status": status},
        *map(st.sampled_from, (names, STATUSES)),
    )
    return st.lists(condition, max_size=len(names), unique_by=lambda obj: obj["type"])


def thing(status=NOTHING, **spec):
    """Objects of one of the names, with labels, maybe being deleted."""
    return st.builds(
        lambda name, label, deleted, generation, status, spec: {
            "metadata": {
                "name": name,
                "namespace": PROD,
                "labels": {"app": label, SERVICE_LABEL: label} if label else {},
                "generation": generation,
                **({"deletionTimestamp": "2026-03-01T10:00:00Z"} if deleted else {}),
            },
            "spec": spec,
            "status": status,
        },
        st.sampled_from(NAMES),
        st.sampled_from(("", *NAMES)),
        st.booleans(),
        st.integers(1, 2),
        status,
        st.fixed_dictionaries(spec),
    )


def with_conditions(*names, **fields):
    return st.fixed_dictionaries({"conditions": conditions(*names), **fields})


ENDPOINTS = st.lists(st.sampled_from(({}, {"ready": True}, {"ready": False})), max_size=2)
OBJECTS = {
    resources.JOBS: thing(with_conditions("Complete", "Failed"), size=st.integers(1, 2)),
    resources.DEPLOYMENTS: thing(
        with_conditions("Available", observedGeneration=st.integers(0, 2))
    ),
    resources.PODS: thing(with_conditions("Ready")),
    resources.SERVICES: thing(),
    resources.CONFIG_MAPS: thing(),
    resources.SLICES: st.builds(
        lambda value, ready: {
            **value,
            "endpoints": [{"conditions": condition} for condition in ready],
        },
        thing(),
        ENDPOINTS,
    ),
}
CHANGES = st.one_of(
    *(
        st.tuples(st.just(resource), st.one_of(obj, st.sampled_from(NAMES)))
        for resource, obj in OBJECTS.items()
    )
)
"""An object that there is from now on, or the name of one that goes."""
WAITERS = st.tuples(
    st.sampled_from(("one", "two", "three")),
    st.lists(st.sampled_from(ITEMS), max_size=2, unique=True),
)
"""The items that a pod waits for from now on; without items it is deleted."""
STEPS = st.builds(
    lambda first, then: first + then,
    st.lists(WAITERS, min_size=2, max_size=3),
    st.lists(
        st.one_of(*[st.lists(CHANGES, min_size=2, max_size=6)] * 3, WAITERS),
        min_size=3,
        max_size=12,
    ),
)


def holds(text, objects):
    """Whether an item is met, from the objects as they are stored."""
    is_optional, text = text.startswith("optional:"), text.removeprefix("optional:")
    text, _, test = text.partition("#")
    kind, _, name = text.partition("/")
    resource = KINDS[{"svc": "service", "cm": "configmap"}.get(kind, kind)]
    key, is_label, value = name.partition("=")
    matching = [
        obj
        for (kind, its_name), obj in objects.items()
        if kind == resource
        and (obj["metadata"]["labels"].get(key) == value if is_label else its_name == name)
    ]
    if not matching:
        return is_optional
    return any(is_so(resource, obj, test, objects) for obj in matching)


def is_so(resource, obj, test, objects):
    status = {
        condition["type"]: condition["status"] for condition in obj["status"].get("conditions", ())
    }
    metadata = obj["metadata"]
    if "deletionTimestamp" in metadata:
        return False
    if test.startswith("condition="):
        name, _, wanted = test.removeprefix("condition=").partition(":")
        return status.get(name) == wanted
    if test:
        return str(obj["spec"]["size"]) == test.rpartition(":")[2]
    if resource == resources.JOBS:
        return status.get("Complete") == "True" and status.get("Failed") != "True"
    if resource == resources.DEPLOYMENTS:
        is_seen = obj["status"]["observedGeneration"] >= metadata["generation"]
        return is_seen and status.get("Available") == "True"
    if resource == resources.PODS:
        return status.get("Ready") == "True"
    if resource == resources.SERVICES:
        return any(
            obj["metadata"]["labels"].get(SERVICE_LABEL) == metadata["name"]
            and any(
                endpoint["conditions"].get("ready") is not False for endpoint in obj["endpoints"]
            )
            for (kind, _), obj in objects.items()
            if kind == resources.SLICES
        )
    return True


def waiter(name, items):
    metadata = {
        "name": name,
        "namespace": PROD,
        "uid": name,
        "annotations": {
            WAIT_FOR_KEY: ",".join(items),
            "gates.harbourmaster.dev/checks": "none",
        },
    }
    spec = {"schedulingGates": [{"name": "keptn-prechecks-gate"}]}
    return decode_whole(
        msgspec.json.encode({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    )


class World:
    """The watches with stores that steps fill, in place of an API server's."""

    def __init__(self):
        self.pods = Reflector(None, resources.PODS, decode_whole, {BY_ITEM: items_of_pod})
        self.waits = WaitWatches(None, self.pods, KINDS)
        self.objects = {}
        self.told = set()
        self.waits.subscribe(self.told.update)

    def fill(self, watch, resource, names=None):
        """Give a watch what there is; returns the keys that changed."""
        wanted = {
            f"{PROD}/{name}": watch.cache._reader._decode(msgspec.json.encode(obj))
            for (kind, name), obj in self.objects.items()
            if kind == resource
        }
        return frozenset(watch.cache.store.replace_all(wanted))

    async def settle(self):
        """Let watches begin and end."""
        for _ in range(3):
            await asyncio.sleep(0)
        for (resource, _), watch in list(self.waits._watches.items()):
            changed = self.fill(watch, resource)
            if changed:
                watch.cache.notify(changed)
            if not watch.cache.synced.is_set():
                watch.cache.synced.set()
                watch.cache._notify_state()

    async def take(self, step):
        if isinstance(step, tuple):
            name, items = step
            key = f"{PROD}/{name}"
            if items:
                self.pods.store.put(key, waiter(name, items))
            else:
                self.pods.store.remove(key)
            self.pods.notify(frozenset((key,)))
        else:
            for resource, change in step:
                if isinstance(change, str):
                    self.objects.pop((resource, change), None)
                else:
                    self.objects[resource, change["metadata"]["name"]] = change
        await self.settle()


async def never(_cache):
    await asyncio.Event().wait()


async def assert_history(steps):
    with patch.object(Reflector, "run", never):
        world = World()
        task = asyncio.create_task(world.waits.run())
        over = {}
        try:
            for step in steps:
                await world.take(step)
                is_pod = isinstance(step, tuple)
                for pod in world.pods.store.values():
                    report = wait_report(pod, world.waits.reports(PROD), 0.0)
                    texts = [
                        f"{'optional:' * item.is_optional}{item.text}"
                        for item in pod.wait_conditions.items
                    ]
                    right = all(holds(text, world.objects) for text in texts)
                    assert report.is_over == right, (texts, world.waits.reports(PROD))
                    # Nobody would look at it again otherwise.
                    if over.get(pod.key, right) != right and not is_pod:
                        assert pod.key in world.told
                    over[pod.key] = right
                world.told.clear()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@settings(max_examples=cases(1500))
@given(STEPS)
def test_a_pod_goes_if_and_only_if_all_that_it_waits_for_holds(steps):
    asyncio.run(assert_history(steps))
