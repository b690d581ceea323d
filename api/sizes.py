"""Limits on the size of one object, so that nobody fills the caches of a process with few of them.

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
"""Bytes of JSON that an item takes at least, with its comma."""


class Limits(Struct, frozen=True):
    """What one object may have at most."""

    spec: int = 64 * KIBI
    """Bytes of ``spec`` as JSON."""
    items: int = 256
    """Of each list and map in ``spec``; 0 for any number."""
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
_BY_KIND: Final = {(each.group, each.kind): limits for each, limits in LIMITS.items()}


class _Object(Struct, frozen=True, gc=False):
    spec: msgspec.Raw = msgspec.Raw()


class _Excess(Struct, frozen=True):
    """By how much the fields of one place are over their limit together, and the largest one."""

    amount: int
    size: int
    error: FieldError


_decoder: Final = msgspec.json.Decoder(_Object)
_anything: Final = msgspec.json.Decoder()


def is_limited(group: str, kind: str) -> bool:
    """Whether there are limits for objects of the kind, in whatever version."""
    return (group, kind) in _BY_KIND


def size_errors(
    group: str, kind: str, obj: bytes | msgspec.Raw, former: bytes | msgspec.Raw = b""
) -> list[FieldError]:
    """What of an object is over a limit, and larger than in ``former``, if that is given.

    Both are JSON; what cannot be decoded has no errors here.
    """
    limits = _BY_KIND.get((group, kind))
    if limits is None:
        return []
    new = _spec_of(obj)
    is_larger = len(new) > limits.spec and len(new) > len(_spec_of(former))
    # What nobody has stored yet is not worth a look inside.
    found = _excesses(new, limits, is_deep=not is_larger)
    if not found:
        return []
    before = _excesses(_spec_of(former), limits, is_deep=not is_larger)
    return [
        each.error
        for place, each in found.items()
        if place not in before or each.amount > before[place].amount
    ]


def _spec_of(obj: bytes | msgspec.Raw) -> memoryview:
    try:
        return memoryview(decode(_decoder, obj, "").spec)
    except MalformedError:
        return memoryview(b"")


def _excesses(spec: memoryview, limits: Limits, *, is_deep: bool) -> dict[str, _Excess]:
    """Each field that is over its limit, by its path without indices."""
    found: dict[str, _Excess] = {}
    if len(spec) > limits.spec:
        _note(found, "spec", "spec", len(spec), limits.spec, "bytes")
    least = min(limits.items or len(spec), *limits.fields.values(), len(spec))
    if not is_deep or len(spec) <= _LEAST * least:
        return found
    try:
        value = decode(_anything, msgspec.Raw(spec), "spec")
    except MalformedError:
        return found
    stack: list[tuple[str, str, Any]] = [("spec", "spec", value)]
    while stack:
        path, place, value = stack.pop()
        most = limits.fields.get(place.rpartition(".")[2])
        if isinstance(value, str):
            if most is not None and len(value) * 4 > most:
                _note(found, path, place, len(value.encode()), most, "bytes")
            continue
        most = limits.items if most is None else most
        if most:
            _note(found, path, place, len(value), most, "items")
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in parts:
            if isinstance(part, dict | list | str):
                is_item = isinstance(name, int)
                stack.append(
                    (
                        f"{path}[{name}]" if is_item else f"{path}.{name}",
                        f"{place}[]" if is_item else f"{place}.{name}",
                        part,
                    )
                )
    return found


def _note(
    found: dict[str, _Excess], path: str, place: str, size: int, most: int, unit: str
) -> None:
    if size <= most:
        return
    other = found.get(place)
    amount = size - most + (other.amount if other else 0)
    if other is not None and other.size >= size:
        found[place] = _Excess(amount, other.size, other.error)
        return
    error = FieldError(
        path,
        "Too long" if unit == "bytes" else "Too many",
        str(size),
        f"must have at most {most} {unit}: make it smaller or split the object",
    )
    found[place] = _Excess(amount, size, error)
