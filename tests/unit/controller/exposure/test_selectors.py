from __future__ import annotations

import pytest

from harbourmaster.controller.exposure.metrics_api import MAX_LENGTH, parse_selector

WEB = {"app": "web", "tier": "front", "example.com/weight": "5"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "app=web",
        "app == web",
        "app!=db",
        "app=web,tier=front",
        " app = web , tier in (front, back) ",
        "tier notin (back)",
        "absent notin (a)",
        "absent!=a",
        "app",
        "!absent",
        "! absent",
        "example.com/weight>4",
        "example.com/weight<6",
        "app in (web)",
        "app in (web,)",
    ],
)
def test_these_select(text):
    assert parse_selector(text).matches(WEB)


@pytest.mark.parametrize(
    "text",
    [
        "app=db",
        "app!=web",
        "app=",
        "app=web,tier=back",
        "tier in (back)",
        "tier notin (front)",
        "absent",
        "!app",
        "absent=a",
        "example.com/weight>5",
        "example.com/weight<5",
        "app>1",
        "absent<1",
    ],
)
def test_these_do_not(text):
    assert not parse_selector(text).matches(WEB)


@pytest.mark.parametrize(
    "text",
    [
        "=",
        "app=web,",
        ",app=web",
        "app=web tier=front",
        "app in web",
        "app in (web",
        "app in (we b)",
        "app in (a,-)",
        "app>x",
        "app=a=b",
        "app=~web",
        "-app",
        "a/b/c",
        "app=web;drop",
        f"app={'a' * 64}",
        f"{'a' * 64}=b",
        "app=\N{LATIN SMALL LETTER E WITH ACUTE}",
        " " * (MAX_LENGTH + 1),
        "(" * 4000,
        "a in (" + "," * 4000,
    ],
)
def test_what_is_no_selector_is_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r"select|label") as error:
        parse_selector(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 100
