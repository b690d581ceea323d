"""Values by the schema of their CustomResourceDefinition, as a strict API server judges them.

Rules in CEL are not evaluated: the checks of admission cover them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.field_errors import rendered
from harbourmaster.api.suggestions import VERY_NEAR, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Schema = Mapping[str, Any]

UNKNOWN: Final = "unknown field"
_FIELDS: Final = (
    "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName"
    " generation managedFields name namespace ownerReferences resourceVersion selfLink uid"
)
_TEXTS: Final = {"type": "object", "nullable": True, "additionalProperties": {"type": "string"}}
_ANY: Final[Schema] = {}
METADATA: Final[Schema] = {
    "type": "object",
    "properties": {"annotations": _TEXTS, "labels": _TEXTS, **dict.fromkeys(_FIELDS.split(), _ANY)},
}
"""Of every object: definitions say only that it is one."""
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "integer or string": (int, str),
}


def schema_errors(value: Any, schema: Schema, at: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """The path of each wrong value with what is wrong; UNKNOWN begins the text of an unknown field.

    Both are for people, joined by a colon.
    """
    if value is None and schema.get("nullable"):
        return
    is_number = "x-kubernetes-int-or-string" in schema
    kind = "integer or string" if is_number else schema.get("type", "")
    is_truth = isinstance(value, bool) and kind not in {"boolean", ""}
    if is_truth or not isinstance(value, _TYPES.get(kind, object)):
        yield at, f"Invalid value: {rendered(value)}: must be of the type {kind}"
        return
    for name in _broken(value, schema):
        yield at, f"Invalid value: {rendered(value)}: {name} is {rendered(schema[name])}"
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from schema_errors(item, schema.get("items", {}), f"{at}[{index}]")
    elif isinstance(value, dict):
        yield from _field_errors(value, schema, f"{at}." if at else "")


def _broken(value: Any, schema: Schema) -> Iterator[str]:  # noqa: ANN401
    """The names of the limits that a value does not keep."""
    size = len(value) if isinstance(value, str | list | dict) else value
    lowest, highest = {"minimum", "minLength", "minItems"}, {"maximum", "maxLength", "maxItems"}
    yield from (name for name in lowest & schema.keys() if size < schema[name])
    yield from (name for name in highest & schema.keys() if size > schema[name])
    if value not in schema.get("enum", (value,)):
        yield "enum"
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield "pattern"


def _field_errors(value: Schema, schema: Schema, at: str) -> Iterator[tuple[str, str]]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    if "type" not in schema or schema.get("x-kubernetes-preserve-unknown-fields"):
        others = _ANY
    for name in schema.get("required", ()):
        field = known.get(name, {})
        # A null counts as absent where the field is not nullable.
        is_absent = value[name] is None and not field.get("nullable") if name in value else True
        if is_absent and "default" not in field:
            yield f"{at}{name}", "Required value: set it"
    for name, below in value.items():
        if (found := known.get(name, others)) is None:
            remedy = did_you_mean(str(name), known, VERY_NEAR) or "remove it"
            yield f"{at}{name}", f"{UNKNOWN}: {remedy}"
        # An API server drops a null, or sets the default in its place.
        elif below is not None:
            yield from schema_errors(below, found, f"{at}{name}")
