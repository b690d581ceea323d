"""Builds the KeptnTasks of a version's phases, with their context (keptn-spec 3.7, 3.8).

The context's text is that of Go's encoder, byte for byte, because people compare it as text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.durations import format_duration, parse_duration
from harbourmaster.api.metadata import LAST_APPLIED
from harbourmaster.gates.names import NAME_LEAST, NAME_LIMIT, digits, resource_name
from harbourmaster.lifecycle.model import AppVersion, TaskContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.lifecycle.model import TaskDefinition, Version


APP: Final = "App"
APPLICATION: Final = "Application"
WORKLOAD: Final = "Workload"

_GO_ESCAPES: Final = str.maketrans(
    {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
)


def context_of(parent: Version, check_type: str, carrier: Mapping[str, str]) -> TaskContext:
    """Return the context of a version's task; ``carrier`` is the trace to continue, or empty."""
    metadata = {**context_metadata(parent), **carrier}
    if isinstance(parent, AppVersion):
        return TaskContext(
            app_name=parent.spec.app_name,
            app_version=parent.spec.version,
            task_type=check_type,
            object_type=APPLICATION if parent.is_of_application else APP,
            metadata=metadata,
        )
    return TaskContext(
        workload_name=parent.spec.workload_name,
        app_name=parent.spec.app,
        workload_version=parent.spec.version,
        task_type=check_type,
        object_type=WORKLOAD,
        metadata=metadata,
    )


def context_metadata(version: Version) -> dict[str, str]:
    """Return the users' metadata of a version; a workload's own wins over that of its app."""
    inherited = {} if isinstance(version, AppVersion) else version.status.app_context_metadata
    own = version.spec.metadata
    return {**own, **{key: text for key, text in inherited.items() if key not in own}}


def context_fields(context: TaskContext) -> dict[str, Any]:
    """Return the fields of the context: all strings, and sorted metadata if there is any."""
    fields: dict[str, Any] = msgspec.to_builtins(context)
    metadata = fields.pop("metadata")
    return {**fields, "metadata": dict(sorted(metadata.items()))} if metadata else fields


def context_text(context: TaskContext) -> str:
    """Return the value of KEPTN_CONTEXT."""
    return go_json(context_fields(context))


def parameters_text(parameters: Mapping[str, str]) -> str:
    """Return the value of DATA: an object with sorted keys."""
    return go_json(dict(sorted(parameters.items())))


def go_json(value: object) -> str:
    """Return compact JSON as Go writes it, which escapes ``<``, ``>``, ``&``, U+2028 and U+2029."""
    # All of these stand in strings only, so the whole text can be translated.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_GO_ESCAPES)


API: Final = "lifecycle.keptn.sh/v1"
RETRIES: Final = 10
TIMEOUT: Final = "5m"
"""Default of the schema, for older definitions."""
_NO_CARRIER: Final[Mapping[str, str]] = {}


def task_for(
    parent: Version,
    definition: TaskDefinition,
    check_type: str,
    *,
    carrier: Mapping[str, str] = _NO_CARRIER,
    previous: str = "",
) -> dict[str, Any]:
    """Return the KeptnTask that runs ``definition`` for ``parent``.

    ``check_type`` is pre, post or promotion. ``carrier`` is the trace to continue, or empty.
    ``previous`` is the name of the task that this one replaces: one that vanished (keptn-spec 11.2,
    case C57), or whose name belongs to an object of another owner.
    """
    owner = parent.metadata
    context = context_of(parent, check_type, carrier)
    spec = definition.spec
    metadata: dict[str, Any] = {
        "name": check_name(owner.uid, check_type, definition.metadata.name, previous),
        "namespace": owner.namespace,
        "ownerReferences": [owner_reference(parent)],
    }
    return {
        "apiVersion": API,
        "kind": "KeptnTask",
        "metadata": metadata
        | inherited_metadata(definition.metadata.labels, definition.metadata.annotations),
        "spec": {
            "taskDefinition": definition.metadata.name,
            "context": context_fields(context),
            "checkType": check_type,
            "retries": RETRIES if spec.retries is None else spec.retries,
            "timeout": normal_duration(spec.timeout or TIMEOUT),
        },
    }


def check_name(owner_uid: str, check_type: str, definition: str, previous: str = "") -> str:
    """Return the name of a version's check: the same in each pass, so none is created twice."""
    suffix = digits(f"{owner_uid}/{check_type}/{definition}/{previous}")
    return resource_name(NAME_LIMIT, NAME_LEAST, check_type, definition, suffix)


def inherited_metadata(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return labels and annotations for a child, without kubectl's own about the parent."""
    kept = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    parts = {"labels": dict(labels), "annotations": kept}
    return {name: part for name, part in parts.items() if part}


def owner_reference(parent: Version) -> dict[str, Any]:
    """Return the reference by which a version owns its tasks and evaluations."""
    kind = "KeptnAppVersion" if isinstance(parent, AppVersion) else "KeptnWorkloadVersion"
    reference: dict[str, Any] = msgspec.to_builtins(parent.metadata.as_controller(API, kind))
    return reference


def normal_duration(text: str) -> str:
    """Return a duration as Go prints it; an invalid one stays, and is reported where it is used."""
    try:
        return format_duration(parse_duration(text))
    except ValueError:
        return text
