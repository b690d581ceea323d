"""The name formats of Kubernetes, and suggestions for names that are unknown.

Each function of a format lists what is wrong, nothing for a good name.
All formats are ASCII. The patterns never backtrack, so any text is checked in linear time.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


MAX_LABEL: Final = 63
"""Characters of a DNS label, of a label value, and of the name part of a qualified name."""
MAX_SUBDOMAIN: Final = 253
"""Characters of a DNS subdomain, and so of the prefix of a qualified name."""

# Python before 3.11.5 takes a possessive group for less than it is, and accepts "a-.b".
_DNS_LABEL_PATTERN: Final = r"[a-z0-9]++(?:-++[a-z0-9]++)*"
_DNS_LABEL: Final = re.compile(_DNS_LABEL_PATTERN)
_DNS_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL_PATTERN}(?:\.{_DNS_LABEL_PATTERN})*")
_NAME: Final = re.compile(r"[A-Za-z0-9]++(?:[-_.]++[A-Za-z0-9]++)*")

_DNS_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label holds only a-z, 0-9 and '-', with a letter or digit at both ends"
)
_DNS_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain holds only a-z, 0-9, '-' and '.',"
    " with a letter or digit at both ends of each part"
)
_NAME_RULE: Final = "only A-Z, a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends"


def dns_label(text: str) -> list[str]:
    """Check a DNS-1123 label, the format of namespace names."""
    return _faults(text, _DNS_LABEL, MAX_LABEL, _DNS_LABEL_RULE)


def dns_subdomain(text: str) -> list[str]:
    """Check a DNS-1123 subdomain, the format of most object names."""
    return _faults(text, _DNS_SUBDOMAIN, MAX_SUBDOMAIN, _DNS_SUBDOMAIN_RULE)


def qualified_name(text: str) -> list[str]:
    """Check a label key: a name, or ``prefix/name`` whose prefix is a DNS subdomain."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return ["a qualified name has at most one '/', between its prefix and its name part"]
    faults = []
    if slash and not prefix:
        faults.append("prefix part is empty")
    elif slash:
        faults.extend(f"prefix part: {fault}" for fault in dns_subdomain(prefix))
    if not name:
        faults.append("name part is empty")
    return faults + _faults(name, _NAME, MAX_LABEL, f"name part holds {_NAME_RULE}")


def label_value(text: str) -> list[str]:
    """Check a label value; it may be empty."""
    return _faults(text, _NAME, MAX_LABEL, f"a label value holds {_NAME_RULE}") if text else []


def _faults(text: str, pattern: re.Pattern[str], limit: int, rule: str) -> list[str]:
    faults = [f"more than {limit} characters"] if len(text) > limit else []
    if not pattern.fullmatch(text):
        faults.append(rule)
    return faults


NEAR: Final = 0.6
"""Similarity from 0 to 1 from which a name is proposed."""
VERY_NEAR: Final = 0.7
"""Similarity from which a name is proposed if many names are alike."""
_LONGEST: Final = 253
"""Maximum number of compared characters: a comparison takes the square of it."""


def nearest(given: str, known: Iterable[str], cutoff: float = NEAR) -> str:
    """Return the most similar known name; empty if none is similar."""
    near = get_close_matches(given[:_LONGEST].lower(), known, n=1, cutoff=cutoff)
    return near[0] if near else ""


def did_you_mean(given: str, known: Iterable[str], cutoff: float = NEAR) -> str:
    """Return a question that names the most similar known name; empty if none is similar."""
    near = nearest(given, known, cutoff)
    return f'did you mean "{near}"?' if near else ""
