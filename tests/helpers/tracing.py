"""Spans in memory, and the servers that receive spans and CloudEvents."""

from __future__ import annotations

import asyncio
import threading

from aiohttp import web
from cloudevents.core.bindings.http import HTTPMessage, from_binary_event
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from helpers.patience import Changes

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"


class Memory:
    """A sender that keeps what it is given."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self.is_closed = False

    def send(self, batch):
        self._exporter.export(batch)

    def close(self):
        self.is_closed = True

    @property
    def spans(self):
        return list(self._exporter.get_finished_spans())


class Outcomes:
    """Results of exports of spans; other threads report them."""

    def __init__(self):
        self.counts = {}
        self._lock = threading.Lock()

    def __call__(self, outcome, count):
        with self._lock:
            self.counts[outcome] = self.counts.get(outcome, 0) + count


class Collector:
    """A collector; ``status`` is what it answers, ``hold`` keeps it from answering while set."""

    def __init__(self):
        self.requests = []
        self.headers = []
        self.status = 200
        self.release = asyncio.Event()
        self.release.set()
        self._changes = Changes()
        self._runner = None

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1/traces"
        return self

    async def __aexit__(self, *_):
        self.release.set()
        await self._runner.cleanup()

    async def _take(self, request):
        service_request = ExportTraceServiceRequest()
        service_request.ParseFromString(await request.read())
        self.requests.append(service_request)
        self.headers.append(request.headers)
        self._changes.tell()
        await self.release.wait()
        # Whoever is to come back so late does not try again meanwhile.
        headers = {"Location": "/elsewhere", "Retry-After": "1000"}
        return web.Response(status=self.status, headers=headers)

    def spans(self):
        """Each span that came, with the attributes of its resource."""
        return [
            (span, attributes(resource_span.resource))
            for request in self.requests
            for resource_span in request.resource_spans
            for scope in resource_span.scope_spans
            for span in scope.spans
        ]

    async def until(self, is_right):
        """Wait until a span is right; return it with its resource."""
        return await self._changes.until(
            lambda: next((span for span in self.spans() if is_right(span[0])), None),
            patience=None,
        )


def attributes(message):
    """The attributes of a decoded message as plain values."""
    return {attribute.key: _value(attribute.value) for attribute in message.attributes}


def _value(value):
    kind = value.WhichOneof("value")
    content = getattr(value, kind)
    return [_value(item) for item in content.values] if kind == "array_value" else content


class Listener:
    """``answer`` is what each request gets: a status, a Response, or a coroutine function."""

    def __init__(self, answer=202, *, tls=None):
        self.answer = answer
        self.requests = []
        self._tls = tls
        self._changes = Changes()
        self._runner = None

    async def __aenter__(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._runner.addresses[0][1]}/events"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _take(self, request):
        self.requests.append((request, await request.read()))
        self._changes.tell()
        answer = self.answer
        if callable(answer):
            answer = await answer(request)
        return web.Response(status=answer) if isinstance(answer, int) else answer

    async def until(self, count):
        """Wait for so many requests; return all events."""
        await self._changes.until(lambda: len(self.requests) >= count, patience=None)
        return self.events

    @property
    def events(self):
        """All events that came, as the SDK understands them."""
        return [
            from_binary_event(
                HTTPMessage({name.lower(): value for name, value in request.headers.items()}, body)
            )
            for request, body in self.requests
        ]
