"""Names are looked up once, all their addresses are checked, and a slow name delays no other."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from harbourmaster.providers import connector
from harbourmaster.providers.addresses import AddressFilter
from harbourmaster.providers.connector import CheckedResolver, look_up, make_connector
from harbourmaster.providers.errors import ForbiddenAddressError, UnreachableError
from harbourmaster.providers.http import HttpClient
from helpers.patience import PATIENCE
from helpers.provider_server import LOOPBACK, Names, ProviderServer, hang, http_answer


def resolver(lookup, allowed=LOOPBACK):
    return CheckedResolver(AddressFilter(allowed), lookup)


async def test_all_addresses_of_a_name_are_found():
    names = Names(prom=("10.0.0.1", "2001:db8::1"))
    addresses = await resolver(names).resolve("prom", 9090, socket.AF_UNSPEC)
    assert [(address["host"], address["port"], address["family"]) for address in addresses] == [
        ("10.0.0.1", 9090, socket.AF_INET),
        ("2001:db8::1", 9090, socket.AF_INET6),
    ]
    assert {address["hostname"] for address in addresses} == {"prom"}


@pytest.mark.parametrize(
    "addresses",
    [
        ("169.254.169.254",),
        ("10.0.0.1", "169.254.169.254"),
        ("::ffff:169.254.169.254", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.2", "fe80::1%eth0"),
    ],
)
async def test_a_name_with_a_forbidden_address_is_rejected(addresses):
    with pytest.raises(ForbiddenAddressError, match=r"^prom is not allowed: it has a link-local"):
        await resolver(Names(prom=addresses)).resolve("prom", 80)


@pytest.mark.parametrize("names", [Names(), Names(prom=())])
async def test_a_name_without_an_address_is_an_error_of_the_system(names):
    with pytest.raises(OSError, match=r"not known|no address"):
        await resolver(names).resolve("prom", 80)


async def test_names_are_looked_up_side_by_side_and_not_without_end(monkeypatch):
    monkeypatch.setattr(connector, "MAX_LOOKUPS", 4)
    go = threading.Event()

    asked = []

    def hanging(host, port, _family):
        asked.append(host)
        if host.startswith("slow"):
            go.wait(PATIENCE)
        names = {"slow-1": "10.0.0.1", "slow-2": "10.0.0.1", "slow-3": "10.0.0.1"}
        return Names(quick="10.0.0.2", **names)(host, port, 0)

    checked = resolver(hanging)
    # One name takes one turn, on whatever ports.
    slow = [asyncio.create_task(checked.resolve("slow-1", port)) for port in range(1, 9)]
    slow.append(asyncio.create_task(checked.resolve("slow-2", 80)))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        assert (await checked.resolve("quick", 80))[0]["host"] == "10.0.0.2"
    slow.append(asyncio.create_task(checked.resolve("slow-3", 80)))
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="too many other names"):
        await checked.resolve("quick", 80)
    slow[0].cancel()
    go.set()
    answers = await asyncio.gather(*slow, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert {answer[0]["host"] for answer in answers[1:]} == {"10.0.0.1"}
    assert [answer[0]["port"] for answer in answers[1:3]] == [2, 3]
    assert asked.count("slow-1") == 1
    assert (await checked.resolve("quick", 80))[0]["host"] == "10.0.0.2"


@pytest.mark.claim("O25")
async def test_lookups_of_one_namespace_do_not_delay_those_of_another():
    go = threading.Event()

    def hanging(host, port, _family):
        if host.startswith("slow"):
            go.wait(PATIENCE)
        return Names(quick="10.0.0.2")(host if host == "quick" else "quick", port, 0)

    checked = resolver(hanging)
    connector.NAMESPACE.set("loud")
    slow = [asyncio.create_task(checked.resolve(f"slow-{n}", 80)) for n in range(100)]
    await asyncio.sleep(0)
    connector.NAMESPACE.set("quiet")
    async with asyncio.timeout(PATIENCE):
        assert (await checked.resolve("quick", 80))[0]["host"] == "10.0.0.2"
    go.set()
    outcomes = await asyncio.gather(*slow, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [list] * 48 + [OSError] * 52
    assert checked._turns.taken == 0


def test_a_lookup_may_outlive_the_loop():
    go, ended = threading.Event(), threading.Event()

    def hanging(*_):
        go.wait(PATIENCE)
        return []

    async def leave():
        task = asyncio.create_task(resolver(hanging).resolve("slow", 80))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "lookup"]
    assert thread.daemon
    threading.Thread(target=lambda: (thread.join(PATIENCE), ended.set())).start()
    go.set()
    assert ended.wait(PATIENCE)


def test_the_system_knows_the_address_of_an_address():
    assert {info[4][:2] for info in look_up("127.0.0.1", 80, 0)} == {("127.0.0.1", 80)}


async def test_no_socket_is_created_for_a_forbidden_address():
    info = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    async with make_connector(AddressFilter()) as tcp:
        with pytest.raises(PermissionError, match="it has a loopback address"):
            tcp._socket_factory((*info, ("127.0.0.1", 80)))
        tcp._socket_factory((*info, ("10.0.0.1", 80))).close()


async def test_a_name_is_looked_up_once_and_connected_to_where_it_was_found():
    names = Names(prom_example_com=["127.0.0.1", "169.254.169.254"])
    async with (
        ProviderServer(http_answer(b"1", "200 OK", "Connection: close")) as server,
        HttpClient(LOOPBACK, lookup=names) as http,
    ):
        url = f"http://prom.example.com:{server.port}/"
        assert (await http.send("GET", url)).body == b"1"
        assert (await http.send("GET", url)).body == b"1"
    assert names.asked == ["prom.example.com"]
    assert server.connections == 2
    assert server.requests[0].headers["host"] == f"prom.example.com:{server.port}"


async def test_a_name_with_a_new_address_is_checked_again(monkeypatch):
    monkeypatch.setattr(connector, "NAME_SECONDS", 0)
    names = Names(prom=["127.0.0.1", "169.254.169.254"])
    async with (
        ProviderServer(http_answer(b"1", "200 OK", "Connection: close")) as server,
        HttpClient(LOOPBACK, lookup=names) as http,
    ):
        url = f"http://prom:{server.port}/"
        assert (await http.send("GET", url)).body == b"1"
        with pytest.raises(ForbiddenAddressError, match=r"^prom is not allowed"):
            await http.send("GET", url)
    assert server.connections == 1


async def test_a_name_without_an_address_is_unreachable():
    async with HttpClient(lookup=Names()) as http:
        with pytest.raises(UnreachableError) as caught:
            await http.send("GET", "http://prom.example.com:9090/")
    text = "the host of prom.example.com:9090 has no address: check spec.targetServer"
    assert str(caught.value) == text


async def test_many_hanging_requests_do_not_delay_others():
    async with (
        ProviderServer(hang) as hangs,
        ProviderServer(http_answer(b"1")) as good,
        HttpClient(LOOPBACK) as http,
    ):
        waiting = [asyncio.create_task(http.send("GET", hangs.url)) for _ in range(120)]
        while len(hangs.requests) < len(waiting):
            hangs.came.clear()
            await hangs.came.wait()
        async with asyncio.timeout(PATIENCE):
            assert (await http.send("GET", good.url)).status == 200
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
