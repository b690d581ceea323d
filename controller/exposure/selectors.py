"""Label selectors as they stand in a query: ``app=web,tier in (a, b),!canary``. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_LENGTH: Final = 4096
_KEY: Final = r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_TERM: Final = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<missing>{_KEY})"
    rf"|(?P<key>{_KEY})"
    rf"(?:\s*(?P<sign>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|\s*(?P<order>[<>])\s*(?P<number>-?[0-9]{{1,18}})"
    r"|\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*"
)
_ONE_VALUE: Final = re.compile(_VALUE)
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")


class LabelRequirement(Struct, frozen=True):
    """What one label must be; ``values`` are one for ``<`` and ``>`` and none for a key alone."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are so."""
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
        (bound,) = self.values
        if value is None or _NUMBER.fullmatch(value) is None:
            return False
        return int(value) < int(bound) if self.operator == "<" else int(value) > int(bound)


class Selector(Struct, frozen=True):
    """Requirements that must all hold; none select everything."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are selected."""
        return all(each.holds(labels) for each in self.requirements)


def parse_selector(text: str) -> Selector:
    """Read a selector. Raises ValueError with one line that says where it can't be read."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a selector has {MAX_LENGTH} characters at most")
    return Selector(tuple(_requirements(text)))


def _requirements(text: str) -> Iterator[LabelRequirement]:
    if not text.strip():
        return
    at = 0
    while True:
        found = _TERM.match(text, at)
        if found is None or text[found.end() : found.end() + 1] not in {"", ","}:
            raise ValueError(f"not a label selector from character {at + 1} on")
        yield _requirement(found)
        if found.end() == len(text):
            return
        at = found.end() + 1


def _requirement(found: re.Match[str]) -> LabelRequirement:
    if found["absent"]:
        return LabelRequirement(found["missing"], "!")
    key = found["key"]
    if found["sign"]:
        operator = "notin" if found["sign"] == "!=" else "in"
        return LabelRequirement(key, operator, frozenset((found["value"],)))
    if found["order"]:
        return LabelRequirement(key, found["order"], frozenset((found["number"],)))
    if found["set"]:
        values = frozenset(each.strip() for each in found["values"].split(","))
        if any(_ONE_VALUE.fullmatch(each) is None for each in values):
            raise ValueError(f"not a label's values from character {found.start('values') + 1} on")
        return LabelRequirement(key, found["set"], values)
    return LabelRequirement(key, "exists")
