"""The CustomResourceDefinitions of our kinds, which lie beside the packages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.schemas import METADATA, UNKNOWN, schema_errors
from harbourmaster.serving.documents import parse_documents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CRDS: Final = Path(__file__).parents[1] / "deploy" / "crds"
_HEAD: Final = re.compile(r"^  group: (\S+)$.*?^    kind: (\S+)$", re.DOTALL | re.MULTILINE)


def object_errors(manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What a strict API server rejects in an object of a kind of ours, as ``schema_errors``."""
    group, _, version = str(manifest.get("apiVersion")).rpartition("/")
    return schema_errors(manifest, schemas(group, str(manifest.get("kind"))).get(version, {}))


def unknown_fields(manifest: dict[str, Any]) -> list[str]:
    """The paths of the fields that the definition of its kind lacks; none for other kinds."""
    return [path for path, text in object_errors(manifest) if text.startswith(UNKNOWN)]


@cache
def kinds() -> Mapping[tuple[str, str], str]:
    """The text of each definition by group and kind: few are used, and parsing takes long."""
    texts = [file.read_text() for file in sorted(_CRDS.glob("*.yaml"))]
    return {(head[1], head[2]): text for text in texts if (head := _HEAD.search(text))}


@cache
def schemas(group: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
    """The schemas of a kind by version; none for a kind that is not ours."""
    found = {}
    for document in parse_documents(kinds().get((group, kind), ""), kind):
        for version in document.value["spec"]["versions"]:  # type: ignore[union-attr]
            schema = version["schema"]["openAPIV3Schema"]
            properties = {**schema["properties"], "metadata": METADATA}
            found[version["name"]] = {**schema, "properties": properties}
    return found
