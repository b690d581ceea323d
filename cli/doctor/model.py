"""What ``harbourmaster doctor`` finds: plain data, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

Severity: TypeAlias = Literal["fault", "warning", "unread", "note", "ok"]
"""Something does not work; it works, and soon may not, or not as meant; it could not be looked at;
worth knowing; as it should be."""
SEVERITIES: Final[tuple[Severity, ...]] = ("fault", "warning", "unread", "note", "ok")


class Finding(Struct, frozen=True):
    """One thing that a check has to say; ``remedy`` says what to do, and is empty for nothing."""

    check: str
    severity: Severity
    subject: str
    text: str
    remedy: str = ""


class Report(Struct, frozen=True):
    """What ``-o json`` prints."""

    healthy: bool
    """No fault, no warning, and all of it could be looked at."""
    summary: str
    version: str
    """Of the command."""
    findings: tuple[Finding, ...]
    """The gravest first; a check without any other has one that is ok."""


def fault(check: str, subject: str, text: str, remedy: str) -> Finding:
    """Something does not work."""
    return Finding(check, "fault", subject, text, remedy)


def warning(check: str, subject: str, text: str, remedy: str) -> Finding:
    """It works, and soon may not, or not as meant."""
    return Finding(check, "warning", subject, text, remedy)


def note(check: str, subject: str, text: str, remedy: str = "") -> Finding:
    """Worth knowing."""
    return Finding(check, "note", subject, text, remedy)


def unread(check: str, subject: str, text: str, remedy: str) -> Finding:
    """It could not be looked at."""
    return Finding(check, "unread", subject, text, remedy)


def ok(check: str, text: str) -> Finding:
    """As it should be."""
    return Finding(check, "ok", "", text)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The gravest first; those of one severity stay in the order of the checks."""
    return tuple(sorted(findings, key=lambda one: SEVERITIES.index(one.severity)))
