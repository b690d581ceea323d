"""Builds the part of an app or workload on its page: pods, stages, phases, checks. Pure."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.times import moment
from harbourmaster.dashboard.pages.phases import PhaseRow
from harbourmaster.dashboard.pages.states import (
    ShownState,
    Tone,
    seconds_between,
    show_state,
    span,
)
from harbourmaster.dashboard.plots import Measured, Plot, plot
from harbourmaster.dashboard.workload_pods import VersionPods
from harbourmaster.lifecycle.model import FAILED, WARNING, AppVersion

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from harbourmaster.lifecycle.check_facts import CheckReport, Facts
    from harbourmaster.lifecycle.model import Task, Version, WorkloadVersion

MOST_RUNS: Final = 50
"""Maximum runs of tasks of an app or workload, the newest ones."""


class VersionRow(Struct, frozen=True, gc=False):
    """A version of a workload and its pods."""

    word: str
    """New or Old."""
    version: str
    pods: VersionPods
    tone: Tone


class TaskRun(Struct, frozen=True, gc=False):
    """A KeptnTask of a version; a check that was repeated has several."""

    name: str
    object: str
    check_type: str
    state: ShownState
    start: str
    took: str
    job: str
    message: str


class Lane(Struct, frozen=True, gc=False):
    """The phases of the app, or of one of its workloads; none before its version exists."""

    kind: str
    name: str
    version: str
    state: ShownState
    phases: tuple[PhaseRow, ...] = ()
    failed_nodes: tuple[str, ...] = ()
    versions: tuple[VersionRow, ...] = ()
    runs: tuple[TaskRun, ...] = ()
    unmet: tuple[Plot, ...] = ()
    """The measurements of evaluations that have not succeeded."""
    met: tuple[Plot, ...] = ()


def plots_of(check: CheckReport, facts: Facts) -> list[Plot]:
    """Return a plot of each objective of an evaluation whose measurements are recorded."""
    evaluation = facts.evaluations.get(check.object)
    plots = []
    for objective, record in evaluation.status.measurements.items() if evaluation else ():
        measured = [
            Measured(item.value, item.time, item.message, item.status) for item in record.tries
        ]
        name = ": ".join(dict.fromkeys((check.name, objective)))
        plots.append(plot(name, measured, record.target))
    return [drawn for drawn in plots if drawn is not None]


def version_row(
    word: str, version: WorkloadVersion | None, pods: VersionPods | None
) -> tuple[VersionRow, ...]:
    """Return the row of a version, or none if its pods were not read."""
    if version is None or pods is None:
        return ()
    tone: Tone = "good" if pods.ready >= pods.wanted else "busy"
    if tone == "busy" and version.status.status == FAILED:
        tone = "bad"
    if not pods.wanted and not pods.ready:
        tone = "idle"
    return (VersionRow(word, version.spec.version, pods, tone),)


def task_runs(version: Version, tasks: Iterable[Task], now: datetime) -> tuple[TaskRun, ...]:
    """Return the tasks of a version among those of its app, the newest first."""
    is_app = isinstance(version, AppVersion)
    workload = "" if isinstance(version, AppVersion) else version.spec.workload_name
    runs = []
    for task in tasks:
        context, status = task.spec.context, task.status
        of = context.app_version if is_app else context.workload_version
        if context.workload_name != workload or of != version.spec.version:
            continue
        start = moment(status.start_time)
        end = moment(status.end_time) or now
        runs.append(
            TaskRun(
                name=task.spec.task_definition,
                object=task.metadata.name,
                check_type=task.spec.check_type,
                state=show_state(status.status),
                start=status.start_time,
                took=span(seconds_between(start, end)) if start else "",
                job=status.job_name,
                message=status.message or status.reason,
            )
        )
    return tuple(sorted(runs, key=attrgetter("start"), reverse=True)[:MOST_RUNS])


def build_lane(
    plain: Lane,
    version: Version,
    checks: Iterable[CheckReport],
    facts: Facts,
    runs: tuple[TaskRun, ...],
    versions: tuple[VersionRow, ...],
) -> Lane:
    """Return a lane with its details; ``checks`` are those whose measurements are shown in it."""
    met: list[Plot] = []
    unmet: list[Plot] = []
    for check in checks:
        is_unmet = check.state in {FAILED, WARNING} or (check.is_open and check.tries > 1)
        (unmet if is_unmet else met).extend(plots_of(check, facts))
    fields = {"runs": runs, "versions": versions, "met": tuple(met), "unmet": tuple(unmet)}
    if isinstance(version, AppVersion):
        return replace(plain, **fields)
    nodes = tuple(node.name for node in version.status.failed_nodes)
    return replace(plain, failed_nodes=nodes, **fields)
