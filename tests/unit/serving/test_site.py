"""Addresses, and what is left after a stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from types import SimpleNamespace

import pytest
from aiohttp import web

from harbourmaster.serving import site as site_module
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
    [
        ("192.0.2.1", "this machine has no such address"),
        ("no such host", "is not a local address"),
        ("a" * 64, "is not a local address"),
    ],
)
async def test_an_address_that_is_not_ours_is_one_line(host, text):
    with pytest.raises(AddressError, match=text):
        await Site(Echo().app(), host=host, port=0).start()


@pytest.fixture
def families(monkeypatch):
    """Return a function that sets the families of this machine; it returns the options of IPv6."""
    options = []

    class Socket(socket.socket):
        """A socket of IPv4; one of IPv6 records its options and listens by IPv4."""

        def __init__(self, family, kind):
            if family in lacking[0]:
                raise OSError(lacking[0][family], "no such family")
            self.asked = family
            super().__init__(socket.AF_INET, kind)

        def setsockopt(self, *option):
            if option[0] == socket.IPPROTO_IPV6:
                options.append(option[1:])
            else:
                super().setsockopt(*option)

        def bind(self, address):
            if self.asked in lacking[1]:
                raise OSError(lacking[1][self.asked], "no such address")
            super().bind(("0.0.0.0", address[1]))  # noqa: S104 - for a moment

    lacking = [{}, {}]

    def lack(*, at_start=None, at_bind=None):
        lacking[:] = [at_start or {}, at_bind or {}]
        return options

    monkeypatch.setattr(
        site_module, "socket", SimpleNamespace(**{**vars(socket), "socket": Socket})
    )
    return lack


async def ask(host, port):
    """Return whether a server answers at an address."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    answer = await reader.readline()
    writer.close()
    return answer.startswith(b"HTTP/1.1 ")


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as trial:
        trial.bind(("::1", 0))
        return True
    return False


async def test_all_addresses_are_those_of_both_families(serve):
    site = await serve(host="::")
    assert await ask("127.0.0.1", site.port)
    if has_ipv6():
        assert await ask("::1", site.port)
        assert site.url == f"http://[::]:{site.port}"


async def test_all_addresses_are_one_socket_of_both_families(serve, families):
    options = families()
    await serve(host="::")
    assert options == [(socket.IPV6_V6ONLY, 0)]


@pytest.mark.parametrize(
    "lacking",
    [
        {"at_start": {socket.AF_INET6: errno.EAFNOSUPPORT}},
        {"at_bind": {socket.AF_INET6: errno.EADDRNOTAVAIL}},
    ],
    ids=["no family", "no address"],
)
@pytest.mark.parametrize("host", ["::", "0::0"])
async def test_without_ipv6_all_addresses_are_those_of_ipv4(serve, families, lacking, host):
    families(**lacking)
    site = await serve(host=host)
    assert await ask("127.0.0.1", site.port)
    assert site.loopback == "127.0.0.1"


async def test_without_any_family_the_error_is_one_line(families):
    families(at_start=dict.fromkeys((socket.AF_INET, socket.AF_INET6), errno.EAFNOSUPPORT))
    with pytest.raises(AddressError, match=r"^0\.0\.0\.0 port 0: "):
        await Site(Echo().app(), host="::", port=0).start()


async def test_one_address_of_a_family_is_listened_on(serve):
    address = "::1" if has_ipv6() else "127.0.0.1"
    site = await serve(host=address)
    assert await ask(address, site.port)


async def test_one_address_of_ipv6_is_an_error_without_it(families):
    families(at_start={socket.AF_INET6: errno.EAFNOSUPPORT})
    with pytest.raises(AddressError, match=r"^::1 port 0: "):
        await Site(Echo().app(), host="::1", port=0).start()


async def test_a_port_in_use_by_either_family_is_in_use_for_all_addresses(serve):
    taken = await serve(host="127.0.0.1")
    with pytest.raises(AddressError, match="the port is in use"):
        await Site(Echo().app(), host="::", port=taken.port).start()


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
