"""Records the nodes on which a workload version failed, so that its pods avoid them.

See decision D9.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.resources import PODS, WORKLOAD_VERSIONS
from harbourmaster.api.times import format_rfc3339, parse_rfc3339
from harbourmaster.controller.lifecycle.caches import BY_PARENT, BY_VERSION
from harbourmaster.controller.lifecycle.started_pods import failed_node
from harbourmaster.controller.lifecycle.writes import patch_object
from harbourmaster.controller.objects import OwnWrites
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.kube.reading import log_skipped, readable
from harbourmaster.lifecycle.failed_nodes import (
    CLEAR_KEY,
    NodeFailure,
    is_clear_wanted,
    nodes_to_record,
    seconds_to_expiry,
)
from harbourmaster.lifecycle.model import FAILED, WorkloadVersion
from harbourmaster.lifecycle.workloads import annotation_operations
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.model import Task

_PRE: Final = "pre"
_decode: Final = msgspec.json.Decoder(WorkloadVersion).decode


class FailedNodeReconciler:
    """Reconciles the failed nodes of one KeptnWorkloadVersion; keys are ``namespace/name``."""

    def __init__(self, context: Context) -> None:
        caches = context.caches
        self._client = context.client
        self._now = context.now
        self._seconds = context.scheduler.failed_node_seconds
        self._versions = caches.workload_versions.store
        self._tasks = caches.tasks.store
        self._started = caches.started_pods.store if caches.started_pods is not None else None
        # By key of a version and uid of a failed task: the failure of its Job, read once.
        self._asked: dict[str, dict[str, NodeFailure | None]] = {}
        self._written = OwnWrites()
        self._skip = partial(log_skipped, get_logger("failed-nodes"))

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Return the keys of existing versions: the caches show what each needs."""
        for key in list(self._versions.keys()) if keys is None else keys:
            if key in self._versions:
                yield key
            else:
                self._asked.pop(key, None)
                self._written.forget(key)

    async def reconcile(self, key: str) -> float | None:
        """Update the record; return the seconds until a node no longer counts. Raises ApiError."""
        version = self._versions.get(key)
        if version is None or version.metadata.deletion_timestamp:
            return None
        if self._written.hide(version.metadata):
            return None
        try:
            failures = [*self._failures_of_pods(version), *await self._failures_of_tasks(version)]
            now = self._now()
            nodes = nodes_to_record(version, failures, seconds=self._seconds, now=now)
            if nodes != version.status.failed_nodes:
                operations = [{"op": "add", "path": "/status/failedNodes", "value": nodes}]
                version = await self._patch(version.metadata, operations, "status")
            if is_clear_wanted(version):
                operations = annotation_operations(version.metadata, CLEAR_KEY, format_rfc3339(now))
                await self._patch(version.metadata, operations)
        except NotFoundError:
            # Deleted meanwhile; the watch brings it.
            return None
        return seconds_to_expiry(nodes, now)

    def _failures_of_pods(self, version: WorkloadVersion) -> Iterator[NodeFailure]:
        if self._started is None:
            return
        metadata = version.metadata
        for pod in self._started.by_index(BY_VERSION, (metadata.namespace, metadata.name)):
            if pod.failure is not None:
                yield pod.failure

    async def _failures_of_tasks(self, version: WorkloadVersion) -> list[NodeFailure]:
        failures = []
        asked = self._asked.get(version.metadata.key, {})
        for task in self._tasks.by_index(BY_PARENT, version.metadata.uid):
            if not self._counts(task):
                continue
            uid = task.metadata.uid
            if uid not in asked:
                asked[uid] = await self._failure_of_job(task)
                self._asked[version.metadata.key] = asked
            failure = asked[uid]
            if failure is not None:
                failures.append(failure)
        return failures

    def _counts(self, task: Task) -> bool:
        """Whether a task is a pre-deployment check that failed, not too long ago."""
        status = task.status
        if task.spec.check_type != _PRE or status.status != FAILED or not status.job_name:
            return False
        if not status.end_time:
            return False
        return (self._now() - parse_rfc3339(status.end_time)).total_seconds() < self._seconds

    async def _failure_of_job(self, task: Task) -> NodeFailure | None:
        page = await self._client.list(
            PODS, task.metadata.namespace, label_selector=f"job-name={task.status.job_name}"
        )
        nodes = readable(page.items, failed_node, self._skip)
        pods = [failed for failed in nodes if failed is not None]
        if not pods:
            return None
        _, node = max(pods)
        name = task.spec.task_definition
        return NodeFailure(node, f"task {name} failed", parse_rfc3339(task.status.end_time))

    async def _patch(
        self, metadata: Metadata, operations: list[dict[str, Any]], subresource: str | None = None
    ) -> WorkloadVersion:
        stored = await patch_object(
            self._client, WORKLOAD_VERSIONS, metadata, operations, subresource
        )
        self._written.note(metadata)
        return _decode(stored)
