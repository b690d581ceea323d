"""The floor: the same stack answering the same body with a constant, for comparison.

Run as ``constant_server.py CERT_DIR ANSWER_FILE``; prints the port and serves until SIGTERM.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[2]))

from harbourmaster.certs.reload import CertificateHolder
from harbourmaster.certs.store import ensure


async def serve(directory, answer):
    bundle = ensure(directory, ("localhost", "127.0.0.1"), datetime.now(UTC))
    holder = CertificateHolder(bundle)

    async def constant(request):
        await request.read()
        return web.Response(body=answer, content_type="application/json")

    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_post("/mutate", constant)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=3630)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=holder.context, backlog=1024)
    await site.start()
    print(runner.addresses[0][1], flush=True)  # noqa: T201
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]), Path(sys.argv[2]).read_bytes()))
