"""Kubernetes objects from YAML and JSON text, each with its place.

Text that begins like JSON and is JSON is read as JSON, as by kubectl; anything else is YAML. A key
stands only once in a mapping, and what would expand beyond a bound is refused.
"""

from __future__ import annotations

import json
import re
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml
from msgspec import Raw, Struct

from harbourmaster.serving.kubectl_yaml import (
    DocumentError,
    Reader,
    check_size,
    json_number,
    value_of,
)
from harbourmaster.serving.settings import StartError
from harbourmaster.telemetry.text import clean, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SUFFIXES: Final = frozenset((".yaml", ".yml", ".json"))
_OTHER_FILES: Final = frozenset(("kustomization", "harbourmaster-test"))
"""Names of files among manifests that hold no objects of a cluster."""
_GLOB: Final = re.compile(r"[*?[]")
_JSON: Final = re.compile(r"\s*[{[]")
_NOT_BLANK: Final = re.compile(r"\S")
_LONE_SURROGATE: Final = re.compile(
    r"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.ASCII
)
"""Matches escapes; the group is half a pair of surrogates."""


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


def parse_documents(
    text: str | bytes, file: str, *, arrays: bool = False
) -> Iterator[Document | Problem]:
    """Yield each object of a YAML or JSON text; the items of a List one by one.

    With ``arrays`` a document can be an array of objects, too. Documents before a syntax error come
    first, because reading ends there.
    """
    try:
        documents = list(_json_documents(text))
    except DocumentError as error:
        yield Problem(file, None, str(error))
    except (ValueError, RecursionError):
        yield from _yaml_documents(text, file, arrays=arrays)
    else:
        for number, (value, line, lines) in enumerate(documents, 1):
            yield from _objects(Document(file, number, value, line), lines, arrays=arrays)


def _yaml_documents(text: str | bytes, file: str, *, arrays: bool) -> Iterator[Document | Problem]:
    number, line = 0, 1
    try:
        reader = Reader(text)
    except yaml.YAMLError as error:
        yield Problem(file, None, _one_line(error))
        return
    try:
        while reader.check_node():
            number += 1
            node: Any = reader.get_node()
            line = node.start_mark.line + 1
            try:
                value = value_of(node)
            except DocumentError as error:
                yield Problem(file, number, str(error), line)
                continue
            lines = partial(_item_lines, node)
            yield from _objects(Document(file, number, value, line), lines, arrays=arrays)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        yield Problem(file, number or 1, _one_line(error), mark.line + 1 if mark else line)
    except DocumentError as error:
        yield Problem(file, number, str(error), line)
    except RecursionError:
        yield Problem(file, number or 1, "nested too deeply", line)
    finally:
        reader.dispose()


def _item_lines(node: Any) -> list[int]:  # noqa: ANN401
    """Return the lines of the items of a List or an array; none where a merge key hides them."""
    if isinstance(node, yaml.MappingNode):
        node = next((below for key, below in node.value if key.value == "items"), node)
    return [item.start_mark.line + 1 for item in node.value if isinstance(item, yaml.Node)]


def _json_documents(text: str | bytes) -> Iterator[tuple[Any, int, Callable[[], list[int]]]]:
    """Yield each value of a JSON text, its line, and what returns the lines of its items.

    Raises ValueError where it is not JSON, or not all of it, or has a key twice; DocumentError for
    a value that is too large or too deep.
    """
    text = text.decode("utf-8-sig") if isinstance(text, bytes) else text
    if not _JSON.match(text):
        raise ValueError
    if r"\ud" in text or r"\uD" in text:
        text = _LONE_SURROGATE.sub(lambda match: r"\ufffd" if match[1] else match[0], text)
    end, line = 0, 1
    while rest := _NOT_BLANK.search(text, end):
        start = rest.start()
        line += text.count("\n", end, start)
        value, end = _json_decoder.raw_decode(text, start)
        check_size(value)
        yield value, line, partial(_json_item_lines, text, start, end, line)
        line += text.count("\n", start, end)


def _json_item_lines(text: str, start: int, end: int, line: int) -> list[int]:
    data = text[start:end].encode()
    decoded = msgspec.json.decode(data, type=_Items | list[Raw])
    position = max(0, data.find(b'"items"'))
    lines: list[int] = []
    for item in decoded.items if isinstance(decoded, _Items) else decoded:
        begin = data.find(bytes(item), position)
        line += data.count(b"\n", 0 if not lines else position, begin)
        lines.append(line)
        position = begin
    return lines


class _Items(Struct):
    items: list[Raw] = []


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError
    return mapping


_json_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_object_of,
    parse_float=lambda text: json_number(float(text)),
    parse_int=lambda text: json_number(int(text)),
    # NaN is not JSON: int raises ValueError.
    parse_constant=int,
)


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
    try:
        reader = Reader(text)
        node = reader.get_single_node()
        return None if node is None else value_of(node)
    except yaml.YAMLError as error:
        raise DocumentError(_one_line(error)) from None
    except RecursionError:
        raise DocumentError("nested too deeply") from None


def read_documents(path: Path, *, arrays: bool = False) -> Iterator[Document | Problem]:
    """Yield each object of one file; a file that can't be read is a problem, not an exception."""
    try:
        text = path.read_bytes()
    except OSError as error:
        yield Problem(str(path), None, f"cannot be read: {reason(error)}")
        return
    yield from parse_documents(text, str(path), arrays=arrays)


def documents_in(path: Path, *, arrays: bool = False) -> Iterator[Document | Problem]:
    """Yield each object of a file, a folder or a glob. Raises StartError if it cannot be read."""
    for file in files_of(path):
        yield from read_documents(file, arrays=arrays)


def files_of(path: Path, *, recursive: bool = False) -> list[Path]:
    """Return a file, or those of a folder or a glob that hold objects. Raises StartError."""
    try:
        if path.is_dir():
            return files_in(path, recursive=recursive)
        if path.exists():
            return [path]
        for index, part in enumerate(path.parts):
            if _GLOB.search(part):
                folder = Path(*path.parts[:index])
                matches = sorted(folder.glob("/".join(path.parts[index:])))
                return [match for match in matches if _holds_objects(match, folder)]
    except (OSError, RecursionError, ValueError) as error:
        raise StartError(f"{path}: cannot be read: {reason(error)}") from None
    raise StartError(f"{path}: no such file or directory")


def files_in(directory: Path, *, recursive: bool = False) -> list[Path]:
    """Return the files of a directory that hold objects, sorted by name, without hidden ones."""
    files: list[Path] = []
    for path in sorted(directory.iterdir()):
        if _holds_objects(path, directory):
            files.append(path)
        elif recursive and path.is_dir() and not path.is_symlink() and path.name[0] != ".":
            files += files_in(path, recursive=True)
    return files


def _holds_objects(path: Path, folder: Path) -> bool:
    if path.suffix not in SUFFIXES or path.stem in _OTHER_FILES or not path.is_file():
        return False
    return not any(part.startswith(".") for part in path.relative_to(folder).parts)


def _objects(
    document: Document, lines: Callable[[], list[int]], *, arrays: bool
) -> Iterator[Document | Problem]:
    """Yield the object of a document, or each item of a List; ``lines`` returns their lines."""
    value: Any = document.value
    items = value if arrays and isinstance(value, list) else None
    if isinstance(value, dict) and str(value.get("kind")).endswith("List"):
        items = value.get("items")
    if not isinstance(items, list):
        if isinstance(value, dict):
            yield document
        elif value is not None:
            yield document.problem("expected an object with apiVersion and kind")
        return
    for index, (item, line) in enumerate(zip_longest(items, lines()[: len(items)])):
        place = Document(document.file, document.number, item, line or document.line)
        is_object = isinstance(item, dict)
        yield place if is_object else place.problem(f"items[{index}]: expected an object")


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    text = getattr(error, "problem", None) or str(error).splitlines()[0]
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}{text}"
