"""Answers reviews of kinds that are only checked (keptn-spec 1.5, 4.6; krake-spec 7.2)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.api.field_errors import FieldError, forbidden, refusal
from harbourmaster.api.sizes import LIMITS, size_errors
from harbourmaster.evaluation.model import (
    Analysis,
    AnalysisDefinition,
    AnalysisValueTemplate,
    Metric,
    Provider,
)
from harbourmaster.evaluation.validation import (
    validate_analysis,
    validate_definition,
    validate_metric,
    validate_provider,
    validate_template,
)
from harbourmaster.lifecycle.apps import app_errors
from harbourmaster.lifecycle.evaluations import definition_errors
from harbourmaster.lifecycle.model import App, EvaluationDefinition, TaskDefinition
from harbourmaster.lifecycle.task_definition_validation import validate
from harbourmaster.placement.model import GROUP as PLACEMENT
from harbourmaster.placement.model import Application
from harbourmaster.placement.validation import CHECKS as PLACEMENT_CHECKS
from harbourmaster.placement.validation import ConstraintFieldError
from harbourmaster.policies.model import AdmissionWarning
from harbourmaster.webhook.review import MAX_REASON, allow, cut, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harbourmaster.webhook.review import Request, Response

_CHECKED: Final = frozenset(("CREATE", "UPDATE", "", None))
_MAX_CAUSES: Final = 32
_WITHOUT_GATES: Final = forbidden(
    "spec.checks",
    "need the controllers of deployment gates: enable gates in the webhook's features and "
    "lifecycle in the controller's controllers, or remove spec.checks",
).as_warning()
_INDEX: Final = re.compile(r"\[\d+\]")


class _Checks(Struct, frozen=True):
    """The decoder and the checks for objects of one kind."""

    decoder: msgspec.json.Decoder[Any]
    faults: Callable[[Any], list[FieldError]]
    is_open: bool = False
    """Whether the schema lets values of any type pass somewhere."""


def _checks_of(kind: type, faults: Callable[[Any], list[FieldError]], **options: bool) -> _Checks:
    return _Checks(msgspec.json.Decoder(kind), faults, **options)


_KINDS: Final = {
    ("lifecycle.keptn.sh", "KeptnTaskDefinition"): _checks_of(TaskDefinition, validate),
    ("lifecycle.keptn.sh", "KeptnApp"): _checks_of(App, app_errors),
    ("lifecycle.keptn.sh", "KeptnEvaluationDefinition"): _checks_of(
        EvaluationDefinition, definition_errors
    ),
    ("metrics.keptn.sh", "KeptnMetric"): _checks_of(Metric, validate_metric),
    ("metrics.keptn.sh", "KeptnMetricsProvider"): _checks_of(
        Provider, validate_provider, is_open=True
    ),
    ("metrics.keptn.sh", "Analysis"): _checks_of(Analysis, validate_analysis),
    ("metrics.keptn.sh", "AnalysisDefinition"): _checks_of(AnalysisDefinition, validate_definition),
    ("metrics.keptn.sh", "AnalysisValueTemplate"): _checks_of(
        AnalysisValueTemplate, validate_template
    ),
    **{
        (PLACEMENT, kind): _checks_of(check.model, check.faults)
        for kind, check in PLACEMENT_CHECKS.items()
    },
}


CHECKED_KINDS: Final = frozenset(
    (*_KINDS, *((resource.group, resource.kind) for resource in LIMITS))
)
"""Group and kind of the objects that are checked here, in every version."""


def is_checked(group: str, kind: str) -> bool:
    """Return whether objects of the kind are checked here."""
    return (group, kind) in CHECKED_KINDS


def faults_of(group: str, kind: str, raw: msgspec.Raw) -> Sequence[FieldError]:
    """Return the faults of a stored object of any kind: warnings and causes of a refusal.

    Raises MalformedError.
    """
    checks = _KINDS.get((group, kind))
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
    checks = _KINDS.get((group, kind))
    if checks is None:
        return allow()
    try:
        obj = decode(checks.decoder, request.object, "")
        faults = [] if obj.metadata.deletion_timestamp else checks.faults(obj)
        name = obj.metadata.name or request.name or ""
        if not has_gates and isinstance(obj, Application) and obj.spec.checks is not None:
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
    return f"{text}\n{fault.pointer}" if isinstance(fault, ConstraintFieldError) else text


def _former_faults(request: Request, checks: _Checks) -> list[FieldError]:
    try:
        return checks.faults(decode(checks.decoder, request.old_object, ""))
    except MalformedError as error:
        return [_malformed_error(error)]


def _malformed_error(error: MalformedError) -> FieldError:
    field, _, text = str(error).partition(": ")
    return FieldError(field, "Invalid value", None, text)
