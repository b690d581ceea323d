"""A review with all that admission knew when it came: one JSON object a line, answered anywhere.

``replay`` reads such lines, and ``--record`` writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.decoding import MalformedError, decode, line_failure
from harbourmaster.policies.index import policy_set
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.parents import ParentObject, parents_of
from harbourmaster.webhook.review import MAX_BODY_BYTES
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import NamespaceObject, Snapshot
from harbourmaster.webhook.sources import namespaces_of, read_policy

if TYPE_CHECKING:
    from harbourmaster.api.decoding import LineFailure

HTTP_OK: Final = 200
HTTP_TOO_LARGE: Final = 413
DEFAULTS: Final = AdmissionSettings()


class ReplayCase(Struct, frozen=True, rename="camel"):
    """One line of a recording; absent fields mean that nothing was known."""

    review: Raw
    id: Any = None
    namespaces: list[NamespaceObject] = []
    policies: list[dict[str, Any]] = []
    parents: list[ParentObject] = []
    settings: AdmissionSettings | None = None
    excluded: frozenset[str] = frozenset()
    """Namespaces in which nothing is ever changed."""
    may_patch: bool = True
    """False if the review came to a validating webhook."""
    class_labels: dict[str, dict[str, str]] = {}
    """The node selectors of RuntimeClasses, by name."""
    hash: str = ""
    """The hash of the original containers; those of the review may be redacted."""
    response: Raw = Raw()
    """The recorded answer; empty if there is none."""


class ReplayResult(Struct, frozen=True, rename="camel"):
    """The answer to a case."""

    id: Any
    http_status: int
    response: Raw | None


class _Response(Struct, frozen=True):
    response: Raw


_case_decoder: Final = msgspec.json.Decoder(ReplayCase)
_response_decoder: Final = msgspec.json.Decoder(_Response)


def read_case(line: bytes) -> ReplayCase | LineFailure:
    """Return the case in a line, or why the line is not a case."""
    try:
        return decode(_case_decoder, line, "")
    except MalformedError as error:
        return line_failure(line, error)


def answer_case(case: ReplayCase, settings: AdmissionSettings = DEFAULTS) -> ReplayResult:
    """Answer a case; ``settings`` are for one without its own."""
    if len(bytes(case.review)) > MAX_BODY_BYTES:
        return ReplayResult(case.id, HTTP_TOO_LARGE, None)
    result, _ = answer(bytes(case.review), engine_for(case, settings), may_patch=case.may_patch)
    return ReplayResult(case.id, HTTP_OK, response_of(result))


def engine_for(case: ReplayCase, settings: AdmissionSettings = DEFAULTS) -> Engine:
    """Return the engine for a case; ``settings`` are for one without its own."""
    snapshot = Snapshot(
        policy_set(read_policy(policy)[0] for policy in case.policies),
        namespaces_of(case.namespaces),
        case.excluded,
        parents_of(case.parents),
        class_labels=case.class_labels,
    )
    return Engine(snapshot, case.settings or settings, hashed=case.hash)


def response_of(review: bytes) -> Raw:
    """The response in an AdmissionReview of ours, as it stands there."""
    return _response_decoder.decode(review).response
