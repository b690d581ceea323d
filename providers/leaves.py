"""The numbers in a JSON document by their paths (``aggregations.p95.values.95.0``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.providers.errors import TooLargeError
from harbourmaster.providers.series import MAX_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAX_PATH: Final = 1000
"""Characters: a few long names above many numbers would otherwise make gigabytes of paths."""


def numbers(document: object, path: str = "") -> dict[str, float | int | None]:
    """All numbers and nulls below ``path``, in the document's order; indices name list items."""
    found: dict[str, float | int | None] = {}
    for name, value in _leaves(document, path):
        if len(found) == MAX_SAMPLES:
            raise TooLargeError(f"the answer has more than {MAX_SAMPLES} numbers: ask for fewer")
        found[name] = value
    return found


def named(found: Mapping[str, float | int | None], path: str) -> list[str]:
    """The names that are ``path``, else those that end with it, else those that contain it."""
    if path in found:
        return [path]
    ends = [name for name in found if name.endswith(f".{path}")]
    return ends or [name for name in found if path in name]


def _leaves(document: object, path: str) -> Iterator[tuple[str, float | int | None]]:
    pending = [(path, document)]
    while pending:
        name, value = pending.pop()
        if len(name) > _MAX_PATH:
            raise TooLargeError(f"the answer has a path of more than {_MAX_PATH} characters")
        if isinstance(value, dict):
            children = list(value.items())
        elif isinstance(value, list):
            children = [(str(index), item) for index, item in enumerate(value)]
        else:
            if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
                yield name, value
            continue
        prefix = f"{name}." if name else ""
        # The last one that is put there is the first to be taken.
        pending.extend((f"{prefix}{key}", child) for key, child in reversed(children))
