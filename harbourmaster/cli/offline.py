"""``harbourmaster review`` and ``harbourmaster replay``: admission without a server."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.lines import LineFailure
from harbourmaster.cli import program
from harbourmaster.cli.lines import answer_lines, open_input, print_lines
from harbourmaster.cli.render import load_engine
from harbourmaster.cli.terminal import printable
from harbourmaster.webhook.cases import DEFAULTS, answer_case, read_case
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.verdict import MALFORMED

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

    from harbourmaster.webhook.cases import ReplayResult
    from harbourmaster.webhook.settings import AdmissionSettings


class ReplayDifference(Struct, frozen=True):
    """A recorded case whose answer has changed; None if there was none."""

    id: Any
    recorded: Raw | None
    answered: Raw | None
    line: int = 0


def review(arguments: Arguments) -> int:
    """Answer one AdmissionReview; 1 where it or a policy is bad, by standard error."""
    engine, failed = load_engine(arguments)
    with open_input(arguments.file) as stream:
        body = stream.read()
    result, decision = answer(body, engine)
    sys.stdout.buffer.write(printable(msgspec.json.format(result, indent=2)) + b"\n")
    return 1 if failed or decision.verdict.outcome == MALFORMED else 0


def replay(arguments: Arguments) -> int:
    """Answer each case of a JSON Lines file with one line; 1 where a line was not a case.

    With ``--check`` only what differs from the recorded answer is printed, and is a reason for 1;
    so is a file without any case. How many are alike goes to standard error.
    """
    with open_input(arguments.file) as stream:
        if arguments.check:
            return _check(stream, arguments)
        return 1 if print_lines(replay_lines(stream, arguments.settings), LineFailure) else 0


def _check(stream: BinaryIO, arguments: Arguments) -> int:
    count = wrong = 0
    compare = partial(_compare_case, settings=arguments.settings)
    for count, result in enumerate(answer_lines(stream, compare), 1):  # noqa: B007 - used below
        wrong += print_lines(filter(None, (result,)), LineFailure, ReplayDifference)
    if not count:
        # A check of nothing must not succeed.
        print(f"{program.name.get()}: {arguments.file}: no case in it", file=sys.stderr)
        return 1
    print(f"{count - wrong} of {count} answered as recorded", file=sys.stderr)
    return 1 if wrong else 0


def replay_lines(
    lines: Iterable[bytes], settings: AdmissionSettings = DEFAULTS
) -> Iterator[ReplayResult | LineFailure]:
    """Answer each line that is not blank, in order."""
    return answer_lines(lines, partial(replay_case, settings=settings))


def replay_case(line: bytes, settings: AdmissionSettings = DEFAULTS) -> ReplayResult | LineFailure:
    """Answer one case, or say why it is invalid; ``settings`` are for a case without its own."""
    case = read_case(line)
    return case if isinstance(case, LineFailure) else answer_case(case, settings)


def _compare_case(
    line: bytes, settings: AdmissionSettings
) -> ReplayDifference | LineFailure | None:
    """A case whose answer is not, byte by byte, the one that was recorded; None for others."""
    case = read_case(line)
    if isinstance(case, LineFailure):
        return case
    if not bytes(case.response):
        return LineFailure(case.id, "the case has no response to compare with")
    now = answer_case(case, settings).response
    if now is None or bytes(now) != bytes(case.response):
        return ReplayDifference(case.id, case.response, now)
    return None
