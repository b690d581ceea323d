"""Maps changes in the caches to the controllers that reconcile them: children wake their parents.

Nothing polls: every wait of the lifecycle ends by one of these lines, or at a time that an object
names. One wait does not: events are not watched, so those of a Job without a pod are listed again,
after ever longer times.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from harbourmaster.api.references import consenting
from harbourmaster.controller.lifecycle.caches import (
    BY_APP,
    BY_CHILD,
    BY_CURRENT,
    BY_DEFINITION,
    BY_JOB,
    BY_LISTED,
    BY_OWNER,
    BY_UID,
    BY_VERSION,
    BY_WORKLOAD,
    alike_replica_sets,
)
from harbourmaster.controller.lifecycle.function_maps import BY_CONFIG_MAP, BY_REFERENCE
from harbourmaster.gates.owners import DAEMON_SET, REPLICA_SET, ROLLOUT, STATEFUL_SET, SUPPORTED
from harbourmaster.lifecycle.gated_pods import app_mark, versions_of_pod, workload_mark
from harbourmaster.lifecycle.scheduling import has_failed, is_checking
from harbourmaster.lifecycle.stages import is_staging
from harbourmaster.lifecycle.subjects import subject
from harbourmaster.lifecycle.waiting import may_begin
from harbourmaster.lifecycle.workloads import approval, recorded_owners

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harbourmaster.controller.controller import Controller
    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.controller.lifecycle.owners import Owner
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.kube.store import Store
    from harbourmaster.lifecycle.model import AppVersion, WorkloadVersion

GATES = "gates"
WORKLOADS = "workloads"
WORKLOAD_VERSIONS = "workload-versions"
APPS = "apps"
APP_VERSIONS = "app-versions"
CREATION_REQUESTS = "creation-requests"
TASKS = "tasks"
TASK_DEFINITIONS = "task-definitions"
EVALUATIONS = "evaluations"
EVALUATION_DEFINITIONS = "evaluation-definitions"
MISTAKES = "mistakes"
CONFIG = "keptn-config"
FAILED_NODES = "failed-nodes"
WAIT_EVENTS = "wait-events"
HISTORY = "history"


class Watches:
    """Connects the caches with the controllers, by their names."""

    def __init__(self, caches: LifecycleCaches, controllers: dict[str, Controller]) -> None:
        self._caches = caches
        self._controllers = controllers
        # By key of a workload version: what decides on its waiting pods.
        self._approvals: dict[str, tuple[object, ...]] = {}
        # By key of a metric: the namespaces that it allows, where there are some.
        self._consents: dict[str, frozenset[str]] = {}

    def connect(self) -> None:
        """Subscribe every controller to all caches that may matter to it."""
        caches = self._caches
        own: dict[str, Reflector[Any]] = {
            GATES: caches.pods,
            WORKLOADS: caches.workloads,
            WORKLOAD_VERSIONS: caches.workload_versions,
            APPS: caches.apps,
            APP_VERSIONS: caches.app_versions,
            CREATION_REQUESTS: caches.creation_requests,
            TASKS: caches.tasks,
            TASK_DEFINITIONS: caches.task_definitions,
            EVALUATIONS: caches.evaluations,
            EVALUATION_DEFINITIONS: caches.evaluation_definitions,
            MISTAKES: caches.pods,
            CONFIG: caches.configs,
        }
        for name, cache in own.items():
            self._on(cache, name, lambda keys: keys)
        versions: dict[str, Reflector[Any]] = {
            APP_VERSIONS: caches.app_versions,
            WORKLOAD_VERSIONS: caches.workload_versions,
        }
        children: Reflector[Any]
        definitions: Reflector[Any]
        for children in (caches.tasks, caches.evaluations, caches.analyses):
            for name, cache in versions.items():
                self._on(children, name, self._by_index(cache, BY_CHILD))
            self._on(children, WAIT_EVENTS, self._by_index(caches.workload_versions, BY_CHILD))
            self._on(children, WAIT_EVENTS, self._waiting_for_app_child)
        for definitions in (
            caches.task_definitions,
            caches.evaluation_definitions,
            caches.analysis_definitions,
        ):
            for name, cache in versions.items():
                self._on(definitions, name, self._by_index(cache, BY_DEFINITION, _name))
        self._on(caches.task_definitions, TASKS, self._tasks_of_definitions)
        self._on(
            caches.config_maps,
            TASK_DEFINITIONS,
            self._by_index(caches.task_definitions, BY_CONFIG_MAP),
        )
        self._on(caches.config_maps, TASKS, self._tasks_of_maps)
        self._on(
            caches.evaluation_definitions,
            EVALUATIONS,
            self._by_index(caches.evaluations, BY_DEFINITION, _name),
        )
        self._on(caches.metrics, EVALUATIONS, self._evaluations_of_consent)
        self._on(caches.jobs, TASKS, self._by_index(caches.tasks, BY_JOB))
        self._on(caches.jobs, TASKS, self._tasks_of_jobs)
        self._on(caches.task_pods, TASKS, self._tasks_of_pods)
        self._on(caches.workload_versions, GATES, self._pods_to_decide)
        self._on(caches.workloads, GATES, self._waiting_pods(workload_mark))
        for of_app in (caches.apps, caches.creation_requests):
            self._on(of_app, GATES, self._waiting_pods(app_mark))
        # By the expected name, so that a deleted version is created again.
        self._on(
            caches.workload_versions,
            WORKLOADS,
            self._by_index(caches.workloads, BY_CURRENT, _place),
        )
        for of_app in (caches.app_contexts, caches.creation_requests):
            self._on(of_app, APPS, lambda keys: keys)
        # A context that is changed back holds them no longer.
        workload_versions_of_app = self._by_index(caches.workload_versions, BY_APP, _place)
        self._on(caches.app_contexts, WORKLOAD_VERSIONS, workload_versions_of_app)
        self._on(caches.app_versions, APPS, self._by_index(caches.apps, BY_CURRENT, _place))
        # One that came late may have to be deprecated by now.
        self._on(caches.app_versions, APPS, self._apps_of_versions)
        self._on(
            caches.workload_versions,
            APP_VERSIONS,
            self._by_index(caches.app_versions, BY_LISTED, _place),
        )
        self._on(caches.app_versions, WORKLOAD_VERSIONS, self._waiting_for_app)
        self._on(caches.workloads, WORKLOAD_VERSIONS, self._unfinished_of_workloads)
        self._connect_owners()
        caches.staged_pods.subscribe(self._on_staged_pods)
        self._on(caches.rollouts, WORKLOAD_VERSIONS, self._deploying_by_rollout)
        self._on(caches.workload_versions, FAILED_NODES, lambda keys: keys)
        self._on(caches.tasks, FAILED_NODES, self._versions_of_tasks)
        self._on(caches.pods, WAIT_EVENTS, self._versions_of_gated)
        self._on(caches.workload_versions, WAIT_EVENTS, lambda keys: keys)
        self._on(caches.app_versions, WAIT_EVENTS, self._waiting_for_app)
        by_set = self._by_index(caches.workload_versions, BY_OWNER, _stateful_set)
        self._on(caches.stateful_sets, WAIT_EVENTS, by_set)
        self._on(caches.app_versions, HISTORY, self._apps_of_ended)
        self._on(caches.workload_versions, HISTORY, self._apps_of_ended)
        caches.wait_watches.subscribe(self._wake(GATES, lambda keys: keys))
        caches.wait_watches.subscribe(self._wake(WAIT_EVENTS, self._versions_of_gated))
        if caches.started_pods is not None:
            self._on(caches.started_pods, FAILED_NODES, self._versions_of_pods)

    def _connect_owners(self) -> None:
        """Subscribe controllers to the owners of pods, which may go for good, or come back."""
        caches = self._caches
        self._on(caches.apps, CREATION_REQUESTS, lambda keys: keys)
        apps_of_versions = self._by_index(caches.apps, BY_LISTED, _place)
        self._on(caches.workload_versions, CREATION_REQUESTS, apps_of_versions)
        by_version: dict[str, Callable[[frozenset[str]], Iterable[str]]] = {
            WORKLOAD_VERSIONS: lambda keys: keys,
            WORKLOADS: self._by_index(caches.workloads, BY_CURRENT, _place),
            CREATION_REQUESTS: apps_of_versions,
            APP_VERSIONS: self._by_index(caches.app_versions, BY_LISTED, _place),
        }
        for kind in (REPLICA_SET, STATEFUL_SET, DAEMON_SET):
            cache = caches.by_resource[SUPPORTED[kind]]
            for name, find in by_version.items():
                self._on(cache, name, partial(self._find_by_owners, find, kind))
            # Scaling changes the number of pods that a stage allows.
            self._on(cache, GATES, partial(self._find_by_owners, self._pods_with_room, kind))
            place = partial(_idle_place, cache.store)
            self._on(cache, APP_VERSIONS, self._by_index(caches.app_versions, BY_LISTED, place))

    def _on(
        self,
        cache: Reflector[Any],
        controller: str,
        translate: Callable[[frozenset[str]], Iterable[str]],
    ) -> None:
        cache.subscribe(self._wake(controller, translate))

    def _wake(
        self, controller: str, translate: Callable[[frozenset[str]], Iterable[str]]
    ) -> Callable[[frozenset[str]], None]:
        def wake(keys: frozenset[str]) -> None:
            target = self._controllers.get(controller)
            if target is not None:
                target.enqueue(translate(keys))

        return wake

    def _by_index(
        self, cache: Reflector[Any], index: str, place: Callable[[str], object] = str
    ) -> Callable[[frozenset[str]], Iterable[str]]:
        """Return a mapping from changed keys to the objects that have their places in an index."""
        store = cache.store
        return lambda keys: [
            obj.metadata.key for key in keys for obj in store.by_index(index, place(key))
        ]

    def _tasks_of_definitions(self, keys: Iterable[str]) -> Iterable[str]:
        """Return the tasks of the definitions, and of all that refer to them indirectly."""
        caches = self._caches
        names = {key.partition("/")[2] for key in keys}
        unseen = list(names)
        while unseen:
            referring = caches.task_definitions.store.by_index(BY_REFERENCE, unseen.pop())
            new_names = {definition.metadata.name for definition in referring} - names
            names |= new_names
            unseen += new_names
        for name in names:
            for task in caches.tasks.store.by_index(BY_DEFINITION, name):
                yield task.metadata.key

    def _evaluations_of_consent(self, keys: frozenset[str]) -> Iterable[str]:
        """Return the evaluations with metrics that allow other namespaces than before."""
        changed, caches = set(), self._caches
        for key in keys:
            metric = caches.metrics.store.get(key)
            allowed = consenting(metric.metadata.annotations) if metric is not None else frozenset()
            if allowed != self._consents.pop(key, frozenset()):
                changed.add(_place(key))
            if allowed:
                self._consents[key] = allowed
        for definition in caches.evaluation_definitions.store.values() if changed else ():
            references = [objective.keptn_metric_ref for objective in definition.spec.objectives]
            if any((reference.namespace, reference.name) in changed for reference in references):
                users = caches.evaluations.store.by_index(BY_DEFINITION, definition.metadata.name)
                yield from (user.metadata.key for user in users)

    def _tasks_of_maps(self, keys: frozenset[str]) -> Iterable[str]:
        definitions_of_maps = self._by_index(self._caches.task_definitions, BY_CONFIG_MAP)
        return self._tasks_of_definitions(definitions_of_maps(keys))

    def _tasks_of_jobs(self, keys: frozenset[str]) -> Iterable[str]:
        for key in keys:
            job = self._caches.jobs.store.get(key)
            if job is not None and job.task.name:
                yield f"{job.metadata.namespace}/{job.task.name}"

    def _tasks_of_pods(self, keys: frozenset[str]) -> Iterable[str]:
        """Return the tasks whose status has another reason than the fault of their pod."""
        for key in keys:
            pod = self._caches.pod_faults.get(key)
            if pod is None:
                continue
            reason = pod.fault.reason if pod.fault is not None else ""
            for task in self._caches.tasks.store.by_index(BY_JOB, f"{pod.namespace}/{pod.job}"):
                if task.status.reason != reason:
                    yield task.metadata.key

    def _waiting_pods(
        self, mark: Callable[[str], str]
    ) -> Callable[[frozenset[str]], Iterable[str]]:
        """Return a mapping from changed keys to the pods that wait for them."""
        store = self._caches.pods.store
        return lambda keys: [
            pod.key for key in keys for pod in store.by_index(BY_VERSION, _place(key, mark))
        ]

    def _versions_of_tasks(self, keys: frozenset[str]) -> Iterable[str]:
        for key in keys:
            task = self._caches.tasks.store.get(key)
            if task is not None and (parent := task.metadata.controller) is not None:
                yield f"{task.metadata.namespace}/{parent.name}"

    def _versions_of_pods(self, keys: frozenset[str]) -> Iterable[str]:
        cache = self._caches.started_pods
        for key in keys:
            pod = cache.store.get(key) if cache is not None else None
            if pod is not None and pod.failure is not None:
                yield f"{pod.namespace}/{pod.version}"

    def _pods_to_decide(self, keys: frozenset[str]) -> Iterable[str]:
        """Return the pods of versions whose decision on them has changed."""
        changed = []
        for key in keys:
            version = self._caches.workload_versions.store.get(key)
            before = self._approvals.pop(key, None)
            if version is not None:
                after = self._decisive_fields(version)
                self._approvals[key] = after
                if after == before:
                    continue
            changed.append(key)
        return self._waiting_pods(str)(frozenset(changed))

    def _on_staged_pods(self, keys: frozenset[str]) -> None:
        versions = self._caches.staged_releases.observe(keys)
        self._wake(WORKLOAD_VERSIONS, lambda keys: keys)(frozenset(versions))
        self._wake(GATES, self._pods_with_room)(frozenset(versions))

    def _pods_with_room(self, keys: Iterable[str]) -> Iterable[str]:
        """Return the waiting pods of those versions whose stage has room for one."""
        caches = self._caches
        for key in keys:
            version = caches.workload_versions.store.get(key)
            if (
                version is not None
                and is_staging(version)
                and caches.staged_releases.room(version) > 0
            ):
                yield from self._waiting_pods(str)(frozenset((key,)))

    def _decisive_fields(self, version: WorkloadVersion) -> tuple[object, ...]:
        """Return what decides on the pods of a version; those in a scheduler depend on more."""
        decisive = (approval(version).is_given, recorded_owners(version), version.status.stage)
        if not self._caches.has_scheduler:
            return decisive
        status = version.status
        begun = (is_checking(version), status.start_time)
        return (*decisive, has_failed(version), *begun, status.failed_nodes)

    def _apps_of_versions(self, keys: frozenset[str]) -> Iterable[str]:
        for key in keys:
            version = self._caches.app_versions.store.get(key)
            if version is not None:
                yield f"{version.metadata.namespace}/{version.spec.app_name}"

    def _apps_of_ended(self, keys: frozenset[str]) -> Iterable[str]:
        stores: Any = (self._caches.app_versions.store, self._caches.workload_versions.store)
        for version in filter(None, (store.get(key) for key in keys for store in stores)):
            if version.status.is_finished:
                yield f"{version.metadata.namespace}/{subject(version).app}"

    def _unfinished_of_workloads(self, keys: frozenset[str]) -> Iterable[str]:
        store = self._caches.workload_versions.store
        for key in keys:
            for version in store.by_index(BY_WORKLOAD, _place(key)):
                if not version.status.is_final:
                    yield version.metadata.key

    def _versions_of_gated(self, keys: frozenset[str]) -> Iterable[str]:
        for key in keys:
            pod = self._caches.pods.store.get(key)
            yield from ("/".join(version) for version in versions_of_pod(pod)[:1]) if pod else ()

    def _waiting_for_app_child(self, keys: frozenset[str]) -> Iterable[str]:
        return self._waiting_for_app(self._by_index(self._caches.app_versions, BY_CHILD)(keys))

    def _waiting_for_app(self, keys: Iterable[str]) -> Iterable[str]:
        store = self._caches.workload_versions.store
        for key in keys:
            app: AppVersion | None = self._caches.app_versions.store.get(key)
            if app is None:
                continue
            # A context that came later lets it check again.
            is_back = bool(app.status.workload_status) and not may_begin(app)
            for version in store.by_index(BY_APP, (app.metadata.namespace, app.spec.app_name)):
                if not version.status.current_phase or (
                    is_back and not version.status.deployment_start_time
                ):
                    yield version.metadata.key

    def _find_by_owners(
        self, find: Callable[[frozenset[str]], Iterable[str]], kind: str, keys: Iterable[str]
    ) -> Iterable[str]:
        return find(frozenset(self._versions_of_owners(kind, keys)))

    def _versions_of_owners(self, kind: str, keys: Iterable[str]) -> Iterable[str]:
        store = self._caches.workload_versions.store
        for key in keys:
            namespace, name = _place(key)
            versions = {
                version.metadata.key: version
                for version in store.by_index(BY_OWNER, (namespace, kind, name))
            }
            # One that is replaced has ended, and one that is to be the only one waits for others.
            replica_sets = self._caches.replica_sets.store
            owner = self._caches.owners[kind].get(key)
            alike = (owner, *alike_replica_sets(replica_sets, owner)) if owner is not None else ()
            for replica_set in alike:
                recorded = store.by_index(BY_UID, replica_set.metadata.uid)
                versions.update({version.metadata.key: version for version in recorded})
            yield from versions

    def _deploying_by_rollout(self, keys: frozenset[str]) -> Iterable[str]:
        store = self._caches.replica_sets.store
        for key in keys:
            namespace, _, name = key.partition("/")
            owned: tuple[Owner, ...] = store.by_index(BY_OWNER, (namespace, ROLLOUT, name))
            sets = [f"{namespace}/{replica_set.metadata.name}" for replica_set in owned]
            yield from self._versions_of_owners(REPLICA_SET, sets)


def _name(key: str) -> str:
    """Return the name alone, because a definition may be in another namespace."""
    return key.partition("/")[2]


def _idle_place(store: Store[Owner], key: str) -> tuple[str, str]:
    owner = store.get(key)
    return _place(key, lambda _: owner.idle.version if owner and owner.idle else "")


def _stateful_set(key: str) -> tuple[str, str, str]:
    return key.partition("/")[0], STATEFUL_SET, _name(key)


def _place(key: str, mark: Callable[[str], str] = str) -> tuple[str, str]:
    namespace, _, name = key.partition("/")
    return namespace, mark(name)
