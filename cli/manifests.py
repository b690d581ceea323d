"""Objects as YAML: what people and kubectl read, and the files that people give."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import yaml

from harbourmaster.serving.documents import files_in, parse_documents, read_documents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harbourmaster.serving.documents import Document, Problem


def dump(manifest: dict[str, Any]) -> str:
    """One document, with its keys in the order that they have."""
    text: str = yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def read_paths(paths: list[Path]) -> Iterator[Document | Problem]:
    """The documents of files, of folders, and of standard input for ``-``."""
    for path in paths:
        if str(path) == "-":
            yield from parse_documents(sys.stdin.buffer.read(), "standard input")
        elif path.is_dir():
            for file in files_in(path):
                yield from read_documents(file)
        else:
            yield from read_documents(path)


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        """Write shared values out: readers of manifests expect no anchors."""
        return True
