"""Versions that are blocked, pods that differ from their reviews, and keys without effect (D19)."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.json import Decoder
from msgspec.structs import replace

from harbourmaster.api import resources
from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.metadata import Metadata
from harbourmaster.api.names import VERY_NEAR, did_you_mean
from harbourmaster.api.times import moment
from harbourmaster.cli.batches import plural, short_age, shorten
from harbourmaster.cli.diagnosis import mistake, note, unknown, warning
from harbourmaster.cli.doctor.checks.canary import OWNED
from harbourmaster.cli.gate import waiting_in
from harbourmaster.cli.installed import KEPTN_RESOURCES
from harbourmaster.cli.live.cluster import collect
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.cli.offline import apply_patch
from harbourmaster.cli.why.admission import explain_review, inputs_of, review_of
from harbourmaster.cli.why.pod_causes import refusal_step
from harbourmaster.cli.why.render import renewal
from harbourmaster.cli.why.subjects import events_of
from harbourmaster.cli.why.workloads import refused_workloads, with_refusal
from harbourmaster.evaluation.model import Metric
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.mistakes import key_mistakes, owner_mistakes
from harbourmaster.gates.owners import SUPPORTED, shown_owner, supported_owner, workload_above
from harbourmaster.gates.release import HELD_BY_KEY
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle import model
from harbourmaster.lifecycle.gate_verdict import MISSING, GateVerdict, pre_checks
from harbourmaster.lifecycle.keptn_config import (
    adopting,
    choose_config,
    is_in_force,
    status_text,
    waits_for_adoption,
)
from harbourmaster.lifecycle.workload_owners import (
    SHARING_ADVICE,
    current_versions,
    describe_owners,
)
from harbourmaster.lifecycle.workloads import approval, names_of_pod
from harbourmaster.policies.index import policy_set
from harbourmaster.webhook.checked_objects import faults_of, is_checked
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.parents import Parents, decode_parent
from harbourmaster.webhook.verdict import GATED, MUTATED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.why.admission import AdmissionInputs
    from harbourmaster.lifecycle.gate_report import GateReport
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.webhook.verdict import Verdict

    Json = dict[str, Any]

_VERSIONS: Final[Any] = (
    (resources.WORKLOADS, model.Workload, resources.WORKLOAD_VERSIONS, model.WorkloadVersion),
    (resources.APPS, model.App, resources.APP_VERSIONS, model.AppVersion),
)
_SLACK: Final = timedelta(seconds=10)
"""After the creation of a policy until every replica of the webhook certainly knows it."""
_LEFT_OUT: Final = "daemonset-node-constraints"
_ENDED: Final = frozenset(("Succeeded", "Failed"))


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Current versions whose checks failed, and pods that lack gates or policies."""
    versions: dict[str, Any] = {}
    for holder, kind, resource, version_kind in _VERSIONS:
        held = await live.items(holder, Decoder(kind).decode)
        current = {(obj.metadata.key, version) for obj in held for version in _versions_of(obj)}
        for version in await live.items(resource, Decoder(version_kind).decode):
            own, spec, verdict = version.metadata, version.spec, pre_checks(version)
            versions[own.key] = version
            key = f"{own.namespace}/{getattr(spec, 'workload_name', '') or spec.app_name}"
            if verdict and verdict.code == "checks-failed" and (key, spec.version) in current:
                since = version.status.end_time or "an unknown time"
                text = f"Blocked since {since}: {verdict.reason}"
                remedy = f"kubectl -n {own.namespace} describe {resource.command_name} {own.name}"
                yield warning(f"{resource.kind} {own.key}", text, remedy)
    configuration = await live.configuration(resources.MUTATING_WEBHOOKS)
    on_pods = (
        [entry for entry in configuration.entries if entry.covers_pods] if configuration else []
    )
    parents = {
        kind: dict(await live.items(resource, _parent, metadata_only=True))
        for kind, resource in SUPPORTED.items()
    }
    for space in await live.namespaces():
        sent = [entry for entry in on_pods if entry.selects(space)]
        alike: dict[bytes, list[Json]] = {}
        # Whole pods of all namespaces are not kept, as the reader would.
        pods = await collect(live.client, resources.PODS, decode_anything, namespace=space.name)
        for pod in pods:
            if any(entry.selects_labels(pod["metadata"].get("labels") or {}) for entry in sent):
                alike.setdefault(_signature(pod), []).append(pod)
        if alike:
            inputs = await inputs_of(live, space.name)
            policies = policy_set(policy.compiled for policy in inputs.policies)
            snapshot = replace(inputs.snapshot, policies=policies, parents=Parents(parents))
            reviews = _PodReviews(inputs, Engine(snapshot, inputs.settings), versions, set())
            for problem in inputs.problems:
                yield unknown(f"namespace {space.name}", problem, "correct what the text names")
            for finding in chain.from_iterable(map(reviews.findings, alike.values())):
                yield finding


def _versions_of(obj: model.App | model.Workload) -> list[str]:
    return current_versions(obj) if isinstance(obj, model.Workload) else [obj.spec.version]


async def check_waits(live: Installation) -> AsyncIterator[Finding]:
    """Report pods that nothing will release, once for each workload and reason."""
    for shared in await live.items(resources.WORKLOADS, Decoder(model.Workload).decode):
        if owners := describe_owners(shared):
            finding = warning if len(current_versions(shared)) > 1 else note
            yield finding(f"KeptnWorkload {shared.metadata.key}", owners, SHARING_ADVICE)
    scheduler = (await live.known_settings()).scheduler.of_pods
    alike: dict[tuple[str, ...], list[tuple[Pod, GateReport]]] = {}
    for pod, report in await waiting_in(live, scheduler, "", None):
        told = await with_refusal(live, pod, report)
        verdict = GateVerdict(report.code, report.text, report.advice)
        if told is not report or verdict.is_stuck(report.age):
            owner = shown_owner(pod.owner_references)
            workload = workload_above(owner, pod.labels) if owner else ("Pod", pod.name)
            key = (pod.namespace, *workload, told.version, told.text)
            alike.setdefault(key, []).append((pod, told))
    for (namespace, kind, name, *_), waiting in alike.items():
        pod, report = waiting[0]
        which = f"{plural(len(waiting), 'pod')} ({pod.name}), waiting for {short_age(report.age)}"
        is_told = report.code not in MISSING
        events = () if is_told else await events_of(live, namespace, pod.uid, of="lifecycle")
        cause = next((f": {event.message}" for event in events if event.is_warning), "")
        text = f"{which}: {report.sentence}{cause}"
        yield warning(f"{kind} {namespace}/{name}", text, report.advice)
    async for refusal in _refused(live):
        yield refusal


async def _refused(live: Installation) -> AsyncIterator[Finding]:
    """Workloads and tasks whose pods are refused or cannot start."""
    opted_in = {space.name for space in await live.namespaces() if _is_opted_in(space)}
    for refused in await refused_workloads(live, None):
        if refused.namespace in opted_in:
            yield warning(refused.reference, refused.text, refused.step)
    for task in await live.items(resources.TASKS, Decoder(model.Task).decode):
        own, status = task.metadata, task.status
        if status.reason and status.status not in model.COMPLETED:
            job = f"kubectl -n {own.namespace} describe job {status.job_name}"
            step = refusal_step(status.message, own.namespace) or job
            yield warning(f"KeptnTask {own.key}", status.message, step)


def _is_opted_in(space: Metadata) -> bool:
    return space.annotations.get(OPT_IN_KEY) == OPT_IN


def _signature(pod: Json) -> bytes:
    """Equal for pods of which the same is to be said, as a rule those of one owner."""
    own = [pod["metadata"].get(key) for key in ("ownerReferences", "labels", "annotations")]
    spec = {key: pod["spec"].get(key) for key in (*OWNED, "schedulingGates") if key != "nodeName"}
    return msgspec.json.encode((own, spec))


def _parent(raw: msgspec.Raw) -> tuple[str, Any]:
    return metadata_in(raw).key, decode_parent(raw)


class _PodReviews(NamedTuple):
    """The reviews of one namespace's pods; ``told`` has policies whose conflicts are reported."""

    inputs: AdmissionInputs
    engine: Engine
    versions: Mapping[str, Any]
    told: set[tuple[str, ...]]

    def findings(self, pods: list[Json]) -> Iterator[Finding]:
        """Yield the findings about pods that are alike."""
        pod: Json = {"apiVersion": "v1", "kind": "Pod", **pods[0]}
        own = msgspec.convert(pod["metadata"], Metadata)
        if (pod.get("status") or {}).get("phase") in _ENDED:
            return
        owner = supported_owner(own.owner_references)
        kind, name = workload_above(owner, own.labels) if owner else ("Pod", own.name)
        subject, which = (
            f"{kind} {own.namespace}/{name}",
            f"{plural(len(pods), 'pod')} ({own.name})",
        )
        # For a DaemonSet, repair first checks that each node gets a new pod.
        is_daemon = kind == resources.DAEMON_SETS.kind
        repair = f"harbourmaster repair -n {own.namespace}"
        remedy = repair if is_daemon else renewal(kind, own.namespace, name)
        for text in self._lacks(pod, own):
            yield warning(subject, f"{which} {text}", remedy)
        verdict = self._verdict(pod)
        left_out = [said.text for said in verdict.warnings if said.code == _LEFT_OUT]
        for text in left_out:
            yield note(subject, f"{which}: {text}", "to limit its nodes, add them to the template")
        policies = verdict.policies
        is_new = len(policies) > 1 and policies not in self.told
        self.told.add(policies)
        # What the pod has of either policy now would hide that they differ.
        explanation = (
            explain_review(_review(pod, *OWNED), self.inputs).explanation if is_new else None
        )
        remedy = f"change a value or a selector: both select pod {own.key}"
        for report in explanation.policies if explanation else ():
            for contribution in report.contributions:
                if contribution.rule == "won-by":
                    source = shorten(contribution.by)
                    text = f"sets {contribution.path} to {contribution.value}, but {source} counts"
                    yield warning(report.reference, f"{text} with {contribution.present}", remedy)
            for conflict in report.warnings:
                if conflict.code == "affinity-conflict":
                    yield warning(report.reference, conflict.text, remedy)

    def _verdict(self, pod: Json, *without: str) -> Verdict:
        return answer(_review(pod, *without), self.engine)[1].verdict

    def _lacks(self, pod: Json, own: Metadata) -> Iterator[str]:
        gates = [gate.get("name") for gate in pod["spec"].get("schedulingGates") or ()]
        is_asked = pod["spec"].get("schedulerName") == self.inputs.settings.gate_scheduler_name
        is_held = is_asked or GATE in gates or HELD_BY_KEY in own.annotations
        verdict = self._verdict(pod, "nodeName")
        if verdict.outcome == GATED and not is_held:
            annotations = apply_patch(pod, verdict)["metadata"]["annotations"]
            described = workload_of(annotations, own.labels)
            name = names_of_pod(described).version if described and described.has_checks else ""
            version = self.versions.get(f"{own.namespace}/{name}")
            if name and not (version and approval(version).is_given):
                why = "created before the opt-in, or while no webhook answered"
                yield f"without gate, though checks are named: {why}"
        created = moment(own.creation_timestamp)
        is_whole = self._verdict(pod).outcome != MUTATED
        explained = None if is_whole else explain_review(_review(pod), self.inputs).explanation
        policies = {policy.compiled.reference: policy for policy in self.inputs.policies}
        for report in explained.policies if explained and created else ():
            policy = policies[report.reference]
            since = moment(policy.created) if report.changes and policy.generation <= 1 else None
            if since and created and created > since + _SLACK:
                why = "created while no webhook answered, or labels changed since"
                yield f"without what {report.reference} sets: {why}"


def _review(pod: Json, *without: str) -> bytes:
    spec = {key: value for key, value in pod["spec"].items() if key not in without}
    return review_of({**pod, "spec": spec}, pod["metadata"]["namespace"])


_WORKLOADS: Final = (
    resources.DEPLOYMENTS,
    resources.STATEFUL_SETS,
    resources.DAEMON_SETS,
    resources.ROLLOUTS,
)
_CHECKED: Final = tuple(
    keptn_resource
    for keptn_resource in KEPTN_RESOURCES
    if is_checked(keptn_resource.group, keptn_resource.kind)
)
_REFERRING: Final[dict[resources.Resource, Any]] = {
    resources.WORKLOAD_VERSIONS: model.WorkloadVersion,
    resources.APP_VERSIONS: model.AppVersion,
    resources.APP_CONTEXTS: model.AppContext,
    resources.EVALUATION_DEFINITIONS: model.EvaluationDefinition,
    resources.KEPTN_METRICS: Metric,
}
_DEFINITIONS: Final = (
    (resources.TASK_DEFINITIONS, "tasks"),
    (resources.EVALUATION_DEFINITIONS, "evaluations"),
)
_APP_PATIENCE: Final = timedelta(minutes=2)
"""The time after which a KeptnAppContext without an app is reported."""
To: TypeAlias = tuple[resources.Resource, str, str]
"""The object of a reference: kind, name, and namespace, or "" if the reference has none."""
Wanted: TypeAlias = dict[tuple[str, To], str]
"""The first object that refers to another one, by the namespace of the reference and its object."""


async def check_mistakes(live: Installation) -> AsyncIterator[Finding]:
    """Each mistake with its object; pods of one owner count once."""
    settings = await live.known_settings()
    excluded = {*settings.webhook.excluded_namespaces, live.namespace}
    places = (live.namespace, *settings.lifecycle.definition_namespaces)
    wanted: Wanted = {}
    for space in await live.namespaces():
        if _is_opted_in(space) and space.name not in excluded and not space.deletion_timestamp:
            async for subject, text in _keys(live, space.name, wanted):
                yield mistake(subject, text)
    for resource in _CHECKED:
        for fault in await live.items(resource, partial(_faults, resource)):
            for text in fault[1]:
                yield mistake(fault[0], text)
    for rest in (_missing(live, wanted, places), _configs(live, places)):
        async for finding in rest:
            yield finding


async def _configs(live: Installation, places: tuple[str, ...]) -> AsyncIterator[Finding]:
    """KeptnConfigs that do not count, and those of which a part does not."""
    configs = await live.items(resources.KEPTN_CONFIGS, Decoder(model.Config).decode)
    choice = choose_config(configs, places)
    for config in configs:
        text, own = status_text(config, choice, places), config.metadata
        if waits_for_adoption(config, choice, places):
            yield warning(f"KeptnConfig {own.key}", text, adopting(config))
        elif config not in (choice.first, choice.counts):
            remedy = f"copy its spec to one in namespace {live.namespace}, and delete it here"
            yield warning(f"KeptnConfig {own.key}", text, remedy)
        elif not is_in_force(text):
            remedy = f"kubectl -n {own.namespace} edit keptnconfig {own.name}"
            yield warning(f"KeptnConfig {own.key}", text, remedy)


async def _keys(
    live: Installation, namespace: str, wanted: Wanted
) -> AsyncIterator[tuple[str, str]]:
    """On workloads, and on the first pod of each owner; what they name is ``wanted``."""
    seen: set[tuple[str, str]] = set()
    for resource in (*_WORKLOADS, resources.PODS):
        kind = "pod" if resource == resources.PODS else resource.kind
        for own in await live.items(resource, metadata_in, namespace, metadata_only=True):
            mistakes = key_mistakes(own.annotations, own.labels)
            if resource == resources.PODS:
                mistakes += owner_mistakes(own.annotations, own.labels, own.owner_references)
            owner = own.controller.uid if own.controller else own.uid
            for found_mistake in mistakes:
                if (owner, found_mistake.text) not in seen:
                    seen.add((owner, found_mistake.text))
                    yield f"{kind} {own.key}", found_mistake.text
            for to in _checks_of(workload_of(own.annotations, own.labels)):
                wanted.setdefault((namespace, to), f"{kind} {own.key}")


def _faults(resource: resources.Resource, raw: msgspec.Raw) -> tuple[str, list[str]] | None:
    """Return the name of a stored object and why admission would refuse it, or None."""
    try:
        faults = [*map(str, faults_of(resource.group, resource.kind, raw))]
    except MalformedError as error:
        faults = [f"has no effect, because {error}: correct or delete it"]
    return (f"{resource.kind} {metadata_in(raw).key}", faults) if faults else None


def _checks_of(spec: Any) -> Iterator[To]:  # noqa: ANN401 - of any kind that names checks, or None
    for resource, checks in _DEFINITIONS:
        for when in ("pre_deployment", "post_deployment", "promotion"):
            for name in getattr(spec, f"{when}_{checks}", ()):
                yield resource, name, ""


def _references_of(obj: Any) -> Iterator[To]:  # noqa: ANN401 - of a kind in _REFERRING
    """Yield the references of an object; a version that has ended has none."""
    spec, own = obj.spec, obj.metadata
    if isinstance(obj, model.EvaluationDefinition):
        for to in (objective.keptn_metric_ref for objective in obj.spec.objectives):
            yield resources.KEPTN_METRICS, to.name, to.namespace
    elif isinstance(obj, Metric):
        yield resources.METRICS_PROVIDERS, spec.provider.name, own.namespace
    elif isinstance(obj, model.AppContext):
        yield resources.APPS, own.name, own.namespace
        yield from _checks_of(spec)
    elif not obj.status.is_finished:
        yield from _checks_of(spec)


async def _missing(
    live: Installation, wanted: Wanted, places: tuple[str, ...]
) -> AsyncIterator[Finding]:
    """References to what does not exist where it is looked for."""
    now = (await live.caller()).now
    for resource, kind in _REFERRING.items():
        for obj in await live.items(resource, Decoder(kind).decode):
            own, created = obj.metadata, moment(obj.metadata.creation_timestamp)
            for to in _references_of(obj):
                # A context may be there before its app.
                if to[0] == resources.APPS and created and now - created < _APP_PATIENCE:
                    continue
                wanted.setdefault((own.namespace, to), f"{resource.kind} {own.key}")
    for (origin, (resource, name, place)), by in wanted.items():
        known = await live.items(resource, metadata_in, metadata_only=True)
        looked = (place,) if place else tuple(dict.fromkeys((origin, *places)))
        there = [candidate.name for candidate in known if candidate.namespace in looked]
        if name in there:
            continue
        near = did_you_mean(name, there, VERY_NEAR)
        look = f"kubectl -n {looked[0]} get {resource.command_name} lists others"
        remedy = near or f"create it; {look}"
        if others := [candidate.namespace for candidate in known if candidate.name == name]:
            remedy = f"one exists in namespace {shorten(others)}: create it in {looked[0]}"
        text = f'{resource.kind} "{name}" not found in namespace {" or ".join(looked)}'
        yield warning(by, text, remedy)
