"""The report of a preview; ``-o json`` prints these fields in camel case."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Change(Struct, frozen=True, rename="camel"):
    """A field of the pod spec, by today's policies and by those of the preview; None is absent."""

    field: str
    now: Any
    then: Any


class Fit(Struct, frozen=True, rename="camel"):
    """Counts of pods by whether they would fit one of today's nodes if they alone were recreated.

    ``lost`` fit now and would not any more, ``already`` do not fit now either, ``gained`` would fit
    but do not now, and ``unjudged`` cannot be judged. ``reasons`` count nodes.
    """

    pods: int = 0
    lost: int = 0
    already: int = 0
    gained: int = 0
    unjudged: int = 0
    reasons: dict[str, int] = {}


class ChangedWorkload(Struct, frozen=True, rename="camel"):
    """A workload whose pods would get something else; ``path`` is where its pod spec stands."""

    kind: str
    namespace: str
    name: str
    path: str
    pods: int
    changes: tuple[Change, ...]
    warnings: tuple[str, ...] = ()
    """That the policies of the preview give, and today's don't."""
    fit: Fit | None = None
    """None where no nodes are known."""

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        return f"{self.kind} {self.namespace}/{self.name}"


class PreviewedPolicies(Struct, frozen=True, rename="camel"):
    """References of the previewed policies."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: int = 0


class Totals(Struct, frozen=True, rename="camel"):
    """Counts; ``workloads`` and ``nodes`` of all that were looked at, the rest of what changes."""

    workloads: int = 0
    nodes: int = 0
    changed: int = 0
    pods: int = 0
    unschedulable: int = 0
    already_unschedulable: int = 0
    unjudged: int = 0


class PreviewReport(Struct, frozen=True, rename="camel"):
    """A preview; ``namespaces`` count the workloads that change."""

    policies: PreviewedPolicies
    totals: Totals
    namespaces: dict[str, int]
    workloads: tuple[ChangedWorkload, ...]
    notes: tuple[str, ...] = ()
    """Objects that could not be read, and what limits this preview."""
