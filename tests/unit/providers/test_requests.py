"""Statuses and bodies of replies, as errors and as data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import msgspec
import pytest

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadQueryError,
    ThrottledError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.providers.requests import (
    MAX_PAUSE,
    MAX_WORDS,
    Reply,
    decode_reply,
    one_line,
    raise_for_status,
)

NUMBERS = msgspec.json.Decoder(dict[str, float])


def reply(status=200, body=b"", kind="application/json", **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, {"content-type": kind, **headers}, body)


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_a_2xx_status_is_no_error(status):
    assert raise_for_status(reply(status)) is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((401, UnauthorizedError), (403, UnauthorizedError), (429, ThrottledError)),
        *((400, BadQueryError), (404, BadQueryError), (422, BadQueryError)),
        *((500, UnreachableError), (502, UnreachableError), (503, UnreachableError)),
        *((504, UnreachableError), (599, UnreachableError)),
        *((300, BadAnswerError), (405, BadAnswerError), (418, BadAnswerError)),
    ],
)
def test_each_other_status_is_an_error_of_its_class(status, kind):
    with pytest.raises(kind, match=f"HTTP {status}"):
        raise_for_status(reply(status, b"why"))


@pytest.mark.parametrize(
    ("status", "waits", "unreachable"),
    [(401, False, True), (400, False, True), (429, True, True), (500, True, True)],
)
def test_the_class_says_whether_waiting_helps_and_that_there_was_no_answer(
    status, waits, unreachable
):
    with pytest.raises(Exception, match="HTTP") as caught:
        raise_for_status(reply(status))
    assert (caught.value.helps_to_wait, caught.value.is_unreachable) == (waits, unreachable)


def test_a_rejection_of_credentials_is_not_quoted():
    with pytest.raises(UnauthorizedError) as caught:
        raise_for_status(reply(401, b"canary is no valid key"), "canary is no valid key")
    assert "canary" not in str(caught.value)


def test_the_words_of_the_provider_are_in_one_short_clean_line():
    with pytest.raises(BadQueryError) as caught:
        raise_for_status(reply(400, b"first\r\n\x1b[31msecond\x00\xff" + b"x" * 10_000))
    assert str(caught.value).startswith(
        "the provider rejected the query (HTTP 400: first \\x1b[31msecond\\x00�xxx"
    )
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < MAX_WORDS + 60


def test_a_given_message_replaces_the_body():
    with pytest.raises(UnreachableError, match=r"\(HTTP 500: disk full\)$"):
        raise_for_status(reply(500, b"{...}"), "disk full")


def test_words_are_of_limited_length_whatever_they_are():
    assert one_line("a  b\n c\t") == "a b c"
    assert len(one_line("x" * 10**6)) == MAX_WORDS
    assert one_line("x" * 10**6).endswith("x…")
    assert one_line("x" * MAX_WORDS) == "x" * MAX_WORDS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("7", 7), (" 0 ", 0), ("3600", MAX_PAUSE), ("9" * 400, MAX_PAUSE)),
        *(("", None), ("-1", None), ("soon", None), ("1.5", None), ("1e9", None), ("٣", None)),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Thu, 01 Jan 1970 00:00:00 -0000", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_PAUSE),
    ],
)
def test_the_provider_says_how_long_to_wait(text, seconds):
    with pytest.raises(ThrottledError) as caught:
        raise_for_status(reply(429, retry_after=text))
    assert caught.value.seconds == seconds


def test_a_date_is_when_to_come_back():
    at = datetime.now(UTC) + timedelta(seconds=100)
    with pytest.raises(ThrottledError) as caught:
        raise_for_status(reply(429, retry_after=format_datetime(at, usegmt=True)))
    assert 95 < caught.value.seconds <= 100


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "application/x.v1+JSON", ""]
)
def test_json_is_read(kind):
    assert decode_reply(reply(body=b'{"a": 1.5}', kind=kind), NUMBERS) == {"a": 1.5}


@pytest.mark.parametrize("kind", ["text/html", "text/plain; charset=json", "application/xml"])
def test_another_content_type_comes_from_another_server(kind):
    with pytest.raises(UnreachableError, match="instead of JSON"):
        decode_reply(reply(body=b'{"a": 1.5}', kind=kind), NUMBERS)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"a": "b"}', b'{"\xff": 1}', b'{"a": 1', b"[" * 10**6, b'{"a": 1e999}', b"\0"],
)
def test_an_invalid_body_is_an_error(body):
    decoder = msgspec.json.Decoder() if body[:1] == b"[" and body != b"[]" else NUMBERS
    with pytest.raises(BadAnswerError, match=r"invalid answer: ."):
        decode_reply(reply(body=body), decoder)
