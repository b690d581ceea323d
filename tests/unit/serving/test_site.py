"""Addresses, and what is left after a stop."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web

from harbourmaster.serving.site import AddressError, Site
from helpers.patience import PATIENCE
from helpers.raw_http import Echo, post


async def test_a_free_port_is_reported(serve, connect):
    site = await serve()
    assert site.port > 0
    assert site.url == f"http://127.0.0.1:{site.port}"
    assert (await (await connect(site)).ask(post())).status == 200


async def test_the_url_of_a_tls_site_over_ipv6_is_well_formed(holder):
    site = Site(Echo().app(), host="::1", port=9443, tls=holder.context)
    assert site.url == "https://[::1]:9443"


async def test_an_address_in_use_is_one_line(serve):
    site = await serve()
    second = Site(Echo().app(), host="127.0.0.1", port=site.port)
    with pytest.raises(AddressError) as caught:
        await second.start()
    assert str(caught.value) == (
        f"127.0.0.1 port {site.port}: the port is in use; "
        "stop the process that has it, or choose another port"
    )


@pytest.mark.parametrize(
    ("host", "text"),
    [("192.0.2.1", "this machine has no such address"), ("no such host", "is not a local address")],
)
async def test_an_address_that_is_not_ours_is_one_line(host, text):
    with pytest.raises(AddressError, match=text):
        await Site(Echo().app(), host=host, port=0).start()


async def test_an_application_that_fails_to_start_frees_the_port():
    async def fail(_app):
        raise ValueError("no")

    app = web.Application()
    app.on_startup.append(fail)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(ValueError, match="no"):
        await Site(app, host="127.0.0.1", port=port).start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", port))


async def test_connections_are_counted(serve, connect):
    site = await serve()
    wires = [await connect(site) for _ in range(3)]
    for wire in wires:
        await wire.ask(post())
    assert site.connections == 3
    for wire in wires:
        wire.abort()
    async with asyncio.timeout(PATIENCE):
        await site.wait_until_unused()
    assert site.connections == 0


async def test_a_stop_lets_a_running_request_end(serve, connect):
    echo = Echo()
    echo.hold = asyncio.Event()
    site = await serve(echo)
    wire = await connect(site)
    wire.send(post(b"[1]"))
    await echo.begun.wait()
    stopping = asyncio.create_task(site.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    echo.hold.set()
    assert (await wire.answer()).body == b"[1]"
    await stopping


async def test_a_request_given_up_by_its_client_is_cancelled(serve, connect):
    echo = Echo()
    echo.hold = asyncio.Event()
    site = await serve(echo)
    wire = await connect(site)
    wire.send(post())
    await echo.begun.wait()
    wire.abort()
    async with asyncio.timeout(PATIENCE):
        await site.wait_until_unused()
    await asyncio.sleep(0)
    assert echo.limits.requests_in_flight == 0
    assert not echo.bodies
