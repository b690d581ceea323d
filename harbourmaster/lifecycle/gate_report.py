"""The gate report of a pod, for ``why``, ``gate list`` and the dashboard. Pure.

Which code it has is decided in ``gate_verdict``, which lists them all.
"""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from harbourmaster.api.times import format_rfc3339, parse_rfc3339
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.waits import OnTimeout
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.check_facts import CheckReport, check_reports, expected_checks
from harbourmaster.lifecycle.gate_verdict import (
    Case,
    Code,
    WaitPlace,
    describe,
    sentence,
    verdict_on,
)
from harbourmaster.lifecycle.phases import WORKLOAD_PHASES
from harbourmaster.lifecycle.wait_items import ItemReport, wait_report
from harbourmaster.lifecycle.workloads import names_of_pod, version_of_pod

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.gates.workload import WorkloadMetadata
    from harbourmaster.lifecycle.check_facts import Facts
    from harbourmaster.lifecycle.gate_verdict import GateWaitRules
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import WorkloadVersion

_PRE_TASKS, _PRE_EVALUATIONS = WORKLOAD_PHASES[:2]


class GateReport(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The report on one pod. Times are RFC 3339, and empty if there is none."""

    namespace: str
    pod: str
    code: Code
    text: str
    """The reason for which it waits, to be read after "waits for"."""
    place: WaitPlace = ""
    """The place where it waits; empty for a pod that does not wait for us."""
    app: str = ""
    workload: str = ""
    version: str = ""
    """The version that the pod names."""
    version_object: str = ""
    """The name of its KeptnWorkloadVersion, whether or not it exists."""
    app_version_object: str = ""
    """The name of the KeptnAppVersion that lets it begin; empty if there is none."""
    since: str = ""
    """The creation time of the pod."""
    age: int = 0
    """Seconds since then."""
    deadline: str = ""
    """The time at which it has waited too long; empty for never, or if it is not known."""
    on_expiry: Literal[""] | OnTimeout = ""
    """The action at the deadline: report, release or block the pod."""
    is_overdue: bool = False
    next_try: str = ""
    """The earliest of its checks' next tries."""
    advice: str = ""
    """The next step for users; empty if there is none."""
    checks: tuple[CheckReport, ...] = ()
    """The checks before its release, of its app, of itself and of its stage, in their order."""
    items: tuple[ItemReport, ...] = ()
    """The objects for which it waits besides its checks."""
    foreign_gates: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """The reason below the heading "waits for"."""
        return describe(self.code, self.text)

    @property
    def sentence(self) -> str:
        """The reason with its verb."""
        return sentence(self.code, self.text)

    @property
    def is_waiting(self) -> bool:
        """Whether the pod waits for us."""
        return bool(self.place)


def case_of(pod: Pod, facts: Facts, rules: GateWaitRules, now: datetime) -> Case:
    """Return the inputs of a verdict, which cost a tenth of a report."""
    described = workload_of(pod.annotations, pod.labels)
    version = _version(described, facts)
    age = _age(pod, now)
    wait = wait_report(pod, facts.items, age, facts.cycle)
    return Case(pod, described, version, facts, rules, age, wait)


def gate_report(pod: Pod, facts: Facts, rules: GateWaitRules, now: datetime) -> GateReport:
    """Return the report on a pod from all that is known."""
    case = case_of(pod, facts, rules, now)
    described = case.described if pod.has_checks else None
    version, conditions = case.version, pod.wait_conditions
    code, text, advice = verdict_on(case)
    names = names_of_pod(described) if described is not None else None
    app = facts.app if version is not None else None
    checks = _checks(case, now) if case.place else ()
    limit = case.limit
    on_expiry: OnTimeout = rules.on_expiry
    if not case.wait.is_over and conditions is not None and 0 < conditions.timeout < (limit or inf):
        limit, on_expiry = conditions.timeout, conditions.on_timeout
    is_bounded = bool(case.place and limit and pod.creation_timestamp)
    tries = [check.next_try for check in checks if check.is_open and check.next_try]
    return GateReport(
        namespace=pod.namespace,
        pod=pod.name,
        code=code,
        text=text,
        place=case.place,
        app=names.app if names is not None else "",
        workload=described.workload if described is not None else "",
        version=described.version if described is not None else "",
        version_object=names.version if names is not None else "",
        app_version_object=app.metadata.name if app is not None else "",
        since=pod.creation_timestamp,
        age=case.age,
        deadline=_deadline(pod, limit) if is_bounded else "",
        on_expiry=on_expiry if is_bounded else "",
        is_overdue=is_bounded and case.age >= limit,
        next_try=min(tries, default=""),
        advice=advice,
        checks=checks,
        items=case.wait.items if case.place else (),
        foreign_gates=tuple(gate for gate in pod.gates if gate != GATE),
    )


def _version(described: WorkloadMetadata | None, facts: Facts) -> WorkloadVersion | None:
    """Return the version that the pod is of, unless its workload is being deleted."""
    is_going = facts.workload is not None and facts.workload.metadata.deletion_timestamp
    if described is None or is_going:
        return None
    return version_of_pod(described, facts.version, facts.workload)


def _checks(case: Case, now: datetime) -> tuple[CheckReport, ...]:
    """Return the checks of the app and the workload; as the pod names them without a version."""
    if case.version is not None:
        versions = (case.facts.app, case.version)
        stale_after = case.rules.stale_after_intervals
        return tuple(
            report
            for version in versions
            if version is not None
            for report in check_reports(version, case.facts, now, stale_after=stale_after)
        )
    if case.described is None or not case.pod.has_checks:
        return ()
    tasks, evaluations = (
        case.described.pre_deployment_tasks,
        case.described.pre_deployment_evaluations,
    )
    return (
        *expected_checks(tasks, "task", _PRE_TASKS.name),
        *expected_checks(evaluations, "evaluation", _PRE_EVALUATIONS.name),
    )


def _age(pod: Pod, now: datetime) -> int:
    if not pod.creation_timestamp:
        return 0
    return max(int((now - parse_rfc3339(pod.creation_timestamp)).total_seconds()), 0)


def _deadline(pod: Pod, seconds: float) -> str:
    try:
        return format_rfc3339(parse_rfc3339(pod.creation_timestamp) + timedelta(seconds=seconds))
    except OverflowError:
        return ""
