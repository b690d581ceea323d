"""Limits on the size of one object, so that a few objects cannot fill the caches of a process.

They hold for new objects and for growth. An object that was stored larger keeps working, may shrink
and may get another metadata or status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api import resources
from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.api.field_errors import FieldError

KIBI: Final = 1024
_LEAST: Final = 2
"""Minimum size of an item in bytes of JSON, with its comma."""


class Limits(Struct, frozen=True):
    """The maximum sizes of an object."""

    spec: int = 64 * KIBI
    """Bytes of ``spec`` as JSON."""
    items: int = 256
    """Maximum number of items of each list and map in ``spec``; 0 for any number."""
    fields: Mapping[str, int] = {}
    """For fields of a name, wherever they stand: items of a list or map, or bytes of a text."""


_METRICS: Final = Limits(spec=256 * KIBI, items=1000)
_POLICY: Final = Limits(fields={"values": 512})

LIMITS: Final[Mapping[resources.Resource, Limits]] = {
    resources.CLUSTER_POLICIES: _POLICY,
    resources.POLICIES: _POLICY,
    resources.TASK_DEFINITIONS: Limits(spec=256 * KIBI, fields={"code": 128 * KIBI}),
    resources.APPS: Limits(fields={"workloads": 512}),
    resources.APP_CONTEXTS: Limits(),
    resources.EVALUATION_DEFINITIONS: Limits(),
    resources.KEPTN_METRICS: Limits(),
    resources.METRICS_PROVIDERS: _METRICS,
    resources.ANALYSES: Limits(),
    resources.ANALYSIS_DEFINITIONS: _METRICS,
    resources.ANALYSIS_VALUE_TEMPLATES: Limits(),
    # Their lists have limits of their own, and manifests may contain anything.
    resources.APPLICATIONS: Limits(spec=512 * KIBI, items=0),
    **dict.fromkeys(
        (
            resources.CLUSTERS,
            resources.CLOUDS,
            resources.GLOBAL_CLOUDS,
            resources.PROJECTS,
            resources.MAGNUM_CLUSTERS,
            resources.PLACEMENT_METRICS,
            resources.GLOBAL_METRICS,
            resources.PLACEMENT_PROVIDERS,
            resources.GLOBAL_PROVIDERS,
        ),
        Limits(items=0),
    ),
}
_BY_KIND: Final = {(resource.group, resource.kind): limits for resource, limits in LIMITS.items()}


class _Object(Struct, frozen=True, gc=False):
    spec: msgspec.Raw = msgspec.Raw()


_decoder: Final = msgspec.json.Decoder(_Object)
_anything: Final = msgspec.json.Decoder()


def is_limited(group: str, kind: str) -> bool:
    """Whether there are limits for objects of the kind, in whatever version."""
    return (group, kind) in _BY_KIND


def size_errors(
    group: str, kind: str, obj: bytes | msgspec.Raw, former: bytes | msgspec.Raw = b""
) -> list[FieldError]:
    """Return errors for parts of an object that exceed a limit and have grown since ``former``.

    Both are JSON; there are no errors for JSON that cannot be decoded. If a spec has too many
    bytes, this is its only error.
    """
    limits = _BY_KIND.get((group, kind))
    if limits is None:
        return []
    new, old = _spec_of(obj), _spec_of(former)
    if len(new) > max(limits.spec, len(old)):
        return [_error("spec", len(new), limits.spec, "bytes")]
    excesses = _excesses(new, limits)
    before = _excesses(old, limits) if excesses else {}
    return [
        error
        for place, (excess, error) in excesses.items()
        if place not in before or excess > before[place][0]
    ]


def _spec_of(obj: bytes | msgspec.Raw) -> memoryview:
    try:
        return memoryview(decode(_decoder, obj, "").spec)
    except MalformedError:
        return memoryview(b"")


def _excesses(spec: memoryview, limits: Limits) -> dict[str, tuple[int, FieldError]]:
    """Return by path without indices the total excess, and the error of the largest part."""
    excesses: dict[str, tuple[int, FieldError]] = {}
    if not limits.items or len(spec) <= _LEAST * limits.items:
        return excesses
    try:
        value = decode(_anything, bytes(spec), "")
    except MalformedError:
        return excesses
    # Paths are created if they are needed: keys may be long, with thousands of values below one.
    stack: list[tuple[Any, str | int, Any]] = [(None, "spec", value)]
    while stack:
        *_, name, value = node = stack.pop()
        is_text = isinstance(value, str)
        most = limits.fields.get(str(name), None if is_text else limits.items)
        size = len(value.encode()) if is_text and most else len(value)
        if most and size > most:
            place = _path(node, "[]")
            excess, error = excesses.get(place, (0, None))
            if error is None or size > int(error.value or 0):
                error = _error(_path(node), size, most, "bytes" if is_text else "items")
            excesses[place] = excess + size - most, error
        if not is_text:
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            stack += [(node[:2], key, part) for key, part in parts if _may_be_large(key, part)]
    return excesses


def _may_be_large(key: str | int, value: object) -> bool:
    return isinstance(value, dict | list) or (isinstance(value, str) and isinstance(key, str))


def _path(node: Any, index: str = "") -> str:  # noqa: ANN401 - a parent, its name, and more
    parts: list[str] = []
    while node:
        node, name = node[:2]
        parts.append(f".{name}" if isinstance(name, str) else index or f"[{name}]")
    return "".join(reversed(parts))[1:]


def _error(path: str, size: int, most: int, unit: str) -> FieldError:
    text = f"must have at most {most} {unit}: make it smaller or split the object"
    return FieldError(path, "Too long" if unit == "bytes" else "Too many", str(size), text)
