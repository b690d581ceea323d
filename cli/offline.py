"""``harbourmaster review`` and ``harbourmaster replay``: admission without a server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from policies.decoding import MalformedError, decode
from policies.index import policy_set
from webhook.engine import Engine
from webhook.handlers import MALFORMED, answer
from webhook.parents import ParentObject, parents_of
from webhook.review import MAX_BODY_BYTES
from webhook.settings import AdmissionSettings
from webhook.snapshot import NamespaceObject, Snapshot
from webhook.sources import Sources, load, namespaces_of, read_policy

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO


HTTP_OK: Final = 200
HTTP_TOO_LARGE: Final = 413
_DEFAULTS: Final = AdmissionSettings()


class Case(Struct, frozen=True):
    """One line of ``replay``: a review with all that admission knew when it came."""

    review: Raw
    id: Any = None
    namespaces: list[NamespaceObject] = []
    policies: list[dict[str, Any]] = []
    parents: list[ParentObject] = []
    settings: AdmissionSettings | None = None


class _Identified(Struct, frozen=True):
    id: Any = None


class _Response(Struct, frozen=True):
    response: Raw


class _Result(Struct, frozen=True, rename="camel"):
    id: Any
    http_status: int
    response: Raw | None


class _Failure(Struct, frozen=True):
    id: Any
    error: str


_case_decoder: Final = msgspec.json.Decoder(Case)
_id_decoder: Final = msgspec.json.Decoder(_Identified)
_response_decoder: Final = msgspec.json.Decoder(_Response)
_encode: Final = msgspec.json.Encoder().encode


def review(arguments: Arguments) -> int:
    """Answer one AdmissionReview; problems of the policies go to standard error."""
    loaded = load(Sources(arguments.policies, arguments.namespaces, arguments.parents))
    for problem in loaded.problems:
        print(problem, file=sys.stderr)
    with _opened(arguments.file) as stream:
        body = stream.read()
    engine = Engine(loaded.snapshot, arguments.settings)
    result, decision = answer(body, engine)
    sys.stdout.buffer.write(msgspec.json.format(result, indent=2) + b"\n")
    return 1 if decision.verdict.outcome == MALFORMED else 0


def replay(arguments: Arguments) -> int:
    """Answer each case of a JSON Lines file with one line; 1 where a line was no case."""
    failed = False
    with _opened(arguments.file) as stream:
        for line in replayed(stream, arguments.settings):
            failed = failed or isinstance(line, _Failure)
            sys.stdout.buffer.write(_encode(line) + b"\n")
            sys.stdout.buffer.flush()
    return 1 if failed else 0


def replayed(
    lines: Iterable[bytes], settings: AdmissionSettings = _DEFAULTS
) -> Iterator[_Result | _Failure]:
    """Answer each line that is not blank, in order."""
    for line in lines:
        if line.strip():
            yield replay_case(line, settings)


def replay_case(line: bytes, settings: AdmissionSettings = _DEFAULTS) -> _Result | _Failure:
    """Answer one case, or say why it is none; ``settings`` are for a case without its own."""
    try:
        case = decode(_case_decoder, line, "")
    except MalformedError as error:
        return _Failure(_id_of(line), str(error))
    if len(bytes(case.review)) > MAX_BODY_BYTES:
        return _Result(case.id, HTTP_TOO_LARGE, None)
    snapshot = Snapshot(
        policy_set(read_policy(policy)[0] for policy in case.policies),
        namespaces_of(case.namespaces),
        parents=parents_of(case.parents),
    )
    result, _ = answer(bytes(case.review), Engine(snapshot, case.settings or settings))
    return _Result(case.id, HTTP_OK, _response_decoder.decode(result).response)


def _id_of(line: bytes) -> Any:  # noqa: ANN401
    try:
        return decode(_id_decoder, line, "").id
    except MalformedError:
        return None


def _opened(path: Path) -> BinaryIO:
    return sys.stdin.buffer if str(path) == "-" else path.open("rb")
