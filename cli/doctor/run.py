"""``harbourmaster doctor``: looks at all of an installation at once, and says what to do.

It only reads, and tries what it tries by dry runs. It goes by the caller's rights, and needs
nothing of ours to run in the cluster.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.cli.cluster import DONE, LEFT, UNUSABLE, complain, run_with_client, say
from harbourmaster.cli.doctor.checks import CHECKS
from harbourmaster.cli.doctor.checks.installation import absent
from harbourmaster.cli.doctor.checks.rights import OWN, own_lacks
from harbourmaster.cli.doctor.context import Context, Options, together, unread_by_check
from harbourmaster.cli.doctor.model import Report, ok, ordered, unread
from harbourmaster.cli.doctor.rendering import lines, summary
from harbourmaster.cli.terminal import json_text
from harbourmaster.kube.errors import ApiError, ForbiddenError, UnauthorizedError, UnreachableError
from harbourmaster.telemetry.text import reason
from harbourmaster.webhook.canary import our_version

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.cli.doctor.checks import Check
    from harbourmaster.cli.doctor.model import Finding
    from harbourmaster.kube.client import Client

PATIENCE: Final = 30.0
"""Seconds that one check may take."""


class NothingToSeeError(Exception):
    """The caller may look at nothing; the text is one line that says what to ask for."""


def run(arguments: Arguments) -> int:
    """Look; 0 nothing is wrong, 1 something is or could not be seen, 2 no cluster or no rights."""
    return run_with_client(arguments, partial(_run, arguments))


async def _run(arguments: Arguments, client: Client) -> int:
    options = Options(arguments.namespace, arguments.canary_namespace or "")
    try:
        report = await diagnose(client, options)
    except NothingToSeeError as error:
        complain(str(error))
        return UNUSABLE
    if arguments.output == "json":
        sys.stdout.buffer.write(json_text(report))
    else:
        for line in lines(report):
            say(line)
    bad = any(one.severity in {"fault", "unread"} for one in report.findings)
    return LEFT if bad else DONE


async def diagnose(client: Client, options: Options) -> Report:
    """The whole report. Raises UnreachableError, UnauthorizedError, and NothingToSeeError."""
    context = Context(client, options)
    try:
        missing = await _first(context)
        if missing is not None:
            found = [missing]
        else:
            results = await together(*(_checked(each, context) for each in CHECKS))
            found = [one for result in results for one in result]
    finally:
        await context.close()
    findings = ordered(found)
    healthy = all(one.severity in {"ok", "note"} for one in findings)
    return Report(healthy, summary(findings), our_version(), findings)


async def _first(context: Context) -> Finding | None:
    """The one finding where nothing of ours is there."""
    try:
        lacking = await own_lacks(context)
    except (UnreachableError, UnauthorizedError):
        raise
    except ApiError:
        lacking = []
    if len(lacking) >= len(OWN):
        name = (await context.myself()).name or "you"
        raise NothingToSeeError(
            f"{name} may read nothing of what tells whether Harbourmaster is well: ask for the "
            f"rights to {', '.join(lacking[:3])} and so on, or use an administrator's --context"
        )
    try:
        return await absent(context)
    except (UnreachableError, UnauthorizedError):
        raise
    except (ApiError, msgspec.MsgspecError):
        # The checks say what it is, each by itself.
        return None


async def _checked(check: Check, context: Context) -> list[Finding]:
    """What a check finds; one that can't be done, or breaks, keeps no other from it."""
    skipped: list[str] = []
    unread_by_check.set(skipped.append)
    try:
        async with asyncio.timeout(PATIENCE):
            found = await check.run(context)
    except (UnreachableError, UnauthorizedError):
        raise
    except ForbiddenError as error:
        remedy = "ask for this right, or use an administrator's --context"
        return [unread(check.name, "you", f"may not look: {error.message}", remedy)]
    except TimeoutError:
        text = f"no end after {PATIENCE:.0f} s"
        return [unread(check.name, "API server", text, "it is slow: try again later")]
    except (
        ApiError,
        msgspec.MsgspecError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        return [_unseen(check, reason(error))]
    found = [*found, *(_unseen(check, line) for line in skipped)]
    return found or [ok(check.name, check.fine)]


def _unseen(check: Check, text: str) -> Finding:
    remedy = "mend what the text names, and try again"
    return unread(check.name, "cluster", f"could not be looked at: {text}", remedy)
