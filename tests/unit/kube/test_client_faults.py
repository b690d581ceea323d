"""The client while the API server, or the network, misbehaves."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import NAMESPACES
from harbourmaster.kube import transport
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import Connection
from harbourmaster.kube.errors import (
    ApiError,
    BadAnswerError,
    ConnectionSettingsError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.kube.trust import client_context
from helpers.certificates import server_tls
from helpers.fake_api import FakeApi
from helpers.patience import PATIENCE
from helpers.virtual_time import skip

NOTHING = MergePatch({})


@pytest.fixture
def waits():
    """The seconds that ``patient`` was to wait."""
    return []


@pytest.fixture
async def patient(api, waits):
    """A client whose waits are over at once."""

    async def sleep(seconds):
        waits.append(seconds)

    async with api.client(sleep=sleep) as client:
        yield client


@pytest.fixture(autouse=True)
def prod(api):
    api.put(NAMESPACES, {"metadata": {"name": "prod"}})


@pytest.mark.parametrize("status", [429, 500, 503, 504])
@pytest.mark.parametrize("verb", ["get", "patch"])
async def test_who_is_told_when_to_come_back_does(api, patient, waits, status, verb):
    api.fail_next(count=2, status=status, headers={"Retry-After": "3"})
    await asked(patient, verb)
    assert len(api.seen(verb)) == 3
    assert len(waits) == 2
    assert all(3.0 <= seconds <= 3.6 for seconds in waits)


async def asked(client, verb):
    if verb == "get":
        return await client.get(NAMESPACES, "prod")
    return await client.patch(NAMESPACES, "prod", NOTHING)


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("verb", ["get", "patch"])
async def test_nothing_is_repeated_that_nobody_asked_for(api, patient, waits, status, verb):
    api.fail_next(status=status)
    with pytest.raises(ApiError):
        await asked(patient, verb)
    assert (len(api.seen(verb)), waits) == (1, [])


async def test_a_client_error_is_not_repeated_though_it_says_when(api, patient, waits):
    api.fail_next(status=409, headers={"Retry-After": "1"})
    with pytest.raises(ApiError):
        await asked(patient, "patch")
    assert waits == []


async def test_repetitions_end(api, patient, waits):
    api.fail_next(count=None, status=429, headers={"Retry-After": "1"})
    with pytest.raises(TooManyRequestsError) as caught:
        await asked(patient, "get")
    assert caught.value.retry_after == 1.0
    assert (len(api.requests), len(waits)) == (4, 3)
    with pytest.raises(TooManyRequestsError):
        await patient.list(NAMESPACES, retries=0)
    assert len(api.requests) == 5


async def test_a_wait_is_neither_endless_nor_none(api, patient, waits):
    api.fail_next(status=503, headers={"Retry-After": "86400"})
    api.fail_next(status=503, headers={"Retry-After": "0"})
    await asked(patient, "get")
    assert 30.0 <= waits[0] <= 36.0
    assert 1.0 <= waits[1] <= 1.2


async def test_the_real_clock_is_waited_for(api):
    api.fail_next(status=429, headers={"Retry-After": "0"})
    async with api.client() as client:
        await asked(client, "get")
    first, second = (seen.time for seen in api.requests)
    assert 1.0 <= second - first < 1.8


@pytest.mark.parametrize("kind", ["reset", "torn"])
async def test_a_read_is_repeated_once_over_a_broken_connection(api, client, kind):
    api.fail_next("get", kind=kind)
    assert b'"prod"' in await client.get(NAMESPACES, "prod")
    assert len(api.requests) == 2
    api.fail_next("get", kind=kind, count=2)
    with pytest.raises(UnreachableError):
        await client.get(NAMESPACES, "prod")
    assert len(api.requests) == 4
    api.fail_next("list", kind=kind)
    with pytest.raises(UnreachableError):
        await client.list(NAMESPACES, retries=0)


@pytest.mark.parametrize("kind", ["reset", "torn"])
@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
async def test_a_change_is_never_sent_twice(api, client, kind, verb):
    # The first request makes a connection that is used again, which aiohttp handles otherwise.
    await client.get(NAMESPACES, "prod")
    body = api.get(NAMESPACES, "prod")
    calls = {
        "create": lambda: client.create(NAMESPACES, {**body, "metadata": {"name": "other"}}),
        "update": lambda: client.replace(NAMESPACES, "prod", body),
        "patch": lambda: client.patch(NAMESPACES, "prod", NOTHING),
        "delete": lambda: client.delete(NAMESPACES, "prod"),
    }
    api.fail_next(verb, kind=kind)
    with pytest.raises(UnreachableError) as caught:
        await calls[verb]()
    assert caught.value.status == 0
    assert len(api.seen(verb)) == 1


async def test_a_proxys_page_is_a_server_error(api, client):
    api.fail_next(kind="html", status=502)
    with pytest.raises(ServerError) as caught:
        await client.get(NAMESPACES, "prod")
    assert str(caught.value) == (
        "get /api/v1/namespaces/prod: 502: no answer of an API server: "
        "<html> <head><title>502 Bad Gateway</title></head> </html>"
    )


@pytest.mark.parametrize("fault", [{"kind": "html", "status": 200}, {"kind": "garbage"}])
@pytest.mark.parametrize("verb", ["get", "list", "patch"])
async def test_a_good_status_with_a_bad_body_is_an_error(api, client, fault, verb):
    calls = {
        "get": lambda: client.get(NAMESPACES, "prod"),
        "list": lambda: client.list(NAMESPACES),
        "patch": lambda: client.patch(NAMESPACES, "prod", NOTHING),
    }
    api.fail_next(verb, **fault)
    with pytest.raises(BadAnswerError) as caught:
        await calls[verb]()
    assert str(caught.value).isprintable()
    assert caught.value.status == 200


async def test_redirects_are_not_followed(api, client):
    api.fail_next(kind="redirect")
    with pytest.raises(BadAnswerError, match="redirects are not followed"):
        await client.get(NAMESPACES, "prod")
    assert len(api.requests) == 1


async def test_an_answer_has_its_time(api):
    async with api.client(timeout=PATIENCE) as client:
        for kind in ("get", "patch"):
            api.fail_next(kind, kind="hang")
            task = asyncio.create_task(asked(client, kind))
            await api.until_seen(kind)
            skip(PATIENCE)
            with pytest.raises(UnreachableError, match="did not answer in time"):
                await task
        assert len(api.requests) == 2
        await client.get(NAMESPACES, "prod")


async def test_a_write_may_have_more_time_than_a_read(api):
    async with api.client(timeout=PATIENCE, write_timeout=2 * PATIENCE) as client:
        api.fail_next("patch", kind="hang")
        task = asyncio.create_task(asked(client, "patch"))
        await api.until_seen("patch")
        skip(1.5 * PATIENCE)
        await asyncio.sleep(0.01)
        assert not task.done()
        skip(PATIENCE)
        with pytest.raises(UnreachableError, match="did not answer in time"):
            await task


async def test_a_single_request_may_have_another_time(api, client):
    api.fail_next(kind="hang")
    with pytest.raises(UnreachableError, match="did not answer in time"):
        await client.request("GET", "/version", timeout=0.05)


async def test_a_body_that_trickles_has_its_time_too():
    async def trickle(_reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        try:
            while not writer.is_closing():
                writer.write(b" ")
                await asyncio.sleep(0.01)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(trickle, "127.0.0.1", 0)
    async with server, Client(to(server), timeout=0.1) as client:
        with pytest.raises(UnreachableError, match="did not answer in time"):
            await client.get(NAMESPACES, "prod")


def to(server):
    return Connection(server=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def test_an_answer_beyond_the_limit_is_not_read_on(api, client, monkeypatch):
    monkeypatch.setattr(transport, "MAX_ANSWER", 100)
    api.put(NAMESPACES, {"metadata": {"name": "large", "annotations": {"a": "x" * 200}}})
    with pytest.raises(BadAnswerError, match="an answer of more than 100 bytes"):
        await client.get(NAMESPACES, "large")
    api.fail_next(status=500, body=b"x" * 101)
    with pytest.raises(BadAnswerError, match="an answer of more than 100 bytes"):
        await client.get(NAMESPACES, "prod")


async def test_a_refused_token_is_renewed_once(api):
    api.tokens = {"new"}
    tokens = iter(("old", "new", "new"))
    refusals = []

    async def token():
        return next(tokens)

    connection = Connection(
        server=api.url, token=token, refused=lambda: refusals.append(api.tokens)
    )
    async with Client(connection) as client:
        assert b'"prod"' in await client.get(NAMESPACES, "prod")
        await client.get(NAMESPACES, "prod")
    assert [seen.headers["Authorization"] for seen in api.requests] == [
        "Bearer old", "Bearer new", "Bearer new"
    ]  # fmt: skip
    assert len(refusals) == 1


async def test_a_token_that_stays_refused_is_an_error(api):
    api.tokens = set()

    async def token():
        return "old"

    connection = Connection(server=api.url, token=token, refused=lambda: None)
    async with Client(connection) as client:
        with pytest.raises(UnauthorizedError, match="401 Unauthorized"):
            await client.patch(NAMESPACES, "prod", NOTHING)
        assert len(api.requests) == 2
        with pytest.raises(UnauthorizedError):
            await anext(
                client.watch(NAMESPACES, resource_version="1", timeout_seconds=9, idle_timeout=9)
            )
        assert len(api.requests) == 4
    async with api.client() as client:
        with pytest.raises(UnauthorizedError):
            await client.get(NAMESPACES, "prod")
    assert len(api.requests) == 5


async def test_no_token_at_all_is_an_error_of_the_call(api):
    async def token():
        raise ConnectionSettingsError("/token can't be read: Permission denied")

    async with Client(Connection(server=api.url, token=token)) as client:
        with pytest.raises(UnauthorizedError) as caught:
            await client.get(NAMESPACES, "prod")
    assert str(caught.value) == (
        "get /api/v1/namespaces/prod: no credentials: /token can't be read: Permission denied"
    )
    assert not api.requests


async def test_the_environment_names_no_proxy(api, client, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    await client.get(NAMESPACES, "prod")
    assert len(api.requests) == 1


async def test_many_watches_leave_room_for_requests(api, client):
    watches = [
        client.watch(NAMESPACES, resource_version="100", timeout_seconds=9, idle_timeout=9)
        for _ in range(120)
    ]
    # The object of the fixture came after that version.
    await asyncio.gather(*(anext(watch) for watch in watches))
    assert api.watches == 120
    await client.get(NAMESPACES, "prod")
    await asyncio.gather(*(watch.aclose() for watch in watches))


async def test_nobody_listening_is_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{taken.getsockname()[1]}"
        connection = Connection(server=server, ssl=client_context(), source="kubeconfig /k")
        async with Client(connection) as client:
            with pytest.raises(UnreachableError) as caught:
                await client.get(NAMESPACES, "prod")
    assert str(caught.value) == (
        f"get /api/v1/namespaces/prod: cannot connect to {server} (kubeconfig /k): "
        "Connection refused"
    )


async def test_a_host_without_an_address_is_one_line():
    connection = Connection(server="https://none.invalid:6443", ssl=client_context())
    async with Client(connection) as client:
        with pytest.raises(
            UnreachableError, match=r"the host of https://none\.invalid:6443 has no"
        ):
            await client.get(NAMESPACES, "prod")


@pytest.mark.parametrize(
    ("trusts", "name", "text"),
    [(False, "127.0.0.1", "unable to get local issuer"), (True, "example.com", "mismatch")],
)
async def test_a_wrong_certificate_is_one_line(authority, trusts, name, text):
    context = client_context()
    if trusts:
        authority.configure_trust(context)
    async with FakeApi(tls=server_tls(authority, name)) as api:
        connection = Connection(server=api.url, ssl=context, source="kubeconfig /k")
        async with Client(connection) as client:
            with pytest.raises(UnreachableError) as caught:
                await client.get(NAMESPACES, "prod")
        assert not api.requests
    assert f"the certificate of {api.url} (kubeconfig /k) is not trusted: " in str(caught.value)
    assert text in str(caught.value)


async def test_a_name_can_be_given_for_the_certificate(authority):
    context = client_context()
    authority.configure_trust(context)
    async with FakeApi(tls=server_tls(authority, "api.example.com")) as api:
        connection = Connection(server=api.url, ssl=context, server_name="api.example.com")
        async with Client(connection) as client:
            await client.request("GET", "/version")
        assert [request.path for request in api.requests] == ["/version"]


async def test_tls_with_a_server_that_has_none_is_one_line(api):
    server = api.url.replace("http:", "https:")
    async with Client(Connection(server=server, ssl=client_context())) as client:
        with pytest.raises(UnreachableError, match=f"TLS handshake with {server}"):
            await client.get(NAMESPACES, "prod")


async def test_old_tls_is_not_spoken(authority):
    tls = server_tls(authority, "127.0.0.1")
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        tls.minimum_version, tls.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    tls.set_ciphers("ALL:@SECLEVEL=0")
    context = client_context()
    authority.configure_trust(context)
    async with FakeApi(tls=tls) as api, Client(Connection(server=api.url, ssl=context)) as client:
        with pytest.raises(
            UnreachableError, match=r"cannot connect to .*: it closed the connection"
        ):
            await client.get(NAMESPACES, "prod")
