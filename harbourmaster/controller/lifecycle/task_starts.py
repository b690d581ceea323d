"""Creates the Job of a KeptnTask from its definition and its code (keptn-spec 3.8)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import NO_OVERRIDE
from harbourmaster.api.resources import CORE_EVENTS, JOBS, TASK_DEFINITIONS
from harbourmaster.controller.lifecycle.function_maps import (
    DEFINITION,
    TASK,
    ClashError,
    FunctionMaps,
)
from harbourmaster.controller.lifecycle.task_jobs import decode_job
from harbourmaster.controller.lifecycle.writes import is_end_of_namespace, is_final, is_lasting
from harbourmaster.kube.errors import AlreadyExistsError, ApiError, NotFoundError
from harbourmaster.lifecycle.functions import (
    Function,
    Missing,
    Unusable,
    copy_name,
    function_name,
    is_name,
    resolve,
)
from harbourmaster.lifecycle.jobs import Runners, job_for
from harbourmaster.lifecycle.model import PROGRESSING
from harbourmaster.lifecycle.task_pods import FAILED_CREATE, decode_refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.controller.lifecycle.task_jobs import TaskJob
    from harbourmaster.lifecycle.model import Task, TaskDefinition
    from harbourmaster.lifecycle.task_pods import TaskPod

NO_DEFINITION: Final = "TaskDefinitionNotFound"
_NAMES: Final = 5
"""Number of names that are tried if other Jobs have the first ones."""
_PATIENCE: Final = 60.0
_EVENTS: Final = 20
_EVENT_BYTES: Final = 1024 * 1024
"""Maximum bytes of a Job's events, because others may write such events too."""


class StartedTask(Struct, frozen=True):
    """A task whose Job, by this name, exists."""

    job: str


class TaskWait(Struct, frozen=True):
    """A reason for which a task waits; ``state`` is that of its event.

    A watch event wakes the task; if there is none, ``requeue_after`` is the seconds until a retry,
    or ``error`` its cause.
    """

    reason: str
    text: str
    state: str = "NotFound"
    requeue_after: float | None = None
    error: ApiError | None = None


Step: TypeAlias = StartedTask | TaskWait | Unusable
"""The result of an attempt; Unusable means that the task can never run."""


class TaskStarter:
    """Creates the Jobs of tasks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._caches = context.caches
        self._maps = FunctionMaps(context.client, context.caches.config_maps.store)
        settings = context.settings
        self._runners = Runners(
            deno_image=settings.deno_image,
            python_image=settings.python_image,
            user=settings.runner_user,
            requests=dict(settings.runner_requests),
            limits=dict(settings.runner_limits),
            is_restricted=settings.runner_security_context == "Restricted",
        )

    def definition(self, user: Task | TaskDefinition, name: str) -> TaskDefinition | None:
        """Return a definition by name; the namespace of the object that names it comes first."""
        mirror = self._caches.task_definitions
        return self._caches.definition(
            mirror, name, self._context.definition_namespaces(user.metadata.namespace)
        )

    async def fetch_job(self, name: str, namespace: str) -> TaskJob | None:
        """Read a Job from the API server; return None if it does not exist. Raises ApiError."""
        if not is_name(name):
            return None
        try:
            return decode_job(await self._client.get(JOBS, name, namespace))
        except NotFoundError:
            return None

    async def fetch_refused_pods(self, job: TaskJob) -> tuple[TaskPod, ...]:
        """Return the pods that the Job could not create, which only its events show.

        They are listed, not watched: API servers have no watch cache of events, so a watch would
        read all events of the cluster for the few of these Jobs.
        """
        selector = f"involvedObject.uid={job.metadata.uid},reason={FAILED_CREATE}"
        try:
            page = await self._client.list(
                CORE_EVENTS,
                job.metadata.namespace,
                limit=_EVENTS,
                field_selector=selector,
                retries=0,
                max_bytes=_EVENT_BYTES,
            )
            return tuple(map(decode_refused, page.items))
        except (ApiError, msgspec.MsgspecError):
            # The task runs without this text too.
            return ()

    async def start(self, task: Task, record: Callable[[], Awaitable[Task]]) -> Step | None:
        """Create the task's Job, or return why it waits; None if a watch event is to come.

        ``record`` writes the next name and a new nonce into the task's status. Raises ApiError.
        """
        wanted = task.spec.task_definition
        definition = self.definition(task, wanted)
        if definition is None:
            namespaces = ", ".join(self._context.definition_namespaces(task.metadata.namespace))
            text = f"KeptnTaskDefinition {wanted} is not found in {namespaces}"
            return await self._wait_for_definition(task, Missing(wanted, text))
        # What a shared definition refers to cannot be overridden either, if the annotation says so.
        user = definition if definition.metadata.annotations.get(NO_OVERRIDE) else task
        program = resolve(task, definition, partial(self.definition, user))
        if isinstance(program, Missing):
            return await self._wait_for_definition(task, program)
        if isinstance(program, Unusable):
            return program
        config_map = ""
        if isinstance(program, Function):
            place = await self._ensure_code(task, program)
            if not isinstance(place, str):
                return place
            config_map = place

        def job(named: Task) -> dict[str, Any]:
            return job_for(named, definition, program, self._runners, config_map=config_map)

        return await self._create_job(task, job, record)

    async def _wait_for_definition(self, task: Task, missing: Missing) -> TaskWait | None:
        """Wait for the definition, unless it exists and only the watch is behind."""
        known = task.status.reason == NO_DEFINITION
        if not known and is_name(missing.name) and await self._is_there(task, missing.name):
            return None
        return TaskWait(NO_DEFINITION, missing.text)

    async def _is_there(self, task: Task, name: str) -> bool:
        for namespace in self._context.definition_namespaces(task.metadata.namespace):
            try:
                await self._client.get(TASK_DEFINITIONS, name, namespace)
            except NotFoundError:
                continue
            return True
        return False

    async def _create_job(
        self,
        task: Task,
        job: Callable[[Task], dict[str, Any]],
        record: Callable[[], Awaitable[Task]],
    ) -> Step | None:
        """Create the Job that the status names, or find the one that was created before."""
        try:
            job(task)
        except ValueError as error:
            return Unusable("InvalidTimeout", str(error))
        # A Job that was running and is gone gets the next name.
        is_named = bool(task.status.job_nonce) and task.status.status != PROGRESSING
        for _attempt in range(_NAMES):
            if not is_named:
                task = await record()
            name = task.status.job_name
            try:
                await self._client.create(JOBS, job(task), task.metadata.namespace)
            except AlreadyExistsError:
                stored = await self.fetch_job(name, task.metadata.namespace)
                if stored is None or not stored.is_of(task) or stored.metadata.deletion_timestamp:
                    is_named = False
                    continue
            except ApiError as error:
                if is_final(error):
                    return Unusable("JobInvalid", error.message)
                return _wait_after_refusal(error)
            return StartedTask(name)
        text = f"Jobs of other owners have all {_NAMES} names that this task's Job can have"
        return TaskWait("JobClash", text, "Failed", requeue_after=_PATIENCE)

    async def _ensure_code(self, task: Task, program: Function) -> str | TaskWait | None:
        """Return the ConfigMap with the code, in the task's namespace; empty if a URL has the code.

        None if the namespace is being deleted.
        """
        try:
            if program.bearer.metadata.namespace == task.metadata.namespace:
                return await self._ensure_own_code(program)
            return await self._copy_code(task, program)
        except ClashError as error:
            # The deletion of a ConfigMap that is not ours wakes no task.
            return TaskWait("FunctionClash", str(error), "Failed", requeue_after=_PATIENCE)
        except ApiError as error:
            return _wait_after_refusal(error)

    async def _ensure_own_code(self, program: Function) -> str | TaskWait:
        bearer, name = program.bearer.metadata, program.config_map
        if program.code:
            own = function_name(bearer.name)
            adopt = program.bearer.status.function.config_map == own
            await self._maps.ensure(
                bearer, DEFINITION, own, program.code, adopt=adopt, source=bearer
            )
            return own
        if not name or self._maps.exists(bearer.namespace, name):
            return name
        return name if await self._maps.code(bearer.namespace, name) else _no_code(program)

    async def _copy_code(self, task: Task, program: Function) -> str | TaskWait:
        """Copy, for this task alone, the code of a definition in another namespace."""
        code = program.code
        source = program.bearer.metadata if code else None
        if not code and program.config_map:
            namespace = program.bearer.metadata.namespace
            code = await self._maps.code(namespace, program.config_map) or ""
            if not code:
                return _no_code(program)
        if not code:
            return ""
        name = copy_name(task.metadata.name)
        await self._maps.ensure(task.metadata, TASK, name, code, source=source)
        return name


def _no_code(program: Function) -> TaskWait:
    return TaskWait(
        "FunctionNotFound",
        f"ConfigMap {program.config_map}, which KeptnTaskDefinition "
        f"{program.bearer.metadata.name} names, has no code yet",
    )


def _wait_after_refusal(error: ApiError) -> TaskWait | None:
    """Return the wait after a refusal; None at the end of the namespace. Raises ApiError."""
    if is_end_of_namespace(error):
        return None
    if is_lasting(error):
        return TaskWait("JobRefused", error.message, "Failed", error=error)
    raise error
