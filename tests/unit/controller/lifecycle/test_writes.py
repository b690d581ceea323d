from __future__ import annotations

import asyncio

import msgspec

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import PODS, WORKLOADS
from harbourmaster.controller.lifecycle.pods import GatedPodReconciler
from harbourmaster.controller.lifecycle.writes import (
    WrittenObjects,
    create,
    fetch,
    is_end_of_namespace,
)
from harbourmaster.kube.errors import ForbiddenError, NotFoundError
from harbourmaster.kube.store import Store
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.lifecycle.model import ResourceReference, Workload, WorkloadSpec, WorkloadStatus
from helpers.gated import PROD, pod, put
from helpers.lifecycle import context_of


def workload(version="1"):
    return Workload(
        metadata=Metadata(name="shop-a", namespace=PROD),
        spec=WorkloadSpec(
            app="shop",
            version=version,
            resource_reference=ResourceReference(uid="", kind="", name=""),
        ),
    )


async def test_an_object_of_the_model_is_made_and_read(api, client):
    made = await create(client, WORKLOADS, workload(), PROD)
    assert made.metadata.uid
    assert await fetch(client, WORKLOADS, Workload, "shop-a", PROD) == made
    assert await fetch(client, WORKLOADS, Workload, "none", PROD) is None
    stored = api.get(WORKLOADS, "shop-a", PROD)
    assert (stored["apiVersion"], stored["kind"]) == (WORKLOADS.api_version, WORKLOADS.kind)
    assert made.status == WorkloadStatus()


def test_a_namespace_that_ends():
    text = "unable to create new content in namespace a because it is being terminated"
    assert is_end_of_namespace(ForbiddenError(text, status=403))
    assert not is_end_of_namespace(ForbiddenError("may not", status=403))
    assert not is_end_of_namespace(NotFoundError(text, status=404))


async def test_what_was_written_counts_until_the_watch_brings_something():
    store = Store()
    written = WrittenObjects(store)
    assert written.get("a") is None
    first, second, third, foreign = (stored_workload(revision) for revision in "1239")
    written.put("a", first)
    assert written.get("a") == first
    store.put("a", foreign)
    assert written.get("a") == foreign
    written.put("a", second)
    written.put("a", third)
    assert written.get("a") == third
    # The watch brings one write after the other.
    store.put("a", second)
    assert written.get("a") == third
    store.remove("a")
    assert written.get("a") is None


def stored_workload(revision):
    reference = ResourceReference(uid="rs-1", kind="ReplicaSet", name="a")
    spec = WorkloadSpec(app="a", version="1", resource_reference=reference)
    return Workload(metadata=Metadata(name="a", resource_version=revision), spec=spec)


async def test_what_the_watch_does_not_bring_in_time_is_forgotten(monkeypatch):
    """The object was perhaps deleted before the watch delivered it."""
    written = WrittenObjects(Store())
    written.put("a", stored_workload("1"))
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now + 6)
    assert written.get("a") is None


async def test_nobody_need_ask_for_it_to_be_forgotten(monkeypatch):
    written = WrittenObjects(Store())
    written.put("a", stored_workload("1"))
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now + 6)
    written.put("b", stored_workload("2"))
    assert set(written._ahead) == {"b"}


async def test_a_watch_that_is_behind_lets_nothing_be_made_twice(api, client, monkeypatch):
    context = context_of(client)
    pods = GatedPodReconciler(context, lambda _key: None)
    for number in range(5):
        stored = put(api, PODS, pod(f"waiter-{number}"))
        decoded = decode_pod(msgspec.json.encode(stored))
        context.caches.pods.store.put(decoded.key, decoded)
    await asyncio.gather(*(pods.reconcile(key) for key in pods.map_changes(None)))
    assert len(api.seen("create")) == 2
