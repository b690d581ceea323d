"""Builds the Job that runs a KeptnTask, and reads its result (keptn-spec 3.8).

Values that users wrote (names, parameters, metadata, code) go into values of the environment only:
never into a command line, and never through a template. The kubelet replaces ``$(NAME)`` in such
values, so they are escaped; a user's own container is used unchanged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.durations import parse_duration
from harbourmaster.gates.names import JOB_NAME_LIMIT, digits, resource_name
from harbourmaster.lifecycle.functions import PYTHON, TaskContainer
from harbourmaster.lifecycle.model import FAILED, SUCCEEDED
from harbourmaster.lifecycle.tasks import (
    RETRIES,
    TIMEOUT,
    context_text,
    inherited_metadata,
    parameters_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harbourmaster.api.metadata import Condition
    from harbourmaster.lifecycle.functions import Function
    from harbourmaster.lifecycle.model import Task, TaskDefinition

TTL: Final = 300
"""Seconds that a finished Job stays: the schema's default."""
CONTEXT: Final = "KEPTN_CONTEXT"
NONCE: Final = "gates.harbourmaster.dev/job"
"""Label of a Job and its pods: the nonce that its task's status had before it was created."""
_RUNNER: Final = "keptn-function-runner"
_VOLUME: Final = "function-mount"
_DIRECTORY: Final = "/var/data"
_SCRATCH: Final = "1Gi"
"""Size of a container's volume if its memory has no limit; upstream's is one byte."""
_SUCCESS: Final = ("Complete", "SuccessCriteriaMet")
_FAILURE: Final = ("Failed", "FailureTarget")
MESSAGE_POLICY: Final = "gates.harbourmaster.dev/termination-message-policy"
"""Annotation of a definition: the message policy of a container that has none."""
_LAST_LINES: Final = "FallbackToLogsOnError"
"""The policy that keeps the last lines of a failed container, whose pod and log are deleted at
once."""
_DOLLARS: Final = re.compile(r"\$+(\(?)")


class Runners(Struct, frozen=True):
    """The images and limits of functions. The user's number is that of the images.

    Unless ``is_restricted``, they have no security context, as in Keptn.
    """

    deno_image: str
    python_image: str
    user: int = 1000
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    is_restricted: bool = True


class JobResult(Struct, frozen=True, gc=False):
    """The result of a Job."""

    status: str
    reason: str = ""
    message: str = ""


def result_of(conditions: Iterable[Condition]) -> JobResult | None:
    """Return the result of the Job with these conditions, or None while it runs.

    Only conditions that are True count, and a failure's text is that of its own condition.
    """
    for condition in conditions:
        if condition.status != "True":
            continue
        if condition.type in _SUCCESS:
            return JobResult(SUCCEEDED)
        if condition.type in _FAILURE:
            return JobResult(FAILED, condition.reason, condition.message)
    return None


def job_name(task: Task, previous: str = "") -> str:
    """Return the name of the task's Job; ``previous`` is a name that is gone or taken."""
    spec = task.spec
    seed = f"{task.metadata.uid}/{spec.check_type}/{spec.task_definition}/{previous}"
    suffix = digits(seed)
    # Cut on its own: what comes before the digits must end in a letter or digit.
    stem = resource_name(JOB_NAME_LIMIT - len(suffix) - 1, 1, task.metadata.name)
    return f"{stem}-{suffix}"


def active_deadline(timeout: str) -> int:
    """Return whole seconds, at least one if there is any time. Raises ValueError."""
    seconds = parse_duration(timeout or TIMEOUT)
    return max(int(seconds), 1) if seconds > 0 else int(seconds)


def ttl_of(definition: TaskDefinition | None) -> int:
    """Return the seconds that a finished Job of this definition stays."""
    if definition is None or definition.spec.ttl_seconds_after_finished is None:
        return TTL
    return definition.spec.ttl_seconds_after_finished


def job_for(
    task: Task,
    definition: TaskDefinition,
    program: Function | TaskContainer,
    runners: Runners,
    *,
    config_map: str = "",
) -> dict[str, Any]:
    """Return the Job for ``task``; ``config_map`` holds its function, in the same namespace.

    Its name and its nonce are those of the task's status. It has no ``ttlSecondsAfterFinished``
    yet: that is set once the result is recorded, or a Job might vanish unseen and run twice. Raises
    ValueError for an invalid time-out.
    """
    metadata = task.metadata
    parents = inherited_metadata(metadata.labels, metadata.annotations)
    labels = {**metadata.labels, NONCE: task.status.job_nonce}
    annotations = {**parents.get("annotations", {}), **_keptn_annotations(task)}
    policy = definition.metadata.annotations.get(MESSAGE_POLICY, _LAST_LINES)
    pod, mounted = _pod(task, program, runners, config_map, policy)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": task.status.job_name,
            "namespace": metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [
                msgspec.to_builtins(metadata.as_controller("lifecycle.keptn.sh/v1", "KeptnTask"))
            ],
        },
        "spec": {
            "backoffLimit": RETRIES if task.spec.retries is None else task.spec.retries,
            "activeDeadlineSeconds": active_deadline(task.spec.timeout),
            "template": {
                "metadata": {**parents, "labels": labels},
                "spec": {**pod, **mounted, **_account(definition), "restartPolicy": "OnFailure"},
            },
        },
    }


def literal(text: str) -> str:
    """Escape a text so that it reaches the container unchanged as a value of the environment.

    The kubelet replaces two dollar signs by one, and looks for a variable after one before ``(``.
    """
    return _DOLLARS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    dollars = match[0].removesuffix("(")
    return f"{dollars * 2 if match[1] or len(dollars) > 1 else dollars}{match[1]}"


def _keptn_annotations(task: Task) -> dict[str, str]:
    context = task.spec.context
    annotations = {"keptn.sh/app": context.app_name, "keptn.sh/task-name": task.metadata.name}
    if context.workload_name:
        return {
            **annotations,
            "keptn.sh/workload": context.workload_name,
            "keptn.sh/version": context.workload_version,
        }
    return {**annotations, "keptn.sh/version": context.app_version}


def _account(definition: TaskDefinition) -> dict[str, Any]:
    """Return the pod's service account: without an account of its own it gets no token."""
    spec = definition.spec
    fields: dict[str, Any] = {}
    if spec.service_account is not None and spec.service_account.name:
        fields["serviceAccountName"] = spec.service_account.name
    if spec.automount_service_account_token is not None:
        fields["automountServiceAccountToken"] = spec.automount_service_account_token.type
    elif not fields:
        fields["automountServiceAccountToken"] = False
    if spec.image_pull_secrets:
        fields["imagePullSecrets"] = [{"name": secret.name} for secret in spec.image_pull_secrets]
    return fields


def _pod(
    task: Task, program: Function | TaskContainer, runners: Runners, config_map: str, policy: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    context = {"name": CONTEXT, "value": literal(context_text(task.spec.context))}
    if isinstance(program, TaskContainer):
        return {"containers": [_own(program.spec, context, policy)]}, _volumes(program.spec)
    extension = "py" if program.runtime == PYTHON else "ts"
    path = f"{_DIRECTORY}/function.{extension}"
    container: dict[str, Any] = {
        "name": _RUNNER,
        "image": runners.python_image if program.runtime == PYTHON else runners.deno_image,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": policy,
        "env": _environment(program, context, path if config_map else literal(program.url)),
    }
    if runners.is_restricted:
        container["securityContext"] = _restricted_context(runners)
    resources = {"requests": runners.requests, "limits": runners.limits}
    if given := {name: dict(part) for name, part in resources.items() if part}:
        container["resources"] = given
    if not config_map:
        return {"containers": [container]}, {}
    container["volumeMounts"] = [
        {"name": _VOLUME, "mountPath": path, "subPath": "code", "readOnly": True}
    ]
    volume = {"name": _VOLUME, "configMap": {"name": config_map}}
    return {"containers": [container]}, {"volumes": [volume]}


def _environment(program: Function, context: dict[str, Any], script: str) -> list[dict[str, Any]]:
    """Return the variables, in Keptn's order."""
    variables: list[dict[str, Any]] = []
    if program.parameters:
        variables.append({"name": "DATA", "value": literal(parameters_text(program.parameters))})
    variables += [context, {"name": "CMD_ARGS", "value": literal(program.command)}]
    if program.secret:
        key = {"name": program.secret, "key": "SECURE_DATA"}
        variables.append({"name": "SECURE_DATA", "valueFrom": {"secretKeyRef": key}})
    variables.append({"name": "SCRIPT", "value": script})
    return variables


def _restricted_context(runners: Runners) -> dict[str, Any]:
    """Return the security context for the restricted Pod Security Standard.

    The user is a number: the kubelet cannot tell that a name is not root's.
    """
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": runners.user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _own(spec: Mapping[str, Any], context: dict[str, Any], policy: str) -> dict[str, Any]:
    """Return the user's container with the context in the place of its own, or at the end.

    The policy is for a container that does not define itself what to keep.
    """
    before: list[dict[str, Any]] = spec.get("env") or []
    env = [context if variable.get("name") == CONTEXT else variable for variable in before]
    kept = {} if spec.get("terminationMessagePath") else {"terminationMessagePolicy": policy}
    return {**kept, **spec, "env": env if context in env else [*env, context]}


def _volumes(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a volume in memory for each that the container mounts."""
    names = dict.fromkeys(mount["name"] for mount in spec.get("volumeMounts") or [])
    limits = (spec.get("resources") or {}).get("limits") or {}
    scratch = {"medium": "Memory", "sizeLimit": limits.get("memory", _SCRATCH)}
    volumes = [{"name": name, "emptyDir": scratch} for name in names]
    return {"volumes": volumes} if volumes else {}
