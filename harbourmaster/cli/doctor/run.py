"""``harbourmaster doctor``: checks all of an installation at once, and says what to do.

It only reads, and tries objects by dry runs. It uses the caller's permissions, and works if nothing
of Harbourmaster runs in the cluster.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.cli.batches import plural
from harbourmaster.cli.diagnosis import Finding, run_checks
from harbourmaster.cli.doctor.checks import CHECKS
from harbourmaster.cli.doctor.checks.installation import missing_installation
from harbourmaster.cli.doctor.checks.permissions import (
    OWN,
    Permission,
    may,
    missing_own_permissions,
)
from harbourmaster.cli.live.cluster import (
    DONE,
    LEFT,
    UNUSABLE,
    complain,
    run_with_client,
)
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.reader import raise_unusable
from harbourmaster.cli.terminal import print_out
from harbourmaster.kube.errors import ApiError
from harbourmaster.webhook.probe_pod import our_version

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Sequence

    from harbourmaster.cli.terminal import Tone
    from harbourmaster.kube.client import Client

_TONES: Final[dict[str, Tone]] = {
    "FAULT": "bad",
    "WARNING": "waiting",
    "unknown": "waiting",
    "ok": "good",
}
"""Tones by the first word of a line."""
_SCOPED: Final = frozenset(
    ("gates", "checks", "metrics", "waits", "workloads", "policies", "references", "placement")
)
"""Checks of the objects of users."""
_ASK: Final = "ask an administrator to run harbourmaster doctor"
_LABEL: Final = 9
_CHECK: Final = 15
_MOST: Final = 10
"""Findings of one check that are lines of the text; the gravest come first."""


class DoctorReport(Struct, frozen=True):
    """The output of ``-o json``."""

    healthy: bool
    """No fault, no warning, and all of it could be read."""
    summary: str
    version: str
    """The version of the command."""
    findings: tuple[Finding, ...]
    """The most severe first; a check that finds nothing has one that is ok."""


class NoPermissionError(Exception):
    """The caller may read nothing; the text is one line that says what to ask for."""


def run(arguments: Arguments) -> int:
    """Check; 0 nothing is wrong, 1 something is or could not be read, 2 no cluster or no rights."""
    return run_with_client(arguments, partial(_run, arguments))


async def _run(arguments: Arguments, client: Client) -> int:
    try:
        report = await diagnose(client, arguments.installed_in, arguments.canary_namespace or "")
    except NoPermissionError as error:
        complain(str(error))
        return UNUSABLE
    print_out(
        arguments,
        report,
        [(line, _TONES.get(line.partition(" ")[0], "")) for line in lines(report)],
    )
    level = arguments.fail_on
    failing = {"fault"} if level == "fault" else {"fault", "unknown", level}
    bad = any(finding.severity in failing for finding in report.findings)
    return LEFT if bad else DONE


async def diagnose(client: Client, namespace: str, canary_namespace: str = "") -> DoctorReport:
    """The whole report. Raises UnreachableError, UnauthorizedError, and NoPermissionError.

    Without a ``canary_namespace`` the canary tries one that webhooks select.
    """
    installation = Installation(client, namespace, canary_namespace)
    try:
        missing = await _first(installation)
        findings = (missing,) if missing is not None else await _check(installation)
    finally:
        await installation.close()
    healthy = all(finding.severity in {"ok", "note"} for finding in findings)
    return DoctorReport(healthy, summary(findings), our_version(), findings)


async def _check(installation: Installation) -> tuple[Finding, ...]:
    """Return all findings, or those about the one namespace that the caller may read."""
    scope = installation.scope
    if not scope:
        return await run_checks(CHECKS, installation)
    findings = await run_checks([check for check in CHECKS if check.name in _SCOPED], installation)
    unread = {finding.check for finding in findings if _is_forbidden(finding)}
    left = [check.name for check in CHECKS if check.name not in _SCOPED or check.name in unread]
    text = f"checked alone; left out for lack of permissions: {', '.join(left)}"
    told = Finding("permissions", "note", f"namespace {scope}", text, _ASK)
    return (*(finding for finding in findings if not _is_forbidden(finding)), told)


def _is_forbidden(finding: Finding) -> bool:
    return finding.severity == "unknown" and "missing permission" in finding.text


async def _scope(installation: Installation) -> str:
    """Return the namespace of the context if the caller may list its pods, or ""."""
    place = installation.client.connection.namespace
    is_allowed = await may(installation, Permission("", "list", "", "pods", namespace=place))
    return place if is_allowed else ""


async def _first(installation: Installation) -> Finding | None:
    """The only finding if Harbourmaster is not installed; None if it is."""
    try:
        lacking = await missing_own_permissions(installation)
    except ApiError as error:
        raise_unusable(error)
        lacking = []
    if len(lacking) >= len(OWN):
        installation.scope = await _scope(installation)
        if installation.scope:
            return None
        name = (await installation.caller()).name or "you"
        raise NoPermissionError(
            f"{name} has no permission to read what shows whether Harbourmaster is healthy: ask "
            f"for the permissions to {', '.join(lacking[:3])} and so on, or use an administrator's "
            "--context; kubectl config set-context --current --namespace NAME has doctor check the "
            "namespace NAME alone"
        )
    try:
        return await missing_installation(installation)
    except ApiError as error:
        raise_unusable(error)
    except msgspec.MsgspecError:
        pass
    # The checks say what it is, each by itself.
    return None


def lines(report: DoctorReport) -> list[str]:
    """The lines of the text output; the last one is the verdict."""
    texts = []
    counts: Counter[str] = Counter()
    for finding in report.findings:
        counts[finding.check] += 1
        if counts[finding.check] > _MOST:
            continue
        subject = f"{finding.subject}: " if finding.subject else ""
        label = (
            finding.severity.upper()
            if finding.severity in {"fault", "warning"}
            else finding.severity
        )
        texts.append(f"{label:{_LABEL}} {finding.check:{_CHECK}} {subject}{finding.text}")
        if finding.remedy:
            texts.append(f"{'':{_LABEL}} {'':{_CHECK}} -> {finding.remedy}")
    texts += [
        f"{'note':{_LABEL}} {check:{_CHECK}} {number - _MOST} more: -o json has all"
        for check, number in counts.items()
        if number > _MOST
    ]
    return [*texts, "", report.summary]


def summary(findings: Sequence[Finding]) -> str:
    """The verdict in one line."""
    counts = Counter(finding.severity for finding in findings)
    parts = [
        plural(counts[severity], severity) for severity in ("fault", "warning") if counts[severity]
    ]
    if counts["unknown"]:
        parts.append(f"{plural(counts['unknown'], 'thing')} that could not be read")
    if not parts:
        return "Harbourmaster is healthy."
    told = ", ".join(parts)
    if counts["fault"]:
        return f"Harbourmaster is not healthy: {told}."
    if counts["unknown"]:
        return f"Unknown whether Harbourmaster is healthy: {told}."
    return f"Harbourmaster works, with {told}."
