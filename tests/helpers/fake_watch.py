"""The open watches of the fake API server, each with what it is still to be sent."""

from __future__ import annotations

import asyncio
from typing import Any

from helpers.fake_store import StatusError, encode, selected, status

CLOSE, TEAR = object(), object()


class Watch:
    """One open watch; what it is to be sent, in order."""

    def __init__(self, resource, namespace, query, shape):
        self.resource, self.namespace, self.query, self.shape = resource, namespace, query, shape
        self.queue = asyncio.Queue()

    def tell(self, change):
        if change.resource == self.resource:
            event = change.event(self.query, self.namespace)
            if event is not None:
                self.send(*event)

    def send(self, kind, obj):
        obj = self.shape(obj) if kind not in {"BOOKMARK", "ERROR"} else obj
        self.queue.put_nowait(encode({"type": kind, "object": obj}) + b"\n")

    def bookmark(self, version, **annotations):
        if self.query.get("allowWatchBookmarks") == "true":
            metadata: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
            if annotations:
                metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
            kind, version = self.resource.kind, self.resource.api_version
            self.send("BOOKMARK", {"kind": kind, "apiVersion": version, "metadata": metadata})

    def begin(self, objects, *, streaming_lists):
        """Queue what is owed before anything new. Raises StatusError."""
        version = self.query.get("resourceVersion", "")
        initial = self.query.get("sendInitialEvents") == "true"
        if initial and not streaming_lists:
            raise StatusError(422, "sendInitialEvents: Forbidden: sendInitialEvents is forbidden")
        if initial or version in {"", "0"}:
            for _, obj in sorted(objects.all(self.resource).items()):
                if selected(obj, self.query, self.namespace):
                    self.send("ADDED", obj)
            if initial:
                self.bookmark(objects.version, end=True)
        elif int(version) < objects.compacted:
            gone = f"too old resource version: {version} ({objects.compacted})"
            self.send("ERROR", status(410, gone, "Expired"))
            self.queue.put_nowait(CLOSE)
        else:
            for change in objects.history:
                if change.version > int(version):
                    self.tell(change)
