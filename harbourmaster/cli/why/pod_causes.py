"""Why a workload has no pods of its template: its spec, its status and the events about it. Pure.

``refusal_step`` names the command that shows what refuses an object.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harbourmaster.api.resources import CRON_JOBS, JOBS
from harbourmaster.cli.offline import object_in
from harbourmaster.cli.why.model import State
from harbourmaster.gates.owners import DAEMON_SET, DEPLOYMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Reason: TypeAlias = tuple[str, State, str]
"""A code, its urgency, and a text."""
_HOOKS: Final = "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations"
_REFUSALS: Final = (
    (r"exceeded quota: ([^,:\s]+)", "kubectl -n {ns} edit resourcequota/{name}"),
    (r'serviceaccount "([^"]+)" not found', "kubectl -n {ns} create serviceaccount {name}"),
    ("PriorityClass", "kubectl get priorityclasses"),
    (r"RuntimeClass", "kubectl get runtimeclasses"),
    ("PodSecurity", "kubectl get namespace {ns} --show-labels"),
    (
        r"(?:maximum|minimum) \S+ usage per|limit to request ratio",
        "kubectl -n {ns} describe limits",
    ),
    (r"ValidatingAdmissionPolicy '([^']+)'", "kubectl describe validatingadmissionpolicy {name}"),
    (r"admission webhook|calling webhook", _HOOKS),
    ("being terminated", "kubectl get namespace {ns} --output=yaml"),
)
_NOISE: Final = re.compile(r"^\(combined from similar events\): |Error creating: ")


def refusal_step(text: str, namespace: str) -> str:
    """Return the step for a refusal by the API server; empty for an unusual one."""
    for pattern, command in _REFUSALS:
        if match := re.search(pattern, text):
            name = match[1] if match.lastindex else ""
            shown = command.format(ns=namespace, name=name)
            return f"correct what it names; the controller tries again: {shown}"
    return ""


def latest_message(events: Iterable[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the time and the message of the latest event."""
    times = (
        (event.get("lastTimestamp") or event.get("eventTime") or "", event) for event in events
    )
    time, event = max(times, key=lambda pair: pair[0], default=("", {}))
    return time, _NOISE.sub("", event.get("message") or "")


def why_no_pods(
    workload: dict[str, Any], kind: str, created: str | None, refusal: tuple[str, str]
) -> Reason | None:
    """Return why a workload lacks pods of its template; None if nothing says that it does.

    ``created`` is when the newest of its pods was, empty for none, and None if that is unknown;
    ``refusal`` is the latest event about one that could not be created.
    """
    status = object_in(workload, "status")
    if reason := _by_spec(workload, kind, status):
        return reason
    for condition in status.get("conditions") or ():
        is_failing = (condition["type"], condition["status"]) == ("ReplicaFailure", "True")
        if is_failing or condition.get("reason") == "ReplicaSetCreateError":
            text = condition.get("message") or condition.get("reason")
            return "pods-refused", "fault", f"its pods are not created: {text}"
    # An event is kept for an hour, also where the pods came since.
    if created is not None and refusal[1] and refusal[0] >= created:
        return "pods-refused", "fault", f"its pods are not created: {refusal[1]}"
    return _by_status(kind, status) if created == "" else None


def _by_spec(workload: dict[str, Any], kind: str, status: Mapping[str, Any]) -> Reason | None:
    """Return why no pods of the workload are wanted."""
    spec, metadata = object_in(workload, "spec"), object_in(workload, "metadata")
    if metadata.get("deletionTimestamp"):
        return "being-deleted", "note", "it is being deleted, and gets no new pods"
    # A Deployment has its former ReplicaSets without pods.
    if spec.get("replicas") == 0 and not metadata.get("ownerReferences"):
        return "scaled-to-zero", "note", "it has no pods, because spec.replicas is 0"
    if spec.get("suspend") and kind in {JOBS.kind, CRON_JOBS.kind}:
        queue = object_in(metadata, "labels").get("kueue.x-k8s.io/queue-name")
        by = f", and Kueue admits it from the queue {queue}" if queue else ""
        return "suspended", "note", f"it has no pods, because spec.suspend is true{by}"
    if spec.get("paused") and kind == DEPLOYMENT and not status.get("updatedReplicas"):
        return "paused", "note", "it has no pods of this template, because spec.paused is true"
    return None


def _by_status(kind: str, status: Mapping[str, Any]) -> Reason | None:
    """Return why a workload has no pods, by what its controller has written."""
    if kind == DAEMON_SET and status.get("desiredNumberScheduled") == 0:
        text = "it has no pods, because no node has what its template requires and tolerates"
        return "no-node-matches", "note", text
    if kind == JOBS.kind and (status.get("completionTime") or status.get("failed")):
        return None
    if not (status.get("observedGeneration") or kind == JOBS.kind):
        return "no-pods", "waits", f"no controller has acted on it: does the one for {kind}s run?"
    return "no-pods", "waits", "its controller has made no pod of it yet"
