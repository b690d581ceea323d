"""Decides when a workload's version begins: when its app's checks passed (keptn-spec 3.5).

Until one of its pods is released, a KeptnAppContext that comes later adds checks (keptn-spec 3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.gates.names import version_part, workload_name
from harbourmaster.lifecycle.apps import with_context
from harbourmaster.lifecycle.model import DEPRECATED, FAILED, is_generated
from harbourmaster.lifecycle.phases import (
    APP_CHECKS,
    APP_DEPLOY,
    APP_PRE_EVALUATIONS,
    PASSED,
    has_passed,
    state_of,
)
from harbourmaster.lifecycle.steps import PhaseNotice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.lifecycle.model import AppContext, AppVersion, WorkloadVersion

NO_APP: Final = "AppVersionNotFound"
APP_FAILED: Final = "Failed"


def app_version_of(
    workload: WorkloadVersion, candidates: Iterable[AppVersion]
) -> AppVersion | None:
    """Return the newest version of its app that has this workload version and is not superseded.

    The API's times are whole seconds: of two in one second the higher revision counts, then the
    generation, then the name, so that all replicas choose alike.
    """
    fitting = [candidate for candidate in candidates if _has(candidate, workload)]
    return max(fitting, key=_age, default=None)


def _age(app: AppVersion) -> tuple[str, int, int, str]:
    metadata = app.metadata
    return (metadata.creation_timestamp, app.spec.revision, metadata.generation, metadata.name)


def _has(app: AppVersion, workload: WorkloadVersion) -> bool:
    spec = workload.spec
    return (
        app.status.status != DEPRECATED
        and is_generated(app)
        and app.spec.app_name == spec.app
        and any(
            version_part(entry.version) == version_part(spec.version)
            and workload_name(app.spec.app_name, entry.name) == spec.workload_name
            for entry in app.spec.workloads
        )
    )


def may_begin(app: AppVersion | None) -> bool:
    """Whether the app's checks passed; a Warning counts as passed."""
    return app is not None and all(has_passed(app, phase) for phase in APP_CHECKS)


def lacks_context(
    app: AppVersion, context: AppContext | None, workloads: Iterable[WorkloadVersion]
) -> bool:
    """Whether the app's version has another context than this one, which still counts for it.

    That ends when a pod of one of these workloads is released, or none will be.
    """
    starts = (work.status.deployment_start_time for work in workloads if _has(app, work))
    is_released = "" < app.status.start_time <= max(starts, default="")
    has_ended = state_of(app.status, APP_DEPLOY) in {*PASSED, FAILED}
    is_other = context is not None and with_context(app, context) != app.spec
    return is_other and not (is_released or has_ended)


def app_obstacle(app: AppVersion | None) -> PhaseNotice | None:
    """Return the notice about an app that blocks its workloads, or None while its checks run."""
    name = APP_PRE_EVALUATIONS.name
    if app is None:
        return PhaseNotice(phase=name, state=NO_APP)
    if FAILED in {app.status.status, state_of(app.status, APP_PRE_EVALUATIONS)}:
        text = "has failed since app has failed"
        return PhaseNotice(phase=name, state=APP_FAILED, text=text, warning=True)
    return None


def with_app_metadata(workload: WorkloadVersion, app: AppVersion) -> WorkloadVersion:
    """Return the workload's version with the metadata of its app, not written yet."""
    status = replace(workload.status, app_context_metadata=app.spec.metadata)
    return replace(workload, status=status)


def trace_of(app: AppVersion) -> dict[str, str]:
    """Return the trace that the app's workloads continue."""
    return app.status.phase_trace_ids.get(APP_DEPLOY.name) or app.spec.trace_id
