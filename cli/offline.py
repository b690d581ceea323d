"""``harbourmaster review`` and ``harbourmaster replay``: admission without a server."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from harbourmaster.cli import program
from harbourmaster.webhook.cases import DEFAULTS, Failure, Result, answer_case, read_case
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import MALFORMED, answer
from harbourmaster.webhook.sources import Sources, load

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from harbourmaster.webhook.settings import AdmissionSettings


class Difference(Struct, frozen=True):
    """A recorded case that would be answered otherwise now; None is not an answer."""

    id: Any
    recorded: Raw | None
    answered: Raw | None


_encode: Final = msgspec.json.Encoder().encode


def review(arguments: Arguments) -> int:
    """Answer one AdmissionReview; 1 where it or a policy is bad, by standard error."""
    loaded = load(Sources(arguments.policies, arguments.namespaces, arguments.parents))
    for problem in loaded.problems:
        print(problem, file=sys.stderr)
    with _opened(arguments.file) as stream:
        body = stream.read()
    engine = Engine(loaded.snapshot, arguments.settings)
    result, decision = answer(body, engine)
    sys.stdout.buffer.write(msgspec.json.format(result, indent=2) + b"\n")
    return 1 if loaded.problems or decision.verdict.outcome == MALFORMED else 0


def replay(arguments: Arguments) -> int:
    """Answer each case of a JSON Lines file with one line; 1 where a line was not a case.

    With ``--check`` only what differs from the recorded answer is printed, and is a reason for 1;
    so is a file without any case. How many are alike goes to standard error.
    """
    found: Iterable[Result | Failure | Difference]
    wrong = 0
    with _opened(arguments.file) as stream:
        if arguments.check:
            first = next((line for line in stream if line.strip()), None)
            if first is None:
                # What checks nothing must not pass for what is fine.
                print(f"{program.name.get()}: {arguments.file}: no case in it", file=sys.stderr)
                return 1
            cases = _Counted(line for line in chain((first,), stream) if line.strip())
            found = compared(cases, arguments.settings)
        else:
            cases = None
            found = replayed(stream, arguments.settings)
        for line in found:
            wrong += not isinstance(line, Result)
            sys.stdout.buffer.write(_encode(line) + b"\n")
            sys.stdout.buffer.flush()
    if cases is not None:
        alike = cases.count - wrong
        print(f"{alike} of {cases.count} answered as recorded", file=sys.stderr)
    return 1 if wrong else 0


class _Counted:
    """Lines, and how many were taken."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.count += 1
            yield line


def replayed(
    lines: Iterable[bytes], settings: AdmissionSettings = DEFAULTS
) -> Iterator[Result | Failure]:
    """Answer each line that is not blank, in order."""
    for line in lines:
        if line.strip():
            yield replay_case(line, settings)


def replay_case(line: bytes, settings: AdmissionSettings = DEFAULTS) -> Result | Failure:
    """Answer one case, or say why it is none; ``settings`` are for a case without its own."""
    case = read_case(line)
    return case if isinstance(case, Failure) else answer_case(case, settings)


def compared(
    lines: Iterable[bytes], settings: AdmissionSettings = DEFAULTS
) -> Iterator[Difference | Failure]:
    """The cases whose answer is not, byte by byte, the one that was recorded."""
    for line in lines:
        if not line.strip():
            continue
        case = read_case(line)
        if isinstance(case, Failure):
            yield case
        elif not bytes(case.response):
            yield Failure(case.id, "the case has no response to compare with")
        else:
            now = answer_case(case, settings).response
            if now is None or bytes(now) != bytes(case.response):
                yield Difference(case.id, case.response, now)


def _opened(path: Path) -> BinaryIO:
    return sys.stdin.buffer if str(path) == "-" else path.open("rb")
