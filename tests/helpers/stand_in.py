"""A small webhook over TLS that answers as a test wants, in a thread of its own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
import threading

import trustme
from aiohttp import web


def allow(review, *operations):
    """The answer that lets the object pass, changed by JSON Patch operations."""
    response = {"uid": review["request"]["uid"], "allowed": True}
    if operations:
        patch = base64.b64encode(json.dumps(operations).encode()).decode()
        response |= {"patchType": "JSONPatch", "patch": patch}
    answer = {key: review[key] for key in ("apiVersion", "kind")}
    return web.json_response({**answer, "response": response})


@contextlib.contextmanager
def stand_in(handler):
    """Serve POST on any path by the aiohttp ``handler``; yield the URL and the CA's PEM."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    started = threading.Event()
    state = {}

    async def answer(request):
        response = await handler(request)
        # A connection that stays open would outlive the loop.
        response.force_close()
        return response

    async def serve():
        application = web.Application()
        application.router.add_post("/{path:.*}", answer)
        runner = web.AppRunner(application, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        state["url"] = f"https://127.0.0.1:{runner.addresses[0][1]}"
        state["loop"] = asyncio.get_running_loop()
        state["stop"] = asyncio.Event()
        started.set()
        await state["stop"].wait()
        await runner.cleanup()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield state["url"], authority.cert_pem.bytes()
    finally:
        state["loop"].call_soon_threadsafe(state["stop"].set)
        thread.join(10)
