"""Objects in files: manifests that people give, and what kubectl printed of a cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.serving.documents import (
    Document,
    Problem,
    files_of,
    parse_documents,
    read_documents,
)
from harbourmaster.serving.settings import StartError
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from harbourmaster.api.resources import Resource

STANDARD_INPUT: Final = "-"
_KUSTOMIZE: Final = "kustomize.config.k8s.io"


class UnreadableError(StartError):
    """A dump that is none; the text is one line with the file and what is wrong with it."""


class _Object(Struct, frozen=True):
    kind: str = ""


class _List(Struct, frozen=True):
    items: tuple[Raw, ...] | None = None


_kind_of: Final = msgspec.json.Decoder(_Object)
_decode_list: Final = msgspec.json.Decoder(_List).decode


def read_paths(
    paths: list[Path], *, arrays: bool = False, recursive: bool = False
) -> Iterator[Document | Problem]:
    """The documents of files, of folders, of globs, and of standard input for ``-``.

    A file is read once. ``arrays`` as in ``parse_documents``. Raises StartError where a path leads
    nowhere, or to a folder or a glob without any manifest.
    """
    manifests: dict[Path, bool] = {}
    for path in paths:
        if str(path) == STANDARD_INPUT:
            text = sys.stdin.buffer.read()
            yield from parse_documents(text, "standard input", arrays=arrays)
            continue
        files = files_of(path, recursive=recursive)
        for file in files:
            if file.resolve() not in manifests:
                manifests[file.resolve()] = False
                for item in read_documents(file, arrays=arrays):
                    manifests[file.resolve()] = True
                    yield item
        if not path.is_file() and not any(manifests[file.resolve()] for file in files):
            more = f': "{path}/**/*.yaml" reads the folders in it'
            raise StartError(f"{path}: no manifest found{more * (path.is_dir() and not recursive)}")


def manifests_in(items: Iterable[Document | Problem]) -> Iterator[Document | Problem]:
    """Yield the documents; one that no cluster can create becomes a problem."""
    for item in items:
        fault = "" if isinstance(item, Problem) else _not_created(item.value)
        yield item.problem(fault) if isinstance(item, Document) and fault else item


def _not_created(manifest: dict[str, Any]) -> str:
    missing = [name for name in ("apiVersion", "kind") if not manifest.get(name)]
    if missing:
        return f"{missing[0]}: required"
    if wrong := [name for name in ("apiVersion", "kind") if not isinstance(manifest[name], str)]:
        return f"{wrong[0]}: expected a string"
    if manifest["apiVersion"].startswith(f"{_KUSTOMIZE}/"):
        kind = manifest["kind"]
        return f"kind: {kind} is not an object of a cluster: give the output of kubectl kustomize"
    return ""


class Dump:
    """Objects that kubectl has printed of a cluster, with the interface of ``ClusterReader``."""

    def __init__(self, file: Path, resources: Collection[Resource]) -> None:
        """Raises UnreadableError."""
        self.faults: list[str] = []
        """Objects that cannot be read."""
        self._by_kind: dict[str, list[tuple[int, Raw]]] = {
            resource.kind: [] for resource in resources
        }
        self._file = file
        for index, raw in enumerate(_objects_in(file)):
            try:
                kind = decode(_kind_of, raw, "").kind
            except MalformedError as error:
                self.faults.append(f"{file}: items[{index}]: {error}")
                continue
            if kind in self._by_kind:
                self._by_kind[kind].append((index, raw))

    def has(self, *resources: Resource) -> bool:
        """Whether there is an object of one of the kinds."""
        return any(self._by_kind[resource.kind] for resource in resources)

    async def list_all(self, resource: Resource, pick: Callable[[Raw], object]) -> None:
        """Have ``pick`` look at every object, once: what was looked at is let go.

        Raises UnreadableError, with the place in the file, where ``pick`` raises MalformedError.
        """
        objects = self._by_kind[resource.kind]
        objects.reverse()
        while objects:
            index, raw = objects.pop()
            try:
                pick(raw)
            except MalformedError as error:
                raise UnreadableError(f"{self._file}: items[{index}]: {error}") from None


def _objects_in(file: Path) -> Iterator[Raw]:
    """Each object of a dump, JSON or YAML. Raises UnreadableError."""
    try:
        is_input = str(file) == STANDARD_INPUT
        text = sys.stdin.buffer.read() if is_input else file.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{file}: cannot be read: {reason(error)}") from None
    try:
        decoded = _decode_list(text)
    except (msgspec.DecodeError, RecursionError):
        for document in parse_documents(text, str(file)):
            if isinstance(document, Problem):
                raise UnreadableError(str(document)) from None
            yield Raw(msgspec.json.encode(document.value))
        return
    yield from (Raw(text),) if decoded.items is None else decoded.items
