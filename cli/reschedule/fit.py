"""``harbourmaster reschedule fit``: whether a pod may run on a node, without a cluster.

Only the pods of the case are judged. Pods of other nodes are unknown, so a topology domain is one
node.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.rescheduling.fit import fits
from harbourmaster.rescheduling.wire import (
    decode_namespace,
    decode_node,
    decode_pending,
    decode_present,
)

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO, TypeVar

    from harbourmaster.rescheduling.model import Node, Pod

    Decoded = TypeVar("Decoded")


class _Case(Struct, frozen=True):
    """One line: a node, the pods on it, and the pod that may fit beside them."""

    node: Raw
    pod: Raw
    pods: list[Raw] = []
    namespaces: list[Raw] = []
    id: Any = None


class _Identified(Struct, frozen=True):
    id: Any = None


class _Result(Struct, frozen=True):
    id: Any
    fits: bool | None
    reasons: tuple[str, ...]


class _Failure(Struct, frozen=True):
    id: Any
    error: str


_case_decoder: Final = msgspec.json.Decoder(_Case)
_id_decoder: Final = msgspec.json.Decoder(_Identified)
_encode: Final = msgspec.json.Encoder().encode


def fit(arguments: Arguments) -> int:
    """Answer each case of a JSON Lines file with one line; 1 if a line was invalid."""
    failed = False
    with _opened(arguments.file) as stream:
        for line in judged(stream):
            failed = failed or isinstance(line, _Failure)
            sys.stdout.buffer.write(_encode(line) + b"\n")
            sys.stdout.buffer.flush()
    return 1 if failed else 0


def judged(lines: Iterable[bytes]) -> Iterator[_Result | _Failure]:
    """Answer each line that is not blank, in order."""
    for line in lines:
        if line.strip():
            yield judge(line)


def judge(line: bytes) -> _Result | _Failure:
    """Answer one case, or report why it is invalid."""
    try:
        case = decode(_case_decoder, line, "")
        # A made-up node rarely has conditions.
        node = _read(partial(decode_node, is_bare_ready=True), case.node, "node")
        pending = _read(decode_pending, case.pod, "pod")
        present = [
            _read(decode_present, each, f"pods[{index}]") for index, each in enumerate(case.pods)
        ]
        namespaces = dict(
            _read(decode_namespace, each, f"namespaces[{index}]")
            for index, each in enumerate(case.namespaces)
        )
    except MalformedError as error:
        return _Failure(_id_of(line), str(error))
    beside = [each for each in present if _is_on(each, node)]
    verdict = fits(pending, node, beside, namespaces=namespaces)
    return _Result(case.id, verdict.fits, verdict.reasons)


def _read(read: Callable[[Raw], Decoded], given: Raw, at: str) -> Decoded:
    try:
        return read(given)
    except MalformedError as error:
        raise MalformedError(f"{at}: {error}") from None


def _is_on(pod: Pod, node: Node) -> bool:
    """Whether a given pod is on the node; one without a node name is."""
    return pod.node in {"", node.name}


def _id_of(line: bytes) -> Any:  # noqa: ANN401
    try:
        return decode(_id_decoder, line, "").id
    except MalformedError:
        return None


def _opened(path: Path) -> BinaryIO:
    return sys.stdin.buffer if str(path) == "-" else path.open("rb")
