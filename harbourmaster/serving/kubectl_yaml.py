"""YAML as kubectl reads it, written so that no reader takes text for another type.

kubectl reads ``y``, ``1e3``, ``0o17`` and ``08`` as a boolean and numbers, and ``12:30`` and ``=``
as text. The reader is safe against hostile files: depth, aliases and merge keys are bounded.
"""

from __future__ import annotations

import base64
import re
import struct
import sys
from contextlib import suppress
from math import inf, isfinite, isnan, nan
from types import NoneType
from typing import Any, Final

import yaml
from yaml._yaml import CParser

MAX_NODES: Final = 2_000_000
"""Values in one document, aliases expanded; a file of 10,000 policies has about half a million."""
MAX_DEPTH: Final = 200
_PLAIN: Final = "plain"
"""The tag of a scalar without a tag and without quotes."""
_STANDARD: Final = "tag:yaml.org,2002:"
_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("", "~")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), nan),
    **{
        spelling: value
        for words, value in (
            (("null",), None),
            (("y", "yes", "true", "on"), True),
            (("n", "no", "false", "off"), False),
            ((".inf", "+.inf"), inf),
            (("-.inf",), -inf),
        )
        for word in words
        for spelling in (word, word.title(), word.upper())
    },
}
_NUMBER_STARTS: Final = frozenset("+-.0123456789")
_FIXED: Final = range(-4, 6)
"""Exponents of keys that kubectl writes without an exponent."""
_MAX_SINGLE: Final = 3.4028235677973366e38
_OCTAL: Final = re.compile("[-+]?0[0-7]+")
_FLOAT: Final = re.compile("[-+._0-9eE]+")
_TYPES: Final[dict[str, set[type]]] = {
    "null": {NoneType},
    "bool": {bool},
    "int": {int},
    "float": {int, float},
}
"""The types of tagged scalars; other tags make text of them."""


class DocumentError(ValueError):
    """A document that can't be read; the text is one line."""


class Reader(CParser):
    """Reads the documents of a text one by one; ``dispose`` ends it."""

    _depth = 0

    def descend_resolver(self, *_: object) -> None:
        """Raise DocumentError where nodes are nested too deeply: the parser is recursive."""
        self._depth += 1
        if self._depth > MAX_DEPTH + 1:
            raise DocumentError(f"nested more than {MAX_DEPTH} levels deep")

    def ascend_resolver(self) -> None:
        """Leave a node."""
        self._depth -= 1

    def resolve(self, _kind: type, _value: str, implicit: tuple[bool, bool] | bool) -> str:
        """Return the tag of a node that has none in the text."""
        return _PLAIN if isinstance(implicit, tuple) and implicit[0] else ""


def value_of(node: yaml.Node) -> Any:  # noqa: ANN401
    """Return the value of a node. Raises DocumentError."""
    construction = _Construction()
    value = construction.value_of(node)
    if construction.shares:
        check_size(value)
    return value


class _Construction:
    """The values of one document, and how many keys were merged into mappings."""

    def __init__(self) -> None:
        self._values: dict[yaml.Node, Any] = {}
        self._merged = 0
        self.shares = False

    def value_of(self, node: yaml.Node) -> Any:  # noqa: ANN401
        if isinstance(node, yaml.ScalarNode):
            value: Any = _scalar(node)
            return json_number(value) if type(value) in {int, float} else value
        if node not in self._values:
            self._values[node] = self
            is_mapping = isinstance(node, yaml.MappingNode)
            self._values[node] = (
                self._mapping(node) if is_mapping else [self.value_of(item) for item in node.value]
            )
        elif self._values[node] is self:
            raise DocumentError("an alias that contains itself")
        else:
            self.shares = True
        return self._values[node]

    def _mapping(self, node: yaml.Node) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        keys: set[str] = set()
        for key_node, below in node.value:
            if key_node.value == "<<" and key_node.tag in {_PLAIN, f"{_STANDARD}merge"}:
                self._merge(mapping, below)
                continue
            key = _key(key_node)
            if key in keys:
                raise DocumentError(f'line {_line(key_node)}: key "{key}" twice')
            keys.add(key)
            mapping[key] = self.value_of(below)
        return mapping

    def _merge(self, mapping: dict[str, Any], node: yaml.Node) -> None:
        """Add the keys of other mappings, which replace those above them, as kubectl reads it."""
        nodes = reversed(node.value) if isinstance(node, yaml.SequenceNode) else [node]
        for merged in nodes:
            if not isinstance(merged, yaml.MappingNode):
                raise DocumentError(f"line {_line(node)}: a merge key needs mappings")
            value = self.value_of(merged)
            self._merged += len(value)
            if self._merged > MAX_NODES:
                raise DocumentError(f"merge keys expand to more than {MAX_NODES} keys")
            mapping.update(value)


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _scalar(node: yaml.Node) -> bool | float | str | None:
    text: str = node.value
    if node.tag == _PLAIN:
        return plain_value(text)
    kind = node.tag.removeprefix(_STANDARD)
    if kind == "binary":
        with suppress(ValueError):
            data = base64.b64decode(text.translate({10: None, 13: None}), validate=True)
            return data.decode(errors="replace")
    elif kind not in _TYPES:
        return text
    elif type(value := plain_value(text)) in _TYPES[kind]:
        return value
    raise DocumentError(f"line {_line(node)}: not a value of type {kind}")


def plain_value(text: str) -> bool | float | str | None:
    """Return the value of a scalar without quotes and tag."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_STARTS or not text.isascii():
        return text
    digits = text if text[0] == "." else text.replace("_", "")
    with suppress(ValueError):
        integer = int(digits, 8 if _OCTAL.fullmatch(digits) else 0)
        if -(2**63) <= integer < 2**64:
            return integer
    with suppress(ValueError):
        if _FLOAT.fullmatch(digits) and isfinite(number := float(digits)):
            return number
    return text


def json_number(value: float) -> float:
    """Return a number as an API server reads it: 1.0 is 1, and a large one is a float.

    Raises DocumentError where JSON has no such number.
    """
    if -(2**63) <= value < 2**63:
        return int(value) if value == int(value) else value
    if not abs(value) <= sys.float_info.max:
        raise DocumentError(f"{float(value)} is not a number of JSON: put it in quotes")
    return float(value)


def _key(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        text = "a key is not text: render templates before they are checked"
        raise DocumentError(f"line {_line(node)}: {text}")
    value = _scalar(node)
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or (isinstance(value, int) and value >= 2**63):
        what = "null" if value is None else "too large"
        raise DocumentError(f"line {_line(node)}: a key is {what}: put it in quotes")
    return str(value) if isinstance(value, int) else _short_float(value)


def _short_float(value: float) -> str:
    """Return the shortest decimal of the nearest 32-bit number, as kubectl writes keys."""
    if not abs(value) < _MAX_SINGLE:
        return ".nan" if isnan(value) else "-.inf" if value < 0 else ".inf"
    single = struct.pack("f", value)
    texts = (f"{struct.unpack('f', single)[0]:.{places}e}" for places in range(9))
    text = next(text for text in texts if struct.pack("f", float(text)) == single)
    mantissa, _, exponent = text.partition("e")
    places = max(0, len(mantissa.partition(".")[2]) - int(exponent))
    return f"{float(text):.{places}f}" if int(exponent) in _FIXED else text


def check_size(value: Any) -> None:  # noqa: ANN401
    """Raise DocumentError where a value is too deep, or too large with its aliases expanded."""
    measured: dict[int, tuple[int, int]] = {}

    def measure(node: Any) -> tuple[int, int]:  # noqa: ANN401
        """Return the number of values and of levels."""
        if not isinstance(node, dict | list):
            return 1, 0
        if id(node) not in measured:
            children = node.values() if isinstance(node, dict) else node
            sizes, levels = zip((1, 0), *map(measure, children), strict=True)
            if sum(sizes) > MAX_NODES:
                raise DocumentError(f"aliases expand to more than {MAX_NODES} values")
            if max(levels) >= MAX_DEPTH:
                raise DocumentError(f"nested more than {MAX_DEPTH} levels deep")
            measured[id(node)] = sum(sizes), max(levels) + 1
        return measured[id(node)]

    measure(value)


def dump(value: object) -> str:
    """Return a document with its keys in the order that they have."""
    text: str = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    return text


class Dumper(yaml.CSafeDumper):
    """Quotes text that any reader could take for a number, a boolean, a date or null."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Write shared values out: readers of manifests expect no anchors."""
        return True


# PyYAML itself quotes what YAML 1.1 takes for another type, but not what others do.
Dumper.add_implicit_resolver(
    "number",
    re.compile(
        r"[-+]?_*(0_*[xXoObB][0-9a-fA-F_]+|[.0-9][0-9_,]*\.?[0-9_,]*([eE][-+_0-9]+)?"
        r"|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)$"
    ),
    list("+-.0123456789"),
)
Dumper.add_implicit_resolver("boolean", re.compile("[yYnN]$"), list("yYnN"))
