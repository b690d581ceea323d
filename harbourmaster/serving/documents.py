"""Kubernetes objects from YAML and JSON text, each with its place.

Safe against hostile files: no tags, no duplicate keys, no recursion, and aliases that would expand
beyond a bound are refused before they are expanded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml
from msgspec import Struct

from harbourmaster.api.field_errors import render_value
from harbourmaster.serving.settings import StartError
from harbourmaster.telemetry.text import clean, reason

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator
    from pathlib import Path

SUFFIXES: Final = frozenset((".yaml", ".yml", ".json"))
MAX_NODES: Final = 2_000_000
"""Values in one document, aliases expanded; a file of 10,000 policies has about half a million."""
MAX_DEPTH: Final = 200
MAX_KEYS: Final = 100_000
"""Keys of one mapping, merged ones included."""
_UNWANTED_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("set", "omap", "pairs", "binary", "timestamp")
)


class Problem(Struct, frozen=True, gc=False):
    """A fault of one document, in one line."""

    file: str
    document: int | None
    """Number of the document from 1; None for a fault of the file as a whole."""
    text: str
    line: int = 1
    """Line of the fault, or else of the beginning of its document; counted from 1."""

    def __str__(self) -> str:
        """``file, document 2: what is wrong``, without terminal controls."""
        place = self.file if self.document is None else f"{self.file}, document {self.document}"
        return clean(f"{place}: {self.text}")


class Document(Struct, frozen=True, gc=False):
    """An object and its place."""

    file: str
    number: int
    value: dict[str, Any]
    line: int = 1
    """First line of the object in the file."""

    def problem(self, text: str) -> Problem:
        """Create a Problem of this document."""
        return Problem(self.file, self.number, text, self.line)


class DocumentError(ValueError):
    """A document that can't be read; the text is one line."""


class _Loader(yaml.CSafeLoader):
    """YAML as kubectl reads it: timestamps and keys are text, 1.0 is 1, a key stands only once."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401
        line = node.start_mark.line + 1
        if node.tag in _UNWANTED_TAGS:
            raise DocumentError(f"line {line}: {node.tag} is not a JSON type")
        try:
            value = super().construct_object(node, deep=deep)
        except (yaml.YAMLError, DocumentError):
            raise
        except (ValueError, KeyError, OverflowError, TypeError, AttributeError):
            kind = node.tag.rpartition(":")[2]
            raise DocumentError(f"line {line}: not a value of type {kind}") from None
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise DocumentError(f'line {key.start_mark.line + 1}: key "{key.value}" twice')
                seen.add(key.value)
        mapping = super().construct_mapping(node, deep=deep)
        if None in mapping:
            raise DocumentError(f"line {node.start_mark.line + 1}: a key is null")
        return {key if isinstance(key, str) else render_value(key): mapping[key] for key in mapping}

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MAX_KEYS:
            raise DocumentError(f"merge keys expand to more than {MAX_KEYS} keys")


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def parse_documents(
    text: str | bytes, file: str, *, arrays: bool = False
) -> Iterator[Document | Problem]:
    """Yield each object of a YAML or JSON text; the items of a List one by one.

    With ``arrays`` a document can be an array of objects, too. Documents before a syntax error come
    first, because reading ends there.
    """
    number, line = 0, 1
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        yield Problem(file, None, _one_line(error))
        return
    try:
        while loader.check_node():
            number += 1
            node: Any = loader.get_node()
            line = node.start_mark.line + 1
            try:
                value = loader.construct_document(node)
                check_size(value)
            except DocumentError as error:
                yield Problem(file, number, str(error), line)
                continue
            if arrays and isinstance(value, list):
                yield from _items(value, node.value, file, number)
            else:
                yield from _objects(value, node, file, number)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        yield Problem(file, number or 1, _one_line(error), mark.line + 1 if mark else line)
    except RecursionError:
        yield Problem(file, number or 1, "nested too deeply", line)
    finally:
        loader.dispose()


def read_settings(path: Path) -> dict[str, Any]:
    """Return the mapping in a settings file, empty for an empty file. Raises DocumentError."""
    documents = list(read_documents(path))
    if not documents:
        return {}
    if isinstance(documents[0], Problem):
        raise DocumentError(documents[0].text)
    if len(documents) > 1:
        raise DocumentError("more than one document")
    return documents[0].value


def parse_value(text: str) -> Any:  # noqa: ANN401
    """Parse a value of YAML or JSON, as in a flag. Raises DocumentError."""
    loader = _Loader(text)
    try:
        value = loader.get_single_data()
        check_size(value)
    except yaml.YAMLError as error:
        raise DocumentError(_one_line(error)) from None
    except RecursionError:
        raise DocumentError("nested too deeply") from None
    finally:
        loader.dispose()
    return value


def read_documents(path: Path, *, arrays: bool = False) -> Iterator[Document | Problem]:
    """Yield each object of one file; a file that can't be read is a problem, not an exception."""
    try:
        text = path.read_bytes()
    except OSError as error:
        yield Problem(str(path), None, f"cannot be read: {reason(error)}")
        return
    yield from parse_documents(text, str(path), arrays=arrays)


def documents_in(path: Path, *, arrays: bool = False) -> Iterator[Document | Problem]:
    """Yield each object of a file or folder. Raises StartError if it cannot be read."""
    if not path.exists():
        raise StartError(f"{path}: no such file or directory")
    try:
        files = files_in(path) if path.is_dir() else [path]
    except OSError as error:
        raise StartError(f"{path}: cannot be read: {reason(error)}") from None
    for file in files:
        yield from read_documents(file, arrays=arrays)


def files_in(directory: Path) -> list[Path]:
    """Return the files of a directory that hold objects, sorted by name, without hidden ones."""
    return sorted(
        path
        for path in directory.iterdir()
        if path.suffix in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def _objects(value: Any, node: Any, file: str, number: int) -> Iterator[Document | Problem]:  # noqa: ANN401
    line = node.start_mark.line + 1
    if value is None:
        return
    if not isinstance(value, dict):
        yield Problem(file, number, "expected an object with apiVersion and kind", line)
        return
    kind = value.get("kind")
    items = value.get("items")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(items, list):
        nodes = {key.value: below for key, below in node.value}["items"].value
        yield from _items(items, nodes, file, number)
        return
    yield Document(file, number, value, line)


def _items(items: Any, nodes: Any, file: str, number: int) -> Iterator[Document | Problem]:  # noqa: ANN401
    for index, (item, node) in enumerate(zip(items, nodes, strict=True)):
        line = node.start_mark.line + 1
        if isinstance(item, dict):
            yield Document(file, number, item, line)
        else:
            yield Problem(file, number, f"items[{index}]: expected an object", line)


def check_size(value: Any) -> None:  # noqa: ANN401
    """Raise DocumentError where aliases make a value too large, too deep or endless."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size_of(node: Any, depth: int) -> int:  # noqa: ANN401
        if not isinstance(node, dict | list):
            return 1
        identity = id(node)
        if identity in sizes:
            return sizes[identity]
        if identity in open_nodes:
            raise DocumentError("an alias that contains itself")
        if depth > MAX_DEPTH:
            raise DocumentError(f"nested more than {MAX_DEPTH} levels deep")
        open_nodes.add(identity)
        children = node.values() if isinstance(node, dict) else node
        total = 1 + sum(size_of(child, depth + 1) for child in children)
        open_nodes.discard(identity)
        if total > MAX_NODES:
            raise DocumentError(f"aliases expand to more than {MAX_NODES} values")
        sizes[identity] = total
        return total

    size_of(value, 0)


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    text = getattr(error, "problem", None) or str(error).splitlines()[0]
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}{text}"
