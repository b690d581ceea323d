"""What a repair found, and what became of it."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from msgspec import Struct

from harbourmaster.cli.batches import many, shown

Action = Literal["tighten", "tolerate", "restart", "list"]
TIGHTEN: Final = "tighten"
TOLERATE: Final = "tolerate"
RESTART: Final = "restart"
LIST: Final = "list"
_DONE: Final = {TIGHTEN: "tightened", TOLERATE: "tolerations added", RESTART: "restarted"}


class Workload(NamedTuple):
    """The controller of pods, or a pod without one; ``group`` is its API group."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class RepairItem(Struct, frozen=True, kw_only=True):
    """Pods of one workload that lack the same, or the template of a workload."""

    group: str
    kind: str
    namespace: str
    name: str
    action: Action
    pods: tuple[str, ...] = ()
    """Empty for an item on a template, all of whose pods have what it lacks."""
    fields: tuple[str, ...]
    policies: tuple[str, ...]
    done: bool = False
    why: str = ""
    """Why nothing, or not all, is done."""

    @property
    def workload(self) -> Workload:
        """Whose pods they are."""
        return Workload(self.group, self.kind, self.namespace, self.name)

    def __str__(self) -> str:
        whose = f"{many(len(self.pods), 'pod')} ({shown(self.pods)})" if self.pods else "template"
        text = f"lacks {', '.join(self.fields)} of {shown(self.policies)}"
        end = _DONE[self.action] if self.done else self.action
        why = f": {self.why}" if self.why else ""
        return f"{self.workload}: {whose} {text}: {end}{why}"


class RepairReport(Struct, frozen=True):
    """All items; ``left`` counts the pods that still lack something."""

    dry_run: bool
    items: tuple[RepairItem, ...]
    left: int
