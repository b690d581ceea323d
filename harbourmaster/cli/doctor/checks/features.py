"""Whether policies, metrics, rescheduling and placement do what their objects say."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from harbourmaster.api import resources
from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.resources import APPLICATIONS, CLUSTERS, KEPTN_METRICS, METRICS_PROVIDERS
from harbourmaster.api.times import moment
from harbourmaster.cli.batches import plural, shorten
from harbourmaster.cli.diagnosis import note, warning
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.kinds import decode_anything, decode_workload, metadata_in
from harbourmaster.cli.live.reader import run_together
from harbourmaster.cli.why.sections.policies import kubectl_object
from harbourmaster.controller.enforcement import decode as decode_asked
from harbourmaster.controller.rescheduling.settings import criteria_of
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.evaluation.metric_status import age_limit, read_metric
from harbourmaster.evaluation.model import Metric, Provider
from harbourmaster.placement.cluster_state import INVALID_CREDENTIALS, METRICS_AVAILABLE
from harbourmaster.placement.deployed import DEPLOYED, READY, DeployedApplication, MemberCluster
from harbourmaster.placement.model import NODES_READY, REACHABLE, SCHEDULED, TRUE, condition
from harbourmaster.placement.server_binding import SERVER_BOUND, TO_ACCEPT
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.enforcement import (
    ENFORCEMENT_KEY,
    REASONS,
    UNFULFILLED,
    WEBHOOK,
    decode_compiled,
    enforcement_of,
)
from harbourmaster.policies.validation import SUPPORTED_VALUES, annotation_faults, describe_fault
from harbourmaster.rescheduling import reservation
from harbourmaster.rescheduling.decoding import decode_budget, decode_pod
from harbourmaster.rescheduling.model import RESERVATIONS, PendingPod, Pod, Toleration
from harbourmaster.rescheduling.taints import tolerates_reservation
from harbourmaster.webhook.policy_objects import decode_policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.rescheduling.model import Criteria

SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_EXCLUDED: Final = "the controller's setting webhook.excludedNamespaces excludes it, or it is ours"
_INCLUDE: Final = (
    "select other namespaces; or change that setting, with which no webhook is called for them"
)
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


async def check_policies(live: Installation) -> AsyncIterator[Finding]:
    """Policies that are skipped, and those that can select nothing."""
    namespaces = await live.namespaces()
    excluded = {*(await live.known_settings()).webhook.excluded_namespaces, live.namespace}
    for resource in (resources.CLUSTER_POLICIES, resources.POLICIES):
        pick = partial(policy_finding, kind=resource.kind, namespaces=namespaces, excluded=excluded)
        for finding in await live.items(resource, pick):
            yield finding
    for finding in await _compiled_leftovers(live):
        yield finding


async def _compiled_leftovers(live: Installation) -> list[Finding]:
    """Compiled objects of policies that are gone, and those that nothing uses."""
    mutations, bindings = [
        await live.items(resource, decode_compiled)
        for resource in (resources.MUTATING_POLICIES, resources.MUTATING_POLICY_BINDINGS)
    ]
    references = {
        f"{resource.kind} {'/'.join(filter(None, (policy.namespace, policy.name)))}"
        for resource in (resources.CLUSTER_POLICIES, resources.POLICIES)
        for policy in await live.items(resource, metadata_in, metadata_only=True)
    }
    bound = {binding.spec.policy_name for binding in bindings}
    findings = []
    for mutation in mutations:
        name, gone = mutation.metadata.name, sorted(mutation.hashes.keys() - references)
        subject = f"MutatingAdmissionPolicy {name}"
        if mutation.hashes and name not in bound:
            text = "is left from a former set: no binding uses it"
            findings.append(note(subject, text, f"kubectl delete mutatingadmissionpolicy {name}"))
        elif gone:
            text = f"the API server still enforces {shorten(gone)}, which does not exist any more"
            remedy = "harbourmaster compile apply"
            findings.append(warning(subject, text, remedy))
    return findings


def policy_finding(
    raw: msgspec.Raw | bytes, kind: str, namespaces: list[Metadata], excluded: set[str]
) -> Finding | None:
    """Return why a policy is skipped, or selects nothing; None if neither is known."""
    metadata = metadata_in(raw)
    reference = f"{kind} {'/'.join(filter(None, (metadata.namespace, metadata.name)))}"
    skipped = "is skipped, with a warning on each pod that it would have selected: "
    edit = f"correct it: kubectl edit {kubectl_object(reference)}"
    try:
        policy = msgspec.structs.replace(decode_policy(raw), kind=kind)
        compiled = compile_policy(policy)
    except MalformedError as error:
        return warning(reference, f"{skipped}{error}", edit)
    if compiled.fault is not None:
        return warning(reference, f"{skipped}{compiled.fault}", edit)
    matcher = compiled.namespaces
    finding = _annotation_finding(reference, policy.metadata.annotations or {}, raw)
    if finding is not None:
        return finding
    if compiled.pods is None:
        text = "it has no podSelector; {} selects all pods"
    elif compiled.namespace is None and matcher is None:
        text = "it has no namespaceSelector; {} selects all"
    else:
        chosen = [compiled.namespace] if compiled.namespace is not None else []
        if matcher is not None and not chosen:
            labelled = (
                (namespace.name, {_NAMESPACE_NAME: namespace.name, **namespace.labels})
                for namespace in namespaces
            )
            chosen = [name for name, labels in labelled if matcher.matches(labels)]
        if not excluded.issuperset(chosen):
            return None
        if chosen:
            text = f"pods of the namespace {shorten(sorted(chosen))} are never changed: {_EXCLUDED}"
            return note(reference, f"selects nothing: {text}", _INCLUDE)
        text = f"its namespaceSelector matches no namespace; a name is the label {_NAMESPACE_NAME}"
    return note(reference, f"selects nothing: {text}")


def _annotation_finding(
    reference: str, annotations: Mapping[str, str], raw: msgspec.Raw | bytes
) -> Finding | None:
    for key, value in annotation_faults(annotations).items():
        *others, default = SUPPORTED_VALUES[key]
        choices = " or ".join((default, *others))
        command = f"kubectl annotate --overwrite {kubectl_object(reference)} {key}={default}"
        remedy = f"set it to {choices}: {command}"
        return warning(reference, describe_fault(key, value), remedy)
    reason = decode_asked(raw).condition.get("reason", "")
    if enforcement_of(annotations) != WEBHOOK and reason in UNFULFILLED:
        cause, _, remedy = REASONS[reason].partition(": ")
        return warning(reference, f"{ENFORCEMENT_KEY} has no effect yet: {cause}", remedy)
    return None


class AddOn(Struct, frozen=True):
    """A critical add-on, as far as something may be wrong with it."""

    pod: Pod
    tolerates: bool
    is_safe_to_evict: bool


async def check_rescheduling(live: Installation) -> AsyncIterator[Finding]:
    """Pods without the toleration, with a budget or safe-to-evict, and nodes left reserved."""
    settings = (await live.known_settings()).rescheduling
    criteria = criteria_of(settings)
    if not settings.enabled:
        kept = await live.items(resources.NODES, _reserved_node, metadata_only=True)
        if kept:
            text = "still reserved for critical add-ons though rescheduling is off: "
            remedy = "a running controller releases them: see its Lease and log"
            yield warning(plural(len(kept), "node"), text + shorten(sorted(kept)), remedy)
        return
    spaces = sorted(settings.system_namespaces)
    pick = partial(add_on, criteria=criteria)
    add_ons = [
        add_on for space in spaces for add_on in await live.items(resources.PODS, pick, space)
    ]
    named = f"metadata.name={settings.kill_switch}"
    stops = await live.items(resources.CONFIG_MAPS, decode_anything, field_selector=named)
    places = {
        stop["metadata"]["namespace"]: stop.get("data") or {}
        for stop in stops
        if stop["metadata"]["name"] == settings.kill_switch
    }
    # Beside one in our namespace, the others mislead no user.
    for place in sorted(places) if "enabled" not in places.get(live.namespace, ()) else ():
        text = f"stops no eviction: only the key enabled in namespace {live.namespace} counts"
        options = f"--namespace {live.namespace} --from-literal=enabled=false"
        create = f"kubectl create configmap {settings.kill_switch} {options}"
        subject = f"ConfigMap {place}/{settings.kill_switch}"
        yield warning(subject, text, f"{create} --dry-run=client -o yaml | kubectl apply -f -")
    budgets = await run_together(
        *(live.items(resources.DISRUPTION_BUDGETS, decode_budget, space) for space in spaces)
    )
    lacking = [add_on for add_on in add_ons if not add_on.tolerates]
    if not settings.inject_toleration:
        text = f"does not tolerate {criteria.taint_key}:NoSchedule: no room is made for it"
        remedy = f"add to its template: {{key: {criteria.taint_key}, operator: Exists}}"
        for finding in _one_for_each_owner(lacking, text, remedy):
            yield finding
    text = f"has {SAFE}: Cluster Autoscaler may evict it from its node"
    safe = [add_on for add_on in add_ons if add_on.is_safe_to_evict]
    for finding in _one_for_each_owner(safe, text, "remove that annotation from its template"):
        yield finding
    for budget in chain.from_iterable(budgets):
        selector = budget.selector
        pods = [add_on.pod for add_on in add_ons if add_on.pod.namespace == budget.namespace]
        covered = [pod.name for pod in pods if selector and selector.matches(pod.labels)]
        if covered:
            text = f"covers the critical add-on {covered[0]}: draining its node waits for it"
            remedy = "delete it, unless add-ons of this kind must not be moved at the same time"
            yield note(f"PodDisruptionBudget {budget.key}", text, remedy)


def add_on(raw: msgspec.Raw | bytes, criteria: Criteria) -> AddOn | None:
    """A critical pod that wants a node or has one; None for any other."""
    try:
        decoded = decode_pod(raw, criteria)
    except MalformedError:
        return None
    pod = decoded.pod if isinstance(decoded, PendingPod) else decoded
    if not pod.is_critical or pod.is_finished or pod.is_mirror or pod.deletion is not None:
        return None
    given = decode_workload(raw)
    tolerations = msgspec.convert(given.spec.tolerations or (), tuple[Toleration, ...])
    tolerates = tolerates_reservation(tolerations, criteria.taint_key)
    return AddOn(pod, tolerates, given.metadata.annotations.get(SAFE) == "true")


def _reserved_node(raw: msgspec.Raw) -> str | None:
    """The name of a node that is reserved for an add-on."""
    metadata = metadata_in(raw)
    return metadata.name if reservation.parse(metadata.annotations.get(RESERVATIONS, "")) else None


def _one_for_each_owner(add_ons: Iterable[AddOn], text: str, remedy: str) -> Iterator[Finding]:
    """One finding for each owner: its pods are alike."""
    owners: dict[tuple[str, str], Pod] = {}
    for pod in (add_on.pod for add_on in add_ons):
        owners.setdefault((pod.namespace, pod.owner or pod.name), pod)
    for pod in owners.values():
        yield warning(f"pod {pod.key}", text, remedy)


async def check_metrics(live: Installation) -> AsyncIterator[Finding]:
    """Metrics without a fresh value; those that lack credentials count once for each provider."""
    intervals = (await live.known_settings()).lifecycle.stale_after_intervals
    now = (await live.caller()).now
    decode = Decoder(Provider).decode
    providers = {
        provider.metadata.key: provider for provider in await live.items(METRICS_PROVIDERS, decode)
    }
    failing: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for metric in await live.items(KEPTN_METRICS, Decoder(Metric).decode):
        own, fault = metric.metadata, metric.status.err_msg
        created, limit = moment(own.creation_timestamp), timedelta(0, age_limit(metric, intervals))
        if not fault and (created is None or now - created > limit):
            fault = read_metric(metric, intervals, now).fault
        provider = providers.get(f"{own.namespace}/{metric.spec.provider.name}")
        # The check of references tells of those that have none.
        if provider is None or not fault:
            continue
        if provider.spec.secret_key_ref is not None and "secret" in fault.lower():
            failing[provider.metadata.key, fault].append(own.name)
            continue
        remedy = f"kubectl -n {own.namespace} describe keptnmetric {own.name}"
        yield warning(f"KeptnMetric {own.key}", fault, remedy)
    for (key, fault), names in failing.items():
        spec, place = providers[key].spec, providers[key].metadata.namespace
        secret = spec.secret_key_ref.name if spec.secret_key_ref is not None else ""
        whose = f"Secret {place}/{secret}"
        # Some errors name the Secret themselves.
        told = fault if fault.startswith(whose) else f"{whose}: {fault}"
        text = f"{told}: {plural(len(names), 'metric fails', 'metrics fail')}: {shorten(names)}"
        remedy = f"correct spec.secretKeyRef, or: kubectl -n {place} edit secret {secret}"
        yield warning(f"KeptnMetricsProvider {key}", text, remedy)


async def check_placement(live: Installation) -> AsyncIterator[Finding]:
    """Clusters that get no applications, and applications that are not ready or left copies."""
    applications = await live.items(APPLICATIONS, Decoder(DeployedApplication).decode)
    clusters = await live.items(CLUSTERS, Decoder(MemberCluster).decode)
    settings, unknown = await live.assumed_settings(CONTROLLER, ControllerSettings)
    if applications and not unknown and not settings.placement.enabled:
        text = f"placement is off, so {plural(len(applications), 'Application')} have no effect"
        yield warning("placement", text, "add the component deploy/components/placement")
        return
    for cluster in clusters:
        if finding := _cluster_finding(cluster):
            yield finding
    for application in applications:
        for finding in _application_findings(application):
            yield finding


def _cluster_finding(cluster: MemberCluster) -> Finding | None:
    own, secret = cluster.metadata, cluster.spec.kubeconfig_secret_ref
    kinds = (SERVER_BOUND, REACHABLE, NODES_READY, METRICS_AVAILABLE)
    conditions = (condition(cluster.status.conditions, kind) for kind in kinds)
    fault = next(
        (state for state in conditions if state is not None and state.status != TRUE), None
    )
    if fault is None:
        return None
    if fault.type == SERVER_BOUND:
        text, _, command = fault.message.partition(TO_ACCEPT)
        return warning(f"Cluster {own.key}", f"{fault.reason}: {text}", f"to accept it: {command}")
    text = f"gets no applications: {fault.message or fault.reason}"
    remedy = "check its nodes"
    if fault.type == METRICS_AVAILABLE:
        remedy = f"kubectl -n {own.namespace} describe {CLUSTERS.name} {own.name}"
    elif fault.reason == INVALID_CREDENTIALS and secret is not None:
        remedy = f"renew the kubeconfig: kubectl -n {own.namespace} edit secret {secret.name}"
    elif fault.type == REACHABLE:
        delete = f"kubectl -n {own.namespace} delete {CLUSTERS.name} {own.name}"
        remedy = f"check its API server and the network; if it is gone for good: {delete}"
    return warning(f"Cluster {own.key}", text, remedy)


def _application_findings(application: DeployedApplication) -> Iterator[Finding]:
    own = application.metadata
    subject, remedy = f"Application {own.key}", f"harbourmaster why application {own.key}"
    kinds = (SCHEDULED, DEPLOYED, READY)
    conditions = (condition(application.status.conditions, kind) for kind in kinds)
    fault = next(
        (state for state in conditions if state is not None and state.status != TRUE), None
    )
    if fault is not None:
        yield warning(subject, f"{fault.reason}: {fault.message}".rstrip(": "), remedy)
    if left := [copy.cluster for copy in application.status.pending_cleanup]:
        text = f"may also run on {', '.join(left)}, where it is deleted when the cluster answers"
        yield note(subject, text)
