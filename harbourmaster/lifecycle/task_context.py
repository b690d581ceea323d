"""What a task is told about whom it runs for, and the JSON that its container reads.

See keptn-spec 3.8.

The text is that of Go's encoder, byte for byte, for people compare it as text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.lifecycle.model import AppVersion, TaskContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.lifecycle.model import Version

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
