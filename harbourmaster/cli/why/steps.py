"""The next step by the code of a section, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.owners import ROLLOUT
from harbourmaster.lifecycle.gate_verdict import release_command

if TYPE_CHECKING:
    from harbourmaster.cli.why.model import Report, Section

NOTHING: Final = "nothing to do"
_RELEASE: Final = f"to release it, run {release_command('{target}')}"
_RESTART: Final = "{renewal}"
_DESCRIBE: Final = "kubectl -n {namespace} describe {object}"
_STEPS: Final = {
    # Gates.
    "deployment-due ending not-gated released": NOTHING,
    "foreign-gates-only": "what set these gates must remove them",
    "waits-in-scheduler": f"read the scheduler's message: {_DESCRIBE}",
    "waits-for-owner waits-for-version": "wait a minute, then run harbourmaster doctor",
    "orphaned": _RELEASE,
    "app-failed": f"a new version or revision of its KeptnApp is checked again; {_RELEASE}",
    "waits-for-app": f"wait for the checks of its app; {_RELEASE}",
    "checks-failed": f"a new keptn.sh/version of the workload is checked again; {_RELEASE}",
    "checks-pending": f"wait for its checks; {_RELEASE}",
    "waits-for-objects": f"wait for the objects, or create those that do not exist; {_RELEASE}",
    "waits-forbidden": "ask an administrator to allow it",
    "to-be-gated": "apply the manifest",
    "definition-missing": "create the definitions that are missing, then apply the manifest",
    "namespace-excluded": "use another namespace, or change what excludes this one",
    "not-opted-in": f"kubectl annotate namespace {{namespace}} {OPT_IN_KEY}={OPT_IN}",
    "gate-owner-unsupported owner-unsupported": "use a Deployment, "
    "StatefulSet, DaemonSet or Argo Rollout",
    "no-keys": "to have it checked, annotate its template with keptn.sh/workload and checks",
    "admitted-before": _RESTART,
    "not-reviewed": f"run harbourmaster doctor, then {_RESTART}",
    "break-glass": f"harbourmaster doctor --break-glass off, then {_RESTART}",
    "version-not-raised": "raise keptn.sh/version: kubectl -n {namespace} edit {workload}",
    # Checks, by the codes of their admission warnings.
    "gate-key-unknown gate-list-empty gate-wait-invalid evaluation-target-invalid "
    "wait-blocked": "correct it: kubectl -n {namespace} edit {workload}",
    "gate-opt-in-unknown": f"kubectl annotate --overwrite namespace {{namespace}} "
    f"{OPT_IN_KEY}={OPT_IN}",
    "no-checks": "name checks in keptn.sh/pre-deployment-tasks or …-evaluations of {workload}",
    # Nodes.
    "no-node-matches": "kubectl get nodes --show-labels; label a node, or correct who requires it",
    "node-excluded": "kubectl describe nodes; add a toleration, or remove the taint",
    "unschedulable waits": f"read the scheduler's message: {_DESCRIBE}",
    "not-looked-at": "kubectl -n kube-system get pods; start the scheduler that the pod names",
    # Policies, by the outcome of admission.
    "gated mutated placed unchanged unmatched valid": NOTHING,
    "denied invalid malformed skipped": "correct what it names, and apply the object again",
    # Placement.
    "moving unplaced refused": "harbourmaster placement why {application}",
    "unknown": "ask the cluster that manages placement: harbourmaster placement why "
    "{application} --context NAME",
    # Rescheduling.
    "allowed fits kept-away makes-room reserved told": NOTHING,
    "no-room room-can-be-made unplanned": "harbourmaster reschedule plan {namespace}/{name}",
    # References.
    "no-consent": "run the commands that it names, as their owner",
    "unread": "ask for the permission that it names, or use an administrator's --context",
}
STEPS: Final = {code: step for codes, step in _STEPS.items() for code in codes.split()}
"""The steps by code; braces hold names of the object."""


def step_of(section: Section, report: Report) -> str:
    """The next step; what the section itself names comes first."""
    subject, top = report.subject, (report.subject, *report.owners)[-1]
    own = f"{subject.kind.lower()}/{subject.name}"
    place = f"{subject.namespace}/{subject.name}"
    return section.step or STEPS.get(section.code, "").format(
        namespace=subject.namespace,
        name=subject.name,
        object=own,
        workload=f"{top.kind.lower()}/{top.name}",
        renewal=renewal(top.kind, subject.namespace, top.name),
        target=place if subject.kind == "Pod" else f"{own} -n {subject.namespace}",
        application=getattr(section.detail, "application", "") or place,
    )


def renewal(kind: str, namespace: str, name: str) -> str:
    """Return the command that replaces the pods of a workload, or a pod, by new ones."""
    if kind in {"Deployment", "StatefulSet", "DaemonSet"}:
        return f"kubectl -n {namespace} rollout restart {kind.lower()}/{name}"
    if kind == ROLLOUT:
        return f"kubectl argo rollouts restart {name} -n {namespace}"
    return f"delete {kind} {namespace}/{name} and create it again"
