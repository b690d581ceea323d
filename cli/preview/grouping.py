"""Workloads that change alike are told together."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from harbourmaster.cli.manifests import dump
from harbourmaster.cli.preview.model import Workload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.cli.preview.model import Change


class Alike(Struct, frozen=True):
    """Workloads with the same changes and warnings."""

    workloads: tuple[Workload, ...]

    @property
    def pods(self) -> int:
        """Of all of them."""
        return sum(each.pods for each in self.workloads)

    @property
    def warnings(self) -> tuple[str, ...]:
        """That each of them gets."""
        return self.workloads[0].warnings

    def diff(self) -> list[str]:
        """The fields of the pod spec that change, as a unified diff of YAML."""
        changes = self.workloads[0].changes
        now, then = _side(changes, then=False), _side(changes, then=True)
        # The first lines name files, of which there are none.
        return list(difflib.unified_diff(now, then, n=2, lineterm=""))[2:]


def alike(workloads: Iterable[Workload]) -> list[Alike]:
    """Groups, those of most workloads first."""
    groups: dict[bytes, list[Workload]] = {}
    for each in workloads:
        key = msgspec.json.encode((each.changes, each.warnings))
        groups.setdefault(key, []).append(each)
    found = [Alike(tuple(each)) for each in groups.values()]
    return sorted(found, key=lambda group: -len(group.workloads))


def _side(changes: Iterable[Change], *, then: bool) -> list[str]:
    fields: dict[str, Any] = {}
    for each in changes:
        value = each.then if then else each.now
        if value is not None:
            fields[each.field] = value
    return dump(fields).splitlines() if fields else []
