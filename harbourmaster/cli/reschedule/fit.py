"""``harbourmaster reschedule fit``: whether a pod may run on a node, without a cluster.

Only the pods of the case are judged. Pods of other nodes are unknown, so a topology domain is one
node.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.cli.lines import answer_file
from harbourmaster.rescheduling.decoding import (
    decode_namespace,
    decode_node,
    decode_pending,
    decode_present,
)
from harbourmaster.rescheduling.fit import fits

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Callable
    from typing import TypeVar

    Decoded = TypeVar("Decoded")


class _Case(Struct, frozen=True):
    """One line: a node, the pods on it, and the pod that may fit beside them."""

    node: Raw
    pod: Raw
    pods: list[Raw] = []
    namespaces: list[Raw] = []
    id: Any = None


class FitResult(Struct, frozen=True):
    """Whether the pod fits, and why not; None where that cannot be judged."""

    id: Any
    fits: bool | None
    reasons: tuple[str, ...]


_case_decoder: Final = msgspec.json.Decoder(_Case)


def fit(arguments: Arguments) -> int:
    """Answer each case of a JSON Lines file with one line; 1 if a line was invalid."""
    return answer_file(arguments.file, judge)


def judge(line: bytes) -> FitResult:
    """Answer one case. Raises MalformedError where it is invalid."""
    case = decode(_case_decoder, line, "")
    # A made-up node rarely has conditions.
    node = _read(partial(decode_node, is_bare_ready=True), case.node, "node")
    pending = _read(decode_pending, case.pod, "pod")
    present = [_read(decode_present, raw, f"pods[{index}]") for index, raw in enumerate(case.pods)]
    namespaces = dict(
        _read(decode_namespace, raw, f"namespaces[{index}]")
        for index, raw in enumerate(case.namespaces)
    )
    # A pod without a node name is on the given one.
    beside = [neighbour for neighbour in present if neighbour.node in {"", node.name}]
    verdict = fits(pending, node, beside, namespaces=namespaces)
    return FitResult(case.id, verdict.fits, verdict.reasons)


def _read(read: Callable[[Raw], Decoded], given: Raw, at: str) -> Decoded:
    try:
        return read(given)
    except MalformedError as error:
        raise MalformedError(f"{at}: {error}") from None
