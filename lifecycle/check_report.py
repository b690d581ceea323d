"""The state of a check that a gated pod waits for, for people and programs."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["task", "evaluation"]


class ObjectiveReport(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """One objective of an evaluation: its query, its result and its target."""

    name: str
    """As the evaluation's status calls it: the metric's name, as a rule."""
    state: str
    """Pending where nothing was measured yet."""
    value: str = ""
    """Of the last try; empty where there was none that counts."""
    threshold: str = ""
    """What the value must be, such as ``<=0.05``; empty where the definition can't be found."""
    query: str = ""
    provider: str = ""
    message: str = ""
    current: str = ""
    """The metric's value now, where it has one; the next try judges this."""
    updated: str = ""
    """When the metric was fetched last."""
    fault: str = ""
    """Why the metric has no value that counts now."""

    @property
    def text(self) -> str:
        """``query → value (threshold)``, or as much of it as is known."""
        shown = f"{self.query or self.name} → {self.value or 'no value'}"
        return f"{shown} ({self.threshold})" if self.threshold else shown


class CheckReport(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """One task or evaluation that lies before a pod's release. Times are stamps, empty for none."""

    kind: Kind
    phase: str
    """As in ``currentPhase``: AppPreDeployTasks, WorkloadPreDeployEvaluations and so on."""
    name: str
    """Of its definition."""
    state: str
    """Pending, Progressing, Succeeded, Failed or Warning."""
    object: str = ""
    """The name of its KeptnTask or KeptnEvaluation; empty where there is none yet."""
    since: str = ""
    """When it began."""
    ended: str = ""
    value: str = ""
    """The last value of the first objective that is not met; of all met, of the first."""
    threshold: str = ""
    """What that value must be."""
    message: str = ""
    """Its own message about its state."""
    next_try: str = ""
    """The time of its next try, if known; empty where only a change or its Job decides."""
    tries: int = 0
    retries: int | None = None
    """How many tries it has; None where that is not known."""
    objectives: tuple[ObjectiveReport, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether it may still pass by itself."""
        return self.state not in {"Succeeded", "Warning", "Failed"}
