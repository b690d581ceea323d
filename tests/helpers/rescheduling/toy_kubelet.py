"""A kubelet for simulated nodes: it follows pods, and keeps every version of them.

A bound pod runs and is ready at once; one that is deleted ends after its grace, but 0.3 s at most.
Labels ask for something else: SLOW to take the whole grace, APART to end a second after the one
before, UNREADY never to be ready, UNSTARTED never to run, ENDED to be done at once.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import DISRUPTION_BUDGETS as BUDGETS
from harbourmaster.api.resources import EVENTS, NODES, PODS
from harbourmaster.kube.errors import ApiError, ConflictError, NotFoundError
from harbourmaster.kube.reflector import Reflector
from helpers.patience import PATIENCE, Changes
from helpers.rescheduling.objects import readiness

SLOW, APART, UNREADY, UNSTARTED, ENDED = (
    {f"example.com/{name}": "1"} for name in ("slow", "apart", "unready", "unstarted", "ended")
)
WORKERS = 8
LONGEST = 0.3
"""Seconds that a pod takes to end."""


class Seen(NamedTuple):
    """A version of an object, and when it was heard of (time.monotonic)."""

    at: float
    object: dict


class Cluster:
    """Pods, nodes, budgets and events of a control plane, with all of their versions by uid."""

    def __init__(self, client):
        self.client = client
        self.versions = {}
        self.gone = {}
        """The time at which each deletion was observed, by uid."""
        self._keys = {}
        self._changes = Changes()
        self._due = asyncio.Queue()
        self._tasks = []
        self._endings = {}
        self._last = {}
        self._reflectors = {
            resource: Reflector(
                client,
                resource,
                lambda raw, resource=resource: self._note(resource, raw),
                on_change=lambda keys, resource=resource: self._note_changes(resource, keys),
            )
            for resource in (PODS, NODES, BUDGETS, EVENTS)
        }

    async def __aenter__(self):
        # All tasks begin here: whoever ends a life in this loop ends what began meanwhile.
        running = [reflector.run() for reflector in self._reflectors.values()]
        running += [self._work() for _ in range(WORKERS)]
        self._tasks = [asyncio.create_task(coroutine) for coroutine in running]
        for reflector in self._reflectors.values():
            await reflector.synced.wait()
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def all(self, resource):
        """The objects that are there now."""
        return list(self._reflectors[resource].store.values())

    def find(self, resource, key):
        """One of them by ``namespace/name``, or None."""
        return self._reflectors[resource].store.get(key)

    def history(self, uid):
        """Every version of an object, oldest first."""
        return self.versions.get(uid, [])

    async def until(self, ask, patience=PATIENCE, why=None):
        """Wait until ``ask`` has an answer that is true; returns it."""
        try:
            return await self._changes.until(ask, patience)
        except TimeoutError:
            said = why() if why else ""
            raise AssertionError(f"not so after {patience:.0f} s: {said}") from None

    def _note(self, resource, raw):
        obj = msgspec.json.decode(raw)
        metadata = obj["metadata"]
        self.versions.setdefault(metadata["uid"], []).append(Seen(time.monotonic(), obj))
        if resource is PODS:
            self._keys.setdefault(_key(obj), []).append(metadata["uid"])
            self._care_for(obj)
        return obj

    def _note_changes(self, resource, keys):
        store = self._reflectors[resource].store
        for key in keys:
            if resource is PODS:
                there = store.get(key)
                for uid in self._keys.get(key, ()):
                    if there is None or there["metadata"]["uid"] != uid:
                        self.gone.setdefault(uid, time.monotonic())
        self._changes.tell()

    async def _work(self):
        while True:
            due = await self._due.get()
            act, *arguments = due
            try:
                await act(*arguments)
            except (NotFoundError, ConflictError):
                # It is another one by now, or none.
                continue
            except ApiError:
                asyncio.get_running_loop().call_later(LONGEST, self._due.put_nowait, due)

    def _care_for(self, pod):
        metadata, status = pod["metadata"], pod.get("status", {})
        if "nodeName" not in pod["spec"]:
            return
        if "deletionTimestamp" in metadata:
            self._end_in_time(pod)
        elif status.get("phase") == "Pending" and not _has(pod, UNSTARTED):
            self._due.put_nowait((self._start, metadata, _status(pod)))

    async def _start(self, metadata, status):
        await self.client.patch(
            PODS,
            metadata["name"],
            MergePatch({"metadata": {"uid": metadata["uid"]}, "status": status}),
            metadata["namespace"],
            subresource="status",
        )

    def _end_in_time(self, pod):
        metadata = pod["metadata"]
        grace = metadata.get("deletionGracePeriodSeconds", 0)
        if grace == 0:
            # It is kept by a finalizer alone.
            return
        now = asyncio.get_running_loop().time()
        end = now + min(grace, LONGEST)
        if _has(pod, SLOW):
            end = now + max(0.0, _seconds(metadata["deletionTimestamp"]) - time.time())
        if _has(pod, APART):
            end = self._endings.get(metadata["uid"], self._after_the_last(metadata, end))
        if end < self._endings.get(metadata["uid"], float("inf")):
            self._endings[metadata["uid"]] = end
            loop = asyncio.get_running_loop()
            loop.call_at(end, self._due.put_nowait, (self._end, metadata))

    def _after_the_last(self, metadata, end):
        end = max(end, self._last.get(metadata["namespace"], 0.0) + 1.0)
        self._last[metadata["namespace"]] = end
        return end

    async def _end(self, metadata):
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        await self.client.request(
            "DELETE",
            PODS.path(metadata["namespace"], metadata["name"]),
            body=msgspec.json.encode(body),
            content_type="application/json",
        )


def _status(pod):
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    phase = "Succeeded" if _has(pod, ENDED) else "Running"
    is_ready = phase == "Running" and not _has(pod, UNREADY)
    kept = [
        condition
        for condition in pod["status"].get("conditions", ())
        if condition["type"] != "Ready"
    ]
    return {"phase": phase, "startTime": now, "conditions": [*kept, readiness(is_ready)]}


def _has(pod, label):
    return label.items() <= pod["metadata"].get("labels", {}).items()


def _key(pod):
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _seconds(text):
    return datetime.fromisoformat(text).timestamp()
