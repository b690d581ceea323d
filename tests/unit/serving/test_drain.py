"""A server goes out of service, and no request is lost (platform-spec 5.4)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

from harbourmaster.serving.drain import drain
from harbourmaster.serving.readiness import Readiness
from harbourmaster.serving.site import Site
from helpers.patience import PATIENCE
from helpers.raw_http import Connection, Echo, post


async def test_draining_is_unready_at_once_and_still_accepts(serve, connect):
    readiness = Readiness()
    site = await serve()
    draining = asyncio.create_task(drain(site, readiness, wait=PATIENCE, cap=PATIENCE))
    await asyncio.sleep(0)
    assert await readiness.failing() == {"draining": "the server is stopping"}
    answer = await (await connect(site)).ask(post())
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    draining.cancel()


async def test_an_error_closes_its_connection_too_while_draining(serve, connect):
    site = await serve()
    site.close_connections_after_response()
    answer = await (await connect(site)).ask(post(path="/unknown"))
    assert (answer.status, answer.headers["connection"]) == (404, "close")


async def test_a_drain_ends_as_soon_as_nobody_is_connected(serve, connect):
    site = await serve()
    wire = await connect(site)
    await wire.ask(post())
    draining = asyncio.create_task(drain(site, Readiness(), wait=0.05, cap=PATIENCE))
    await asyncio.sleep(0.1)
    assert not draining.done()
    assert (await wire.ask(post())).headers["connection"] == "close"
    assert await draining == 0


async def test_idle_connections_are_closed_at_the_cap(serve, connect):
    site = await serve()
    wire = await connect(site)
    await wire.ask(post())
    assert await drain(site, Readiness(), wait=0.05, cap=0.1) == 1
    assert await wire.rest() == b""


async def test_a_request_that_runs_at_the_end_is_answered(serve, connect):
    echo = Echo()
    echo.hold = asyncio.Event()
    site = await serve(echo)
    wire = await connect(site)
    wire.send(post(b"[1]"))
    await echo.begun.wait()
    draining = asyncio.create_task(drain(site, Readiness(), wait=0, cap=0.05))
    await asyncio.sleep(0.3)
    echo.hold.set()
    assert (await wire.answer()).body == b"[1]"
    await draining


async def test_no_request_fails_while_a_second_server_takes_over(holder, trusting):
    """Clients like an API server's: one connection each, kept, opened again when told to close."""
    first, second = [
        Site(Echo().app(), host="127.0.0.1", port=0, tls=holder.context) for _ in range(2)
    ]
    await first.start()
    await second.start()
    endpoints = [first]
    failed, answered = [], []
    stop = asyncio.Event()

    async def client():
        wire = None
        while not stop.is_set():
            try:
                wire = wire or await Connection.open(endpoints[-1], trusting)
                answer = await wire.ask(post())
                answered.append(answer.status)
                if answer.headers.get("connection") == "close":
                    wire.abort()
                    wire = None
            except (OSError, EOFError) as error:
                failed.append(error)
                wire = None
            await asyncio.sleep(0.002)
        if wire is not None:
            wire.abort()

    clients = [asyncio.create_task(client()) for _ in range(20)]
    await asyncio.sleep(0.1)
    draining = asyncio.create_task(drain(first, Readiness(), wait=0.5, cap=PATIENCE))
    await asyncio.sleep(0.1)
    endpoints.append(second)
    cut = await draining
    await asyncio.sleep(0.1)
    stop.set()
    await asyncio.gather(*clients)
    await second.stop()
    assert failed == []
    assert set(answered) == {200}
    # Each asked before and after; how often is the machine's matter.
    assert len(answered) > 2 * len(clients)
    assert cut == 0


PROGRAM = """
import asyncio, sys
from harbourmaster.serving.drain import StopSignals
async def main():
    with StopSignals() as stop:
        print("ready", flush=True)
        print(await stop.wait(), flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def signalled(first):
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(first)
    return process, process.stdout.readline().decode().strip()


def test_a_signal_is_named_and_a_second_one_ends_the_process_at_once():
    process, name = signalled(signal.SIGTERM)
    with process:
        assert name == "SIGTERM"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 128 + signal.SIGINT


def test_an_interrupt_is_a_signal_to_stop_too():
    process, name = signalled(signal.SIGINT)
    with process:
        assert name == "SIGINT"
        process.kill()
