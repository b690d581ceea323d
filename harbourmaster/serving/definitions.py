"""The CustomResourceDefinitions of our kinds, and values checked by their schemas."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.field_errors import render_value
from harbourmaster.api.names import VERY_NEAR, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Schema = Mapping[str, Any]

_CRDS: Final = Path(__file__).parents[1] / "deploy" / "crds"
_HEAD: Final = re.compile(r"^  group: (\S+)$.*?^    kind: (\S+)$", re.DOTALL | re.MULTILINE)
UNKNOWN: Final = "unknown field"
_FIELDS: Final = (
    "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName"
    " generation managedFields name namespace ownerReferences resourceVersion selfLink uid"
)
_TEXTS: Final = {"type": "object", "nullable": True, "additionalProperties": {"type": "string"}}
_ANY: Final[Schema] = {}
_MOVED: Final = {
    "function": "deno",
    **{name: f"context.{name}Name" for name in ("app", "workload")},
    **{name: f"context.{name}" for name in ("appVersion", "workloadVersion")},
}
"""Fields of Keptn's older versions, and where they are now."""
METADATA: Final[Schema] = {
    "type": "object",
    "properties": {"annotations": _TEXTS, "labels": _TEXTS, **dict.fromkeys(_FIELDS.split(), _ANY)},
}
"""Schema of the metadata, which definitions describe only as an object."""
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "integer or string": (int, str),
}
_UNITS: Final[Mapping[type, str]] = {str: "Length", list: "Items", dict: "Properties"}
_ATOM: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
"""An escaped character, a class of characters, or the end in a pattern."""


def object_errors(manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the errors of a strict API server for an object of our kinds, as ``schema_errors``."""
    group, _, version = str(manifest.get("apiVersion")).rpartition("/")
    return schema_errors(manifest, schemas(group, str(manifest.get("kind"))).get(version, {}))


def unknown_fields(manifest: dict[str, Any]) -> list[str]:
    """Return the paths of fields that the definition lacks; none for kinds that are not ours."""
    return [path for path, text in object_errors(manifest) if text.startswith(UNKNOWN)]


@cache
def kinds() -> Mapping[tuple[str, str], str]:
    """Return the text of each definition by group and kind; parsing all would take long."""
    texts = [file.read_text() for file in sorted(_CRDS.glob("*.yaml"))]
    return {(head[1], head[2]): text for text in texts if (head := _HEAD.search(text))}


@cache
def schemas(group: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the schemas of a kind by version; none for a kind that is not ours."""
    from harbourmaster.serving.documents import parse_documents  # noqa: PLC0415 - YAML is large

    schemas_by_version = {}
    for document in parse_documents(kinds().get((group, kind), ""), kind):
        for version in document.value["spec"]["versions"]:  # type: ignore[union-attr]
            schema = version["schema"]["openAPIV3Schema"]
            properties = {**schema["properties"], "metadata": METADATA}
            schemas_by_version[version["name"]] = {**schema, "properties": properties}
    return schemas_by_version


def schema_errors(value: Any, schema: Schema, at: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yield path and text of each wrong value; UNKNOWN begins the text of an unknown field.

    Rules in CEL are not evaluated: the checks of admission cover them.
    """
    if value is None and schema.get("nullable"):
        return
    is_number = "x-kubernetes-int-or-string" in schema
    kind = "integer or string" if is_number else schema.get("type", "")
    is_truth = isinstance(value, bool) and kind not in {"boolean", ""}
    if is_truth or not isinstance(value, _TYPES.get(kind, object)):
        to_do = (
            ": put it in quotes" if kind == "string" and not isinstance(value, dict | list) else ""
        )
        yield at, f"Invalid value: {render_value(value)}: must be of the type {kind}{to_do}"
        return
    for name in _exceeded_limits(value, schema):
        yield at, f"Invalid value: {render_value(value)}: {name} is {render_value(schema[name])}"
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from schema_errors(item, schema.get("items", {}), f"{at}[{index}]")
    elif isinstance(value, dict):
        yield from _field_errors(value, schema, f"{at}." if at else "")


def _exceeded_limits(value: Any, schema: Schema) -> Iterator[str]:  # noqa: ANN401
    """Yield the names of the limits that a value exceeds; each limit is about one type."""
    unit = next((unit for kind, unit in _UNITS.items() if isinstance(value, kind)), "imum")
    size = value if unit == "imum" else len(value)
    if size < schema.get(f"min{unit}", size):
        yield f"min{unit}"
    if size > schema.get(f"max{unit}", size):
        yield f"max{unit}"
    if value not in schema.get("enum", (value,)):
        yield "enum"
    if isinstance(value, str) and not _compile_pattern(schema.get("pattern", "")).search(value):
        yield "pattern"


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of RE2, in which $ does not match before a line end."""
    text = _ATOM.sub(lambda atom: r"\Z" if atom[0] == "$" else atom[0], pattern)
    return re.compile(text, re.ASCII)


def _field_errors(value: Schema, schema: Schema, at: str) -> Iterator[tuple[str, str]]:
    known, additional = schema.get("properties", {}), schema.get("additionalProperties")
    if "type" not in schema or schema.get("x-kubernetes-preserve-unknown-fields"):
        additional = _ANY
    for name in schema.get("required", ()):
        field = known.get(name, {})
        # A null counts as absent where the field is not nullable.
        is_absent = value[name] is None and not field.get("nullable") if name in value else True
        if is_absent and "default" not in field:
            yield f"{at}{name}", "Required value: set it"
    for name, below in value.items():
        if (field := known.get(name, additional)) is None:
            remedy = did_you_mean(str(name), known, VERY_NEAR) or "remove it"
            # Such as labels that stand beside matchLabels.
            maps = [of for of in known if known[of].get("additionalProperties", {}).get("type")]
            if len(maps) == 1 and isinstance(below, str) and remedy == "remove it":
                remedy = f"write it below {at}{maps[0]}"
            new = _MOVED.get(str(name), "")
            remedy = f"it is {at}{new} now" if new.partition(".")[0] in known else remedy
            yield f"{at}{name}", f"{UNKNOWN}: {remedy}"
        # An API server drops a null, or sets the default in its place.
        elif below is not None:
            yield from schema_errors(below, field, f"{at}{name}")
