"""JSON that is read into our own types, and the one line that says what is wrong with it."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api.decoding import MalformedError, decode, decode_anything, describe


class Inner(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    labels: dict[str, str] | None = None
    values: list[int] | None = None
    is_on: bool | None = None


class Outer(msgspec.Struct):
    inner: Inner | None = None
    many: list[Inner] | None = None


decoder = msgspec.json.Decoder(Outer)


def fault(data, at=""):
    with pytest.raises(MalformedError) as caught:
        decode(decoder, data, at)
    text = str(caught.value)
    assert text.isprintable()
    return text


def test_good_input_is_decoded():
    assert decode(decoder, b'{"inner": {"nodeName": "n1", "future": 1}}', "") == Outer(Inner("n1"))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"[]", "expected object, got array"),
        (b'"x"', "expected object, got string"),
        (b'{"inner": []}', "inner: expected object, got array"),
        (b'{"inner": {"nodeName": 1}}', "inner.nodeName: expected string, got integer"),
        (b'{"inner": {"nodeName": 1.5}}', "inner.nodeName: expected string, got number"),
        (b'{"inner": {"isOn": "x"}}', "inner.isOn: expected boolean, got string"),
        (b'{"inner": {"labels": {"a": 1}}}', "inner.labels: expected string, got integer"),
        (b'{"inner": {"labels": {"a": null}}}', "inner.labels: expected string, got null"),
        (b'{"inner": {"values": [1, "x"]}}', "inner.values[1]: expected integer, got string"),
        (b'{"many": [{}, {"nodeName": {}}]}', "many[1].nodeName: expected string, got object"),
    ],
)
def test_wrong_type_names_the_field_and_what_was_expected(data, text):
    assert fault(data) == text


@pytest.mark.parametrize("at", ["spec.affinity", ".spec.affinity"])
def test_path_continues_where_the_data_stands(at):
    assert fault(b'{"inner": 1}', at) == "spec.affinity.inner: expected object, got integer"
    assert fault(b"[]", at) == "spec.affinity: expected object, got array"


def test_path_of_an_item_follows_the_list_it_stands_in():
    with pytest.raises(MalformedError, match=r"^spec\.many\[0\]: expected object, got integer$"):
        decode(msgspec.json.Decoder(list[Inner]), b"[1]", "spec.many")


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"inner": }', b'{"inner": 01}', b"{} {}", b'{"x": "\\ud800"}', b"nul"]
)
def test_what_is_no_json_is_refused(data):
    assert "malformed" in fault(data) or "truncated" in fault(data)


def test_what_is_no_utf_8_is_refused():
    assert "utf-8" in fault(b'{"inner": {"nodeName": "\xff"}}').lower()


def test_what_is_nested_too_deeply_is_refused():
    data = b'{"future": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert fault(data, "spec") == "spec: nested too deeply"


@pytest.mark.parametrize(
    "value",
    [b"null", b'{"a": [1.5, {"b": "x"}]}', b"[" * 700 + b"]" * 700, b"[" + b"{}," * 999 + b"{}]"],
)
def test_anything_that_can_be_written_again_is_decoded(value):
    assert msgspec.json.encode(decode_anything(value, "")) == value.replace(b" ", b"")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b'{"a": [{"u": 1e999}]}', "spec: number out of range"),
        (b'[{"u": 1e999}]', "spec[0]: number out of range"),
        (b"9" * 5000, "spec: integer value out of range"),
        (b'{"\xff": 1}', "spec: not valid JSON: 'utf-8' codec can't decode byte 0xff"),
        (b"[" * 940 + b"]" * 940, "spec: nested too deeply"),
        (b'{"u":' * 100_000, "spec: too many values"),
    ],
)
def test_what_could_not_be_read_or_written_again_is_refused(value, text):
    with pytest.raises(MalformedError) as caught:
        decode_anything(value, "spec")
    assert str(caught.value).startswith(text)
    assert str(caught.value).isprintable()


def test_converted_values_are_described_alike():
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"many": [{"values": ["x"]}]}, Outer)
    assert describe(caught.value, "spec") == "spec.many[0].values[0]: expected integer, got string"
