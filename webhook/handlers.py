"""One admission review from bytes to bytes: the whole decision, without any I/O.

The server, ``review``, ``render`` and ``replay`` all call ``answer``. The kind of the object
decides what happens, not the path and, but for kinds with an immutable pod spec, not the operation
(kupid.md 0). Nothing raises: what goes wrong is part of the answer (design D7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from policies.decoding import MalformedError, decode
from policies.merge import Note, merge
from policies.model import Policy, is_policy_kind
from policies.pods import KINDS
from policies.validation import reason, validate, warn
from webhook.review import (
    MAX_REASON,
    MAX_WARNING,
    GroupVersionKind,
    Request,
    Response,
    Review,
    allowed,
    check_version,
    cut,
    decode_review,
    denied,
    encode_review,
    errored,
    patched,
    with_warnings,
)

if TYPE_CHECKING:
    from policies.pods import Kind
    from webhook.settings import AdmissionSettings
    from webhook.snapshot import Snapshot

MUTATED: Final = "mutated"
"""A patch was sent."""
UNCHANGED: Final = "unchanged"
"""Policies matched, but the pod already holds all they ask for."""
UNMATCHED: Final = "unmatched"
"""No policy matched, or the object is one that is never changed."""
SKIPPED: Final = "skipped"
"""Allowed as it is because the mutation could not be made."""
VALID: Final = "valid"
INVALID: Final = "invalid"
"""A policy that passed, or did not pass, validation."""
MALFORMED: Final = "malformed"
"""The question could not be understood."""
OUTCOMES: Final = (MUTATED, UNCHANGED, UNMATCHED, SKIPPED, VALID, INVALID, MALFORMED)

_CREATE: Final = frozenset(("CREATE", "", None))
_policy_decoder: Final = msgspec.json.Decoder(Policy)
_NO_KIND: Final = GroupVersionKind()


class Decision(Struct, frozen=True, gc=False):
    """What was decided, for the answer, the log and the metrics."""

    outcome: str
    response: Response
    request: Request | None = None
    policies: tuple[str, ...] = ()
    operations: int = 0
    codes: tuple[str, ...] = ()
    """Of the notes given to the user."""


def answer(
    body: bytes, snapshot: Snapshot, settings: AdmissionSettings, *, may_patch: bool = True
) -> tuple[bytes, Decision]:
    """Answer the AdmissionReview in ``body`` with an AdmissionReview.

    ``may_patch`` is off for a validating webhook, which the API server forbids to patch.
    """
    try:
        review = decode_review(body)
    except MalformedError as error:
        text = f"the body is no AdmissionReview: {cut(str(error), MAX_WARNING)}"
        decision = Decision(MALFORMED, errored("", text))
        return encode_review(None, decision.response), decision
    decision = decide(review, snapshot, settings, may_patch=may_patch)
    return encode_review(review, decision.response), decision


def answer_late(body: bytes) -> tuple[bytes, Decision]:
    """Answer a review whose time ran out before it could be looked at."""
    try:
        review = decode_review(body)
    except MalformedError:
        review = Review()
    request = review.request or Request()
    decision = _skip(request, "deadline", "the time for this request ran out, nothing was changed")
    return encode_review(review, decision.response), decision


def decide(
    review: Review, snapshot: Snapshot, settings: AdmissionSettings, *, may_patch: bool = True
) -> Decision:
    """Decide on a decoded review."""
    request = review.request or Request()
    try:
        check_version(review)
    except MalformedError as error:
        return Decision(MALFORMED, errored(request.uid, str(error)), request)
    gvk = request.kind or _NO_KIND
    if is_policy_kind(gvk.group, gvk.version, gvk.kind):
        return _validate(request)
    kind = KINDS.get((gvk.group, gvk.version, gvk.kind))
    if kind is None:
        text = f"objects of kind {cut(str(gvk), MAX_WARNING)} are not handled"
        return _skip(request, "kind-unknown", text)
    if not request.has_object:
        return _skip(
            request, "no-object", "the request holds no object, there is nothing to change"
        )
    is_immutable = kind.create_only and request.operation not in _CREATE
    if is_immutable or request.operation == "DELETE" or request.sub_resource or not may_patch:
        return Decision(UNMATCHED, allowed(request.uid), request)
    return _mutate(request, kind, snapshot, settings)


def _mutate(
    request: Request, kind: Kind, snapshot: Snapshot, settings: AdmissionSettings
) -> Decision:
    try:
        pod = kind.project(request.object)
    except MalformedError as error:
        return _skip(request, "object-malformed", f"{kind.name}: {error}")
    if pod is None or pod.is_left_alone:
        return Decision(UNMATCHED, allowed(request.uid), request)
    name = request.namespace or ""
    namespace = snapshot.namespace(name)
    if namespace is None:
        return _skip(request, "namespace-unknown", f'namespace "{name}" is not known')
    policies = snapshot.policies.match(name, namespace.labels, pod.labels)
    if not policies:
        return Decision(UNMATCHED, allowed(request.uid), request)
    gated = pod.spec is not None and bool(pod.spec.scheduling_gates)
    options = settings.merge_options(
        node_name_as_field=gated or (kind.is_template and namespace.has_gates)
    )
    merged = merge(pod, kind.pointer, policies, options)
    notes = merged.notes
    if merged.operations:
        outcome, response = MUTATED, patched(request.uid, merged.operations, notes)
    else:
        outcome, response = UNCHANGED, allowed(request.uid, notes=notes)
    return Decision(
        outcome,
        response,
        request,
        tuple(policy.reference for policy in policies),
        len(merged.operations),
        tuple(note.code for note in notes),
    )


def _validate(request: Request) -> Decision:
    """Check a policy object (kupid.md 5); what does not decode passes with a warning, as there."""
    if not request.has_object:
        return _skip(request, "no-object", "the request holds no policy, there is nothing to check")
    try:
        policy = decode(_policy_decoder, request.object, "")
    except MalformedError as error:
        return _skip(request, "object-malformed", str(error))
    warnings = [cut(f"harbourmaster: {text}", MAX_WARNING) for text in warn(policy)]
    errors = validate(policy)
    if errors:
        return Decision(
            INVALID, denied(request.uid, cut(reason(errors), MAX_REASON), warnings), request
        )
    return Decision(VALID, with_warnings(request.uid, warnings), request)


def _skip(request: Request, code: str, text: str) -> Decision:
    response = allowed(request.uid, text, (Note(code, text),))
    return Decision(SKIPPED, response, request, codes=(code,))
