"""Selects the one reason, of all that hold, to report for a waiting pod. Pure.

One code always wins. In this order, the first that holds:

======================  =========================================================================
``ending``              the pod is being deleted, and its gate is left as it is
``foreign-gates-only``  it has no gate of ours, and gates of others hold it
``released``            due: its checks passed, or its time is over and it goes without; or done
``not-gated``           it neither has our gate nor waits in a scheduler for us
``waits-in-scheduler``  its checks passed, and its scheduler has no node for it yet
``waits-for-owner``     it is to be found out whose it is, or its version is to record its owner
``orphaned``            no check will ever release it
``superseded``          its StatefulSet has another revision for it, and does not replace it
``waits-for-version``   its KeptnWorkloadVersion is not there yet
``app-failed``          a check of its app failed: only another version of the app lets it go
``waits-for-app``       the checks of its app, which come first
``checks-failed``       a check of its own failed: its version stays where it is
``checks-pending``      its own checks
``stage-held``          the stage of its version failed: no more pods are released than were
``stage-pending``       the stages of its version, which release no more pods yet
``wait-blocked``        what it waits for besides its checks will not come without a person
``waits-for-objects``   the same, which may come
``deployment-due``      all checks passed, and its deployment is about to begin
======================  =========================================================================
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.times import format_rfc3339, parse_rfc3339
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import (
    PARENT_KEY,
    REMOVED_KEY,
    UNRESOLVED,
    WORKLOAD_KEY,
    lookup,
)
from harbourmaster.gates.owners import STATEFUL_SET, supported_owner
from harbourmaster.gates.release import (
    EXPIRED,
    RELEASED_BY_KEY,
    RELEASED_KEY,
    RELEASED_REASON_KEY,
    may_release,
)
from harbourmaster.gates.stages import MANUAL, STAGED_LABEL
from harbourmaster.gates.waits import MET, WAITED_KEY
from harbourmaster.lifecycle.check_facts import STALE_AFTER, phases_before
from harbourmaster.lifecycle.evaluations import progress_of
from harbourmaster.lifecycle.model import DEPRECATED, FAILED, PENDING
from harbourmaster.lifecycle.phases import (
    APP_PRE_EVALUATIONS,
    EVALUATION,
    PASSED,
    has_passed,
    stage_phases,
    state_of,
)
from harbourmaster.lifecycle.stages import CHECKING, HELD, PAUSED, RELEASING, is_staging
from harbourmaster.lifecycle.waiting import may_begin
from harbourmaster.lifecycle.workload_owners import describe_owners
from harbourmaster.lifecycle.workloads import approval

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harbourmaster.gates.workload import WorkloadMetadata
    from harbourmaster.lifecycle.check_facts import Facts
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import AppVersion, Evaluation, ItemStatus, WorkloadVersion
    from harbourmaster.lifecycle.phases import Phase
    from harbourmaster.lifecycle.wait_items import WaitReport

Code: TypeAlias = Literal[
    "ending",
    "foreign-gates-only",
    "released",
    "not-gated",
    "waits-in-scheduler",
    "waits-for-owner",
    "orphaned",
    "superseded",
    "waits-for-version",
    "app-failed",
    "waits-for-app",
    "checks-failed",
    "checks-pending",
    "stage-held",
    "stage-pending",
    "deployment-due",
    "wait-blocked",
    "waits-for-objects",
]
BLOCKED: Final[frozenset[Code]] = frozenset(
    ("orphaned", "superseded", "app-failed", "checks-failed", "stage-held", "wait-blocked")
)
"""Codes of pods that will not go on without a person."""
IN_PROGRESS: Final[frozenset[Code]] = frozenset(
    (
        "waits-for-owner",
        "waits-for-version",
        "waits-for-app",
        "checks-pending",
        "stage-pending",
        "waits-for-objects",
    )
)
"""Codes of pods that wait for something that may come by itself."""
MISSING: Final[frozenset[Code]] = frozenset(("waits-for-owner", "waits-for-version"))
"""Codes of pods that wait for what the controller creates or finds out."""
WaitPlace: TypeAlias = Literal["", "gate", "scheduler"]

A_NODE: Final = "a node: its checks passed, and its scheduler has none for it yet"
STUCK_AFTER: Final = 120
"""Seconds after which an app, a version or an owner that is missing no longer comes by itself."""


class GateWaitRules(Struct, frozen=True, gc=False, kw_only=True):
    """The controller's settings for waiting pods; see its ``lifecycle`` settings."""

    max_age_seconds: float = 0.0
    """Maximum seconds at a gate; 0 means no limit."""
    on_expiry: Literal["Keep", "Release"] = "Keep"
    stale_after_intervals: float = STALE_AFTER


class GateVerdict(NamedTuple):
    """The reason why a pod waits: ``text`` follows "waits for", ``advice`` is the next step."""

    code: Code
    text: str
    advice: str = ""

    @property
    def reason(self) -> str:
        """The text with its verb: what is waited for, or why nothing is."""
        is_waiting = not self.text.startswith(_NOTHING)
        return f"waits for {self.text}" if is_waiting else self.text.removeprefix(_NOTHING)

    def is_stuck(self, age: int) -> bool:
        """Whether a pod of this age in seconds waits for what does not come by itself."""
        is_missing = self.code in MISSING or (self.code == "waits-for-app" and bool(self.advice))
        is_late = age >= STUCK_AFTER and (is_missing or self.code in {"orphaned", "superseded"})
        return is_late or self.code == "wait-blocked"


FOREIGN: Final = "what set these gates must remove them, or by hand: "
_NOTHING: Final = "nothing: "
_AND_FOR: Final = "and for "
_DUE: Final = GateVerdict("released", "its release, which is due")


def describe(code: Code, text: str) -> str:
    """Return the text of a verdict for a column with the heading "waits for"."""
    reason = text.removeprefix(_NOTHING)
    return f"Blocked: {reason}" if code in BLOCKED else reason


def sentence(code: Code, text: str) -> str:
    """Return the text of a verdict with its verb, as every output shows it."""
    return describe(code, text) if code in BLOCKED else GateVerdict(code, text).reason


def release_command(target: str, code: str, action: str = "release") -> str:
    """Return the command that releases a pod, ``namespace/name``, or the pods of a workload.

    ``code`` is why it waits, and with that the proposed reason.
    """
    return f'harbourmaster gate {action} {target} --reason "was held: {code}"'


class Case(NamedTuple):
    """A pod with all that decides on it; ``version`` is its version, if that exists."""

    pod: Pod
    described: WorkloadMetadata | None
    version: WorkloadVersion | None
    facts: Facts
    rules: GateWaitRules
    age: int
    """Seconds since the pod was created."""
    wait: WaitReport

    @property
    def place(self) -> WaitPlace:
        """The place where it waits."""
        if GATE in self.pod.gates:
            return "gate"
        return "scheduler" if self.pod.is_in_scheduler else ""

    @property
    def is_provisional(self) -> bool:
        """Whether the controller has yet to find out what admission could not."""
        if self.pod.annotations.get(PARENT_KEY) == UNRESOLVED:
            return True
        return self.described is not None and not self.described.version

    @property
    def owner(self) -> str:
        """The uid of the owner that counts."""
        owner = supported_owner(self.pod.owner_references)
        return owner.uid if owner is not None else ""

    @property
    def limit(self) -> float:
        """Maximum seconds at a gate; 0 means no limit, as for a pod that is released in a stage."""
        return 0.0 if STAGED_LABEL in self.pod.labels else self.rules.max_age_seconds

    @property
    def is_overdue(self) -> bool:
        """Whether it has waited too long."""
        return bool(self.limit and self.pod.creation_timestamp and self.age >= self.limit)

    @property
    def is_late(self) -> bool:
        """Whether it is released for its age."""
        return self.is_overdue and self.rules.on_expiry == "Release"

    def release(self, code: Code, action: str = "release") -> str:
        """Return the command that releases it; for a template, one of its pods."""
        return release_command(f"{self.pod.namespace}/{self.pod.name or 'POD'}", code, action)


def verdict_on(case: Case) -> GateVerdict:
    """Return the first verdict that holds, in the order of the table above."""
    if case.pod.is_ending:
        return GateVerdict("ending", "nothing: it is being deleted")
    if not case.place:
        return _verdict_on_ungated_pod(case.pod)
    wait = case.wait
    if case.is_late and (wait.blocked or not wait.is_over):
        return _overdue(case)
    if wait.blocked:
        advice = f"correct it, or to release this pod, run {case.release('wait-blocked')}"
        return GateVerdict("wait-blocked", f"nothing: {wait.blocked}", advice)
    checks = _verdict_on_checks(case) if case.pod.has_checks else _DUE
    if wait.is_over:
        return checks
    if checks.code in {"released", "waits-in-scheduler"}:
        return GateVerdict("waits-for-objects", wait.text)
    return checks._replace(text=f"{checks.text}; {_AND_FOR}{wait.text}")


def _verdict_on_checks(case: Case) -> GateVerdict:
    """Decide for a pod that waits for its checks, or did."""
    orphaned = "" if case.is_provisional else why_orphaned(case.pod)
    is_settled = not case.is_provisional and not orphaned
    if is_settled and case.version is not None and may_release(approval(case.version), case.owner):
        if case.place == "scheduler":
            return GateVerdict("waits-in-scheduler", A_NODE)
        if not is_staging(case.version):
            return _DUE
    if case.is_late:
        return _overdue(case)
    if case.is_provisional:
        what = "owner" if case.described is None or case.described.version else "version"
        return _missing(case, GateVerdict("waits-for-owner", f"its {what} to be determined"))
    if orphaned:
        advice = f"to release it, run {case.release('orphaned')}"
        return GateVerdict("orphaned", f"nothing: {orphaned}", advice)
    verdict = _verdict_on_tracked_pod(case)
    is_over = case.version is not None and case.version.status.status == DEPRECATED
    if case.facts.is_superseded and (is_over or verdict.advice):
        text = "nothing: its StatefulSet has another revision for it, and replaces only ready pods"
        advice = f"kubectl -n {case.pod.namespace} delete pod {case.pod.name}"
        return GateVerdict("superseded", text, advice)
    return verdict


def _overdue(case: Case) -> GateVerdict:
    waited = f"it has waited {case.age} s, longer than {case.rules.max_age_seconds:g} s"
    return GateVerdict("released", f"its release without its checks, which is due: {waited}")


def _missing(case: Case, verdict: GateVerdict) -> GateVerdict:
    """Return the verdict with the next step, if what is missing should have come by now."""
    events = f"kubectl -n {case.pod.namespace} events --types=Warning"
    release = case.release(verdict.code)
    advice = f"correct what the events name: {events}; or to release this pod, run {release}"
    return verdict._replace(advice=advice if verdict.is_stuck(case.age) else "")


def _verdict_on_tracked_pod(case: Case) -> GateVerdict:
    """Decide for a pod of a known workload that must wait."""
    wait = wait_of(case.version, case.owner)
    if case.version is None or wait.code in MISSING:
        return _missing(case, wait)
    if wait.code == "waits-for-app":
        return _of_app(case, case.version, wait.text)
    if wait.code == "checks-failed":
        is_kept = STATEFUL_SET in {owner.kind for owner in case.pod.owner_references}
        step = "a new keptn.sh/version of the workload is checked again"
        step += ", once this pod is deleted" if is_kept else ""
        return wait._replace(advice=_rerun_advice(case, wait.code, step))
    if wait.code == "stage-pending":
        return verdict_on_stage(case.version, case.facts.evaluations)
    return wait


def _verdict_on_ungated_pod(pod: Pod) -> GateVerdict:
    """Decide for a pod that does not wait for us."""
    if pod.gates:
        text = f"the gates of others: {', '.join(pod.gates)}"
        advice = f"{FOREIGN}kubectl -n {pod.namespace} edit pod/{pod.name}"
        return GateVerdict("foreign-gates-only", text, advice)
    how = pod.annotations.get(RELEASED_KEY, "")
    if how == EXPIRED:
        return GateVerdict("released", "nothing: it waited too long and was released unchecked")
    if how:
        who = pod.annotations.get(RELEASED_BY_KEY) or "an unknown user"
        why = pod.annotations.get(RELEASED_REASON_KEY) or "no reason is given"
        return GateVerdict("released", f"nothing: {who} released it without its checks: {why}")
    if pod.annotations.get(WAITED_KEY) == MET:
        return GateVerdict("released", "nothing: all its waits are met")
    if pod.annotations.get(REMOVED_KEY):
        return GateVerdict("released", "nothing: its gate was removed")
    return GateVerdict("not-gated", "nothing: it has no gate of ours")


def _of_app(case: Case, version: WorkloadVersion, text: str) -> GateVerdict:
    """Decide for a pod whose app comes first; ``text`` is the reason by its version alone."""
    app = case.facts.app
    if app is None:
        if "KeptnAppVersion" in case.facts.unread:
            return GateVerdict("waits-for-app", text)
        # A KeptnApp lists workloads without its own name before theirs.
        name = version.spec.workload_name.removeprefix(f"{version.spec.app}-")
        which = f"{name} in version {version.spec.version}"
        advice = (
            f'list {name} in KeptnApp {version.spec.app} with version "{version.spec.version}": '
        )
        advice += f"kubectl -n {case.pod.namespace} edit keptnapps {version.spec.app}"
        owners = describe_owners(case.facts.workload)
        text = f"{text}: no KeptnAppVersion has {which} yet{owners and f'; {owners}'}"
        return GateVerdict("waits-for-app", text, advice)
    if may_begin(app):
        return GateVerdict("waits-for-app", f"{text}, which passed: its own are about to begin")
    wait = pre_checks(app)
    detail = wait.text.removeprefix(_NOTHING) if wait is not None else "about to end"
    if FAILED in {app.status.status, state_of(app.status, APP_PRE_EVALUATIONS)}:
        new = f"a new version or revision of KeptnApp {version.spec.app} is checked again"
        advice = _rerun_advice(case, "app-failed", new)
        return GateVerdict("app-failed", f"{text}: {detail}", advice)
    return GateVerdict("waits-for-app", f"{text}: {detail}")


def _rerun_advice(case: Case, code: Code, alternative: str) -> str:
    rerun, release = case.release(code, "rerun"), case.release(code)
    return f"correct the cause and run {rerun}; {alternative}; to release it, run {release}"


def wait_of(version: WorkloadVersion | None, owner: str) -> GateVerdict:
    """Return why a pod of the owner with this uid waits, by its version, if it has one."""
    if version is None:
        return GateVerdict("waits-for-version", "its workload version, which is not there yet")
    if may_release(approval(version), owner):
        return verdict_on_stage(version) if is_staging(version) else _DUE
    if approval(version).is_given:
        return GateVerdict("waits-for-owner", "its owner to be recorded, which is due")
    status = version.status
    if not status.current_phase and status.status != FAILED:
        return GateVerdict("waits-for-app", f"the checks of the app {version.spec.app}")
    return pre_checks(version) or GateVerdict(
        "deployment-due", "its deployment to begin, which is due"
    )


def verdict_on_stage(
    version: WorkloadVersion, evaluations: Mapping[str, Evaluation] | None = None
) -> GateVerdict:
    """Return why the current stage of a version releases no further pod.

    ``evaluations`` are those of its checks, by name, as far as they are known.
    """
    spec, stage = version.spec, version.status.stage
    if version.status.status == DEPRECATED:
        return GateVerdict("stage-pending", "its deletion: another version has replaced its own")
    if stage is None:
        return GateVerdict("stage-pending", "the first stage of its version, which is due")
    # While pods wait, as many are released as the stage allows.
    released = stage.allowed if stage.state == RELEASING else stage.released
    pods = f"{released} of {stage.wanted} pods released"
    place = f"stage {stage.number} of {stage.of}"
    target = f"keptnworkload/{spec.workload_name} -n {version.metadata.namespace}"
    promote = f"to go on, run {release_command(target, 'stage-held', 'promote')}"
    if stage.state == HELD:
        text = f"nothing: {place} is held: {stage.message}; {pods}"
        advice = f"undo the rollout, or correct the cause in a new version; {promote}"
        return GateVerdict("stage-held", text, advice)
    advice, detail = "", "not all of them are ready"
    if stage.state == PAUSED and spec.stage_pause == MANUAL:
        advice = promote.replace("stage-held", "stage-paused")
        detail = "paused until it is promoted"
    elif stage.state == PAUSED:
        detail = f"paused for {spec.stage_pause}"
        # A changed template may have one that cannot be read.
        with suppress(ValueError, OverflowError):
            end = parse_rfc3339(stage.since) + timedelta(seconds=parse_duration(spec.stage_pause))
            detail = f"paused until {format_rfc3339(end)}"
    elif stage.state == CHECKING:
        detail = ", ".join(
            _describe_item(phase, item, evaluations or {})
            for phase in stage_phases(stage.number)
            for item in getattr(version.status, phase.items)
            if item.status not in PASSED
        )
        detail = detail or "its checks are about to begin"
    return GateVerdict("stage-pending", f"{place}: {pods}, {detail}", advice)


def _describe_item(phase: Phase, item: ItemStatus, evaluations: Mapping[str, Evaluation]) -> str:
    """Return a check of a stage with its state, or the number of its last try."""
    evaluation = evaluations.get(item.name) if phase.kind == EVALUATION else None
    tries = progress_of(evaluation.status).tries if evaluation is not None else 0
    state = f"try {tries}" if tries and item.status != FAILED else item.status
    return f"{phase.kind.removeprefix('Keptn').lower()} {item.definition_name}: {state}"


def pre_checks(version: WorkloadVersion | AppVersion) -> GateVerdict | None:
    """Return which checks before a deployment have not passed, or None."""
    tasks, evaluations = phases_before(version)
    return verdict_on_phase("pre-deployment tasks", tasks, version) or verdict_on_phase(
        "pre-deployment evaluations", evaluations, version
    )


def why_orphaned(pod: Pod) -> str:
    """Return why no check will ever release a waiting pod, or "" if one may."""
    if pod.annotations.get(PARENT_KEY) == UNRESOLVED:
        return ""
    if not lookup(pod.annotations, pod.labels, WORKLOAD_KEY):
        return "it no longer names a workload"
    owner = supported_owner(pod.owner_references)
    if owner is None or not owner.uid:
        return "no ReplicaSet, StatefulSet or DaemonSet owns it"
    return ""


def verdict_on_phase(
    name: str, phase: Phase, version: WorkloadVersion | AppVersion
) -> GateVerdict | None:
    """Return which checks of a phase have not passed, or None."""
    state = state_of(version.status, phase)
    items: Iterable[ItemStatus] = getattr(version.status, phase.items)
    expected: Iterable[str] = getattr(version.spec, phase.checks)
    if has_passed(version, phase):
        return None
    states = dict.fromkeys(expected, PENDING) | {
        item.definition_name: item.status for item in items
    }
    failed = sorted(name for name, state in states.items() if state == FAILED)
    if state == FAILED or failed:
        text = f"nothing: {name} failed ({', '.join(failed) or 'no details'})"
        return GateVerdict("checks-failed", text)
    left = [f"{name} {state}" for name, state in states.items() if state not in PASSED]
    return GateVerdict("checks-pending", f"{name}: {', '.join(left)}" if left else name)
