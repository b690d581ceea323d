"""Builds the KeptnEvaluation of a version's definition, and reads its status (keptn-spec 3.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.field_errors import invalid
from harbourmaster.api.times import format_rfc3339, parse_rfc3339
from harbourmaster.evaluation.objectives import Objective, Progress, Result, is_inconclusive
from harbourmaster.evaluation.targets import parse_target, shorten
from harbourmaster.lifecycle.model import SUCCEEDED, AppVersion, Tries, Try
from harbourmaster.lifecycle.tasks import API, check_name, normal_duration, owner_reference

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
"""Value of checkType and beginning of the names, for evaluations after the deployment."""
RETRIES: Final = 10
INTERVAL: Final = "5s"
"""Default of the schema."""
SHORTEST: Final = 1.0
"""Minimum seconds between two measurements, because each of them is a write."""
MOST_TRIES: Final = 20
"""Maximum recorded measurements of an objective, because every watch gets them."""
MOST_OF_ALL: Final = 400
"""Maximum recorded measurements of an evaluation, with at least one of each objective."""
_TOO_SHORT: Final = "is shorter than 1s, so 1s is used"


class _ManagedField(Struct, frozen=True, gc=False):
    """An entry of managedFields, by which the API server records who wrote what."""

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
    """Return the object to create in the namespace of ``parent``, which owns it.

    ``check_type`` is PRE or POST. The name depends only on the arguments, so that it is the same
    after a crash. ``previous`` is a name that must not be used again, of a deleted evaluation or of
    an object of another owner.
    """
    metadata = parent.metadata
    name = definition.metadata.name
    return {
        "apiVersion": API,
        "kind": "KeptnEvaluation",
        "metadata": {
            "name": check_name(metadata.uid, check_type, name, previous),
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
    """Return the targets that no value can be compared with, which Keptn accepts."""
    errors = []
    for index, objective in enumerate(definition.spec.objectives):
        try:
            parse_target(objective.evaluation_target)
        except ValueError as error:
            at = f"spec.objectives[{index}].evaluationTarget"
            errors.append(invalid(at, shorten(objective.evaluation_target), str(error)))
    return errors


def definition_errors(definition: EvaluationDefinition) -> list[FieldError]:
    """Return the target errors, and a warning of an interval that cannot be used, such as 0.5."""
    errors = target_errors(definition)
    text = definition.spec.retry_interval or INTERVAL
    why = ""
    try:
        if parse_duration(text) < SHORTEST:
            why = f"it {_TOO_SHORT}"
    except ValueError:
        why = f"it is not a duration, so {INTERVAL} is used: write for example 30s, 5m or 1h30m"
    if why:
        errors.append(invalid("spec.retryInterval", shorten(text), why).as_warning())
    return errors


def failure_text(evaluation: Evaluation) -> str:
    """Return the text of a failed evaluation: one line, and one for each unmet objective."""
    failed = (
        f"{key}: {result.message}"
        for key, result in evaluation.status.evaluation_status.items()
        if result.status != SUCCEEDED
    )
    return "\n".join(("evaluation failed", *failed))


def objectives_of(definition: EvaluationDefinition) -> list[Objective]:
    """Return the objectives of a definition, in order."""
    return [
        Objective(
            metric=objective.keptn_metric_ref.name,
            namespace=objective.keptn_metric_ref.namespace,
            target=objective.evaluation_target,
        )
        for objective in definition.spec.objectives
    ]


def interval_of(evaluation: Evaluation) -> tuple[float, str]:
    """Return the seconds between two measurements, and what is wrong with the interval."""
    text = evaluation.spec.retry_interval or INTERVAL
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        return parse_duration(INTERVAL), f"retryInterval {error}; {INTERVAL} is used instead"
    return (
        (seconds, "") if seconds >= SHORTEST else (SHORTEST, f"retryInterval {text} {_TOO_SHORT}")
    )


def written_at(raw: bytes) -> datetime | None:
    """Return when a KeptnEvaluation's status was last written, by its managedFields."""
    fields = _decode(raw).metadata.managed_fields
    times = [
        parse_rfc3339(field.time)
        for field in fields
        if field.subresource == "status" and field.time
    ]
    return max(times, default=None)


def progress_of(status: EvaluationStatus) -> Progress:
    """Return the progress of an evaluation with this status."""
    return Progress(
        tries=status.retry_count,
        results={
            key: Result(measurement.value, measurement.status, measurement.message)
            for key, measurement in status.evaluation_status.items()
        },
        state=status.overall_status,
    )


def record_tries(status: EvaluationStatus, after: Progress, now: datetime) -> dict[str, Tries]:
    """Return the recorded measurements, with those that ``after`` adds to the status.

    Only the newest of an objective are kept, and fewer where there are many objectives.
    """
    if not after.measured:
        return status.measurements
    most = max(min(MOST_TRIES, MOST_OF_ALL // len(after.results)), 1)
    recorded = {key: status.measurements.get(key, Tries()) for key in after.results}
    for key, target in after.measured.items():
        result = after.results[key]
        made = Try(
            time=format_rfc3339(now),
            status=result.status,
            value=result.value,
            message=shorten(result.message) if is_inconclusive(result) else "",
        )
        tries = (*recorded[key].tries, made)[-most:]
        recorded[key] = Tries(target=shorten(target), tries=tries)
    return {key: tries for key, tries in recorded.items() if tries.tries}


def _of(parent: Version) -> dict[str, str]:
    """Return the fields for the owner; workload and version are required, and empty for an app."""
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
