"""The report of ``why`` for people and as JSON, with the next step for each code."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING, Final, get_args

from harbourmaster.api.resources import NAMESPACES, PLACEMENT_GROUP
from harbourmaster.cli.terminal import FORMATS, Terminal
from harbourmaster.cli.why.model import Line, State
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY, WORKLOAD_KEY
from harbourmaster.gates.owners import ROLLOUT
from harbourmaster.gates.waits import WAIT_FOR_KEY
from harbourmaster.lifecycle.gate_verdict import FOREIGN, release_command

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterator, Sequence

    from harbourmaster.cli.terminal import Tone
    from harbourmaster.cli.why.model import Report, Section, Subject


_WIDEST_LABEL: Final = 48
_INDENT: Final = 2
_TONES: Final[dict[State, Tone]] = {
    "fault": "bad",
    "waits": "waiting",
    "unknown": "waiting",
    "note": "strong",
    "fine": "good",
}
_STATES: Final = get_args(State)
_FOR_PROGRAMS: Final = ("name", "state", "code", "summary", "lines", "detail")
"""The fields of a section that are printed for programs."""


def show(arguments: Arguments, report: Report) -> None:
    """Print one report; several JSON documents follow each other."""
    sections = sorted(report.sections, key=lambda section: _STATES.index(section.state))
    if arguments.output in FORMATS:
        begin = b"---\n" if arguments.output == "yaml" else b""
        subject = report.subject
        # State and summary are the most urgent section's.
        document = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "state": sections[0].state,
            "summary": sections[0].summary,
            "sections": [
                {key: getattr(section, key) for key in _FOR_PROGRAMS}
                | {"next": step_of(section, report)}
                for section in sections
            ],
        }
        sys.stdout.buffer.write(begin + FORMATS[arguments.output](document))
        sys.stdout.buffer.flush()
        return
    for line in _text(report, sections, Terminal.of(sys.stdout)):
        print(line)
    print(flush=True)


def _text(report: Report, sections: Sequence[Section], terminal: Terminal) -> Iterator[str]:
    """The lines for people."""
    yield terminal.line(report.subject.reference, "strong")
    if report.summary:
        yield terminal.line(report.summary, indent=_INDENT)
    for section in sections:
        yield ""
        heading = f"{section.name.capitalize()}: {section.summary}"
        yield terminal.line(heading, _TONES[section.state], hanging=_INDENT)
        step = NOTHING if section.state == "fine" else step_of(section, report)
        steps = [Line(step, label="next", tone="strong")] if step not in {"", NOTHING} else []
        yield from _lines([*section.lines, *steps], terminal)


def _lines(lines: Sequence[Line], terminal: Terminal) -> Iterator[str]:
    """Neighbours of one depth share a column for their labels."""
    for depth, group in groupby(lines, key=lambda line: line.depth):
        neighbours = list(group)
        widths = [len(line.label) for line in neighbours if line.label]
        width = min(max(widths, default=0), _WIDEST_LABEL)
        for line in neighbours:
            yield _line(line, (depth + 1) * _INDENT, width, terminal)


def _line(line: Line, indent: int, width: int, terminal: Terminal) -> str:
    if not line.label:
        return terminal.line(line.text, line.tone, indent=indent, hanging=_INDENT)
    if len(line.label) > width or (terminal.width and width + indent > terminal.width // 2):
        # A label that leaves no room for its text stands above it.
        label = terminal.line(line.label, line.tone, indent=indent)
        return f"{label}\n{terminal.line(line.text, line.tone, indent=indent + 2 * _INDENT)}"
    shown = f"{line.label.ljust(width)}  {line.text}"
    return terminal.line(shown, line.tone, indent=indent, hanging=width + _INDENT)


NOTHING: Final = "nothing to do"
_RELEASE: Final = "to release it, run {release}"
_RESTART: Final = "{renewal}"
_EDIT: Final = "{edit}"
_DESCRIBE: Final = "kubectl -n {namespace} describe {object}"
_STEPS: Final = {
    # Gates.
    "deployment-due ending not-gated released": NOTHING,
    "foreign-gates-only": FOREIGN + "kubectl -n {namespace} edit {object}",
    "waits-in-scheduler": f"read the scheduler's message: {_DESCRIBE}",
    "waits-for-owner waits-for-version": "if it lasts two minutes, correct what the events name: "
    f"kubectl -n {{namespace}} events --types=Warning; {_RELEASE}",
    "orphaned": _RELEASE,
    "superseded": "kubectl -n {namespace} delete {object}",
    "app-failed": "correct the cause and raise the revision of its KeptnApp: "
    "kubectl -n {namespace} edit keptnapps {app}",
    "waits-for-app": f"wait for the checks of its app; {_RELEASE}",
    "checks-failed": f"correct the cause and raise keptn.sh/version: {_EDIT}",
    "checks-pending": f"wait for its checks; {_RELEASE}",
    "stage-held": "harbourmaster gate promote {object} -n {namespace} --reason TEXT",
    "stage-pending": "wait for its stage, or end it: harbourmaster gate promote {object} -n "
    "{namespace} --reason TEXT",
    "waits-for-objects": "wait for the objects, or create those that do not exist (a Job with "
    f"ttlSecondsAfterFinished is deleted after it ended); {_RELEASE}",
    "waits-forbidden": "ask an administrator to allow it: "
    f"kubectl label namespace {{namespace}} {WAIT_FOR_KEY}-, or the feature waits of the webhook",
    "to-be-gated": "{again}",
    "definition-missing": "create it, or name one that exists: kubectl -n {namespace} get "
    "keptntaskdefinitions,keptnevaluationdefinitions; then run {again}",
    "namespace-excluded": "use another namespace, or change what excludes this one: kubectl get "
    "mutatingwebhookconfigurations harbourmaster -o yaml shows its selectors",
    "not-opted-in": f"kubectl annotate namespace {{namespace}} {OPT_IN_KEY}={OPT_IN}",
    "gate-owner-unsupported owner-unsupported": "use a Deployment, StatefulSet, DaemonSet or Argo "
    "Rollout, or remove its keys: {correction}",
    "no-keys": "to have it checked, name its workload: "
    f"kubectl -n {{namespace}} annotate {{workload}} {WORKLOAD_KEY}={{top}}, "
    f"then {_RESTART}",
    "admitted-before gate-wait-not-inherited": _RESTART,
    "version-refused pods-refused": f"correct what it names; the controller tries again: {_EDIT}",
    "scaled-to-zero": "kubectl -n {namespace} scale {workload} --replicas=1",
    "no-pods": f"read the events: {_DESCRIBE}",
    "suspended": "set spec.suspend to false: kubectl -n {namespace} edit {object}",
    "paused": "kubectl -n {namespace} rollout resume {object}",
    "being-deleted": NOTHING,
    "not-led": "kubectl get leases --all-namespaces shows when its Lease was renewed",
    "not-reviewed": f"run harbourmaster doctor, then {_RESTART}",
    "break-glass": f"harbourmaster doctor --break-glass off, then {_RESTART}",
    "version-not-raised": f"raise keptn.sh/version: {_EDIT}",
    # Checks, by the codes of their admission warnings.
    "gate-key-unknown gate-list-empty gate-list-invalid gate-state-key gate-timeout-invalid "
    "gate-wait-invalid gate-wait-shadowed evaluation-target-invalid "
    "wait-blocked": "correct it: {correction}",
    "gate-opt-in-unknown": f"kubectl annotate --overwrite namespace {{namespace}} "
    f"{OPT_IN_KEY}={OPT_IN}",
    "gate-wait-label": "correct the label: kubectl edit namespace {namespace}",
    "no-checks": f"name checks in keptn.sh/pre-deployment-tasks or …-evaluations: {_EDIT}",
    # Nodes.
    "no-node-matches": "kubectl get nodes --show-labels; label a node, or correct who requires it",
    "node-excluded": "kubectl describe nodes; add a toleration, or remove the taint",
    "unschedulable waits": f"read the scheduler's message: {_DESCRIBE}",
    "not-looked-at": "start the scheduler that it names (kubectl get leases -A shows who runs), or "
    "name another one: {correction}",
    # Policies, by the outcome of admission.
    "gated mutated placed unchanged unmatched valid": NOTHING,
    "denied invalid malformed skipped": "correct what it names, then {again}",
    # Apps, versions, checks and metrics.
    "succeeded deprecated has-value": NOTHING,
    "deployment-pending deployment-failed task-stuck": _DESCRIBE,
    "metric-unavailable metric-failing value-pending": "kubectl -n {namespace} get keptnmetrics",
    "provider-missing": "kubectl -n {namespace} get keptnmetricsproviders",
    # Namespaces, and policies by themselves.
    "opted-in": NOTHING,
    "label-missing": "a controller writes it: kubectl get namespace {namespace} --show-labels",
    "pods-wait": "harbourmaster gate list -n {namespace}",
    "overridden not-applied": "harbourmaster repair",
    # Placement.
    "moving unplaced refused not-deployed not-checked not-ready": "harbourmaster why application "
    "{application}",
    "placement-off": "add deploy/components/placement: kubectl get deployments -A",
    "unknown": "ask the cluster that manages placement: harbourmaster why application "
    "{application} --context NAME; kubectl config get-contexts lists the names",
    # Rescheduling.
    "allowed fits kept-away makes-room reserved told": NOTHING,
    "no-room room-can-be-made unplanned": "harbourmaster reschedule plan --pod {namespace}/{name}",
    # References.
    "no-consent": f"run the commands that it names, as their owner: {_DESCRIBE}",
    "unread": "ask for the permission that it names, or use an administrator's --context: kubectl "
    "auth can-i --list -n {namespace} shows yours",
}
STEPS: Final = {code: step for codes, step in _STEPS.items() for code in codes.split()}
"""The steps by code; braces hold names of the object.

A command begins with kubectl or harbourmaster and ends before ``, ``, ``; ``, ``)`` or a verb.
"""


def step_of(section: Section, report: Report) -> str:
    """The next step; what the section itself names comes first."""
    subject, top = report.subject, (report.subject, *report.owners)[-1]
    is_space = subject.kind == NAMESPACES.kind
    space = subject.name if is_space else subject.namespace
    own, workload = _argument(subject), _argument(top)
    place = f"{space}/{subject.name}"
    edit, create = f"kubectl -n {space} edit", f"kubectl -n {space} delete {workload}, then create"
    # Pods and Jobs keep what they were created with, except the annotations of pods.
    is_fixed = {"Job": True, "Pod": section.code == "not-looked-at"}.get(top.kind, False)
    correction = f"{create} it again" if is_fixed else f"{edit} {workload}"
    return section.step or STEPS.get(section.code, "").format(
        namespace=space,
        name=subject.name,
        object=own,
        workload=workload,
        top=top.name,
        edit=f"{edit} {workload}",
        correction=correction,
        renewal=renewal(top.kind, space, top.name),
        release=release_command(
            place if subject.kind == "Pod" else f"{own} -n {space}", section.code
        ),
        again=report.again or correction,
        app=getattr(getattr(section.detail, "report", None), "app", ""),
        application=getattr(section.detail, "application", "") or place,
    )


def _argument(subject: Subject) -> str:
    """The object as kubectl takes it: of its group, where others have the kind as well."""
    group = subject.api_version.partition("/")[0]
    kind = subject.kind.lower()
    return (
        f"{kind}.{group}/{subject.name}" if group == PLACEMENT_GROUP else f"{kind}/{subject.name}"
    )


def renewal(kind: str, namespace: str, name: str) -> str:
    """Return the command that replaces the pods of a workload, or a pod, by new ones."""
    if kind in {"Deployment", "StatefulSet", "DaemonSet"}:
        return f"kubectl -n {namespace} rollout restart {kind.lower()}/{name}"
    if kind == ROLLOUT:
        return f"kubectl argo rollouts restart {name} -n {namespace}"
    return f"kubectl -n {namespace} delete {kind.lower()}/{name}, then create it again"
