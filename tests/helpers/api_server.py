"""An API server in memory: which objects it serves, and what it answers to a request.

It has no network: ``fake_api`` serves it over HTTP, ``simulation.connection`` in process.
"""

from __future__ import annotations

import asyncio
import json
import re
from bisect import bisect_right
from typing import Any, NamedTuple
from urllib.parse import unquote

from harbourmaster.api import resources
from harbourmaster.api.resources import Resource
from helpers.fake_store import Objects, StatusError, encode, is_selected, partial, status

KNOWN = [variable for variable in vars(resources).values() if isinstance(variable, Resource)]
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
JSON = {"Content-Type": "application/json"}
PLAIN = {"Content-Type": "text/plain; charset=utf-8"}
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+)(?!/(?:status|finalize)$))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?"
)
VERSION_PATH = re.compile(r"/(?:api|apis/[^/]+)/[^/]+")


class UnknownPathError(Exception):
    """Nothing is served there; the API server says so without a Status."""


class Answer(NamedTuple):
    """An answer that is whole."""

    status: int
    body: bytes
    headers: dict[str, str] = JSON


def verb_of(method, path, query):
    """The verb of permissions."""
    if query.get("watch") == "true":
        return "watch"
    match = PATH.fullmatch(path)
    return VERBS.get(method) or ("get" if match is None or match["name"] else "list")


class ApiServer:
    """The server. ``tokens``, if set, holds the only ones that are let in.

    ``options`` are those of Objects.
    """

    def __init__(self, **options):
        self.objects = Objects(self._notify_watches, **options)
        self.tokens: set[str] | None = None
        self.streaming_lists = True
        self._defined = {
            (resource.group, resource.version, resource.plural): resource for resource in KNOWN
        }
        # In order: in a set it would follow from addresses.
        self._watches: dict[Watch, None] = {}

    # What is there

    def put(self, resource, obj):
        """Create or replace an object, as another client would; returns the stored object."""
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "")
        if (namespace, metadata["name"]) in self.objects.all(resource):
            present = self.get(resource, metadata["name"], namespace)["metadata"]
            versioned = {**metadata, "resourceVersion": present["resourceVersion"]}
            obj = {**obj, "metadata": versioned}
            return self.objects.replace(resource, namespace, metadata["name"], obj)
        return self.objects.create(resource, namespace, obj)

    def get(self, resource, name, namespace=""):
        """An object; raises KeyError."""
        return self.objects.all(resource)[namespace, name]

    def remove(self, resource, name, namespace=""):
        """Delete an object, as another client would."""
        self.objects.delete(resource, namespace, name)

    def define(self, resource):
        """Serve a kind; those of ``harbourmaster.api.resources`` are served from the beginning."""
        self._defined[resource.group, resource.version, resource.plural] = resource

    def undefine(self, resource):
        """Serve a kind no more: its objects go, its watches end, and requests find nothing."""
        del self._defined[resource.group, resource.version, resource.plural]
        for namespace, name in list(self.objects.all(resource)):
            self.remove(resource, name, namespace)
        for watch in self._watches:
            if watch.resource == resource:
                watch.queue.put_nowait(CLOSE)

    def compact(self):
        """Forget history: watches from before and continued lists are gone (410)."""
        self.objects.compact()

    def close_watches(self):
        """End all watches as the server does after their time."""
        self._order(CLOSE)

    def tear_watches(self):
        """End all watches within a line, by a reset."""
        self._order(TEAR)

    def bookmark(self):
        """Send a bookmark to all watches that want them."""
        for watch in self._watches:
            watch.bookmark(self.objects.version)

    # How it works

    def _order(self, what):
        for watch in self._watches:
            watch.queue.put_nowait(what)

    def _notify_watches(self, change):
        for watch in self._watches:
            if watch.resource is change.resource or watch.resource == change.resource:
                watch.tell(change)

    def answer(self, seen):
        """The answer to a request (``fake_api.Seen``): an Answer, or a Watch that has begun."""
        try:
            self._authenticate(seen)
            if seen.path == "/version":
                return _whole({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
            if seen.path == "/apis":
                return _whole(self._groups())
            if VERSION_PATH.fullmatch(seen.path):
                return _whole(self._served_kinds(seen.path))
            resource, namespace, name, subresource = self.find(seen)
            if seen.verb == "watch":
                shape = partial if _wants_partial(seen) else lambda obj: obj
                watch = Watch(resource, namespace, seen.query, shape)
                watch.begin(self.objects, streaming_lists=self.streaming_lists)
                # From here on nothing may be missed.
                self._watches[watch] = None
                return watch
            value = self._do(seen, resource, namespace, name, subresource)
        except StatusError as error:
            return _whole(error.body, error.code)
        except UnknownPathError:
            return Answer(404, b"404 page not found\n", PLAIN)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            return _whole(status(400, f"the body is not JSON: {error}"), 400)
        return _whole(value, 201 if seen.verb == "create" else 200)

    def end(self, watch):
        """Forget a watch that has no reader."""
        self._watches.pop(watch, None)

    def _authenticate(self, seen):
        token = seen.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens is not None and token not in self.tokens:
            raise StatusError(401, "Unauthorized")

    def _groups(self):
        """The groups with their versions, as discovery tells them."""
        versions_by_group = {}
        for resource in self._defined.values():
            if resource.group:
                versions_by_group.setdefault(resource.group, {})[resource.api_version] = None
        groups = [
            {"name": name, "versions": [{"groupVersion": version} for version in versions]}
            for name, versions in versions_by_group.items()
        ]
        return {"kind": "APIGroupList", "groups": groups}

    def _served_kinds(self, path):
        """The kinds of a version, as discovery tells them."""
        *_, group, version = path.split("/")
        group = "" if group == "api" else group
        resources = [resource for resource in self._defined.values() if resource.group == group]
        resources = [resource for resource in resources if resource.version == version]
        if not resources:
            raise UnknownPathError
        whole = [
            {
                "name": resource.plural,
                "kind": resource.kind,
                "namespaced": resource.namespaced,
                "verbs": ["get", "list", "watch"],
            }
            for resource in resources
        ]
        parts = [{**entry, "name": f"{entry['name']}/status"} for entry in whole]
        return {"kind": "APIResourceList", "resources": [*parts, *whole]}

    def find(self, seen):
        """Resource, namespace, name and subresource of a path; empty where there is none."""
        match = PATH.fullmatch(seen.path)
        parts = match.groupdict() if match else {}
        parts = {name: unquote(part or "") for name, part in parts.items()}
        resource = self._defined.get(
            (parts.get("group"), parts.get("version"), parts.get("plural"))
        )
        if resource is None:
            raise UnknownPathError
        if seen.verb in {"update", "patch", "delete"} and not parts["name"]:
            raise StatusError(405, "the server does not allow this method on the resource")
        return resource, parts["namespace"], parts["name"], parts["subresource"] or None

    def _do(self, seen, resource, namespace, name, subresource):
        objects, query = self.objects, seen.query
        dry_run = query.get("dryRun") == "All"
        if seen.verb == "list":
            page = objects.list(resource, namespace, query)
            if _wants_partial(seen):
                kinds = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
                page = {**page, **kinds, "items": [partial(item) for item in page["items"]]}
            return page
        if seen.verb == "get":
            return objects.get(resource, namespace, name)
        if seen.verb == "create":
            return objects.create(resource, namespace, json.loads(seen.body), dry_run=dry_run)
        if seen.verb == "update":
            value = json.loads(seen.body)
            return objects.replace(
                resource, namespace, name, value, subresource=subresource, dry_run=dry_run
            )
        if seen.verb == "patch":
            content_type = seen.headers.get("Content-Type")
            return objects.patch(
                resource, namespace, name, seen.body, content_type, query, subresource=subresource
            )
        options = json.loads(seen.body) if seen.body else None
        return objects.delete(resource, namespace, name, options)


def _wants_partial(seen):
    return "as=PartialObjectMetadata" in seen.headers.get("Accept", "")


def _whole(value, code=200):
    return Answer(code, encode(value))


CLOSE, TEAR = object(), object()


class Watch:
    """One open watch; what it is to be sent, in order."""

    def __init__(self, resource, namespace, query, shape):
        self.resource, self.namespace, self.query, self.shape = resource, namespace, query, shape
        self.queue = asyncio.Queue()

    def tell(self, change):
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
                if is_selected(obj, self.query, self.namespace):
                    self.send("ADDED", obj)
            if initial:
                self.bookmark(objects.version, end=True)
        elif int(version) < objects.compacted:
            gone = f"too old resource version: {version} ({objects.compacted})"
            self.send("ERROR", status(410, gone, "Expired"))
            self.queue.put_nowait(CLOSE)
        else:
            start = bisect_right(objects.history, int(version), key=lambda change: change.version)
            for change in objects.history[start:]:
                if change.resource == self.resource:
                    self.tell(change)
