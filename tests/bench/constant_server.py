"""Serves one constant answer over TLS: the least that an answer can cost.

Run as ``constant_server.py KIND CERT_DIR ANSWER_FILE``; prints the port and serves until it ends.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[2]))

from harbourmaster.certs.bundle import parse_bundle
from harbourmaster.certs.directory import read_files
from harbourmaster.certs.reload import CertificateHolder
from harbourmaster.webhook.review import WorkloadReview


class Least(asyncio.Protocol):
    """Finds the end of each request by its length, and looks at nothing else."""

    def __init__(self, answer):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self.answer = head % len(answer) + answer
        self.received = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        head, separator, body = self.received.partition(b"\r\n\r\n")
        if separator:
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            if len(body) >= length:
                self.received = body[length:]
                self.take(body[:length])
                self.transport.write(self.answer)

    def take(self, body):
        pass


class Floor(Least):
    """Decodes each review too, as every webhook must that decides on it."""

    decode = msgspec.json.Decoder(WorkloadReview).decode

    def take(self, body):
        self.decode(body)


PROTOCOLS = {"least": Least, "floor": Floor}


def application(answer):
    async def constant(request):
        await request.read()
        return web.Response(body=answer, content_type="application/json")

    app = web.Application(client_max_size=8 * 1024 * 1024)
    app.router.add_post("/mutate", constant)
    return app


async def serve(kind, directory, answer):
    # Harbourmaster, which the benchmark starts first, has made them.
    bundle = parse_bundle(read_files(directory))
    tls = CertificateHolder(bundle).context
    if kind in PROTOCOLS:
        listener = await asyncio.get_running_loop().create_server(
            lambda: PROTOCOLS[kind](answer), "127.0.0.1", 0, ssl=tls, backlog=1024
        )
        address = listener.sockets[0].getsockname()
    else:
        runner = web.AppRunner(application(answer), access_log=None, keepalive_timeout=3630)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls, backlog=1024).start()
        address = runner.addresses[0]
    print(address[1], flush=True)  # noqa: T201
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]).read_bytes()))
