"""KeptnTasks: what a version's phase creates (keptn-spec 3.7)."""

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
    """The context of a task of this version; ``carrier`` is the trace to go on with, or empty."""
    metadata = {**context_metadata(parent), **carrier}
    if isinstance(parent, AppVersion):
        return TaskContext(
            app_name=parent.spec.app_name,
            app_version=parent.spec.version,
            task_type=check_type,
            object_type=APP,
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
    """What users tell of a version; a workload's own come first, and win over those of its app."""
    inherited = {} if isinstance(version, AppVersion) else version.status.app_context_metadata
    own = version.spec.metadata
    return {**own, **{key: text for key, text in inherited.items() if key not in own}}


def context_fields(context: TaskContext) -> dict[str, Any]:
    """The context as objects carry it: all strings, and metadata where there are any, sorted."""
    fields: dict[str, Any] = msgspec.to_builtins(context)
    metadata = fields.pop("metadata")
    return {**fields, "metadata": dict(sorted(metadata.items()))} if metadata else fields


def context_text(context: TaskContext) -> str:
    """The value of KEPTN_CONTEXT."""
    return go_json(context_fields(context))


def parameters_text(parameters: Mapping[str, str]) -> str:
    """The value of DATA: an object with sorted keys."""
    return go_json(dict(sorted(parameters.items())))


def go_json(value: object) -> str:
    """Compact JSON as Go writes it, where ``<``, ``>``, ``&``, U+2028 and U+2029 are escaped."""
    # All of these stand in strings only, so the whole text can be translated.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_GO_ESCAPES)


API: Final = "lifecycle.keptn.sh/v1"
RETRIES: Final = 10
TIMEOUT: Final = "5m"
"""The schema's defaults, for definitions from before they had them."""
_NO_CARRIER: Final[Mapping[str, str]] = {}


def task_for(
    parent: Version,
    definition: TaskDefinition,
    check_type: str,
    *,
    carrier: Mapping[str, str] = _NO_CARRIER,
    previous: str = "",
) -> dict[str, Any]:
    """The KeptnTask that runs ``definition`` for ``parent``.

    ``check_type`` is pre, post or promotion. ``carrier`` is the trace to go on with, or empty.
    ``previous`` is the name of the task that this one replaces: one that vanished (keptn-spec 11.2,
    case C57), or whose name turned out to be somebody else's.
    """
    owner = parent.metadata
    context = context_of(parent, check_type, carrier)
    spec = definition.spec
    metadata: dict[str, Any] = {
        "name": task_name(owner.uid, check_type, definition.metadata.name, previous),
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


def task_name(owner_uid: str, check_type: str, definition: str, previous: str = "") -> str:
    """The name of a version's task: the same for the same question, so that none is made twice."""
    suffix = digits(f"{owner_uid}/{check_type}/{definition}/{previous}")
    return resource_name(NAME_LIMIT, NAME_LEAST, check_type, definition, suffix)


def inherited_metadata(labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    """Labels and annotations for a child; what kubectl noted is about the parent only."""
    kept = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    parts = {"labels": dict(labels), "annotations": kept}
    return {name: part for name, part in parts.items() if part}


def owner_reference(parent: Version) -> dict[str, Any]:
    """The reference by which a version owns its tasks and evaluations."""
    kind = "KeptnAppVersion" if isinstance(parent, AppVersion) else "KeptnWorkloadVersion"
    reference: dict[str, Any] = msgspec.to_builtins(parent.metadata.as_controller(API, kind))
    return reference


def normal_duration(text: str) -> str:
    """A duration as Go prints it; an invalid one stays, and is reported where it is used."""
    try:
        return format_duration(parse_duration(text))
    except ValueError:
        return text
