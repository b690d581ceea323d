"""Lines on stages that have no effect, and on settings of their workload that do not suit them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.gates.metadata import VERSION_KEY, WORKLOAD_KEY, Metadata, cut
from harbourmaster.gates.mistakes import Mistake
from harbourmaster.gates.owners import DEPLOYMENT, STATEFUL_SET
from harbourmaster.gates.stages import (
    STAGE_KEYS,
    STAGE_PAUSE_KEY,
    STAGES_KEY,
    STAGES_ON_FIRST_KEY,
    parse_stages,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KEYS: Final = frozenset(STAGE_KEYS)
_AT: Final = "spec.template.metadata.annotations"
_NO_DEADLINE: Final = 2**31 - 1
_REASONS: Final = {
    "Recreate": "which deletes all old pods first",
    "OnDelete": "with which you replace the pods yourself",
}


class RollingUpdate(Struct, frozen=True, rename="camel"):
    """The pods that a rollout may lack or add."""

    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


class Strategy(Struct, frozen=True, rename="camel"):
    """The update strategy of a workload; Argo Rollouts have one of the last two fields."""

    type: str | None = None
    rolling_update: RollingUpdate | None = None
    canary: dict[str, object] | None = None
    blue_green: dict[str, object] | None = None


class StagedWorkload(Struct, frozen=True):
    """The parts of a Deployment, StatefulSet or DaemonSet that decide whether stages suit it."""

    kind: str
    own: Metadata
    template: Metadata
    strategy: Strategy
    replicas: int
    progress_deadline: int = 600
    has_host_ports: bool = False


def stage_mistakes(annotations: Mapping[str, str], at: str) -> Iterator[Mistake]:
    """Yield what is wrong with the stages of a pod whose annotations these are; ``at``: where."""
    if _KEYS.isdisjoint(annotations):
        return
    try:
        parse_stages(annotations.get(STAGES_KEY, ""), annotations.get(STAGE_PAUSE_KEY, ""))
    except ValueError as error:
        yield Mistake("gate-stages-invalid", str(error).replace("metadata.annotations", at))


def scheduler_mistake(*, is_set: bool) -> Mistake:
    """Return the refusal of stages for pods without a gate; ``is_set``: because of the settings."""
    to_do = "set gating to schedulingGates" if is_set else "leave out spec.schedulerName"
    return _refused("where pods wait in a scheduler", f"metadata.annotations[{STAGES_KEY}]", to_do)


def workload_mistakes(workload: StagedWorkload) -> Iterator[Mistake]:
    """Yield what keeps the stages of a workload from working, or makes them costly."""
    annotations, own, strategy = workload.template.annotations, workload.own, workload.strategy
    if stray := ", ".join(sorted(_KEYS & own.annotations.keys() - annotations.keys())):
        text = f"{stray} has no effect: metadata.annotations: write it in {_AT}"
        yield Mistake("gate-stages-unused", text)
    mistakes = tuple(stage_mistakes(annotations, _AT))
    yield from mistakes
    if STAGES_KEY not in annotations or mistakes:
        return
    field = "spec.strategy" if workload.kind == DEPLOYMENT else "spec.updateStrategy"
    if strategy.canary is not None or strategy.blue_green is not None:
        yield _refused("on an Argo Rollout", field, "use its own steps, or a Deployment")
    elif reason := _REASONS.get(strategy.type or ""):
        yield _refused(f"with {strategy.type}, {reason}", f"{field}.type", "write RollingUpdate")
    else:
        yield from _setting_mistakes(workload, field)


def _refused(why: str, at: str, to_do: str) -> Mistake:
    return Mistake("gate-stages-refused", f"stages have no effect {why}: {at}: {to_do}")


def _setting_mistakes(workload: StagedWorkload, field: str) -> Iterator[Mistake]:
    annotations, kind = workload.template.annotations, workload.kind
    on_first = annotations.get(STAGES_ON_FIRST_KEY, "true")
    if on_first not in {"true", "false"}:
        text = f'"{cut(on_first)}" counts as false: {_AT}[{STAGES_ON_FIRST_KEY}]'
        yield Mistake("gate-stages-invalid", f"{text}: write true or false")
    if workload.own.get(VERSION_KEY) and not workload.template.get(WORKLOAD_KEY):
        text = f"the workload keeps its {VERSION_KEY} after an undo: metadata"
        yield Mistake("gate-stages-version", f"{text}: move Keptn's keys to {_AT}")
    stages = parse_stages(annotations[STAGES_KEY], annotations.get(STAGE_PAUSE_KEY, ""))
    rolling = workload.strategy.rolling_update or RollingUpdate()
    defaults: tuple[int | str, int | str] = ("25%", "25%") if kind == DEPLOYMENT else (1, 0)
    given = zip((rolling.max_unavailable, rolling.max_surge), defaults, strict=True)
    lacking, surge = (default if value is None else value for value, default in given)
    advice = "set maxUnavailable: 0, maxSurge: 1"
    if kind == STATEFUL_SET:
        advice = "set maxUnavailable: 1"
    elif workload.has_host_ports:
        advice = "set maxUnavailable: 1, because host ports allow no less"
    text, replicas = "", workload.replicas
    # Kubernetes rounds the first down, and the second up.
    if _hundredths(lacking, replicas) // 100 > (kind == STATEFUL_SET):
        text = f"up to {lacking} of the old pods are missing while a stage waits"
    elif _hundredths(surge, replicas) > 100 * stages.allowance(1, replicas):
        text = f"maxSurge {surge} creates more pods than the first stage releases"
    if text:
        yield Mistake("gate-stages-strategy", f"{text}: {field}.rollingUpdate: {advice}")
    deadline = workload.progress_deadline
    is_late = stages.pause is None or stages.pause >= deadline
    if kind == DEPLOYMENT and is_late and deadline < _NO_DEADLINE:
        pause = cut(annotations[STAGE_PAUSE_KEY])
        text = f"the Deployment counts as failed after {deadline} s, in a pause ({pause})"
        advice = f"set more than pause and checks take, or {_NO_DEADLINE} for no limit"
        yield Mistake("gate-stages-deadline", f"{text}: spec.progressDeadlineSeconds: {advice}")


def _hundredths(value: int | str, replicas: int) -> int:
    """Return hundredths of a pod; 0 where the API server refuses the value."""
    if isinstance(value, int):
        return value * 100
    share = value[:4].removesuffix("%")
    return replicas * int(share) if share.isascii() and share.isdigit() else 0
