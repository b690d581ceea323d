"""Answers reviews of kinds that are only checked (keptn-spec 1.5, 4.6; krake-spec 7.2)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.api.field_errors import FieldError, forbidden, refusal
from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.api.sizes import LIMITS, size_errors
from harbourmaster.policies.model import AdmissionWarning
from harbourmaster.webhook.review import MAX_REASON, allow, cut, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import msgspec

    from harbourmaster.webhook.checks import Checks
    from harbourmaster.webhook.review import Request, Response

_CHECKED: Final = frozenset(("CREATE", "UPDATE", "", None))
_MAX_CAUSES: Final = 32
_WITHOUT_GATES: Final = forbidden(
    "spec.checks",
    "need the controllers of deployment gates: enable gates in the webhook's features and "
    "lifecycle in the controller's controllers, or remove spec.checks",
).as_warning()
_INDEX: Final = re.compile(r"\[\d+\]")


CHECKED_KINDS: Final = frozenset((resource.group, resource.kind) for resource in LIMITS)
"""Group and kind of the objects that are checked here, in every version."""


def is_checked(group: str, kind: str) -> bool:
    """Return whether objects of the kind are checked here."""
    return (group, kind) in CHECKED_KINDS


def _checks_of(group: str, kind: str) -> Checks | None:
    # Few clusters have objects of all kinds, and most webhooks check none for days.
    from harbourmaster.webhook.checks import KINDS  # noqa: PLC0415

    return KINDS.get((group, kind))


def faults_of(group: str, kind: str, raw: msgspec.Raw) -> Sequence[FieldError]:
    """Return the faults of a stored object of any kind: warnings and causes of a refusal.

    Raises MalformedError.
    """
    checks = _checks_of(group, kind)
    return checks.faults(decode(checks.decoder, raw, "")) if checks is not None else ()


def review_object(request: Request, group: str, kind: str, *, has_gates: bool = True) -> Response:
    """Refuse objects that can never work, and warn of faults that Keptn accepts.

    Deletions and objects under deletion always pass. Faults from before an update may stay, so
    that users can still set labels and remove finalizers.
    """
    if request.operation not in _CHECKED or not request.has_object or request.sub_resource:
        return allow()
    if too_large := size_errors(group, kind, request.object, request.old_object):
        return _refusal(group, kind, request.name or "", too_large)
    checks = _checks_of(group, kind)
    if checks is None:
        return allow()
    try:
        obj = decode(checks.decoder, request.object, "")
        faults = [] if obj.metadata.deletion_timestamp else checks.faults(obj)
        name = obj.metadata.name or request.name or ""
        is_application = (group, kind) == (APPLICATIONS.group, APPLICATIONS.kind)
        if not has_gates and is_application and obj.spec.checks is not None:
            faults.append(_WITHOUT_GATES)
    except MalformedError as error:
        if not checks.is_open:
            # The schema has refused it before, or is not installed yet.
            text = f"{kind}: {error}"
            return allow(text, (AdmissionWarning("object-malformed", text),))
        faults, name = [_malformed_error(error)], request.name or ""
    refusals = [fault for fault in faults if not fault.is_warning]
    if not refusals:
        return allow(warnings=[AdmissionWarning("object-invalid", str(fault)) for fault in faults])
    is_update = request.operation == "UPDATE"
    if is_update and _texts(refusals) <= _texts(_former_faults(request, checks)):
        text = cut(refusal(group, kind, name, faults), MAX_REASON)
        return allow(text, (AdmissionWarning("object-invalid", text),))
    return _refusal(group, kind, name, refusals)


def _refusal(group: str, kind: str, name: str, faults: Sequence[FieldError]) -> Response:
    return refuse(
        cut(refusal(group, kind, name, faults), MAX_REASON),
        {
            "name": cut(name, MAX_REASON),
            "group": group,
            "kind": kind,
            "causes": [
                {
                    "reason": fault.reason,
                    "message": _cause_message(fault),
                    "field": cut(fault.path, MAX_REASON),
                }
                for fault in faults[:_MAX_CAUSES]
            ],
        },
    )


def _texts(faults: Iterable[FieldError]) -> set[str]:
    # What stands before it in a list may have changed.
    return {_INDEX.sub("[]", str(fault)) for fault in faults}


def _cause_message(fault: FieldError) -> str:
    # Causes are shown at a terminal.
    text = cut(fault.message, MAX_REASON)
    return f"{text}\n{fault.pointer}" if fault.pointer else text


def _former_faults(request: Request, checks: Checks) -> list[FieldError]:
    try:
        return checks.faults(decode(checks.decoder, request.old_object, ""))
    except MalformedError as error:
        return [_malformed_error(error)]


def _malformed_error(error: MalformedError) -> FieldError:
    field, _, text = str(error).partition(": ")
    return FieldError(field, "Invalid value", None, text)
