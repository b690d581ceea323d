"""The caches that all reconcilers of the lifecycle share, with their indexes.

The module ``watches`` maps changes in them to the reconcilers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from harbourmaster.api import resources
from harbourmaster.controller.evaluation.caches import MetricCaches
from harbourmaster.controller.extender.settings import SchedulerSettings
from harbourmaster.controller.lifecycle.function_maps import (
    BY_CONFIG_MAP,
    BY_REFERENCE,
    decode_function_map,
)
from harbourmaster.controller.lifecycle.owners import decode_owner, decode_rollout, rank
from harbourmaster.controller.lifecycle.settings import LifecycleSettings
from harbourmaster.controller.lifecycle.staged_releases import (
    SELECTOR,
    StagedReleases,
    decode_staged,
)
from harbourmaster.controller.lifecycle.started_pods import (
    decode_started,
    selector,
    versions_of_started,
)
from harbourmaster.controller.lifecycle.task_jobs import TaskPods, decode_job
from harbourmaster.controller.lifecycle.wait_watches import BY_ITEM, WaitWatches
from harbourmaster.controller.lifecycle.writes import WrittenObjects
from harbourmaster.gates.names import version_name
from harbourmaster.gates.owners import (
    DAEMON_SET,
    DEPLOYMENT,
    REPLICA_SET,
    STATEFUL_SET,
    SUPPORTED,
)
from harbourmaster.kube.caches import Caches, decoder
from harbourmaster.lifecycle import model
from harbourmaster.lifecycle.apps import version_of as version_of_app
from harbourmaster.lifecycle.functions import config_map_keys, references, without_code
from harbourmaster.lifecycle.gated_pods import (
    PENDING_PODS,
    decode_pod,
    items_of_pod,
    versions_of_pod,
)
from harbourmaster.lifecycle.jobs import NONCE
from harbourmaster.lifecycle.phases import check_phases
from harbourmaster.lifecycle.task_pods import decode_task_pod
from harbourmaster.lifecycle.workload_owners import current_versions
from harbourmaster.lifecycle.workloads import names_of, recorded_owners

if TYPE_CHECKING:
    from collections.abc import Iterator

    import msgspec

    from harbourmaster.controller.lifecycle.function_maps import FunctionMap
    from harbourmaster.controller.lifecycle.owners import Owner
    from harbourmaster.controller.lifecycle.staged_releases import StagedPod
    from harbourmaster.controller.lifecycle.started_pods import StartedPod
    from harbourmaster.controller.lifecycle.task_jobs import TaskJob
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.kube.store import Store
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.workloads import Names

BY_APP: Final = "app"
"""Index of workload versions and app versions by (namespace, name of the app)."""
BY_WORKLOAD: Final = "workload"
"""Index of workload versions by (namespace, name of the KeptnWorkload)."""
BY_CHILD: Final = "child"
"""Index of unfinished versions by the keys of the tasks and evaluations in their status."""
BY_DEFINITION: Final = "definition"
"""Index of unfinished objects by the names of their task and evaluation definitions."""
BY_OWNER: Final = "owner"
"""Index by (namespace, kind, name) of the owner: of workload versions by that of their pods, of
ReplicaSets by their own, of Rollouts by the Deployment that lends them its template."""
BY_IDLE: Final = "idle"
"""Index of owners that want no pods by (namespace, names of the workload version)."""
BY_UID: Final = "uid"
"""Index by uid: of ReplicaSets by their own, of workload versions by those of all recorded owners.
"""
BY_CURRENT: Final = "current"
"""Index of apps and workloads by (namespace, name) of the version that they should have."""
BY_LISTED: Final = "listed"
"""Index of apps and unfinished app versions by (namespace, name) of listed workload versions."""
BY_PARENT: Final = "parent"
"""Index of tasks and of evaluations by the uid of the object that controls them."""
BY_JOB: Final = "job"
"""Index of unfinished tasks by the key of the Job in their status."""
BY_VERSION: Final = "version"
"""Index of waiting and failed pods by (namespace, name of the KeptnWorkloadVersion)."""
_STARTED_PODS: Final = "started-pods"

_decode_task_definition: Final = decoder(model.TaskDefinition)


class LifecycleCaches(Caches):
    """Holds the caches of the lifecycle.

    ``of_metrics`` has those that the controllers of metrics and analyses read, too. Pods with a
    node are cached only if ``scheduler`` wants failed nodes recorded.
    """

    def __init__(
        self,
        client: Client,
        metrics: WatchMetrics | None = None,
        of_metrics: MetricCaches | None = None,
        scheduler: SchedulerSettings = SchedulerSettings(),  # noqa: B008 - frozen
        settings: LifecycleSettings = LifecycleSettings(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__(client, metrics)
        self.has_scheduler = scheduler.enabled
        self.apps = self.cache(
            resources.APPS,
            decoder(model.App),
            {
                BY_CURRENT: lambda obj: [(obj.metadata.namespace, version_of_app(obj))],
                BY_LISTED: lambda obj: _listed(obj, obj.metadata.name),
            },
        )
        self.app_contexts = self.cache(resources.APP_CONTEXTS, decoder(model.AppContext))
        self.app_versions = self.cache(
            resources.APP_VERSIONS,
            decoder(model.AppVersion),
            {
                BY_APP: lambda obj: [(obj.metadata.namespace, obj.spec.app_name)],
                BY_CHILD: _children,
                BY_DEFINITION: _definitions,
                BY_LISTED: _workload_versions_of_app,
            },
        )
        self.creation_requests = self.cache(
            resources.APP_CREATION_REQUESTS,
            decoder(model.AppCreationRequest),
        )
        self.workloads = self.cache(
            resources.WORKLOADS,
            decoder(model.Workload),
            {BY_CURRENT: _versions_of_workload},
        )
        self.workload_versions = self.cache(
            resources.WORKLOAD_VERSIONS,
            decoder(model.WorkloadVersion),
            {
                BY_APP: lambda obj: [(obj.metadata.namespace, obj.spec.app)],
                BY_WORKLOAD: lambda obj: [(obj.metadata.namespace, obj.spec.workload_name)],
                BY_OWNER: _owner_of_version,
                BY_UID: recorded_owners,
                BY_CHILD: _children,
                BY_DEFINITION: _definitions,
            },
        )
        self.tasks = self.cache(
            resources.TASKS,
            decoder(model.Task),
            {BY_PARENT: _parent, BY_JOB: _job_of_task, BY_DEFINITION: _definition_of_task},
        )
        self.task_definitions = self.cache(
            resources.TASK_DEFINITIONS,
            _task_definition,
            {BY_REFERENCE: references, BY_CONFIG_MAP: config_map_keys},
        )
        self.config_maps: Reflector[FunctionMap] = self.cache(
            resources.CONFIG_MAPS, decode_function_map, metadata_only=True
        )
        self.evaluations = self.cache(
            resources.EVALUATIONS,
            decoder(model.Evaluation),
            {BY_PARENT: _parent, BY_DEFINITION: _definition_of_evaluation},
        )
        self.evaluation_definitions = self.cache(
            resources.EVALUATION_DEFINITIONS, decoder(model.EvaluationDefinition)
        )
        self.configs = self.cache(resources.KEPTN_CONFIGS, decoder(model.Config))
        of_metrics = of_metrics or MetricCaches(client, metrics)
        self.metrics = self.include(of_metrics.metrics)
        self.analyses = self.include(of_metrics.analyses)
        self.analysis_definitions = self.include(of_metrics.definitions)
        self.jobs: Reflector[TaskJob] = self.cache(resources.JOBS, decode_job)
        self.pods: Reflector[Pod] = self.cache(
            resources.PODS,
            partial(decode_pod, scheduler=scheduler.of_pods),
            {
                BY_VERSION: versions_of_pod,
                BY_ITEM: items_of_pod,
            },
            field_selector=PENDING_PODS,
        )
        self.wait_watches = WaitWatches(client, self.pods, settings.kinds_to_wait_for, metrics)
        self.pod_faults = TaskPods(self.jobs.store)
        self.task_pods = self.cache(
            resources.PODS,
            decode_task_pod,
            store=self.pod_faults,
            label_selector=NONCE,
            name="task-pods",
        )
        self.staged_pods: Reflector[StagedPod] = self.cache(
            resources.PODS,
            decode_staged,
            label_selector=SELECTOR,
            name="staged-pods",
        )
        self.started_pods: Reflector[StartedPod] | None = None
        if scheduler.records_nodes:
            self.started_pods = self.cache(
                resources.PODS,
                decode_started,
                {BY_VERSION: versions_of_started},
                field_selector=selector(scheduler.scheduler_name),
                name=_STARTED_PODS,
            )
        decode = partial(decode_owner, version_from_tag=settings.version_from_tag)
        indexes = {BY_IDLE: _idle_workload, BY_UID: lambda owner: [owner.metadata.uid]}
        self.replica_sets: Reflector[Owner] = self.cache(
            resources.REPLICA_SETS, decode, {BY_OWNER: _owner_of_owner, **indexes}
        )
        self.stateful_sets = self.cache(resources.STATEFUL_SETS, decode, indexes)
        self.daemon_sets = self.cache(resources.DAEMON_SETS, decode, indexes)
        self.rollouts = self.cache(resources.ROLLOUTS, decode_rollout, {BY_OWNER: _lender})
        kinds = (REPLICA_SET, STATEFUL_SET, DAEMON_SET)
        self.owners = {kind: self.by_resource[SUPPORTED[kind]].store for kind in kinds}
        self.newest_requests = WrittenObjects(self.creation_requests.store)
        self.newest_apps = WrittenObjects(self.apps.store)
        self.newest_workloads = WrittenObjects(self.workloads.store)
        self.staged_releases = StagedReleases(client, self)
        self.excess_pods: dict[str, int] = {}
        """The unavailable pods beyond those that the strategy allows, by key of a held version."""

    def find_owner(self, uid: str) -> Owner | None:
        """Return the cached owner of pods with this uid, if there is one."""
        owners = (owner for store in self.owners.values() for owner in store.by_index(BY_UID, uid))
        return next(owners, None)

    def alike_replica_sets(self, replica_set: Owner) -> Iterator[Owner]:
        """Return the other ReplicaSets of the same Deployment or Rollout."""
        return alike_replica_sets(self.replica_sets.store, replica_set)

    def owners_of(self, version: model.WorkloadVersion) -> dict[str, tuple[str, Owner]]:
        """Return kind and object of those owners of the version's pods that are cached, by uid."""
        return {
            uid: (kind, owner)
            for uid in recorded_owners(version)
            for kind, store in self.owners.items()
            for owner in store.by_index(BY_UID, uid)
        }

    def is_idle(self, namespace: str, names: Names) -> bool:
        """Whether the current owner of a workload version wants no pods.

        A Deployment that lends its template to a Rollout wants none either, but the Rollout may.
        """
        rollouts = partial(self.rollouts.store.by_index, BY_OWNER)
        return any(
            is_newest(self.replica_sets.store, owner)
            and not any(map(rollouts, _owner_of_owner(owner)))
            for store in self.owners.values()
            for owner in store.by_index(BY_IDLE, (namespace, names))
        )


def alike_replica_sets(store: Store[Owner], replica_set: Owner) -> Iterator[Owner]:
    """Return the other ReplicaSets of the same Deployment or Rollout."""
    metadata = replica_set.metadata
    for above in metadata.owner_references:
        for alike in store.by_index(BY_OWNER, (metadata.namespace, above.kind, above.name)):
            if alike.metadata.uid != metadata.uid:
                yield alike


def is_newest(store: Store[Owner], replica_set: Owner) -> bool:
    """Whether no other ReplicaSet of the same Deployment or Rollout has a higher rank."""
    return all(rank(alike) < rank(replica_set) for alike in alike_replica_sets(store, replica_set))


def _task_definition(raw: msgspec.Raw) -> model.TaskDefinition:
    return without_code(_decode_task_definition(raw))


def _parent(check: model.Task | model.Evaluation) -> list[str]:
    controller = check.metadata.controller
    return [controller.uid] if controller is not None else []


def _versions_of_workload(workload: model.Workload) -> list[tuple[str, str]]:
    namespace, name = workload.metadata.namespace, workload.metadata.name
    versions = {workload.spec.version, *current_versions(workload)}
    return [(namespace, version_name(name, version)) for version in versions]


def _owner_of_version(version: model.WorkloadVersion) -> list[tuple[str, str, str]]:
    owner = version.spec.resource_reference
    return [(version.metadata.namespace, owner.kind, owner.name)]


def _owner_of_owner(owner: Owner) -> list[tuple[str, str, str]]:
    namespace, references = owner.metadata.namespace, owner.metadata.owner_references
    return [(namespace, reference.kind, reference.name) for reference in references]


def _lender(rollout: Owner) -> list[tuple[str, str, str]]:
    return [(rollout.metadata.namespace, DEPLOYMENT, rollout.spec.workload_ref.get("name", ""))]


def _idle_workload(owner: Owner) -> list[tuple[str, Names]]:
    return [(owner.metadata.namespace, owner.idle)] if owner.idle is not None else []


def _workload_versions_of_app(version: model.AppVersion) -> list[tuple[str, str]]:
    if version.status.is_final:
        return []
    return _listed(version, version.spec.app_name)


def _listed(obj: model.App | model.AppVersion, app: str) -> list[tuple[str, str]]:
    namespace, entries = obj.metadata.namespace, obj.spec.workloads
    return [(namespace, names_of(app, entry.name, entry.version).version) for entry in entries]


def _children(version: model.Version) -> list[str]:
    if version.status.is_finished:
        return []
    return [
        f"{version.metadata.namespace}/{item.name}"
        for phase in check_phases(version)
        for item in getattr(version.status, phase.items)
        if item.name
    ]


def _definitions(version: model.Version) -> set[str]:
    if version.status.is_finished:
        return set()
    return {name for phase in check_phases(version) for name in getattr(version.spec, phase.checks)}


def _job_of_task(task: model.Task) -> list[str]:
    status = task.status
    return [f"{task.metadata.namespace}/{status.job_name}"] if status.job_name else []


def _definition_of_task(task: model.Task) -> list[str]:
    return [] if task.status.end_time else [task.spec.task_definition]


def _definition_of_evaluation(evaluation: model.Evaluation) -> list[str]:
    return [] if evaluation.status.end_time else [evaluation.spec.evaluation_definition]
