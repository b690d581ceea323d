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
from policies.merge import Note
from policies.model import Policy, is_policy_kind
from policies.pods import KINDS
from policies.validation import reason, validate, warn
from webhook.engine import MUTATED, UNCHANGED, Verdict
from webhook.review import (
    MAX_REASON,
    MAX_WARNING,
    GroupVersionKind,
    Request,
    RequestHead,
    Review,
    allowed,
    check_version,
    cut,
    decode_review,
    decode_workload_review,
    denied,
    encode_review,
    errored,
    remarked,
)

if TYPE_CHECKING:
    from policies.pods import Kind, PodView
    from webhook.engine import Engine

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
_NO_REQUEST: Final = Request()
_LEFT_ALONE: Final = Verdict(UNMATCHED, allowed())


class Decision(Struct, frozen=True, gc=False):
    """A verdict and the request that it is on."""

    request: RequestHead
    verdict: Verdict


def answer(body: bytes, engine: Engine, *, may_patch: bool = True) -> tuple[bytes, Decision]:
    """Answer the AdmissionReview in ``body`` with an AdmissionReview.

    ``may_patch`` is off for a validating webhook, which the API server forbids to patch.
    """
    review = decode_workload_review(body)
    request = review.request if review is not None else None
    if review is None or request is None or request.object is None:
        return _answer_raw(body, engine, may_patch=may_patch)
    kind = KINDS.get(_key(request))
    if kind is None:
        return _answer_raw(body, engine, may_patch=may_patch)
    try:
        check_version(review)
        pod = kind.view(request.object)
    except MalformedError:
        # The long way finds it again, and says what is wrong and where.
        return _answer_raw(body, engine, may_patch=may_patch)
    verdict = _decide(request, kind, pod, engine, may_patch=may_patch)
    result = encode_review(review.api_version, request.uid, verdict.response)
    return result, Decision(request, verdict)


def _answer_raw(body: bytes, engine: Engine, *, may_patch: bool) -> tuple[bytes, Decision]:
    """Answer what is no well-formed review of a workload."""
    try:
        review = decode_review(body)
    except MalformedError as error:
        text = f"the body is no AdmissionReview: {cut(str(error), MAX_WARNING)}"
        return _encoded(Review(), Verdict(MALFORMED, errored(text)))
    try:
        check_version(review)
    except MalformedError as error:
        return _encoded(review, Verdict(MALFORMED, errored(str(error))))
    return _encoded(review, _decide_raw(review.request or _NO_REQUEST, engine, may_patch=may_patch))


def answer_unchanged(body: bytes, code: str, text: str) -> tuple[bytes, Decision]:
    """Allow whatever ``body`` asks about as it is, with a note that says why nothing was done."""
    try:
        review = decode_review(body)
    except MalformedError:
        review = Review()
    return _encoded(review, _skip(code, text))


def _encoded(review: Review, verdict: Verdict) -> tuple[bytes, Decision]:
    request = review.request or _NO_REQUEST
    result = encode_review(review.api_version, request.uid, verdict.response)
    return result, Decision(request, verdict)


def _key(request: RequestHead) -> tuple[str, str, str]:
    kind = request.kind or _NO_KIND
    return kind.group, kind.version, kind.kind


def _decide_raw(request: Request, engine: Engine, *, may_patch: bool) -> Verdict:
    key = _key(request)
    if is_policy_kind(*key):
        return _validate(request)
    kind = KINDS.get(key)
    if kind is None:
        if not key[2]:
            return _skip("kind-unknown", "the request names no kind, such objects are not handled")
        shown = cut(str(request.kind), MAX_WARNING)
        return _skip("kind-unknown", f"objects of kind {shown} are not handled")
    if not request.has_object:
        text = "the request holds no object, there is nothing to change"
        # A deletion holds none by right, so nobody is warned.
        is_deletion = request.operation == "DELETE"
        return Verdict(UNMATCHED, allowed(text)) if is_deletion else _skip("no-object", text)
    try:
        pod = kind.read(request.object)
    except MalformedError as error:
        return _skip("object-malformed", f"{kind.name}: {error}")
    return _decide(request, kind, pod, engine, may_patch=may_patch)


def _decide(
    request: RequestHead, kind: Kind, pod: PodView | None, engine: Engine, *, may_patch: bool
) -> Verdict:
    is_immutable = kind.create_only and request.operation not in _CREATE
    if is_immutable or request.operation == "DELETE" or request.sub_resource or not may_patch:
        return _LEFT_ALONE
    if pod is None or pod.is_left_alone:
        return _LEFT_ALONE
    name = request.namespace or ""
    namespace = engine.snapshot.namespace(name)
    if namespace is None:
        return _skip("namespace-unknown", f'namespace "{name}" is not known')
    policies = engine.snapshot.policies.match(name, namespace.labels, pod.labels)
    if not policies:
        return _LEFT_ALONE
    gated = pod.spec is not None and bool(pod.spec.scheduling_gates)
    as_field = gated or (kind.is_template and namespace.has_gates)
    return engine.merge(kind, pod, policies, node_name_as_field=as_field)


def _validate(request: Request) -> Verdict:
    """Check a policy object (kupid.md 5); what does not decode passes with a warning, as there."""
    if not request.has_object:
        return _skip("no-object", "the request holds no policy, there is nothing to check")
    try:
        policy = decode(_policy_decoder, request.object, "")
    except MalformedError as error:
        return _skip("object-malformed", str(error))
    warnings = [cut(f"harbourmaster: {text}", MAX_WARNING) for text in warn(policy)]
    errors = validate(policy)
    if errors:
        return Verdict(INVALID, denied(cut(reason(errors), MAX_REASON), warnings))
    return Verdict(VALID, remarked(warnings))


def _skip(code: str, text: str) -> Verdict:
    return Verdict(SKIPPED, allowed(text, (Note(code, text),)), codes=(code,))
