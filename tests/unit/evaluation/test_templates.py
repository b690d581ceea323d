"""Queries with arguments: the supported actions of Go's templates, and the escaping of values."""

from __future__ import annotations

import json
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.evaluation.templates import LONGEST, Placeholder, parse_template, render

HOSTILE = ['"', "'", "`", "\\", "}", "{", '"}) or vector(1) #', '\\"', "a\\", "~", '~"', "$(x)"]
PROVIDERS = ["prometheus", "thanos", "cortex", "datadog", "dynatrace", "dql", "elastic", "other"]
STRINGS = {
    # What a string is in each language; all of the query must be one.
    "prometheus": r'"(?:[^"\\]|\\.)*"',
    "dynatrace": r'"(?:[^"~]|~.)*"',
    "dql": r'"(?:[^"\\]|\\.)*"',
    "elastic": r'"(?:[^"\\]|\\.)*"',
    "datadog": r'"[^"\\]*"',
}


def query(text, provider="prometheus", **arguments):
    return render(parse_template(text), arguments, provider)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("sum(up)", "sum(up)"),
        ("{{.x}}", "1"),
        ("{{ .x }}", "1"),
        ("{{\n\t.x\r\n}}", "1"),
        ("a {{- .x }} b", "a1 b"),
        ("a {{ .x -}} b", "a 1b"),
        ("a \n\t{{- .x -}}\r\n b", "a1b"),
        ("{{.x}}{{.y_2}}", "1two"),
        ("a{{.x}} {{- .x}}", "a11"),
        ("{{.größe}}", "3"),
        ("a}}b", "a}}b"),
        ("{{$.x}}", "1"),
        ('{{index . "x"}}', "1"),
        ('{{ index $ "a-b" }}', "4"),
        ("{{print .x}}{{ .x | print }}", "11"),
        ("""{{printf "%s" .x}}{{ index . "x" | printf "%v" | print }}""", "11"),
        ("""a{{"{{"}}b{{ `"` }}{{""}}""", 'a{{b"'),
        ("a{{/* .y and }} of it */}}b", "ab"),
        ("a {{- /* two\nlines */ -}} b{{.x}}", "ab1"),
        ('up{a="b"}', 'up{a="b"}'),
    ],
)
def test_what_is_rendered(text, rendered):
    assert query(text, **{"x": "1", "y_2": "two", "größe": "3", "a-b": "4"}) == rendered


def test_the_parts():
    assert parse_template("a{{.x}}b").parts == ("a", Placeholder("x"), "b")


def test_an_argument_that_is_missing_is_named():
    with pytest.raises(ValueError, match="the query needs the argument 'cluster', which is not"):
        query("up{{.cluster}}", x="1")


@pytest.mark.parametrize(
    "action",
    ["{{if .x}}", "{{.}}", "{{.x.y}}", "{{.x-y}}", '{{index . "x" "y"}}', "{{.x | len}}",
     "{{end}}", "{{/* x */ .x}}", '{{"a" "b"}}', '{{printf "%d" .x}}', '{{index .x "y"}}',
     "{{-.x}}", "{{.x-}}", "{{.1}}", "{{}}", "{{$x}}", "{{{.x}}}"],
)  # fmt: skip
def test_any_other_action_is_named(action):
    with pytest.raises(ValueError, match="only arguments") as caught:
        parse_template(f"up {action} down")
    assert f"'{action.removesuffix('}}}') if action.endswith('}}}') else action}" in str(
        caught.value
    )


def test_an_action_without_an_end():
    for text in ("up{{.x}}{{.y", "up{{/* .x }} *", "{{/* .x", "{{/* a */"):
        with pytest.raises(ValueError, match=r"the query has a '{{' without '}}'"):
            parse_template(text)


@pytest.mark.parametrize(
    ("provider", "text", "value", "rendered"),
    [
        ("prometheus", 'up{a="{{.x}}"}', 'b"} or up{c="', r'up{a="b\"} or up{c=\""}'),
        ("prometheus", "up{a='{{.x}}'}", "b'c\"", r"""up{a='b\'c"'}"""),
        ("prometheus", 'up{a="{{.x}}"}', "\\", r'up{a="\\"}'),
        ("prometheus", "up{a=`{{.x}}`}", "b", "up{a=`b`}"),
        ("prometheus", 'up{a="{{.x}}-é"}', "ü", 'up{a="ü-é"}'),
        ("prometheus", 'a{b="\\"{{.x}}"}', '"', r'a{b="\"\""}'),
        ("prometheus", "rate(up[{{.x}}])", "5m", "rate(up[5m])"),
        ("prometheus", "{{.x}}_total", "job:http", "job:http_total"),
        ("prometheus", "up > {{.x}}", "-1.5e-3", "up > -1.5e-3"),
        ("prometheus", "up offset {{.x}}", "-5m", "up offset -5m"),
        ("prometheus", "up # don't\n + {{.x}}", "1", "up # don't\n + 1"),
        ("dynatrace", 'eq("{{.x}}")', 'a"~', 'eq("a~"~~")'),
        ("dql", 'x == "{{.x}}" // "', 'a"\\', r'x == "a\"\\" // "'),
        ("dql", 'x /* " */ == {{.x}}', "1", 'x /* " */ == 1'),
        ("elastic", '{"term": {"a": "{{.x}}"}}', 'b"}', r'{"term": {"a": "b\"}"}}'),
        ("elastic", '{"size": {{.x}}}', "1", '{"size": 1}'),
        ("datadog", "avg:cpu{host:{{.x}}}", "web-1/a", "avg:cpu{host:web-1/a}"),
        ("kafka", "{{.x}}", 'a"-`b', 'a"-`b'),
        ("static", "cpu of {{.x}}", "shop/cart", "cpu of shop/cart"),
    ],
)
@pytest.mark.claim("P4")
def test_a_value_is_escaped_as_its_place_wants_it(provider, text, value, rendered):
    assert query(text, provider, x=value) == rendered


@pytest.mark.parametrize(
    ("provider", "text", "value"),
    [
        *(("prometheus", "up{{.x}}", value) for value in HOSTILE),
        *(("datadog", "avg:cpu{host:{{.x}}}", value) for value in [*HOSTILE, "a,b:c", "a b", "-a"]),
        *(("prometheus", "up{{.x}}", value) for value in ["", " ", "a b", "a-b", "-1", "a/b", "*"]),
        ("prometheus", "up[{{.x}}]", "5m:1m"),
        ("prometheus", "up) {{.y}}{{.x}}", "-1"),
        ("prometheus", "0x{{.x}}", "1e-3"),
        ("prometheus", "up{a=`{{.x}}`}", "`"),
        ("prometheus", "up{a=`{{.x}}`}", "\\"),
        ("prometheus", 'up # "{{.x}}"', 'a"'),
        ("dql", "x /* {{.x}} */", "*/"),
        ("datadog", "avg:{{.x}}{*}", "a-b"),
        ("elastic", '{"size": {{.x}}}', '1,"from":2'),
    ],
)
def test_outside_of_quotes_it_must_be_a_word_or_a_number(provider, text, value):
    with pytest.raises(ValueError, match=r"^the argument 'x' is "):
        query(text, provider, x=value, y="up")


def test_a_value_behind_an_escape_of_the_query_is_refused():
    with pytest.raises(ValueError, match=r"^the argument 'x' follows a '\\' of the query$"):
        query('up{a="\\{{.x}}"}', x='"')


@pytest.mark.parametrize("provider", [*PROVIDERS, "kafka", "static"])
@pytest.mark.parametrize("control", ["\n", "\r", "\0", "\x7f", "\x85", "\u2028", "\u2029"])
def test_no_value_has_control_characters_or_line_ends(provider, control):
    with pytest.raises(ValueError, match=r"^the argument 'x' has control characters") as caught:
        query('up{a="{{.x}}"}', provider, x=f"a{control}b")
    assert str(caught.value).isprintable()


def test_a_query_has_an_end():
    assert len(query('"{{.x}}"', x="a" * (LONGEST - 2))) == LONGEST
    with pytest.raises(ValueError, match="the query has more than 65536 characters"):
        query('"{{.x}}"' * 100_000, x="a" * LONGEST)


@given(st.text(), st.sampled_from(sorted(STRINGS)))
def test_within_quotes_nothing_gets_out_of_the_string(value, provider):
    try:
        rendered = query('"{{.x}}{{.x}}"', provider, x=value)
    except ValueError:
        return
    assert re.fullmatch(STRINGS[provider], rendered)
    if provider == "elastic":
        assert json.loads(rendered) == value * 2


@given(
    st.text(st.sampled_from([*string.ascii_letters[:6], *string.digits, *"-+.:_/e ,()[]{}\"'"])),
    st.sampled_from(PROVIDERS),
    st.sampled_from([("up ", ""), ("up", ""), ("(", ")"), ("[", "]"), ("{a=", "}")]),
)
def test_outside_of_quotes_a_value_brings_no_operator(value, provider, around):
    before, after = around
    try:
        rendered = query(f"{before}{{{{.x}}}}{after}", provider, x=value)
    except ValueError:
        return
    added = rendered.removeprefix(before).removesuffix(after)
    assert not set(added) & set(" ,()[]{}\"'")
    if provider != "datadog":
        # What is left of signs belongs to a number.
        assert not set(re.sub(r"^[-+](?=[\d.])|(?<=[\d.]e)[-+](?=\d)", "", added)) & set("+-/")
