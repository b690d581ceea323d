"""The workload that a gated pod describes, for Keptn's objects (keptn-spec 2.6, 2.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from harbourmaster.gates import metadata as keys
from harbourmaster.gates import stages
from harbourmaster.gates.metadata import limit_value, lookup, names_of, pairs_of
from harbourmaster.gates.names import sanitise

if TYPE_CHECKING:
    from collections.abc import Mapping


class WorkloadMetadata(Struct, frozen=True):
    """A workload as one of its pods describes it.

    ``app`` and ``workload`` are fit for names of objects, ``version`` is in lower case and empty
    where the pod has none; ``written_version`` is as the pod has it. ``is_single_service``: no app
    was named, so the workload is one. ``stages`` has the fields of a workload's spec on its
    stages, if it has some; texts for ``parse_stages`` are as written.
    """

    app: str
    workload: str
    version: str
    written_version: str
    pre_deployment_tasks: tuple[str, ...] = ()
    post_deployment_tasks: tuple[str, ...] = ()
    pre_deployment_evaluations: tuple[str, ...] = ()
    post_deployment_evaluations: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    deployment_timeout: str = ""
    is_single_service: bool = False
    stages: dict[str, Any] = {}

    @property
    def has_checks(self) -> bool:
        """Whether it names any."""
        tasks = self.pre_deployment_tasks or self.post_deployment_tasks
        return bool(tasks or self.pre_deployment_evaluations or self.post_deployment_evaluations)


def workload_of(
    annotations: Mapping[str, str], labels: Mapping[str, str]
) -> WorkloadMetadata | None:
    """The workload that a pod with these belongs to; None where it names none."""
    workload = lookup(annotations, labels, keys.WORKLOAD_KEY)
    if not workload:
        return None
    app = lookup(annotations, labels, keys.APP_KEY)
    version = lookup(annotations, labels, keys.VERSION_KEY)

    def names(key: str) -> tuple[str, ...]:
        return names_of(lookup(annotations, labels, key))

    return WorkloadMetadata(
        app=sanitise(app or workload),
        workload=sanitise(workload),
        version=version.lower(),
        written_version=version,
        pre_deployment_tasks=names(keys.PRE_TASKS_KEY),
        post_deployment_tasks=names(keys.POST_TASKS_KEY),
        pre_deployment_evaluations=names(keys.PRE_EVALUATIONS_KEY),
        post_deployment_evaluations=names(keys.POST_EVALUATIONS_KEY),
        metadata=pairs_of(lookup(annotations, labels, keys.METADATA_KEY)),
        deployment_timeout=lookup(annotations, labels, keys.DEPLOYMENT_TIMEOUT_KEY),
        is_single_service=not app or annotations.get(keys.APP_TYPE_KEY) == keys.SINGLE_SERVICE,
        stages={
            "stages": limit_value(annotations[stages.STAGES_KEY]),
            "stage_pause": limit_value(annotations.get(stages.STAGE_PAUSE_KEY, "")),
            "stages_on_first": annotations.get(stages.STAGES_ON_FIRST_KEY) == "true",
            "stage_tasks": names(stages.STAGE_TASKS_KEY),
            "stage_evaluations": names(stages.STAGE_EVALUATIONS_KEY),
            "stage_analyses": names(stages.STAGE_ANALYSIS_KEY),
        }
        if stages.STAGES_KEY in annotations
        else {},
    )
