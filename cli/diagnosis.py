"""Findings: what is wrong where, how bad it is, and what to do; and the checks that make them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from harbourmaster.cli.live.reader import together, unread
from harbourmaster.kube.errors import ApiError, ForbiddenError, UnauthorizedError, UnreachableError
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from harbourmaster.cli.live.installation import Installation

Severity: TypeAlias = Literal["fault", "warning", "unread", "note", "ok"]
"""fault: does not work; warning: works, but may soon fail; unread: could not be read; note: worth
knowing; ok: as it should be."""
SEVERITIES: Final[tuple[Severity, ...]] = ("fault", "warning", "unread", "note", "ok")
PATIENCE: Final = 30.0
"""Seconds that one check may take."""


class Finding(Struct, frozen=True):
    """One thing that a check has to say; ``remedy`` says what to do, and is empty for nothing."""

    check: str
    severity: Severity
    subject: str
    text: str
    remedy: str = ""


class Check(NamedTuple):
    """One check, and what is said where it finds nothing; what it yields names no check."""

    name: str
    run: Callable[[Installation], AsyncIterator[Finding]]
    fine: str


def fault(subject: str, text: str, remedy: str) -> Finding:
    """Something does not work."""
    return Finding("", "fault", subject, text, remedy)


def warning(subject: str, text: str, remedy: str) -> Finding:
    """It works, but may soon fail or behave differently than intended."""
    return Finding("", "warning", subject, text, remedy)


def note(subject: str, text: str, remedy: str = "") -> Finding:
    """Worth knowing."""
    return Finding("", "note", subject, text, remedy)


def unseen(subject: str, text: str, remedy: str) -> Finding:
    """It could not be read."""
    return Finding("", "unread", subject, text, remedy)


def ok(text: str) -> Finding:
    """As it should be."""
    return Finding("", "ok", "", text)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The gravest first; those of one severity stay in the order of the checks."""
    return tuple(sorted(findings, key=lambda one: SEVERITIES.index(one.severity)))


async def diagnosed(checks: Sequence[Check], installation: Installation) -> tuple[Finding, ...]:
    """What all the checks find, the gravest first. Raises UnreachableError, UnauthorizedError."""
    results = await together(*(_checked(each, installation) for each in checks))
    return ordered(
        msgspec.structs.replace(one, check=check.name)
        for check, found in zip(checks, results, strict=True)
        for one in found or [ok(check.fine)]
    )


async def _checked(check: Check, installation: Installation) -> list[Finding]:
    """What a check finds; one that can't be done, or breaks, keeps no other from it."""
    skipped: list[str] = []
    unread.set(skipped.append)
    try:
        async with asyncio.timeout(PATIENCE):
            found = [one async for one in check.run(installation)]
    except (UnreachableError, UnauthorizedError):
        raise
    except ForbiddenError as error:
        remedy = "ask for this permission, or use an administrator's --context"
        return [unseen("you", f"missing permission: {error.message}", remedy)]
    except TimeoutError:
        text = f"no result after {PATIENCE:.0f} s"
        return [unseen("API server", text, "the API server is slow: try again later")]
    except (ApiError, ValueError, LookupError, TypeError, AttributeError) as error:
        return [_skipped(reason(error))]
    return [*found, *map(_skipped, skipped)]


def _skipped(text: str) -> Finding:
    return unseen("cluster", f"could not be read: {text}", "correct what the text names, and retry")
