"""An API server in memory that keeps the rules, and breaks them on demand.

``async with FakeApi() as api`` listens on a free port of 127.0.0.1, without TLS by default, and
``api.client()`` talks to it. Faults wait for the requests that they are for; ``api.requests`` tells
what came.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
from urllib.parse import unquote

from aiohttp import web

from harbourmaster.api import resources
from harbourmaster.api.resources import Resource
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import Connection
from helpers.fake_faults import HTML, Planned, Seen
from helpers.fake_store import Objects, StatusError, encode, partial, status
from helpers.fake_watch import CLOSE, TEAR, Watch

KNOWN = [each for each in vars(resources).values() if isinstance(each, Resource)]
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
JSON = {"Content-Type": "application/json"}
PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+)(?!/(?:status|finalize)$))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<subresource>[^/]+))?)?"
)
VERSION_PATH = re.compile(r"/(?:api|apis/[^/]+)/[^/]+")


class UnknownPathError(Exception):
    """Nothing is served there; the API server says so without a Status."""


class FakeApi(Planned):
    """The server. ``tokens``, if set, holds the only ones that are let in."""

    def __init__(self, *, tls=None):
        super().__init__()
        self.tls = tls
        self.objects = Objects(self._changed)
        self.tokens: set[str] | None = None
        self.streaming_lists = True
        self._defined = {(each.group, each.version, each.plural): each for each in KNOWN}
        self._watches: set[Watch] = set()
        self._speaking = asyncio.Event()
        self._speaking.set()
        self._released = asyncio.Event()
        self._changed_watches = asyncio.Condition()
        self._runner = None
        self.port = 0

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.stop()

    async def start(self):
        """Listen; after a stop on the same port, and with the same objects."""
        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, "127.0.0.1", self.port, ssl_context=self.tls, reuse_address=True
        )
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self):
        self.heal()
        self.close_watches()
        await self._runner.cleanup()

    @property
    def url(self):
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def connection(self):
        return Connection(server=self.url, source="a test")

    def client(self, **options):
        """A client, not yet opened."""
        return Client(self.connection, **options)

    # What is there

    def put(self, resource, obj):
        """Create or replace an object, as somebody else would; returns what is stored."""
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
        """Delete an object, as somebody else would."""
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

    # What goes wrong

    def heal(self):
        """Forget all faults, and release what hangs."""
        self.forget()
        self.release()

    def compact(self):
        """Forget history: watches from before and continued lists are gone (410)."""
        self.objects.compact()

    def close_watches(self):
        """End all watches as the server does after their time."""
        self._order(CLOSE)

    def tear_watches(self):
        """End all watches within a line, by a reset."""
        self._order(TEAR)

    def send_raw(self, data: bytes):
        """Send bytes to all watches."""
        self._order(data)

    def bookmark(self):
        """Send a bookmark to all watches that want them."""
        for watch in self._watches:
            watch.bookmark(self.objects.version)

    def silence(self):
        """Say nothing to any watch until ``release``; nothing is lost."""
        self._speaking.clear()

    def release(self):
        """Answer what hangs and tell the watches what they missed."""
        self._speaking.set()
        self._released.set()
        self._released = asyncio.Event()

    # What was seen

    @property
    def watches(self):
        """How many watches are open."""
        return len(self._watches)

    async def until_watched(self, count=1):
        """Wait for ``count`` open watches."""
        async with self._changed_watches:
            await self._changed_watches.wait_for(lambda: self.watches == count)

    # How it works

    def _order(self, what):
        for watch in self._watches:
            watch.queue.put_nowait(what)

    def _changed(self, change):
        for watch in self._watches:
            watch.tell(change)

    async def _answer(self, request):
        seen = await self._log(request)
        fault = self.fault_for(seen)
        if fault is None:
            return await self._right_answer(request, seen)
        answer = fault.answer
        if fault.kind == "status":
            body = answer["body"] or encode(status(answer["status"], "on demand"))
            return _response(body, answer["status"], answer["headers"])
        if fault.kind == "html":
            headers = {"Content-Type": "text/html", **answer["headers"]}
            return web.Response(body=HTML, status=answer["status"], headers=headers)
        if fault.kind == "garbage":
            return _response(answer["body"] or b'{"kind": nonsense', 200, {})
        if fault.kind == "redirect":
            return web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"})
        if fault.kind == "hang":
            await self._released.wait()
            return await self._right_answer(request, seen)
        if fault.kind == "torn":
            right = await self._right_answer(request, seen)
            torn = web.StreamResponse(status=right.status, headers=JSON)
            torn.content_length = len(right.body)
            await torn.prepare(request)
            await torn.write(right.body[: len(right.body) // 2])
            request.transport.close()
            return torn
        _reset(request)
        return web.Response()

    async def _log(self, request):
        path, query = request.rel_url.raw_path, dict(request.query)
        verb = VERBS.get(request.method)
        if verb is None:
            found = PATH.fullmatch(path)
            verb = "get" if found is None or found["name"] else "list"
            if query.get("watch") == "true":
                verb = "watch"
        now = asyncio.get_running_loop().time()
        body = await request.read()
        seen = Seen(now, verb, request.method, path, query, dict(request.headers), body)
        await self.note(seen)
        return seen

    async def _right_answer(self, request, seen):
        try:
            self._authenticate(seen)
            if seen.path == "/version":
                return _response(encode({"major": "1", "minor": "36", "gitVersion": "v1.36.3"}))
            if seen.path == "/apis":
                return _response(encode(self._groups()))
            if VERSION_PATH.fullmatch(seen.path):
                return _response(encode(self._served(seen.path)))
            resource, namespace, name, subresource = self._find(seen)
            if seen.verb == "watch":
                return await self._watch(request, resource, namespace, seen)
            value = self._do(seen, resource, namespace, name, subresource)
        except StatusError as error:
            return _response(encode(error.body), error.code)
        except UnknownPathError:
            return web.Response(text="404 page not found\n", status=404)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            return _response(encode(status(400, f"the body is no JSON: {error}")), 400)
        return _response(encode(value), 201 if seen.verb == "create" else 200)

    def _authenticate(self, seen):
        token = seen.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens is not None and token not in self.tokens:
            raise StatusError(401, "Unauthorized")

    def _groups(self):
        """The groups with their versions, as discovery tells them."""
        found = {}
        for each in self._defined.values():
            if each.group:
                found.setdefault(each.group, {})[each.api_version] = None
        groups = [
            {"name": name, "versions": [{"groupVersion": each} for each in versions]}
            for name, versions in found.items()
        ]
        return {"kind": "APIGroupList", "groups": groups}

    def _served(self, path):
        """The kinds of a version, as discovery tells them."""
        *_, group, version = path.split("/")
        group = "" if group == "api" else group
        found = [each for each in self._defined.values() if each.group == group]
        found = [each for each in found if each.version == version]
        if not found:
            raise UnknownPathError
        whole = [
            {
                "name": each.plural,
                "kind": each.kind,
                "namespaced": each.namespaced,
                "verbs": ["get", "list", "watch"],
            }
            for each in found
        ]
        parts = [{**each, "name": f"{each['name']}/status"} for each in whole]
        return {"kind": "APIResourceList", "resources": [*parts, *whole]}

    def _find(self, seen):
        """Resource, namespace, name and subresource of a path; empty where there is none."""
        found = PATH.fullmatch(seen.path)
        parts = found.groupdict() if found else {}
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
                page = {**page, **kinds, "items": [partial(each) for each in page["items"]]}
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

    async def _watch(self, request, resource, namespace, seen):
        query = seen.query
        shape = partial if _wants_partial(seen) else lambda obj: obj
        watch = Watch(resource, namespace, query, shape)
        watch.begin(self.objects, streaming_lists=self.streaming_lists)
        # From here on nothing may be missed.
        self._watches.add(watch)
        response = web.StreamResponse(headers=JSON)
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            await self._announce()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(float(query.get("timeoutSeconds", 0)) or 1800):
                    await self._stream(watch, request, response)
        finally:
            self._watches.discard(watch)
            await self._announce()
        return response

    async def _stream(self, watch, request, response):
        while True:
            what = await watch.queue.get()
            await self._speaking.wait()
            if what is CLOSE:
                return
            if what is TEAR:
                await response.write(b'{"type":"MODIFIED","object":{"kind":')
                request.transport.close()
                return
            await response.write(what)

    async def _announce(self):
        async with self._changed_watches:
            self._changed_watches.notify_all()


def _wants_partial(seen):
    return "as=PartialObjectMetadata" in seen.headers.get("Accept", "")


def _response(body, code=200, headers=None):
    return web.Response(body=body, status=code, headers={**JSON, **(headers or {})})


def _reset(request):
    """End the connection by a reset, as a process that is killed does."""
    if request.transport is not None:
        wire = request.transport.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
