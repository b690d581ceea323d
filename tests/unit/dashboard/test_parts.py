"""The small parts: the guard, queries, times, text."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import parse_qs

import pytest
from aiohttp.test_utils import make_mocked_request
from markupsafe import Markup
from multidict import CIMultiDict

from harbourmaster.dashboard.guard import (
    client_of,
    is_from_our_page,
    is_host_of_loopback,
    local_path,
)
from harbourmaster.dashboard.pages.states import age, span
from harbourmaster.dashboard.query import ROWS, PageQuery, read_query, select_page
from harbourmaster.dashboard.rendering import escape_invisible, finalize, read_assets
from harbourmaster.providers.addresses import parse_networks

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PROXIES = parse_networks(["10.0.0.0/8", "fd00::/16"])


@pytest.mark.parametrize(
    ("remote", "forwarded", "client"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["198.51.100.7"], "192.0.2.1"),
        ("10.1.1.1", [], "10.1.1.1"),
        ("10.1.1.1", ["198.51.100.7"], "198.51.100.7"),
        ("10.1.1.1", ["203.0.113.5, 198.51.100.7"], "198.51.100.7"),
        ("10.1.1.1", ["203.0.113.5", "198.51.100.7 , 10.2.2.2"], "198.51.100.7"),
        ("10.1.1.1", ["10.3.3.3,10.2.2.2"], "10.3.3.3"),
        ("10.1.1.1", ["198.51.100.7, nonsense"], "10.1.1.1"),
        ("10.1.1.1", ["203.0.113.5, nonsense, 10.2.2.2"], "10.2.2.2"),
        ("::ffff:10.1.1.1", ["198.51.100.7"], "198.51.100.7"),
        ("fd00::1", ["2001:db8:1:2:3:4:5:6"], "2001:db8:1:2::/64"),
        ("2001:db8::1", ["198.51.100.7"], "2001:db8::/64"),
    ],
)
@pytest.mark.claim("D8")
def test_the_client_is_the_last_address_that_is_no_trusted_proxy(remote, forwarded, client):
    headers = CIMultiDict(("X-Forwarded-For", address) for address in forwarded)
    request = make_mocked_request("GET", "/", headers=headers).clone(remote=remote)
    assert client_of(request, PROXIES) == client


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("localhost", True),
        ("LOCALHOST:8088", True),
        ("127.0.0.1:8088", True),
        ("[::1]:8088", True),
        ("", False),
        ("attacker.example.com:8088", False),
        ("127.0.0.1.example.com", False),
        ("localhost.example.com", False),
        ("10.0.0.1", False),
    ],
)
def test_a_plain_request_names_this_machine(host, is_so):
    assert is_host_of_loopback(make_mocked_request("GET", "/", {"Host": host})) is is_so


@pytest.mark.parametrize(
    ("headers", "is_so"),
    [
        ({}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://localhost:8088"}, True),
        ({"Origin": "https://example.com"}, False),
        ({"Origin": "http://localhost:80880"}, False),
        ({"Origin": "http://[broken"}, False),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "null"}, True),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:8088"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
    ],
)
def test_a_form_comes_from_a_page_of_ours(headers, is_so):
    request = make_mocked_request("POST", "/login", {"Host": "localhost:8088", **headers})
    assert is_from_our_page(request) is is_so


@pytest.mark.parametrize(
    "text",
    [
        "",
        "//example.com",
        "/\\example.com",
        "https://example.com",
        "javascript:alert(1)",
        "/login",
        "/logout",
        "/a\r\nSet-Cookie: a=b",
        "/é",
    ],
)
def test_after_login_one_goes_nowhere_else(text):
    assert local_path(text) == "/"


def test_after_login_one_goes_where_one_wanted_to():
    assert local_path("/gates?namespace=shop&page=2") == "/gates?namespace=shop&page=2"


def test_a_query_is_read_whatever_it_says():
    assert read_query({}) == PageQuery()
    query = read_query({"namespace": " shop ", "q": "x" * 9999, "page": "3", "other": "y"})
    assert (query.namespace, len(query.q), query.page) == ("shop", 253, 3)
    for page in ("0", "-1", "1.5", "²", "x", "", "9" * 400):
        assert 1 <= read_query({"page": page}).page <= 100_000
    assert read_query({"page": "9" * 200}).page == 100_000


def test_a_link_keeps_the_filter_and_begins_at_the_first_page():
    query = PageQuery(namespace="a&b", q="'\"<", state="Failed", page=7)
    parameters = parse_qs(query.link(state="")[1:])
    assert parameters == {"namespace": ["a&b"], "q": ["'\"<"]}
    assert parse_qs(query.link(page=8)[1:])["page"] == ["8"]
    assert PageQuery().link() == "?"


def rows_of(items, query):
    return select_page(
        items,
        query,
        namespace=lambda item: item[0],
        texts=lambda item: item,
        key=lambda item: item,
        row=lambda item: item[1],
        holds=lambda item: item[1] != "hidden",
    )


def test_a_list_is_filtered_sorted_and_cut():
    items = [(f"ns-{number % 3}", f"Pod-{number:04}") for number in range(450)]
    whole = rows_of([("ns-0", "hidden"), *items[::-1]], PageQuery())
    assert (whole.total, whole.matching, whole.pages) == (451, 450, 5)
    assert whole.rows == tuple(name for _, name in sorted(items)[:ROWS])
    assert whole.namespaces == ("ns-0", "ns-1", "ns-2")
    last = rows_of(items, PageQuery(namespace="ns-1", page=9))
    assert (last.page, last.pages, last.first, last.last) == (2, 2, 101, 150)
    (row,) = rows_of(items, PageQuery(q="pOD-0007")).rows
    assert row == "Pod-0007"
    none = rows_of([], PageQuery())
    assert (none.first, none.last, none.pages) == (0, 0, 1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.9, "0 s"),
        (59, "59 s"),
        (60, "1 m"),
        (200, "3 m 20 s"),
        (720, "12 m"),
        (3700, "1 h 1 m"),
        (86400 * 3 + 7200, "3 d 2 h"),
        (86400 * 9 + 7200, "9 d"),
    ],
)
def test_spans_as_people_say_them(seconds, text):
    assert span(seconds) == text


def test_ages_of_stamps():
    assert age("2026-03-01T11:59:00Z", NOW) == "1 m ago"
    assert age("2026-03-01T12:00:30Z", NOW) == "in 30 s"
    assert not age("", NOW)
    assert not age("<script>", NOW)


def test_nothing_on_a_page_is_invisible_or_turns_other_text():
    for character in "\x00\x07\x1b\x7f\x9b\u200b\u202e\u2066\u2028\ufeff\ud800\U000e0041":
        shown = escape_invisible(f"a{character}b")
        assert character not in shown
        assert shown.startswith("a\\")
    assert escape_invisible("Straße → 東京 😀\n") == "Straße → 東京 😀\n"


def test_what_templates_put_out_is_made_visible_but_for_our_own_markup():
    assert finalize("a\x1bb") == "a\\x1bb"
    assert finalize(Markup("<b>")) == "<b>"
    assert finalize(None) == ""
    assert finalize(7) == 7


def test_the_style_sheet_serves_those_who_have_colours_letters_and_paper_of_their_own():
    sheet = read_assets()["dashboard.css"].body.decode()
    for feature in ("forced-colors: active", "prefers-reduced-motion", "@media print"):
        assert feature in sheet
    assert re.search(r"html \{ font-size: [\d.]+%", sheet)
    (letters,) = re.findall(r"font: 1rem/[\d.]+ ([^;]+);", sheet)
    # Chromium without a desktop takes a serif for system-ui.
    assert letters.endswith('"DejaVu Sans", system-ui, sans-serif')
