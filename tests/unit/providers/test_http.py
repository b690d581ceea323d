"""The content and the destination of requests, and the error of each kind of bad answer."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import tracemalloc

import pytest
import trustme

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    BadProviderError,
    ForbiddenAddressError,
    RedirectedError,
    TooLargeError,
    UnreachableError,
)
from harbourmaster.providers.http import MAX_BYTES, HttpClient
from helpers.certificates import server_tls
from helpers.patience import PATIENCE
from helpers.provider_server import LOOPBACK, Names, ProviderServer, http_answer, too_late
from helpers.virtual_time import skip

GOOD = http_answer({"a": 1})
CLOSED = b""
CANARY = "canary-7f3a9c"


@pytest.fixture
async def http():
    async with HttpClient(LOOPBACK) as client:
        yield client


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


async def refusal(http, url, kind, **options):
    with pytest.raises(kind) as caught:
        async with asyncio.timeout(PATIENCE):
            await http.send("GET", url, **options)
    assert str(caught.value).isprintable()
    return str(caught.value)


async def test_a_request_has_only_the_given_headers(http):
    async with ProviderServer(GOOD) as server:
        reply = await http.send(
            "POST",
            f"{server.url}/base/api",
            headers={"Authorization": f"Bearer {CANARY}", "Content-Type": "text/x"},
            body=b"a=1",
            params={"q": 'up{a="b&c=d"}\n+ %', "ü": ""},
        )
    assert (reply.status, json.loads(reply.body)) == (200, {"a": 1})
    assert reply.headers["content-type"] == "application/json"
    (request,) = server.requests
    assert request.line == (
        "POST /base/api?q=up%7Ba%3D%22b%26c%3Dd%22%7D%0A%2B+%25&%C3%BC= HTTP/1.1"
    )
    assert request.body == b"a=1"
    assert request.headers == {
        "host": f"127.0.0.1:{server.port}",
        "user-agent": "harbourmaster",
        "accept-encoding": "identity",
        "accept": "*/*",
        "authorization": f"Bearer {CANARY}",
        "content-type": "text/x",
        "content-length": "3",
    }


async def test_nothing_of_the_environment_or_of_answers_is_used(monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine prom.example.com login u password {CANARY}")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with (
        ProviderServer(http_answer(b"", "200 OK", f"Set-Cookie: a={CANARY}")) as server,
        HttpClient(LOOPBACK, lookup=Names(prom_example_com="127.0.0.1")) as http,
    ):
        for _ in range(2):
            reply = await http.send("GET", f"http://prom.example.com:{server.port}/")
            assert reply.status == 200
    for request in server.requests:
        assert not {"cookie", "authorization", "proxy-authorization"} & request.headers.keys()


@pytest.mark.parametrize("status", [200, 204, 400, 401, 404, 429, 500, 503])
async def test_a_status_is_for_the_caller_to_judge(http, status):
    async with ProviderServer(http_answer(b"", f"{status} X", "Retry-After: 3")) as server:
        reply = await http.send("GET", server.url)
    assert (reply.status, reply.headers["retry-after"]) == (status, "3")


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
@pytest.mark.parametrize(
    ("location", "host"),
    [
        (f"https://u:{CANARY}@api.example.com/{CANARY}?{CANARY}", "api.example.com"),
        ("/elsewhere", "127.0.0.1"),
        ("http://[::1", "an invalid URL"),
    ],
)
async def test_no_redirect_is_followed(http, status, location, host):
    answer = http_answer(b"", f"{status} X", f"Location: {location}")
    async with ProviderServer(answer) as server:
        text = await refusal(
            http, server.url, RedirectedError, headers={"Authorization": f"Bearer {CANARY}"}
        )
    assert text == f"127.0.0.1:{server.port} redirects to {host}, and redirects are not followed"
    assert len(server.requests) == 1


async def test_addresses_are_refused_before_anything_is_sent():
    async with ProviderServer(GOOD) as server, HttpClient() as http:
        for url in (server.url, f"http://[::ffff:127.0.0.1]:{server.port}"):
            text = await refusal(http, url, ForbiddenAddressError)
            assert "it has a loopback address" in text
        await refusal(http, f"http://localhost:{server.port}", ForbiddenAddressError)
        await refusal(http, f"http://2130706433:{server.port}", BadProviderError)
    assert server.connections == 0


async def test_a_denied_address_is_rejected_though_allowed():
    async with HttpClient(LOOPBACK, ("127.0.0.1",)) as http:
        text = await refusal(http, "http://127.0.0.1:9", ForbiddenAddressError)
    assert text == "127.0.0.1:9 is not allowed: it has an address that is denied"


def test_bad_networks_are_refused_at_once():
    with pytest.raises(ValueError, match="does not appear to be"):
        HttpClient(("nowhere",))


async def test_it_must_be_open():
    with pytest.raises(RuntimeError, match="async with"):
        await HttpClient(LOOPBACK).send("GET", "http://127.0.0.1:9")


@pytest.mark.parametrize("value", ["a\r\nHost: b", "a\nb", "a\0b", "é", "a\x7f"])
async def test_a_credential_cannot_inject_a_header(http, value):
    text = await refusal(
        http,
        "http://127.0.0.1:9",
        BadCredentialsError,
        headers={"Authorization": f"Bearer {CANARY}{value}"},
    )
    assert "Authorization" in text
    assert CANARY not in text


async def test_a_body_up_to_the_limit_is_read(http):
    async with ProviderServer(http_answer(bytes(MAX_BYTES))) as server:
        assert len((await http.send("GET", server.url)).body) == MAX_BYTES
    async with ProviderServer(http_answer(bytes(MAX_BYTES + 1))) as server:
        text = await refusal(http, server.url, TooLargeError)
    assert text == f"the answer of 127.0.0.1:{server.port} has more than {MAX_BYTES} bytes"


async def endless(_request):
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    # Where it is not cut off, the test fails before the memory of the machine ends.
    for _ in range(1600):
        yield b"10000\r\n" + bytes(0x10000) + b"\r\n"


async def hundred_megabytes(_request):
    yield b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    for _ in range(1600):
        yield bytes(0x10000)


@pytest.mark.parametrize("answer", [endless, hundred_megabytes])
async def test_a_long_answer_is_cut_off_at_the_limit(http, answer):
    async with ProviderServer(answer) as server:
        await refusal(http, server.url, TooLargeError)
        async with asyncio.timeout(PATIENCE):
            await server.lost.wait()
        # What the kernel takes besides is its own.
        assert server.sent < 20 * MAX_BYTES


async def test_a_long_answer_takes_no_more_memory_than_the_limit(http):
    async with ProviderServer(hundred_megabytes) as server:
        await refusal(http, server.url, TooLargeError)
        tracemalloc.start()
        try:
            await refusal(http, server.url, TooLargeError)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 3 * MAX_BYTES


async def test_a_length_beyond_the_limit_is_not_even_begun(http):
    async with ProviderServer(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n") as server:
        text = await refusal(http, server.url, TooLargeError)
    assert text == f"the answer of 127.0.0.1:{server.port} has more than {MAX_BYTES} bytes"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "GZIP", "gzip, identity", "x\x7f"])
async def test_a_compressed_answer_is_an_error(http, encoding):
    bomb = gzip.compress(bytes(20_000_000))
    async with ProviderServer(
        http_answer(bomb, "200 OK", f"Content-Encoding: {encoding}")
    ) as server:
        text = await refusal(http, server.url, (BadAnswerError, UnreachableError))
    assert "compressed" in text or "no HTTP" in text


async def test_identity_encoding_is_accepted(http):
    async with ProviderServer(http_answer(b"1", "200 OK", "Content-Encoding: identity")) as server:
        assert (await http.send("GET", server.url)).body == b"1"


async def test_a_compressed_refusal_still_has_its_status(http):
    answer = http_answer(gzip.compress(b"x"), "401 X", "Content-Encoding: gzip")
    async with ProviderServer(answer) as server:
        reply = await http.send("GET", server.url)
    assert (reply.status, reply.body) == (401, b"")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X%d: x\r\n" % i for i in range(10_000)) + b"\r\n",
        b"HTTP/1.1 200 " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    ],
    ids=lambda answer: answer[:20].decode("latin-1"),
)
async def test_invalid_http_is_an_error(http, answer):
    async with ProviderServer(answer) as server:
        text = await refusal(
            http, server.url, UnreachableError, headers={"Authorization": f"Bearer {CANARY}"}
        )
    assert text == f"127.0.0.1:{server.port} sent an invalid HTTP response"


async def cut_off(_request):
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
    yield b""


async def test_an_incomplete_answer_is_an_error(http):
    async with ProviderServer(cut_off) as server:
        text = await refusal(http, server.url, UnreachableError)
    assert text == f"127.0.0.1:{server.port} sent an incomplete answer"
    assert len(server.requests) == 1


async def bad_chunk(_request):
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nzz\r\n"
    yield b""


async def test_an_answer_with_invalid_chunks_is_an_error(http):
    async with ProviderServer(bad_chunk) as server:
        text = await refusal(http, server.url, UnreachableError)
    assert text == f"127.0.0.1:{server.port} sent an invalid HTTP response"


async def test_a_refused_connection_names_the_server(http):
    async with ProviderServer(GOOD) as server:
        pass
    text = await refusal(http, server.url, UnreachableError)
    why = f"cannot connect to 127.0.0.1:{server.port}: Connection refused"
    assert text == f"{why}: check spec.targetServer"


async def test_a_request_ends_when_its_caller_has_waited_enough(http):
    async with ProviderServer(too_late) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await http.send("GET", server.url)
        async with asyncio.timeout(PATIENCE):
            await server.lost.wait()


async def test_a_slow_body_ends_when_its_caller_has_waited_enough(http):
    async def drip(_request):
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
        for _ in range(100):
            yield b"x"
            skip(PATIENCE / 10)

    async with ProviderServer(drip) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await http.send("GET", server.url)
        async with asyncio.timeout(PATIENCE):
            await server.lost.wait()


async def test_a_connection_is_used_again(http):
    async with ProviderServer(GOOD) as server:
        for _ in range(3):
            await http.send("GET", server.url)
    assert server.connections == 1


@pytest.mark.parametrize(("method", "repeatable"), [("GET", None), ("POST", True)])
async def test_a_request_that_may_be_repeated_is_when_the_connection_was_closed(
    http, method, repeatable
):
    async with ProviderServer([GOOD, CLOSED, GOOD]) as server:
        for _ in range(2):
            reply = await http.send(method, server.url, repeatable=repeatable)
            assert reply.status == 200
    assert [request.connection for request in server.requests] == [1, 1, 2]


@pytest.mark.parametrize(("method", "repeatable"), [("POST", None), ("PUT", None), ("GET", False)])
async def test_no_other_request_is_sent_twice(http, method, repeatable):
    async with ProviderServer([GOOD, CLOSED, GOOD]) as server:
        await http.send("GET", server.url)
        with pytest.raises(UnreachableError, match="closed the connection without an answer"):
            await http.send(method, server.url, repeatable=repeatable)
        assert len(server.requests) == 2


async def test_nothing_is_sent_three_times(http):
    async with ProviderServer(CLOSED) as server:
        await refusal(http, server.url, UnreachableError)
    assert len(server.requests) == 2


async def test_certificates_are_verified_by_the_authorities_of_the_system(
    authority, monkeypatch, tmp_path
):
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    names = Names(prom_example_com="127.0.0.1", other_example_com="127.0.0.1")
    context = server_tls(authority, "prom.example.com", "127.0.0.1")
    async with ProviderServer(GOOD, tls=context) as server:
        async with HttpClient(LOOPBACK, lookup=names) as http:
            text = await refusal(http, server.url, UnreachableError)
            assert text.startswith(f"the certificate of 127.0.0.1:{server.port} is not trusted: ")
        monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
        async with HttpClient(LOOPBACK, lookup=names) as http:
            assert (await http.send("GET", server.url)).status == 200
            for host, is_named in (("prom", True), ("other", False)):
                url = f"https://{host}.example.com:{server.port}/"
                if is_named:
                    assert (await http.send("GET", url)).status == 200
                else:
                    assert "Hostname mismatch" in await refusal(http, url, UnreachableError)


async def test_a_target_may_skip_verification_for_itself_only(authority):
    context = server_tls(authority, "nobody.example.com")
    async with ProviderServer(GOOD, tls=context) as server, HttpClient(LOOPBACK) as http:
        assert (await http.send("GET", server.url, skip_verify=True)).status == 200
        await refusal(http, server.url, UnreachableError)
        assert (await http.send("GET", server.url, skip_verify=True)).status == 200
        await refusal(http, server.url, UnreachableError)
    assert [request.connection for request in server.requests] == [1, 1]


async def test_a_server_without_tls_is_unreachable(http):
    async def speak(_reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        where = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        text = await refusal(http, f"https://{where}", UnreachableError, skip_verify=True)
    why = f"TLS handshake with {where} failed: WRONG_VERSION_NUMBER"
    assert text == f"{why}: check spec.targetServer"


async def test_a_server_that_repeats_a_credential_is_not_quoted(http):
    async def echo(request):
        sent = request.headers
        yield http_answer(
            json.dumps({**sent, "password": CANARY}).encode(),
            "200 OK",
            f"X-Echo: {sent['authorization']}",
        )

    basic = base64.b64encode(f"user:{CANARY}".encode()).decode()
    async with ProviderServer(echo) as server:
        reply = await http.send(
            "GET", server.url, headers={"Authorization": f"Basic {basic}", "X-Key": f"key-{CANARY}"}
        )
    assert json.loads(reply.body)["host"] == f"127.0.0.1:{server.port}"
    assert b"***" in reply.body
    assert "***" in reply.headers["x-echo"]
    for secret in (basic, CANARY):
        assert secret not in repr(reply)


async def test_short_values_are_not_redacted(http):
    async with ProviderServer(http_answer(b'{"a": "abc"}')) as server:
        reply = await http.send("GET", server.url, headers={"X-Key": "abc"})
    assert reply.body == b'{"a": "abc"}'


async def test_an_error_has_nothing_of_the_request(http):
    async with ProviderServer(b"garbage\r\n\r\n") as server:
        with pytest.raises(UnreachableError) as caught:
            await http.send("GET", server.url, headers={"Authorization": f"Bearer {CANARY}"})
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
