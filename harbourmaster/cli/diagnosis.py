"""Findings: what is wrong where, how bad it is, and what to do; and the checks that make them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from harbourmaster.cli.installed import KEPTN_RESOURCES, POLICY_RESOURCES
from harbourmaster.cli.live.cluster import SKIPPED, greet
from harbourmaster.cli.live.reader import on_missing_kind, on_unread, permission_of, run_together
from harbourmaster.kube.errors import ApiError, ForbiddenError, UnauthorizedError, UnreachableError
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.installation import Installation

Severity: TypeAlias = Literal["fault", "warning", "unknown", "note", "ok"]
"""fault: does not work; warning: works, but may soon fail; unknown: could not be read; note: worth
knowing; ok: as it should be."""
SEVERITIES: Final[tuple[Severity, ...]] = ("fault", "warning", "unknown", "note", "ok")
_SERVED: Final = (*POLICY_RESOURCES, *KEPTN_RESOURCES)
APPLY: Final = "kubectl apply --server-side -k deploy/crds"
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


fault: Final = partial(Finding, "", "fault")
"""Makes a finding about something that does not work."""
warning: Final = partial(Finding, "", "warning")
"""Makes a finding about something that may soon fail or behave differently than intended."""
note: Final = partial(Finding, "", "note")
"""Makes a finding that is worth knowing."""
unknown: Final = partial(Finding, "", "unknown")
"""Makes a finding about something that could not be read."""


def mistake(subject: str, line: str) -> Finding:
    """A warning from one line that ends with what to do, after the last colon."""
    text, _, remedy = line.rpartition(": ")
    return warning(subject, text, remedy)


def ok(text: str) -> Finding:
    """Make the finding of a check without faults."""
    return Finding("", "ok", "", text)


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The gravest first; those of one severity stay in the order of the checks."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


async def run_checks(checks: Sequence[Check], installation: Installation) -> tuple[Finding, ...]:
    """Run all checks and sort their findings. Raises UnreachableError, UnauthorizedError."""
    results = await run_together(*(_run_check(check, installation) for check in checks))
    findings: list[Finding] = []
    # An object that several checks cannot read is one finding, and is none if one names its fault.
    named = {finding.subject for own, *_ in results for finding in own}
    for check, (own, skipped, missing) in zip(checks, results, strict=True):
        unread = {line.partition(SKIPPED)[0]: line for line in skipped}
        own += [_unreadable_object(unread[name]) for name in unread if name not in named]
        named |= unread.keys()
        if not (own or missing):
            own.append(ok(check.fine))
        findings += [msgspec.structs.replace(finding, check=check.name) for finding in own]
    kinds = dict.fromkeys(kind.kind for *_, absent in results for kind in absent)
    # A missing definition is one finding, and its consequences are none.
    if kinds and not any(subject.startswith("definition ") for subject in named):
        text, remedy = f"does not know the kind {', '.join(kinds)}", APPLY
        findings.append(Finding("definitions", "unknown", "cluster", text, remedy))
    return sort_findings(findings)


async def _run_check(
    check: Check, installation: Installation
) -> tuple[list[Finding], list[str], list[Resource]]:
    """Return the findings of a check, lines on skipped objects, and kinds that are missing."""
    findings: list[Finding] = []
    skipped: list[str] = []
    kinds: list[Resource] = []
    on_unread.set(skipped.append)
    on_missing_kind.set(kinds.append)
    try:
        async with asyncio.timeout(PATIENCE):
            async for finding in check.run(installation):
                findings.append(finding)  # noqa: PERF401 - what was found before an error counts
    except UnauthorizedError:
        raise
    except ForbiddenError as error:
        remedy = "ask for this permission, or use an administrator's --context"
        if missing := permission_of(error).replace(" in namespace", " --namespace"):
            remedy = f"{remedy}: kubectl auth can-i {missing}{'' if '--' in missing else ' -A'}"
        findings.append(unknown("you", f"missing permission: {error.message}", remedy))
    except (TimeoutError, UnreachableError) as error:
        # This raises if the API server does not answer at all.
        await greet(installation.client)
        why = str(error) or f"no result after {PATIENCE:.0f} s"
        findings.append(unknown("API server", why, "the API server is slow: try again later"))
    except (ApiError, ValueError, LookupError, TypeError, AttributeError) as error:
        findings.append(_unreadable_object(reason(error)))
    return findings, skipped, [kind for kind in kinds if kind in _SERVED]


def _unreadable_object(text: str) -> Finding:
    return unknown(
        "cluster", f"could not be read: {text}", "correct what the text names, and retry"
    )
