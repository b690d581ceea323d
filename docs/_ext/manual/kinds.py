"""The kinds of our API with all fields, as their definitions in ``deploy/crds`` say."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from manual.markdown import code, plain, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CRDS: Final = Path(__file__).parents[3] / "deploy" / "crds"
_LIMITS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} of them",
    "maxItems": "at most {} of them",
    "pattern": "matches `{}`",
}


def kind_sections(*kinds: str) -> str:
    """Return a section for each of the kinds."""
    specs = _specs()
    return "\n".join(part for kind in kinds for part in _section(specs[kind]))


@functools.cache
def _specs() -> dict[str, Any]:
    """Return the specifications of all kinds, by kind."""
    return {
        definition["spec"]["names"]["kind"]: definition["spec"]
        for file in _CRDS.glob("*.yaml")
        for definition in yaml.load_all(file.read_bytes(), Loader=yaml.CSafeLoader)
        if definition["kind"] == "CustomResourceDefinition"
    }


def _section(spec: Mapping[str, Any]) -> Iterator[str]:
    names = spec["names"]
    (stored,) = [version for version in spec["versions"] if version["storage"]]
    also_served = [version["name"] for version in spec["versions"] if not version["storage"]]
    schema = stored["schema"]["openAPIV3Schema"]
    yield f"## {names['kind']}\n"
    yield f"{plain(schema.get('description', ''))}\n"
    version = code(f"{spec['group']}/{stored['name']}")
    scope = "in a namespace" if spec["scope"] == "Namespaced" else "for the whole cluster"
    short = ", ".join(map(code, names.get("shortNames", ())))
    also = ", ".join(map(code, also_served))
    yield (
        f"{version}, {scope}; `kubectl get {names['plural']}`"
        + (f", or {short}" if short else "")
        + "."
        + (f" Also served as {also}." if also else "")
        + "\n"
    )
    yield table(["field", "type", "meaning"], _fields(schema))


def _fields(schema: Mapping[str, Any], above: str = "") -> Iterator[list[str]]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        if not above and name in {"apiVersion", "kind", "metadata"}:
            continue
        path = f"{above}.{name}" if above else name
        marks = ", needed" if name in required else ""
        yield [code(path), _type(field) + marks, _meaning(field)]
        while field.get("type") == "array":
            field, path = field["items"], f"{path}[]"  # noqa: PLW2901 - the same, one level down
        if isinstance(values := field.get("additionalProperties"), dict):
            field, path = values, f"{path}.*"  # noqa: PLW2901
        yield from _fields(field, path)


def _type(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "number or text"
    kind = str(field.get("type", "anything"))
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if isinstance(values := field.get("additionalProperties"), dict):
        return f"map of {_type(values)}"
    if kind == "string":
        return str(field.get("format", "text"))
    return "true or false" if kind == "boolean" else kind


def _meaning(field: Mapping[str, Any]) -> str:
    parts = [plain(field.get("description", "")).rstrip(".")]
    if choices := field.get("enum"):
        parts.append("one of " + ", ".join(code(choice or '""') for choice in choices))
    parts += [text.format(field[name]) for name, text in _LIMITS.items() if name in field]
    if "default" in field and field["default"] != {}:
        parts.append(f"{code(_json_text(field['default']))} by default")
    return "; ".join(filter(None, parts))


def _json_text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
