"""The KeptnEvaluation that a version makes for one of its definitions (keptn-spec 3.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.field_errors import invalid
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.evaluation.objectives import Result
from harbourmaster.evaluation.progress import Progress
from harbourmaster.evaluation.targets import parse_target, shorten
from harbourmaster.gates.names import NAME_LEAST, NAME_LIMIT, digits, resource_name
from harbourmaster.lifecycle.model import SUCCEEDED, AppVersion
from harbourmaster.lifecycle.tasks import API, normal_duration, owner_reference

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.api.field_errors import FieldError
    from harbourmaster.lifecycle.model import (
        Evaluation,
        EvaluationDefinition,
        EvaluationStatus,
        Version,
    )

PRE: Final = "pre-eval"
POST: Final = "post-eval"
"""What checkType says, and how the names begin."""
RETRIES: Final = 10
INTERVAL: Final = "5s"
"""The schema's defaults."""
SHORTEST: Final = 0.1
"""Seconds between two measurements, whatever the interval: each of them is a write."""


class _ManagedField(Struct, frozen=True, gc=False):
    """Who wrote what, as the API server keeps it."""

    time: str = ""
    subresource: str = ""


class _ManagedMetadata(Struct, frozen=True, rename="camel"):
    managed_fields: tuple[_ManagedField, ...] = ()


class _Managed(Struct, frozen=True):
    metadata: _ManagedMetadata


_decode: Final = msgspec.json.Decoder(_Managed).decode


def evaluation_for(
    parent: Version,
    definition: EvaluationDefinition,
    check_type: str,
    previous: str = "",
) -> dict[str, Any]:
    """The object to create in the namespace of ``parent``, which owns it.

    ``check_type`` is PRE or POST. The name follows from the arguments alone, so that after a crash
    the same one comes out. ``previous`` is the name that is not to be used again: of an evaluation
    that was deleted, or one that another object's has.
    """
    metadata = parent.metadata
    name = definition.metadata.name
    seed = f"{metadata.uid}/{check_type}/{name}/{previous}"
    return {
        "apiVersion": API,
        "kind": "KeptnEvaluation",
        "metadata": {
            "name": resource_name(NAME_LIMIT, NAME_LEAST, check_type, name, digits(seed)),
            "namespace": metadata.namespace,
            "ownerReferences": [owner_reference(parent)],
        },
        "spec": {
            **_of(parent),
            "evaluationDefinition": name,
            "checkType": check_type,
            # Zero as well, which Keptn leaves out: the schema's 10 would take its place.
            "retries": RETRIES if definition.spec.retries is None else definition.spec.retries,
            "retryInterval": normal_duration(definition.spec.retry_interval or INTERVAL),
        },
    }


def target_errors(definition: EvaluationDefinition) -> list[FieldError]:
    """Targets that no value can be compared with; Keptn accepts them, and they fail forever."""
    errors = []
    for index, objective in enumerate(definition.spec.objectives):
        try:
            parse_target(objective.evaluation_target)
        except ValueError as error:
            at = f"spec.objectives[{index}].evaluationTarget"
            errors.append(invalid(at, shorten(objective.evaluation_target), str(error)))
    return errors


def definition_errors(definition: EvaluationDefinition) -> list[FieldError]:
    """The same, and an interval that the schema lets pass and nobody can use, such as 0.5."""
    errors = target_errors(definition)
    text = definition.spec.retry_interval or INTERVAL
    try:
        parse_duration(text)
    except ValueError:
        why = f"it is not a duration, so {INTERVAL} is used: write for example 30s, 5m or 1h30m"
        errors.append(invalid("spec.retryInterval", shorten(text), why))
    return [error.as_warning() for error in errors]


def failure_text(evaluation: Evaluation) -> str:
    """What ReconcileEvaluationFailed says: a line, and one for each objective that was not met."""
    failed = (
        f"{key}: {result.message}"
        for key, result in evaluation.status.evaluation_status.items()
        if result.status != SUCCEEDED
    )
    return "\n".join(("evaluation failed", *failed))


def interval_of(evaluation: Evaluation) -> tuple[float, str]:
    """Seconds between two measurements, and what is wrong with the interval as it stands."""
    text = evaluation.spec.retry_interval or INTERVAL
    try:
        return max(parse_duration(text), SHORTEST), ""
    except ValueError as error:
        return parse_duration(INTERVAL), f"retryInterval {error}; {INTERVAL} is used instead"


def written_at(raw: bytes) -> datetime | None:
    """When a KeptnEvaluation's status was written last, by what the API server keeps of it."""
    fields = _decode(raw).metadata.managed_fields
    times = [
        parse_rfc3339(field.time)
        for field in fields
        if field.subresource == "status" and field.time
    ]
    return max(times, default=None)


def progress_of(status: EvaluationStatus) -> Progress:
    """How far an evaluation with this status is."""
    return Progress(
        tries=status.retry_count,
        results={
            key: Result(measurement.value, measurement.status, measurement.message)
            for key, measurement in status.evaluation_status.items()
        },
        state=status.overall_status,
    )


def _of(parent: Version) -> dict[str, str]:
    """Whose evaluation it is; workload and its version are required, and empty for an app."""
    if isinstance(parent, AppVersion):
        return {
            "appName": parent.spec.app_name,
            "appVersion": parent.spec.version,
            "workload": "",
            "workloadVersion": "",
        }
    return {
        "appName": parent.spec.app,
        "workload": parent.spec.workload_name,
        "workloadVersion": parent.spec.version,
    }
