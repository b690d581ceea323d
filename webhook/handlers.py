"""One admission review from bytes to bytes: the whole decision, without any I/O.

The server, ``review``, ``render`` and ``replay`` all call ``answer``. The kind of the object
decides what happens, not the path and, except for immutable pod specs, not the operation
(kupid-spec 0). Nothing raises: what goes wrong is part of the answer (decision D7).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.field_errors import reason
from harbourmaster.api.resources import LIFECYCLE_GROUP
from harbourmaster.api.sizes import size_errors
from harbourmaster.lifecycle.model import AppVersion, WorkloadVersion
from harbourmaster.lifecycle.reruns import stamp_operations
from harbourmaster.policies.advice import warn
from harbourmaster.policies.affinity import refusal_of
from harbourmaster.policies.cel_paths import PROBE_NAMESPACE
from harbourmaster.policies.model import (
    CLUSTER_POLICY,
    GROUP,
    POLICY,
    VERSION,
    AdmissionWarning,
    is_policy_kind,
)
from harbourmaster.policies.pods import KINDS, OversizedPodError, is_absent
from harbourmaster.policies.validation import validate
from harbourmaster.webhook.checked_objects import CHECKED_KINDS, review_object
from harbourmaster.webhook.engine import selector_warnings
from harbourmaster.webhook.gating import (
    FORBIDDEN,
    NOTHING,
    WaitsFor,
    find_keys,
    fixed_gating,
    names_objects,
)
from harbourmaster.webhook.key_warnings import (
    eviction_warnings,
    gating_of_template,
    key_refusal,
    object_warnings,
    stage_warnings,
)
from harbourmaster.webhook.policy_objects import SMALL, decode_policy
from harbourmaster.webhook.probe_pod import is_probe_pod, probe_pod_policy
from harbourmaster.webhook.review import (
    MAX_REASON,
    MAX_WARNING,
    Request,
    RequestHead,
    Review,
    ReviewBody,
    allow,
    allow_policy,
    check_version,
    cut,
    deny,
    encode_review,
    patch,
    reject_body,
)
from harbourmaster.webhook.reviewed_object import read_object, view_of
from harbourmaster.webhook.verdict import (
    DENIED,
    INVALID,
    LEFT_ALONE,
    MALFORMED,
    MUTATED,
    SKIPPED,
    UNMATCHED,
    VALID,
    Audit,
    Verdict,
    combine,
    skip,
    with_warnings,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.lifecycle.model import Version
    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.pods import Kind, PodView
    from harbourmaster.webhook.engine import Engine
    from harbourmaster.webhook.gate_cache import CachedGating
    from harbourmaster.webhook.reviewed_object import ReviewedObject
    from harbourmaster.webhook.snapshot import Namespace

NAMESPACE_UNKNOWN: Final = "namespace-unknown"
"""Code of a skip that can be avoided by waiting for the namespace watch."""
_CREATE: Final = frozenset(("CREATE", "", None))
_NO_REQUEST: Final = Request()
_ANY: Final = "*"
"""The version of kinds that are handled in every version."""


class Decision(Struct, frozen=True, gc=False):
    """A verdict and its request."""

    request: RequestHead
    verdict: Verdict


def answer(body: bytes, engine: Engine, *, may_patch: bool = True) -> tuple[bytes, Decision]:
    """Answer the AdmissionReview in ``body`` with an AdmissionReview.

    ``may_patch`` is off for a validating webhook, which the API server forbids to patch.
    """
    return answer_body(ReviewBody(body), engine, may_patch=may_patch)


def answer_body(body: ReviewBody, engine: Engine, *, may_patch: bool) -> tuple[bytes, Decision]:
    """Answer the AdmissionReview in ``body``; a well-formed workload is decoded in one pass."""
    review = body.workload()
    request = review.request if review is not None else None
    if review is not None and request is not None and request.object is not None:
        kind = KINDS.get(request.kind_key)
        if kind is not None:
            try:
                check_version(review)
                verdict = _decide(request, kind, request.object, engine, may_patch=may_patch)
            except MalformedError:
                # The slower way finds it again, and says what is wrong and where.
                return _answer_raw(body, engine, may_patch=may_patch)
            result = encode_review(review.api_version, request.uid, verdict.response)
            return result, Decision(request, verdict)
    return _answer_raw(body, engine, may_patch=may_patch)


def is_lengthy(body: ReviewBody) -> bool:
    """Return whether the answer takes milliseconds or more, because it is about a large policy."""
    if len(body.data) <= SMALL:
        return False
    with suppress(MalformedError):
        request = (body.workload() or body.review()).request
        return request is not None and is_policy_kind(*request.kind_key)
    return False


def _answer_raw(body: ReviewBody, engine: Engine, *, may_patch: bool) -> tuple[bytes, Decision]:
    """Answer any review except a well-formed one of a workload."""
    try:
        review = body.review()
    except MalformedError as error:
        text = f"the body is not an AdmissionReview: {cut(str(error), MAX_WARNING)}"
        return _encode(Review(), Verdict(MALFORMED, reject_body(text)))
    try:
        check_version(review)
    except MalformedError as error:
        return _encode(review, Verdict(MALFORMED, reject_body(str(error))))
    request = review.request or _NO_REQUEST
    group, version, kind = request.kind_key
    handle = _HANDLERS.get((group, version, kind)) or _HANDLERS.get((group, _ANY, kind))
    return _encode(review, (handle or _pass_unknown)(request, engine, may_patch))


def answer_failed(
    body: ReviewBody, engine: Engine, code: str, text: str, *, may_patch: bool = True
) -> tuple[bytes, Decision]:
    """Allow the object in ``body`` as it is, with a warning that says why nothing was decided.

    No pod passes a gate because of that: it gets the fixed patch, or is denied (decision D7).
    """
    try:
        review = body.review()
    except MalformedError:
        review = Review()
    request = review.request or _NO_REQUEST
    warning = AdmissionWarning(code, text)
    return _encode(review, _skip_or_gate(request, engine, warning, may_patch=may_patch))


def _encode(review: Review, verdict: Verdict) -> tuple[bytes, Decision]:
    request = review.request or _NO_REQUEST
    result = encode_review(review.api_version, request.uid, verdict.response)
    return result, Decision(request, verdict)


def _pass_unknown(request: Request, _engine: Engine, _may_patch: bool) -> Verdict:
    if not request.kind_key[2]:
        return skip("kind-unknown", "the request names no kind, such objects are not handled")
    shown = cut(str(request.kind), MAX_WARNING)
    return skip("kind-unknown", f"objects of kind {shown} are not handled")


def _check_object(request: Request, engine: Engine, _may_patch: bool) -> Verdict:
    group, _, kind = request.kind_key
    has_gates = "gates" in engine.settings.features
    response = review_object(request, group, kind, has_gates=has_gates)
    return Verdict(VALID if response.allowed else INVALID, response)


def _review_workload(kind: Kind, request: Request, engine: Engine, may_patch: bool) -> Verdict:
    if not request.has_object:
        text = "the request holds no object, there is nothing to change"
        # A deletion never has an object, so it needs no warning.
        is_deletion = request.operation == "DELETE"
        return Verdict(UNMATCHED, allow(text)) if is_deletion else skip("no-object", text)
    try:
        return _decide(request, kind, read_object(request.object), engine, may_patch=may_patch)
    except MalformedError as error:
        warning = AdmissionWarning("object-malformed", f"{kind.name}: {error}")
        if isinstance(error, OversizedPodError) and may_patch:
            policy = _first_denying_policy(request, kind, error.pod, engine)
            if policy is not None:
                return Verdict(DENIED, deny(refusal_of(policy, str(error))), warnings=(warning,))
        return _skip_or_gate(request, engine, warning, may_patch=may_patch)


def _decide(
    request: RequestHead, kind: Kind, workload: ReviewedObject, engine: Engine, *, may_patch: bool
) -> Verdict:
    """Decide on a workload. Raises MalformedError where fields that count have wrong types."""
    pod = view_of(kind, workload, request.username)
    if not may_patch or not _may_change(request, kind) or pod is None or pod.is_left_alone:
        return LEFT_ALONE
    snapshot = engine.snapshot
    name = request.namespace or ""
    # In this namespace, compiled objects are tried without the webhook.
    is_tried = name == PROBE_NAMESPACE and request.is_dry_run
    if name in snapshot.excluded or is_tried:
        return LEFT_ALONE
    namespace = snapshot.namespace(name)
    if namespace is None:
        return skip(NAMESPACE_UNKNOWN, f'namespace "{name}" is not known')
    has_gates = engine.has_gates(name, namespace)
    decided = None
    waits, is_marked = _find_keys(kind, workload, pod)
    if not kind.is_template and (has_gates or waits or is_marked):
        decided = engine.gates.decide(
            workload,
            pod.labels,
            name,
            snapshot.parents,
            WaitsFor(has_gates, waits and engine.waits_for_objects(name, namespace)),
        )
    policies = engine.match(name, namespace, pod)
    pod = snapshot.with_class(pod)
    is_probed = not kind.is_template and is_probe_pod(request, pod.labels)
    if is_probed:
        # The first policy to set a label wins, so no other policy can answer for this pod.
        policies = (probe_pod_policy(), *policies)
    as_field, place = _merge_options(kind, pod, decided, engine, has_gates=has_gates)
    merged = None
    if policies:
        merged = engine.merge(kind, pod, policies, node_name_as_field=as_field, waits=place)
    if decided is not None:
        verdict = engine.combine(decided, merged)
    else:
        verdict = _without_gate(
            request,
            kind,
            workload,
            pod,
            namespace,
            engine,
            merged=merged,
            has_gates=has_gates,
            waits=waits,
        )
    audited = snapshot.audited.match(name, namespace.labels, pod.labels, pod.kinds)
    audit = Audit(kind, pod, policies, audited, (as_field, place))
    return verdict if is_probed else _with_later_warnings(verdict, engine, audit, namespace)


def _find_keys(kind: Kind, workload: ReviewedObject, pod: PodView) -> tuple[bool, bool]:
    """Return what ``find_keys`` does; a template may inherit the wait of its workload."""
    if not kind.is_template:
        return find_keys(workload.metadata)
    waits, is_marked = find_keys(pod.annotations)
    return waits or find_keys(workload.metadata)[0], is_marked


def _without_gate(  # noqa: PLR0913 - all that was decided before
    request: RequestHead,
    kind: Kind,
    workload: ReviewedObject,
    pod: PodView,
    namespace: Namespace,
    engine: Engine,
    *,
    merged: Verdict | None,
    has_gates: bool,
    waits: bool,
) -> Verdict:
    """Return the verdict on a template, or on a pod without a key for gates in their namespace.

    ``waits``: the template or its workload names objects to wait for.
    """
    name = request.namespace or ""
    if waits:
        is_allowed = engine.waits_for_objects(name, namespace)
        gating = gating_of_template(kind, workload, pod) if is_allowed else FORBIDDEN
        merged = combine(gating, merged)
    if has_gates:
        return _with_key_warnings(request, kind, workload, pod, merged or LEFT_ALONE, engine)
    warnings = engine.namespace_warnings(name, namespace)
    warnings += eviction_warnings(kind, workload, pod)
    if warnings or waits:
        warnings += object_warnings(kind, workload, pod)
    return with_warnings(merged or LEFT_ALONE, warnings)


def _with_later_warnings(
    verdict: Verdict, engine: Engine, audit: Audit, namespace: Namespace
) -> Verdict:
    """Return the verdict with warnings on what others decide later: nodes, admission plugins."""
    warnings = engine.node_warnings(audit.kind, audit.pod, audit.enforced, audit.waiting)
    if namespace.selector and audit.kind.is_template:
        warnings += selector_warnings(audit.pod, audit.enforced, namespace.selector)
    verdict = with_warnings(verdict, warnings)
    return replace(verdict, audit=audit) if audit.audited else verdict


def _merge_options(
    kind: Kind, pod: PodView, decided: CachedGating | None, engine: Engine, *, has_gates: bool
) -> tuple[bool, str]:
    """Return whether a policy's nodeName becomes node affinity, and where the pod waits."""
    is_gated = pod.spec is not None and pod.spec.has_gates
    if decided is not None:
        waits = decided.gating.waits
        return is_gated or bool(waits), waits
    return is_gated or has_gates, engine.template_waits(kind) if has_gates else ""


def _with_key_warnings(
    request: RequestHead,
    kind: Kind,
    workload: ReviewedObject,
    pod: PodView,
    verdict: Verdict,
    engine: Engine,
) -> Verdict:
    """Return the verdict with warnings on keys, or a refusal if the settings deny unknown keys."""
    warnings = object_warnings(kind, workload, pod)
    if warnings and engine.gates.rules.denies_unknown:
        former = _former_warnings(request, kind)
        if refusal := key_refusal(
            workload.metadata, [warning for warning in warnings if warning not in former]
        ):
            return Verdict(DENIED, deny(refusal), warnings=warnings)
    warnings += eviction_warnings(kind, workload, pod)
    warnings += stage_warnings(kind, workload, pod, engine.gates.rules)
    return with_warnings(verdict, warnings)


def _former_warnings(request: RequestHead, kind: Kind) -> tuple[AdmissionWarning, ...]:
    # Controllers must still be able to update a workload that had unknown keys before.
    if request.operation != "UPDATE" or is_absent(request.old_object):
        return ()
    workload = read_object(request.old_object)
    pod = kind.view(workload)
    return () if pod is None else object_warnings(kind, workload, pod)


def _first_denying_policy(
    request: Request, kind: Kind, pod: PodView, engine: Engine
) -> CompiledPolicy | None:
    name = request.namespace or ""
    snapshot = engine.snapshot
    namespace = None if name in snapshot.excluded else snapshot.namespace(name)
    if kind.is_template or pod.is_left_alone or namespace is None or not _may_change(request, kind):
        return None
    matching = engine.match(name, namespace, pod)
    return next((policy for policy in matching if policy.denies_too_large), None)


def _may_change(request: RequestHead, kind: Kind) -> bool:
    """Return whether objects of that kind are changed at this operation."""
    is_immutable = kind.create_only and request.operation not in _CREATE
    return not (is_immutable or request.operation == "DELETE" or request.sub_resource)


def _skip_or_gate(
    request: Request, engine: Engine, warning: AdmissionWarning, *, may_patch: bool
) -> Verdict:
    """Admit an object on which nothing could be decided; pods that may have to wait get a gate."""
    try:
        waits_for = _possible_waits(request, engine) if may_patch else NOTHING
        if any(waits_for):
            rules = engine.gates.rules
            gating = fixed_gating(
                request.object, request.namespace or "", warning, rules, waits_for
            )
            if gating.patch or gating.warnings:
                return combine(gating, None)
    except Exception as error:  # noqa: BLE001 - whatever it is, no pod passes a gate by it
        # What a defect says may be part of the object.
        why = str(error) if isinstance(error, MalformedError) else "an internal error"
        text = f"{warning.text}; not even a gate could be added: {why}"
        return Verdict(DENIED, deny(cut(text, MAX_REASON)), warnings=(warning,))
    return Verdict(SKIPPED, allow(warning.text, (warning,)), warnings=(warning,))


def _possible_waits(request: Request, engine: Engine) -> WaitsFor:
    kind = KINDS.get(request.kind_key)
    if kind is None or kind.is_template or not request.has_object:
        return NOTHING
    name = request.namespace or ""
    snapshot = engine.snapshot
    namespace = None if name in snapshot.excluded else snapshot.namespace(name)
    if namespace is None or not _may_change(request, kind):
        return NOTHING
    names = names_objects(request.object)
    objects = names and engine.waits_for_objects(name, namespace)
    return WaitsFor(engine.has_gates(name, namespace), objects)


def _check_policy(request: Request, _engine: Engine, _may_patch: bool) -> Verdict:
    """Check a policy; one that cannot be decoded passes with a warning (kupid-spec 5)."""
    if not request.has_object:
        return skip("no-object", "the request holds no policy, there is nothing to check")
    group, _, kind = request.kind_key
    if errors := size_errors(group, kind, request.object, request.old_object):
        return Verdict(INVALID, deny(cut(reason(errors), MAX_REASON)))
    try:
        policy = decode_policy(request.object)
    except MalformedError as error:
        return skip("object-malformed", str(error))
    warnings = [cut(f"harbourmaster: {text}", MAX_WARNING) for text in warn(policy)]
    if errors := list(validate(policy)):
        return Verdict(INVALID, deny(cut(reason(errors), MAX_REASON), warnings))
    return Verdict(VALID, allow_policy(warnings))


def _stamp_rerun(
    kind: type[Version], request: Request, _engine: Engine, may_patch: bool
) -> Verdict:
    """Write into a request for repeated checks who asks and for what (keptn-spec 3.14)."""
    if not may_patch or request.operation != "UPDATE" or request.sub_resource:
        return LEFT_ALONE
    try:
        version, former = map(
            msgspec.json.Decoder(kind).decode, (request.object, request.old_object)
        )
        user = request.username
    except (ValueError, RecursionError) as error:
        # The controller cannot read such a version either.
        return skip("object-malformed", str(error))
    operations = stamp_operations(version, former, user)
    return Verdict(MUTATED, patch(operations), operations=1) if operations else LEFT_ALONE


_HANDLERS: Final[dict[tuple[str, str, str], Callable[[Request, Engine, bool], Verdict]]] = {
    **dict.fromkeys(((group, _ANY, kind) for group, kind in CHECKED_KINDS), _check_object),
    (LIFECYCLE_GROUP, _ANY, "KeptnAppVersion"): partial(_stamp_rerun, AppVersion),
    (LIFECYCLE_GROUP, _ANY, "KeptnWorkloadVersion"): partial(_stamp_rerun, WorkloadVersion),
    **dict.fromkeys(((GROUP, VERSION, kind) for kind in (POLICY, CLUSTER_POLICY)), _check_policy),
    **{key: partial(_review_workload, kind) for key, kind in KINDS.items()},
}
"""The handlers by group, version and kind; objects of other kinds pass with a warning."""
