"""Builds the Analysis that checks a stage of a version, and reads its status."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.evaluation import model as metrics
from harbourmaster.lifecycle.model import FAILED, PENDING, PROGRESSING, SUCCEEDED, WARNING
from harbourmaster.lifecycle.tasks import check_name, owner_reference

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from harbourmaster.evaluation.model import Analysis, AnalysisDefinition
    from harbourmaster.lifecycle.model import WorkloadVersion

NO_POD: Final = "-"
"""A regular expression that no name matches; an empty one would match a value without a pod."""
MOST_NAMES: Final = 200
"""Maximum names of pods in an argument, because queries have a limit."""


def analysis_for(
    version: WorkloadVersion,
    definition: AnalysisDefinition,
    check_type: str,
    previous: str,
    pods: dict[str, str],
    now: datetime,
) -> dict[str, Any]:
    """Return the Analysis of the time since the stage began, which the version owns.

    ``pods`` are the arguments about pods. Name and ``previous`` are as for an evaluation.
    """
    metadata, status, name = version.metadata, version.status, definition.metadata.name
    # The results have the end of the former stage.
    ends = [result.end_time for result in status.stage.results] if status.stage else []
    began = moment(ends[-1] if ends else status.deployment_start_time) or now
    began = min(began, now - timedelta(seconds=1))
    return {
        "apiVersion": "metrics.keptn.sh/v1",
        "kind": "Analysis",
        "metadata": {
            "name": check_name(metadata.uid, check_type, name, previous),
            "namespace": metadata.namespace,
            "ownerReferences": [owner_reference(version)],
        },
        "spec": {
            "timeframe": {"from": format_rfc3339(began), "to": format_rfc3339(now)},
            "analysisDefinition": {"name": name, "namespace": definition.metadata.namespace},
            "args": {
                "namespace": metadata.namespace,
                "workload": version.spec.workload_name,
                "version": version.spec.version,
                "stage": check_type.split("-")[1],
                **pods,
            },
        },
    }


def state_of_analysis(analysis: Analysis) -> str:
    """Return the state of the check: a query without an answer is a failure."""
    status = analysis.status
    if status.state == metrics.COMPLETED:
        passed = WARNING if status.warning else SUCCEEDED
        return passed if status.passed or status.warning else FAILED
    if status.state != metrics.PROGRESSING:
        return PENDING
    has_error = any(value.err_msg for value in status.stored_values.values())
    return FAILED if has_error else PROGRESSING


def pods_pattern(names: Iterable[str], random: str = "") -> str:
    """Return a regular expression for names of pods, or for their beginnings before ``random``."""
    # Brackets need no escape in the strings of a query.
    shown = (name.replace(".", "[.]") + random for name in sorted(names)[:MOST_NAMES])
    return "|".join(shown) or NO_POD
