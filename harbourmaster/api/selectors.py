"""Label selectors, compiled once and matched often (kupid-spec 2.1).

An absent selector matches nothing, an empty one everything; ``NotIn`` holds without the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping


class LabelSelectorRequirement(Struct, frozen=True, gc=False, rename="camel"):
    """One expression of a label selector."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class LabelSelector(Struct, frozen=True, gc=False, rename="camel"):
    """Labels and expressions that must all hold; without any of them it matches everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelSelectorRequirement] | None = None


class Matcher(Struct, frozen=True, gc=False):
    """A compiled selector: every part must hold."""

    one_of: tuple[tuple[str, frozenset[str]], ...] = ()
    none_of: tuple[tuple[str, frozenset[str]], ...] = ()
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` satisfy every part."""
        for key, values in self.one_of:
            if labels.get(key) not in values:
                return False
        for key, values in self.none_of:
            if labels.get(key) in values:
                return False
        for key in self.present:
            if key not in labels:
                return False
        for key in self.absent:  # noqa: SIM110 - all() takes twice as long, and most are empty
            if key in labels:
                return False
        return True


EVERYTHING: Final = Matcher()


def compile_selector(selector: LabelSelector | None) -> Matcher | None:
    """Compile ``selector``; an absent selector is None, which matches nothing.

    The selector must be valid (``policies.validation``): unknown operators are not detected.
    """
    if selector is None:
        return None
    one_of = [(key, frozenset((value,))) for key, value in (selector.match_labels or {}).items()]
    none_of = []
    present = []
    absent = []
    for requirement in selector.match_expressions or ():
        key = requirement.key or ""
        values = frozenset(requirement.values or ())
        match requirement.operator:
            case "In":
                one_of.append((key, values))
            case "NotIn":
                none_of.append((key, values))
            case "Exists":
                present.append(key)
            case _:
                absent.append(key)
    return Matcher(tuple(one_of), tuple(none_of), tuple(present), tuple(absent))
