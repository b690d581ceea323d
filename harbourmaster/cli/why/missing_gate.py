"""Why a pod has no gate, or passed one without checks: what admission went by, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.json import Decoder

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.resources import (
    CORE_EVENTS,
    EVALUATION_DEFINITIONS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    TASK_DEFINITIONS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.api.selectors import LabelSelector, compile_selector
from harbourmaster.cli.installed import OUR_DOMAIN
from harbourmaster.cli.live.kinds import decode_anything, metadata_in, written_at
from harbourmaster.cli.live.reader import raise_unusable
from harbourmaster.cli.live.webhooks import decode_configuration
from harbourmaster.cli.offline import describe_waits, object_in, pod_in
from harbourmaster.cli.why.admission import inputs_of
from harbourmaster.cli.why.model import Subject
from harbourmaster.cli.why.pod_causes import latest_message, why_no_pods
from harbourmaster.cli.why.subjects import BY_KIND
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.inheritance import tracking_by_parent, tracking_by_pod
from harbourmaster.gates.metadata import OPT_IN_KEY, Metadata
from harbourmaster.gates.owners import (
    DAEMON_SET,
    DEPLOYMENT,
    REPLICA_SET,
    ROLLOUT,
    STATEFUL_SET,
    supported_owner,
)
from harbourmaster.gates.release import CHECKS_KEY, NONE, RELEASED_KEY
from harbourmaster.gates.version import Container
from harbourmaster.gates.waits import waits_of
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle.gated_pods import Pod
from harbourmaster.lifecycle.model import WorkloadVersion
from harbourmaster.lifecycle.task_pods import FAILED_CREATE
from harbourmaster.lifecycle.workloads import names_of_pod, recorded_owners
from harbourmaster.placement.gated_pods import pod_selector
from harbourmaster.policies.unmatched import first_mismatch
from harbourmaster.registration.break_glass import ANNOTATION, OPEN
from harbourmaster.webhook.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harbourmaster.api.metadata import Metadata as ObjectMetadata
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.live.webhooks import Webhook
    from harbourmaster.cli.why.admission import AdmissionInputs
    from harbourmaster.cli.why.model import State, WhyContext
    from harbourmaster.cli.why.pod_causes import Reason
    from harbourmaster.gates.workload import WorkloadMetadata

_OURS: Final = f".{OUR_DOMAIN}"
_NO_WEBHOOK: Final = "no webhook of ours is registered"
_EVERYTHING: Final = LabelSelector()
_OPT_IN: Final = ("f:metadata", "f:annotations", f"f:{OPT_IN_KEY}")


def definitions_of(described: WorkloadMetadata | None) -> list[str]:
    """The definitions of the checks before a workload's deployment, by kind and name."""
    tasks = described.pre_deployment_tasks if described else ()
    evaluations = described.pre_deployment_evaluations if described else ()
    definitions = [f"{TASK_DEFINITIONS.kind} {task}" for task in tasks]
    return definitions + [
        f"{EVALUATION_DEFINITIONS.kind} {evaluation}" for evaluation in evaluations
    ]


PARENTS: Final = frozenset((DEPLOYMENT, ROLLOUT, STATEFUL_SET, DAEMON_SET))
"""Kinds of workloads that replace their pods when their template changes."""
_CHECKED: Final = PARENTS | {REPLICA_SET, PODS.kind}


class Template(NamedTuple):
    """A pod, or the template of one."""

    keys: Metadata
    """Annotations and labels."""
    containers: tuple[Container, ...]
    """Without init containers."""


def _keys_in(manifest: dict[str, Any]) -> Metadata:
    """Annotations and labels; in files either map may be null."""
    own = object_in(manifest, "metadata")
    maps = {name: own.get(name) or {} for name in ("annotations", "labels")}
    return msgspec.convert(maps, Metadata)


def template_of(subject: Subject) -> Template:
    """The pod itself, or the template of a workload. Raises DecodeError."""
    pod = pod_in(decode_anything(subject.raw), subject.kind)
    containers = object_in(pod, "spec").get("containers") or ()
    return Template(_keys_in(pod), msgspec.convert(containers, tuple[Container, ...]))


def template_pod(
    subject: Subject, owners: Sequence[Subject] = (), *, version_from_tag: bool
) -> Pod | None:
    """Return the pod of a subject, without a name for a template; None if it needs no gate.

    Raises DecodeError.
    """
    template = template_of(subject)
    metadata = template.keys
    parent = next(
        (candidate for candidate in (subject, *owners) if candidate.kind in PARENTS), None
    )
    options: Any = {"version_from_tag": version_from_tag}
    tracking = tracking_by_pod(metadata, lambda: template.containers, **options)
    if tracking is None and parent is not None:
        inherited = _keys_in(decode_anything(parent.raw))
        tracking = tracking_by_parent(metadata, inherited, lambda: template.containers, **options)
    added = {CHECKS_KEY: NONE}
    if tracking is not None and subject.kind in _CHECKED:
        added = tracking.annotations
    elif waits_of(metadata.annotations) is None:
        return None
    is_pod = subject.kind == PODS.kind
    owner = OwnerReference(kind=subject.kind, name=subject.name)
    return Pod(
        name=subject.name if is_pod else "",
        namespace=subject.namespace,
        annotations={**metadata.annotations, **added},
        owner_references=() if is_pod else (owner,),
        labels=metadata.labels,
        has_annotations=True,
        gates=(GATE,),
        wait_conditions=waits_of(metadata.annotations),
    )


def planned_gate(
    subject: Subject, wanted: Pod | None, inputs: AdmissionInputs, given: frozenset[str]
) -> Reason:
    """Return what admission would do now; ``wanted`` is the pod, None if it needs no gate."""
    namespace, snapshot = subject.namespace, inputs.snapshot
    if namespace in snapshot.excluded or not inputs.settings.gate_rules().apply_in(namespace):
        text = f"the webhook's settings allow no gates in namespace {namespace}"
        return "namespace-excluded", "note", text
    space = snapshot.namespace(namespace)
    has_gates = f"Namespace {namespace}" in given or (space is not None and space.has_gates)
    waits = wanted.wait_conditions if wanted is not None else None
    if wanted is not None and waits is not None:
        told = describe_waits(waits, Engine(snapshot, inputs.settings), namespace)
        if not told:
            return "waits-forbidden", "fault", f"namespace {namespace} lets no pod wait for objects"
        who = "it" if subject.kind == PODS.kind else "its pods"
        also = "; and for their checks" if has_gates and wanted.has_checks else ""
        return "to-be-gated", "note", f"{who} {told}{also}"
    owners = metadata_in(subject.raw).owner_references
    state: State
    is_never = subject.kind == PODS.kind and supported_owner(owners) is None
    if not has_gates:
        state = "fine" if is_never or wanted is None else "note"
        return "not-opted-in", state, f"namespace {namespace} has not opted in"
    if is_never:
        whose = f"pods of the kind {owners[-1].kind} are" if owners else "a pod without an owner is"
        state = "fine" if wanted is None else "note"
        return "owner-unsupported", state, f"{whose} never checked"
    if wanted is None:
        return "no-keys", "note", f"neither the {subject.kind} nor its owner names a workload"
    return "to-be-gated", "note", "its pods will wait for their checks"


async def why_ungated(context: WhyContext, wanted: Pod | None) -> Reason | None:
    """Why the pods of the subject have no gate; None where that cannot be known."""
    subject, live = context.subject, context.live
    inputs = await inputs_of(live, subject.namespace, (subject, *context.owners))
    space = inputs.snapshot.namespace(subject.namespace)
    raw = await live.find(NAMESPACES, subject.namespace)
    if (space is None or raw is None) and not context.created_with:
        return None
    labels = space.labels if space else {}
    own = template_of(subject).keys.labels
    if unsent := await why_unsent(live, PODS.kind, labels, own):
        code = "not-reviewed" if unsent.startswith(_NO_WEBHOOK) else "namespace-excluded"
        return code, "note", unsent
    reason = planned_gate(subject, wanted, inputs, context.created_with or frozenset())
    is_checked = wanted is not None and wanted.has_checks
    if reason[0] != "to-be-gated" or context.created_with is not None or raw is None:
        return reason
    if not context.is_pod and not (is_checked and space is not None and space.has_gates):
        # Without checks, the section of the gate lists the objects for which its pods wait.
        return reason if is_checked else None
    created = metadata_in(subject.raw).creation_timestamp
    if not context.is_pod:
        pods = await pods_of(context)
        if pods == [] or await why_not_made(context, pods) is not None:
            # The section on its pods tells why no pod is there to judge by.
            return reason[0], "fine", reason[2]
        created = max((pod.creation_timestamp for pod in pods or ()), default=created)
    since = next(iter(written_at(raw, *_OPT_IN)), "")
    if is_checked and since and created <= since:
        # Times are whole seconds, and within one the order is unknown.
        when = "in the second in which" if created == since else "before"
        text = f"admitted {when} namespace {subject.namespace} opted in ({since})"
        return "admitted-before", "fault", text
    configurations = await live.configurations(MUTATING_WEBHOOKS)
    ours = [
        configuration.metadata.creation_timestamp
        for configuration in configurations
        if any(entry.name.endswith(_OURS) for entry in configuration.entries)
    ]
    if is_checked and created < (registered := min(ours, default="")):
        text = f"admitted before a webhook of ours was registered ({registered})"
        return "admitted-before", "fault", text
    if any(ANNOTATION in configuration.metadata.annotations for configuration in configurations):
        text = "break-glass mode is on: pods start without their checks when no webhook answers"
        return "break-glass", "fault", text
    webhooks = [
        entry
        for configuration in configurations
        for entry in configuration.entries
        if entry.covers_pods
    ]
    is_open = any(
        entry.failure_policy == OPEN for entry in webhooks if not _mismatch(entry, labels, own)
    )
    how = "failurePolicy is Ignore" if is_open else "or break-glass mode was on"
    text = f"the webhook did not review it when it was created: it was not available, {how}"
    return "not-reviewed", "fault", text


async def why_not_made(context: WhyContext, pods: Sequence[ObjectMetadata] | None) -> Reason | None:
    """Return why the controller of a workload makes no pods of its template; None if it does.

    ``pods`` are those that it has, None if they are unknown.
    """
    subject, live = context.subject, context.live
    workload, events = decode_anything(subject.raw), []
    uid = metadata_in(subject.raw).uid
    newest = max((pod.creation_timestamp for pod in pods or ()), default="")
    if pods is not None and uid:
        fields = f"involvedObject.uid={uid},reason={FAILED_CREATE}"
        reading = live.list_all(
            CORE_EVENTS, decode_anything, subject.namespace, field_selector=fields
        )
        events = await live.attempt(reading, [])
    created = None if pods is None else newest
    return why_no_pods(workload, subject.kind, created, latest_message(events))


async def pods_of(context: WhyContext) -> list[ObjectMetadata] | None:
    """Return the pods that a workload selects; None if they are unknown, as of a CronJob."""
    subject, live = context.subject, context.live
    selector = pod_selector({**decode_anything(subject.raw), "kind": subject.kind})
    if not selector:
        return None
    listing = live.metadata(PODS, subject.namespace, label_selector=selector)
    return await live.attempt(listing, None)


async def why_unchecked(context: WhyContext, pod: Pod) -> Reason | None:
    """Return the reason if the checks passed with another image than the subject has, else None."""
    live, namespace = context.live, context.subject.namespace
    described = workload_of(pod.annotations, pod.labels)
    if described is None or pod.annotations.get(RELEASED_KEY):
        return None
    name = names_of_pod(described).version
    read = live.read(WORKLOAD_VERSIONS, name, Decoder(WorkloadVersion).decode, namespace)
    version = await live.attempt(read, None)
    owners = recorded_owners(version) if version is not None else ()
    sets = await live.attempt(live.list_all(REPLICA_SETS, bytes, namespace), []) if owners else []
    # The oldest was checked; a rollback to it is fine.
    known = [(metadata, raw) for raw in sets if (metadata := metadata_in(raw)).uid in owners]
    first, raw = min(known, key=lambda pair: pair[0].creation_timestamp, default=(None, b""))
    own = context.owners[0] if context.is_pod and context.owners else context.subject
    if first is None:
        return None
    images = _images(Subject("", REPLICA_SETS.kind, namespace, first.name, raw))
    if changed := [image for image in _images(own) if image not in images]:
        passed = f"version {described.version} passed its checks with {', '.join(images)}"
        text = f"{passed} (ReplicaSet {first.name}), and {', '.join(changed)} starts without checks"
        return "version-not-raised", "fault", text
    return None


def _images(subject: Subject) -> list[str]:
    return [container.image or "" for container in template_of(subject).containers]


async def why_unsent(
    live: Installation, kind: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
) -> str:
    """Why no object of that kind with these labels is sent to our webhook; empty where one is.

    It is empty too where that can't be read. ``matchConditions`` are not evaluated.
    """
    resource = BY_KIND.get(kind)
    if resource is None:
        return ""
    try:
        configurations = await live.list_all(MUTATING_WEBHOOKS, decode_configuration)
    except ApiError as error:
        raise_unusable(error)
        return ""
    entries = [
        entry
        for configuration in configurations
        for entry in configuration.entries
        if entry.name.endswith(_OURS)
    ]
    if not entries:
        return f"{_NO_WEBHOOK}: harbourmaster doctor says more"
    asked = [entry for entry in entries if entry.covers(resource.group, resource.plural)]
    if not asked:
        return f"{_NO_WEBHOOK} for {resource.plural}"
    reasons = [_mismatch(entry, namespace_labels, labels) for entry in asked]
    if "" in reasons:
        return ""
    return f"it is never sent to the webhook: {'; '.join(dict.fromkeys(reasons))}"


def _mismatch(
    entry: Webhook, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
) -> str:
    """Why its selectors exclude the object; unlike a policy's, absent ones select everything."""
    for selector, name, present, whose in (
        (entry.namespace_selector, "namespaceSelector", namespace_labels, "the namespace"),
        (entry.object_selector, "objectSelector", labels, "the object"),
    ):
        given = selector or _EVERYTHING
        mismatch = first_mismatch(compile_selector(given), given, name, present, whose)
        if mismatch is not None:
            return str(mismatch)
    return ""
