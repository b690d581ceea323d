"""Servers of providers, which users that can create providers choose (S24 to S27)."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import resource
import traceback
from urllib.parse import parse_qs

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from harbourmaster.controller.evaluation.collectors import QueryMetrics
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadProviderError,
    ForbiddenAddressError,
    NotFiniteError,
    NoValuesError,
    ProviderError,
    RedirectedError,
    ThrottledError,
    TimedOutError,
    TooLargeError,
    TooManyValuesError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.providers.http import HttpClient
from harbourmaster.providers.model import Question, Target
from harbourmaster.providers.query_client import QueryClient
from helpers.logs import captured_log
from helpers.patience import PATIENCE
from helpers.provider_server import LOOPBACK, Names, ProviderServer, http_answer, too_late

CANARY = "canary-7f3a9c51e8"
SECRET = {"user": b"harbour", "password": CANARY.encode()}
FAMILY = ("prometheus", "thanos", "cortex")
MIB = 1024 * 1024


def series(*values):
    return [{"metric": {}, "value": [1772366400, value]} for value in values]


def answer(*values, kind="vector"):
    return {"status": "success", "data": {"resultType": kind, "result": series(*values)}}


async def ask(server, *, kind="prometheus", query="up", patience=PATIENCE, http=None, **options):
    """Return the answer or the error."""
    target = Target(kind, server, secret=SECRET, **options)
    async with http or HttpClient(LOOPBACK) as client:
        try:
            return await QueryClient(client, timeout=patience, per_target=4).ask(
                target, Question(query)
            )
        except ProviderError as error:
            return error


# S24: servers that are not allowed.
@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize(
    ("host", "error"),
    [
        ("127.0.0.1", ForbiddenAddressError),
        ("[::1]", ForbiddenAddressError),
        ("0.0.0.0", ForbiddenAddressError),  # noqa: S104 - a server, not where one listens
        ("[::]", ForbiddenAddressError),
        ("[::ffff:127.0.0.1]", ForbiddenAddressError),
        ("[::127.0.0.1]", ForbiddenAddressError),
        ("[64:ff9b::7f00:1]", ForbiddenAddressError),
        ("169.254.169.254", ForbiddenAddressError),
        ("[::ffff:a9fe:a9fe]", ForbiddenAddressError),
        ("[fd00:ec2::254]", ForbiddenAddressError),
        ("100.100.100.200", ForbiddenAddressError),
        ("localhost", ForbiddenAddressError),
        ("metadata.google.internal", ForbiddenAddressError),
        ("rebound.example.com", ForbiddenAddressError),
        ("mapped.example.com", ForbiddenAddressError),
        ("①②⑦.⓪.⓪.①", ForbiddenAddressError),
        ("2130706433", BadProviderError),
        ("0x7f000001", BadProviderError),
        ("017700000001", BadProviderError),
        ("127.1", BadProviderError),
        ("0177.0.0.1", BadProviderError),
        ("127.0.0.1.", BadProviderError),
        ("[::1%25lo]", BadProviderError),
        ("good.example.com@127.0.0.1", BadProviderError),
        ("127.0.0.1\\@good.example.com", BadProviderError),
        ("127.0.0.1#@good.example.com", BadProviderError),
        ("127.0.0.1?@good.example.com", BadProviderError),
    ],
)
@pytest.mark.claim("P1")
async def test_a_forbidden_server_never_hears_of_us(kind, host, error):
    names = Names(
        localhost=("127.0.0.1", "::1"),
        metadata_google_internal="169.254.169.254",
        rebound_example_com=("127.0.0.1", "203.0.113.7"),
        mapped_example_com="::ffff:127.0.0.1",
    )
    async with ProviderServer(http_answer(answer("4"))) as server:
        result = await ask(f"http://{host}:{server.port}", kind=kind, http=HttpClient(lookup=names))
    assert type(result) is error
    assert not result.helps_to_wait
    assert server.connections == 0


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://prom:70/", "unix:///var/run/docker.sock", "ftp://prom/"]
)
async def test_other_schemes_are_none_of_ours(url):
    assert type(await ask(url)) is BadProviderError


async def test_a_name_is_not_looked_up_again_after_it_was_checked():
    names = Names(prom_example_com=["127.0.0.1", "169.254.169.254"])
    async with ProviderServer(http_answer(answer("4"))) as server:
        result = await ask(
            f"http://prom.example.com:{server.port}", http=HttpClient(LOOPBACK, lookup=names)
        )
    assert result.value == "4"
    assert names.asked == ["prom.example.com"]


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_provider_leads_nobody_to_the_api_server(kind, status):
    async with ProviderServer(http_answer({})) as api_server:
        path = "/api/v1/namespaces/default/secrets"
        answer = http_answer(b"", f"{status} X", f"Location: {api_server.url}{path}")
        async with ProviderServer(answer) as server:
            result = await ask(server.url, kind=kind)
    assert type(result) is RedirectedError
    assert path not in str(result)
    assert api_server.connections == 0
    assert len(server.requests) == 1


# S25: what is in a Secret stays between us and the server that it is for.
async def echo(request):
    yield http_answer(
        json.dumps({"status": "error", "errorType": "bad_data", "error": str(request)}).encode(),
        "400 Bad Request",
    )


async def echo_plainly(_request):
    yield http_answer(f"bad password {CANARY} for harbour".encode(), "500 X", kind="text/plain")


async def echo_as_value(_request):
    yield http_answer(answer(f"{CANARY}"))


async def echo_as_kind(_request):
    yield http_answer(b"{}", kind=f"text/{CANARY}")


async def echo_in_garbage(request):
    yield f"{request.headers['authorization']}\r\n\r\n".encode()


async def echo_in_location(request):
    credential = request.headers["authorization"].split()[1]
    yield http_answer(b"", "302 X", f"Location: http://{credential}.example.com/{credential}")


async def cut_off(_request):
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"
    yield b""


LEAKS = {
    "body": echo,
    "text": echo_plainly,
    "value": echo_as_value,
    "kind": echo_as_kind,
    "garbage": echo_in_garbage,
    "401": http_answer(f"{CANARY} is wrong".encode(), "401 X"),
    "403": http_answer({"status": "error", "error": f"{CANARY} is wrong"}, "403 X"),
    "redirect": http_answer(b"", "302 X", f"Location: http://u:{CANARY}@h/{CANARY}"),
    "location": echo_in_location,
    "cut off": cut_off,
    "hang": too_late,
}


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.claim("P2")
async def test_a_secret_is_in_no_error_no_log_and_no_metric(leak, monkeypatch):
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    registry = CollectorRegistry()
    library = io.StringIO()
    handler = logging.StreamHandler(library)
    logging.getLogger().addHandler(handler)
    try:
        with captured_log("debug") as stream:
            async with ProviderServer(LEAKS[leak]) as server, HttpClient(LOOPBACK) as http:
                client = QueryClient(
                    http, timeout=PATIENCE, per_target=4, observer=QueryMetrics(registry)
                )
                target = Target("prometheus", server.url, secret=SECRET)
                with pytest.raises(ProviderError) as caught:
                    await client.ask(target, Question("up"))
    finally:
        logging.getLogger().removeHandler(handler)
    assert server.requests[0].headers["authorization"].startswith("Basic ")
    told = [
        str(caught.value),
        repr(caught.value),
        repr(target),
        "".join(traceback.format_exception(caught.value)),
        "".join(traceback.TracebackException.from_exception(caught.value).format(chain=True)),
        stream.getvalue().decode(),
        library.getvalue(),
        generate_latest(registry).decode(),
    ]
    basic = base64.b64encode(f"harbour:{CANARY}".encode()).decode()
    for secret in (CANARY, basic, base64.b64encode(CANARY.encode()).decode()):
        assert not [text for text in told if secret.lower() in text.lower()]


@pytest.mark.claim("P2")
async def test_a_password_is_for_the_server_it_is_for():
    async with (
        ProviderServer(http_answer(answer("4"))) as server,
        ProviderServer(http_answer(answer("5"))) as provider_server,
        HttpClient(LOOPBACK) as http,
    ):
        client = QueryClient(http, timeout=PATIENCE, per_target=4)
        mine = Target("prometheus", server.url, secret=SECRET)
        theirs = Target("prometheus", provider_server.url)
        anonymous = Target("prometheus", server.url)
        for target in (mine, theirs, anonymous, mine):
            await client.ask(target, Question("up"))
    assert ["authorization" in request.headers for request in server.requests] == [
        True,
        False,
        True,
    ]
    assert ["authorization" in request.headers for request in provider_server.requests] == [False]


async def test_who_has_no_password_gets_no_answer_of_one_who_has():
    async def protected(request):
        await asyncio.sleep(0.05)
        if "authorization" in request.headers:
            yield http_answer(answer("4"))
        else:
            yield http_answer(b"", "401 X")

    async with ProviderServer(protected) as server, HttpClient(LOOPBACK) as http:
        client = QueryClient(http, timeout=PATIENCE, per_target=4)
        result = await asyncio.gather(
            client.ask(Target("prometheus", server.url, secret=SECRET), Question("up")),
            client.ask(Target("prometheus", server.url), Question("up")),
            return_exceptions=True,
        )
    assert result[0].value == "4"
    assert type(result[1]) is UnauthorizedError


# S26: whatever it answers, it is an answer or an error, and soon.
async def endless(_request):
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n["
    while True:
        yield b"[1,2]," * 10_000


async def drip(_request):
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    while True:
        yield b" "
        await asyncio.sleep(0.01)


async def slow_head(_request):
    for letter in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100:
        yield bytes([letter])
        await asyncio.sleep(0.01)


async def continues(_request):
    while True:
        yield b"HTTP/1.1 100 Continue\r\n\r\n"
        await asyncio.sleep(0.01)


HOSTILE = {
    "10 GB": (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10000000000\r\n\r\n",
        TooLargeError,
    ),
    "endless": (endless, TooLargeError),
    "drip": (drip, TimedOutError),
    "slow head": (slow_head, TimedOutError),
    "continues": (continues, (TimedOutError, UnreachableError)),
    "silent": (too_late, TimedOutError),
    "html": (http_answer(b"<html>", kind="text/html"), UnreachableError),
    "no UTF-8": (http_answer(b'{"status": "\xff\xfe"}'), BadAnswerError),
    "NaN": (http_answer(answer("NaN")), NotFiniteError),
    "Inf": (http_answer(answer("+Inf")), NotFiniteError),
    "text": (http_answer(answer("four")), BadAnswerError),
    "bare number": (http_answer(answer(4)), BadAnswerError),
    "huge number": (http_answer(answer("9" * 100_000)), BadAnswerError),
    "nothing": (http_answer(answer()), NoValuesError),
    "10,000 series": (http_answer(answer(*["4"] * 10_000)), TooManyValuesError),
    "20,000 samples": (
        http_answer(
            {
                "status": "success",
                "data": {"resultType": "vector", "result": [{"values": [[1, "4"]] * 20_000}]},
            }
        ),
        # More than one where an instant has one.
        BadAnswerError,
    ),
    "deep": (http_answer(b'{"data":' * 50_000), BadAnswerError),
    "long headers": (
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 10_000_000 + b"\r\n\r\n",
        UnreachableError,
    ),
    "throttled": (http_answer(b"", "429 X", f"Retry-After: {'9' * 4000}"), ThrottledError),
    "control characters": (
        http_answer({"status": "error", "error": "\x1b[2J\r\nlevel=info\u202e\0" * 99}, "400 X"),
        ProviderError,
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.claim("P3")
async def test_a_bad_answer_is_an_error_in_one_short_line(case):
    answered, kind = HOSTILE[case]
    # Only a server that never says enough makes the query wait for its time-out.
    is_slow = TimedOutError in (kind if isinstance(kind, tuple) else (kind,))
    async with ProviderServer(answered) as server:
        result = await ask(server.url, patience=0.5 if is_slow else PATIENCE)
    assert isinstance(result, kind), result
    assert str(result).isprintable()
    assert len(str(result)) < 300


async def test_bad_answers_do_not_add_up():
    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    async with ProviderServer(endless) as server, HttpClient(LOOPBACK) as http:
        client = QueryClient(http, timeout=PATIENCE, per_target=8)
        target = Target("prometheus", server.url)

        async def many(count):
            return await asyncio.gather(
                *(client.ask(target, Question(f"q{n}")) for n in range(count)),
                return_exceptions=True,
            )

        await many(8)
        before = peak()
        result = await many(100)
        assert peak() - before < 32 * MIB
        assert {type(error) for error in result} == {TooLargeError}
        assert client._limit.is_idle
        assert not http._session.connector._acquired


# S27: a query is data, whatever it holds.
@pytest.mark.parametrize(
    "query",
    [
        'up{a="b"}&query=down&time=0',
        "up\r\nHost: evil.example.com\r\n\r\nGET /x",
        "up#fragment?a=b;c=d",
        "up%26query%3Ddown + 1",
        "\u0000\u202eup\ud7ff💥",
        "{}" * 5000,
    ],
)
@pytest.mark.parametrize("refuses_forms", [False, True])
@pytest.mark.claim("P4")
async def test_a_query_stays_one_query(query, refuses_forms):
    async def answered(request):
        if refuses_forms and request.line.startswith("POST"):
            yield http_answer(b"", "405 Method Not Allowed")
        else:
            yield http_answer(answer("4"))

    async with ProviderServer(answered) as server:
        result = await ask(server.url, query=query)
    assert result.value == "4"
    request = server.requests[-1]
    method, target, version = request.line.split(" ")
    path, _, parameters = target.partition("?")
    form = parameters if refuses_forms else request.body.decode()
    assert (method, path, version) == (
        "GET" if refuses_forms else "POST",
        "/api/v1/query",
        "HTTP/1.1",
    )
    assert parse_qs(form, strict_parsing=True) == {"query": [query]}
    assert request.headers["host"] == f"127.0.0.1:{server.port}"
