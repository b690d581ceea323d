"""YAML and JSON as the real kubectl reads them, in both directions."""

from __future__ import annotations

import json
import subprocess

import yaml
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.serving.documents import Document, parse_documents
from harbourmaster.serving.kubectl_yaml import dump, json_number
from helpers.manifests import ROOT, kubectl

SCALARS = (ROOT / "tests/fixtures/scalars.txt").read_text().splitlines()
TAGGED = r"""
!!str 1
!!str
!!str ~
!!str y
!custom 1
!custom {a: y}
!custom [n]
!!binary aGVsbG8=
!!int "3"
!!int 1_000
!!float 3
!!float .5
!!float 1e3
!!bool y
!!bool "yes"
!!null ""
!!null
!!set {b}
!!timestamp 2020-01-01
!!omap [a: 1]
!!value =
!!merge <<
!!yaml 3
!!seq {a: 1}
!!map [1]
!!python/object/apply:os.system [true]
!<tag:yaml.org,2002:int> 5
!!str [1]
""".strip().splitlines()
MAPPINGS = r"""
{<<: {a: 1, c: 2}, a: 3}
{a: 3, <<: {a: 1}}
{<<: [{a: 5}, {a: 1, b: 2}], d: 1}
{"<<": 3}
{!!str <<: {a: 1}}
{!!merge <<: {a: 1}}
{<<: {a: 1}, <<: {b: 1}}
{&k foo: 1, b: *k}
{a: &x {b: 1}, c: *x, d: {<<: *x}}
{1: a, 1.50: b, y: c, 0o17: d}
""".strip().splitlines()
TEXTS = [
    *("", " ", " a", "a ", "-", "---", "--- a", "...", "- a", "? a", ": a", "a: b", "a:", "a #b"),
    *[
        "#",
        "'",
        '"',
        "{a}",
        "[a]",
        "{",
        "}",
        "]",
        ",",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "%a",
        "@a",
        "`a",
    ],
    *("a\nb", "a\n", "\na", "a\n\n b\n", " a\nb", "\t", "a\tb", "\r", "a\r\nb", "é\n日本", "😀"),
    *("\x00", "\x1b[0m", "\x7f", "\x85", "\u2028", "\ufeff", "\ud7ff", "\ue000", "\uffff"),
    *("x" * 200, "word " * 50, "- " * 100, "1 " * 100),
]
REFUSED = r"""
.inf
-.Inf
.nan
!!binary x
!!int x
!!int 3.0
!!float x
!!bool x
!!null x
!!int
{null: 1}
{~: 1}
{18446744073709551615: 1}
{<<: 3}
{<<: [1]}
{[a]: 1}
{{a: 1}: 1}
&a [*a]
[*absent]
"\ud83d\ude00"
""".strip().splitlines()
JSON = r"""
"\ud83d\ude00"
"x\ud83dy"
"\\ud83d"
"\ud83d\ud83d\ude00"
"\uDE00\u00e9"
"\/"
[1e3, 1E3, 1.0, -0, -0.0, 0.1, 1e20, 1e21]
[12345678901234567890, 9223372036854775807]
[-9223372036854775808, -1234567890123456789]
"y"
[true, null]
{"1": 2, "y": 3, "<<": 4}
NaN
[1,]
{a: y}
{a: 1} # no
""".strip().splitlines()
JSON += ['"\x7f"', '"a\tb"', f'{{"{"k" * 2000}": 1}}']


HEAD = "apiVersion: example.com/v1\nkind: Table\nmetadata: {name: a%d}\n"


def read_number(text):
    """A larger number is a float for Go, of which Python writes another form."""
    number = int(text)
    return number if -(2**63) <= number < 2**63 else json_number(float(number))


def read_by_kubectl(texts, folder):
    """Return what one kubectl makes of each text, as JSON; None where it refuses it."""
    for index, text in enumerate(texts):
        (folder / f"{index:04}").write_text(text)
    files = [f"--filename={folder}/{index:04}" for index in range(len(texts))]
    command = [kubectl(), "label", "--local", "--dry-run=client", "--output=json", *files, "z=1"]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    values, end = {}, 0
    while end < len(done.stdout.rstrip()):
        decoder = json.JSONDecoder(parse_int=read_number)
        obj, end = decoder.raw_decode(done.stdout, done.stdout.index("{", end))
        del obj["metadata"]["labels"]
        values[obj["metadata"]["name"]] = json.dumps(obj, sort_keys=True)
    return [values.get(f"a{index}") for index in range(len(texts))]


def read_by_us(text):
    (item,) = parse_documents(text, "f")
    return json.dumps(item.value, sort_keys=True) if isinstance(item, Document) else None


def assert_alike(texts, folder):
    assert len(texts) == len(set(texts))
    expected = read_by_kubectl(texts, folder)
    pairs = zip(texts, expected, map(read_by_us, texts), strict=True)
    assert [text for text in pairs if text[1] != text[2]] == []


def test_values_and_keys_are_read_as_by_kubectl(tmp_path):
    values = [f"value: {given}\n" for given in (*SCALARS, *TAGGED, *MAPPINGS, *REFUSED)]
    keys = [f"value: {{? {given} : 1}}\n" for given in SCALARS if given not in {"::", "%"}]
    assert len(SCALARS) > 200
    texts = [HEAD % index + text for index, text in enumerate((*values, *keys))]
    assert_alike(texts, tmp_path)


def test_json_is_read_as_by_kubectl(tmp_path):
    head = '{"apiVersion": "v1", "kind": "Table", "metadata": {"name": "a%d"}, "value": %s}'
    assert_alike([head % pair for pair in enumerate(JSON)], tmp_path)


def test_text_is_written_as_every_reader_takes_it(tmp_path):
    texts = dict.fromkeys((*SCALARS, *TEXTS))
    values = [{"value": text, "key": {text: [text]}} for text in texts]
    written = [HEAD % index + dump(value) for index, value in enumerate(values)]
    read = read_by_kubectl(written, tmp_path)
    assert len(read) == len(values) > len(SCALARS)
    for text, value, by_kubectl in zip(written, values, read, strict=True):
        assert value.items() <= json.loads(by_kubectl or "{}").items(), text
        assert value.items() <= yaml.safe_load(text).items(), text
        assert by_kubectl == read_by_us(text)


@given(st.text() | st.from_regex(r"[-+.0-9_:eExobyYnN]{1,9}", fullmatch=True))
def test_text_that_is_written_is_read_as_text(text):
    value = {"value": text, "key": {text: [text]}}
    (document,) = parse_documents(dump(value), "f")
    assert document.value == yaml.safe_load(dump(value)) == value
