from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.kube.streams import (
    DEEPEST,
    MAX_LINE,
    STUB,
    LineSplitter,
    LineTooLongError,
    shallow,
)

STREAM = b'{"a":1}\n\n{"b":"\xc3\xa9"}\r\n\r\nx\n'
LINES = [b'{"a":1}', b'{"b":"\xc3\xa9"}', b"x"]


def split(chunks, limit=MAX_LINE):
    splitter = LineSplitter(limit)
    return [line for chunk in chunks for line in splitter.feed(chunk)], splitter.pending


def cut(data, places):
    ends = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in pairwise(ends)]


def test_every_way_to_cut_a_stream_in_two_gives_the_same_lines():
    for place in range(len(STREAM) + 1):
        assert split(cut(STREAM, [place])) == (LINES, False), place


@given(st.lists(st.integers(0, len(STREAM))))
def test_any_way_to_cut_it_does(places):
    assert split(cut(STREAM, places)) == (LINES, False)


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_nothing_is_lost_of_any_stream(chunks):
    whole = b"".join(chunks)
    lines, pending = split(chunks)
    *ended, rest = whole.split(b"\n")
    assert lines == [line for line in (line.removesuffix(b"\r") for line in ended) if line]
    assert pending == bool(rest)


def test_a_line_that_has_not_ended_is_kept_back():
    splitter = LineSplitter()
    assert splitter.feed(b'{"a":') == []
    assert splitter.pending
    assert splitter.feed(b"1}\n") == [b'{"a":1}']
    assert not splitter.pending


@pytest.mark.parametrize("size", [1, 3, 10, 11])
def test_the_longest_line_passes_and_the_next_does_not(size):
    fits, exceeds = b"x" * 10 + b"\n", b"x" * 11 + b"\n"
    chunks = [fits[start : start + size] for start in range(0, len(fits), size)]
    assert split(chunks, limit=10) == ([b"x" * 10], False)
    chunks = [exceeds[start : start + size] for start in range(0, len(exceeds), size)]
    with pytest.raises(LineTooLongError, match="longer than 10 bytes"):
        split(chunks, limit=10)


def test_a_line_of_16_mib_is_the_limit():
    mebibyte = b"x" * 2**20
    assert split([*[mebibyte] * 16, b"\n"])[0] == [b"x" * MAX_LINE]
    with pytest.raises(LineTooLongError):
        split([*[mebibyte] * 16, b"x"])


def test_single_bytes_do_not_take_forever():
    # A quadratic splitter would copy 32 GiB here.
    lines, _ = split([b"x"] * 2**18 + [b"\n"])
    assert lines == [b"x" * 2**18]


def nest(levels):
    return '{"a":' * levels + '"]}"' + "}" * levels


def thing(name, levels):
    spec = f'{{"x":[1],"y":{nest(levels)},"z":"\\"{{["}}'
    return f'{{"metadata":{{"name":"{name}"}},"spec":{spec}}}'


def page(*items):
    return f'{{"metadata":{{"resourceVersion":"7"}},"items":[{",".join(items)}]}}'.encode()


def test_what_is_not_deep_stays_as_it_is():
    body = page(thing("a", 3), thing("b", DEEPEST - 4))
    assert shallow(body, 5) == body


def test_what_is_too_deep_is_a_text_in_its_place():
    body = page(thing("a", 3), thing("b", 5000), thing("c", 3))
    items = json.loads(shallow(body, 5))["items"]
    assert items[1]["spec"] == {"x": [1], "y": json.loads(STUB), "z": '"{['}
    assert [items[0], items[2]] == [json.loads(thing(name, 3)) for name in "ac"]


@pytest.mark.parametrize("body", [b"", b"]]]]", b'{"a', b"[" * 9000])
def test_what_is_no_json_stays_none(body):
    assert shallow(body, 5) == body
