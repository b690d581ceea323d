"""Runs each KeptnTask once as a Job, and records its result (keptn-spec 3.8).

The status names a Job, with a nonce for it, before it is created: a crash causes no second Job, and
no other client can have created it before. A finished Job may be deleted only after its result is
in the status of the task.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import JOBS, TASKS
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.lifecycle.task_starts import StartedTask, TaskStarter, TaskWait
from harbourmaster.controller.lifecycle.writes import write_status
from harbourmaster.controller.objects import OwnWrites
from harbourmaster.kube.errors import ForbiddenError, InvalidError, NotFoundError, one_line
from harbourmaster.lifecycle import task_pods
from harbourmaster.lifecycle.jobs import JobResult, job_name, result_of, ttl_of
from harbourmaster.lifecycle.model import COMPLETED, FAILED, PENDING, Task
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.controller.lifecycle.task_jobs import TaskJob
    from harbourmaster.lifecycle.model import TaskStatus

_MAX_TEXT: Final = 1024
_NONCE_BYTES: Final = 8
_LOOK_AGAIN: Final = 3.0
"""Seconds until the reconciler looks again at a Job without a pod; later waits double."""
_decode: Final = msgspec.json.Decoder(Task).decode


class TaskReconciler:
    """Reconciles KeptnTasks until they have a result."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._caches = context.caches
        self._signals = context.signals
        self._now = context.now
        self._starter = TaskStarter(context)
        self._pods = context.caches.pod_faults
        self._written = OwnWrites()
        # By key of a task: since when its Job is seen without a pod.
        self._without_pod: dict[str, datetime] = {}
        self._log = get_logger("tasks")

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Return the keys of tasks without a result, or whose Job has no time to live yet."""
        store = self._caches.tasks.store
        for key in list(store.keys()) if keys is None else keys:
            task = store.get(key)
            if task is None:
                self._written.forget(key)
            elif task.status.status not in COMPLETED or self._kept_job(task) is not None:
                yield key

    async def reconcile(self, key: str) -> float | None:
        """Reconcile one task. Raises ApiError."""
        task = self._caches.tasks.store.get(key)
        now = self._now()
        since = self._without_pod.pop(key, now)
        if task is None or task.metadata.deletion_timestamp or self._written.hide(task.metadata):
            return None
        if task.status.status in COMPLETED:
            await self._release(task, self._kept_job(task))
            return None
        job = await self._job_of(task)
        if job is None:
            return await self._start(task)
        outcome = result_of(job.status.conditions)
        pods = self._pods.of(job.metadata)
        if job.has_no_pod and task_pods.may_be_refused(pods, outcome):
            is_told = task.status.reason == task_pods.FAILED_CREATE
            # The refusal that is told came after these pods.
            pods = () if is_told else pods
            if not is_told or outcome is not None:
                # Events are read until they tell why, and at the end: it may be another reason.
                pods = (*pods, *await self._starter.fetch_refused_pods(job))
        fault = task_pods.newest_fault(pods)
        if outcome is None:
            # The end of a Job that is being deleted wakes its task.
            status = await self._run(task, job.metadata.name, fault, has_no_pod=job.has_no_pod)
            if not job.has_no_pod or status.reason == task_pods.FAILED_CREATE:
                return None
            self._without_pod[key] = since
            return max(_LOOK_AGAIN, (now - since).total_seconds())
        result = task_pods.explain_result(outcome, task.status, fault)
        await self._finish(task, result, job.metadata.name)
        return None

    # The Job

    async def _job_of(self, task: Task) -> TaskJob | None:
        """Return the task's Job, or None if it is gone or was never created."""
        name, metadata = task.status.job_name, task.metadata
        if not name:
            return None
        job = self._caches.jobs.store.get(f"{metadata.namespace}/{name}")
        if job is None or not job.is_of(task):
            # The watch may be behind, and a task whose Job seems to be gone would run twice.
            job = await self._starter.fetch_job(name, metadata.namespace)
        return job if job is not None and job.is_of(task) else None

    def _kept_job(self, task: Task) -> TaskJob | None:
        """Return the Job of a finished task, if it has no time to live."""
        store = self._caches.jobs.store
        job = store.get(f"{task.metadata.namespace}/{task.status.job_name}")
        if (
            job is None
            or not job.is_of(task)
            or job.metadata.deletion_timestamp
            or job.spec.ttl_seconds_after_finished is not None
        ):
            return None
        return job

    async def _release(self, task: Task, job: TaskJob | None) -> None:
        """Give a finished Job its time to live, now that its result is recorded."""
        if job is None:
            return
        ttl = ttl_of(self._starter.definition(task, task.spec.task_definition))
        patch = JsonPatch(
            [
                {"op": "test", "path": "/metadata/uid", "value": job.metadata.uid},
                {"op": "add", "path": "/spec/ttlSecondsAfterFinished", "value": ttl},
            ]
        )
        try:
            await self._client.patch(JOBS, job.metadata.name, patch, job.metadata.namespace)
        except NotFoundError:
            return
        except (ForbiddenError, InvalidError) as error:
            # It is deleted with its task; another attempt would be refused as well.
            self._log.warning("Job keeps no time to live", job=job.metadata.name, error=str(error))

    async def _start(self, task: Task) -> float | None:
        async def record() -> Task:
            nonlocal task
            task = await self._record(task)
            return task

        step = await self._starter.start(task, record)
        if step is None:
            return None
        if isinstance(step, StartedTask):
            await self._run(task, step.job)
            return None
        if isinstance(step, TaskWait):
            return await self._wait(task, step)
        await self._finish(task, JobResult(FAILED, step.reason, step.text), task.status.job_name)
        self._signals.emit(task, "CreateTask", "Failed", one_line(step.text, _MAX_TEXT))
        return None

    # What the status says

    async def _record(self, task: Task) -> Task:
        """Record the name of the Job that is created next; return the task as it is stored."""
        status = replace(
            task.status,
            status=PENDING,
            job_name=job_name(task, task.status.job_name),
            job_nonce=secrets.token_hex(_NONCE_BYTES),
        )
        return _decode(await self._write(task, status))

    async def _run(
        self,
        task: Task,
        job: str,
        fault: task_pods.TaskFault | None = None,
        *,
        has_no_pod: bool = False,
    ) -> TaskStatus:
        """Record that the Job runs, and what is wrong with its pod; return the status."""
        status = task_pods.running_status(task.status, fault, has_no_pod=has_no_pod)
        status = replace(
            status,
            job_name=job,
            message=one_line(status.message, _MAX_TEXT),
            start_time=status.start_time or format_rfc3339(self._now()),
        )
        if status != task.status:
            await self._write(task, status)
            if fault is not None:
                self._signals.emit(task, "TaskPod", fault.state, status.message)
        return status

    async def _wait(self, task: Task, wait: TaskWait) -> float | None:
        """Report once what is missing; return the seconds until a retry, or raise the error."""
        status = replace(
            task.status,
            status=task.status.status or PENDING,
            reason=wait.reason,
            message=one_line(wait.text, _MAX_TEXT),
            start_time=task.status.start_time or format_rfc3339(self._now()),
        )
        # A refusal in other words is not written, because each write would cause the next.
        is_known = wait.error is not None and task.status.reason == wait.reason
        if status != task.status and not is_known:
            await self._write(task, status)
            self._signals.emit(task, "CreateTask", wait.state, status.message)
        if wait.error is not None:
            raise wait.error
        return wait.requeue_after

    async def _finish(self, task: Task, outcome: JobResult, job: str) -> None:
        now = format_rfc3339(self._now())
        status = replace(
            task.status,
            status=outcome.status,
            job_name=job,
            reason=outcome.reason,
            message=one_line(outcome.message, _MAX_TEXT),
            start_time=task.status.start_time or now,
            end_time=now,
        )
        await self._write(task, status)
        # The watch event of this write wakes the task, and its Job gets a time to live.
        self._signals.report_completed(replace(task, status=status))

    async def _write(self, task: Task, status: TaskStatus) -> bytes:
        written = await write_status(self._client, TASKS, task.metadata, status)
        self._written.note(task.metadata)
        return written
