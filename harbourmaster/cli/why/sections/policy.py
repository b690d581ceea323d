"""The pods that a scheduling policy selects, its changes to them, and what has no effect."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import NAMESPACES, PODS
from harbourmaster.cli.batches import plural
from harbourmaster.cli.doctor.checks.features import policy_finding
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.why.admission import explain_review, inputs_of, review_of
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.cli.why.policy_lines import Background, PolicyLines
from harbourmaster.cli.why.sections.policies import kubectl_object
from harbourmaster.gates.owners import supported_owner, workload_above
from harbourmaster.kube.errors import ForbiddenError
from harbourmaster.placement.gated_pods import pod_selector
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.explain import CHANGES
from harbourmaster.webhook.policy_objects import decode_policy
from harbourmaster.webhook.snapshot import NAME_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harbourmaster.cli.why.model import State, WhyContext
    from harbourmaster.policies.compiled import CompiledPolicy

_MOST: Final = 5
"""Workloads of which a pod is explained."""
_OVERRIDDEN: Final = frozenset(("kept-own", "won-by", "left-out"))


async def section(context: WhyContext) -> Section:
    """Explain a policy by the pods that the caller may list."""
    lines: list[Line] = []
    code, state, text, step = await _verdict(context, lines)
    return Section(
        name="policy", state=state, code=code, summary=text, step=step, lines=tuple(lines)
    )


async def _verdict(context: WhyContext, lines: list[Line]) -> tuple[str, State, str, str]:
    """Return a code, its urgency, a text and a step; add what is known of the pods."""
    subject, live = context.subject, context.live
    excluded = {*(await live.known_settings()).webhook.excluded_namespaces, live.namespace}
    place = subject.namespace or None
    try:
        spaces = await live.namespaces()
    except ForbiddenError as error:
        lines.append(Line(read_error(error, "other namespaces"), label="unknown", tone="dim"))
        place = place or live.client.connection.namespace
        space = await live.attempt(live.read(NAMESPACES, place, metadata_in), None)
        spaces = [space or Metadata(name=place)]
    finding = policy_finding(subject.raw, subject.kind, spaces, excluded)
    edit = f"kubectl edit {kubectl_object(subject.reference)}"
    if finding is not None and finding.severity == "warning":
        return "invalid", "fault", finding.text, f"correct it: {edit}"
    if finding is not None:
        remedy = finding.remedy or f"correct it: {edit}"
        return "unmatched", "unknown" if lines else "note", finding.text, remedy
    source = replace(decode_policy(subject.raw), kind=subject.kind)
    policy, spec = compile_policy(source), to_builtins(source.spec)
    asked = pod_selector({"spec": {"selector": spec["podSelector"]}})
    pods = _by_workload(policy, spaces, await live.metadata(PODS, place, label_selector=asked))
    if not pods:
        text = "selects nothing now: no pod in its namespaces has the labels of its podSelector"
        step = f"kubectl get pods -A --show-labels; {edit}"
        return "unmatched", "unknown" if lines else "note", text, step
    rules: set[str] = set()
    for (namespace, kind, name), names in islice(pods.items(), _MOST):
        text = f"{kind} {namespace}/{name}, {plural(len(names), 'pod')}"
        lines.append(Line(text, label="selects"))
        rules |= await _explain(context, namespace, names[0], lines)
    if len(pods) > _MOST:
        lines.append(Line(f"and {plural(len(pods) - _MOST, 'workload')} more", label="selects"))
    places = {namespace for namespace, *_ in pods}
    count = plural(sum(map(len, pods.values())), "pod")
    text = f"selects {count} in {plural(len(places), 'namespace')}"
    if rules & _OVERRIDDEN:
        step = f"change a value or a selector: {edit}"
        return "overridden", "note", f"{text}; not all that it sets counts", step
    if rules & CHANGES:
        step = f"harbourmaster repair -n {min(places)}"
        return "not-applied", "note", f"{text}; some lack what it sets", step
    return "valid", "fine", text, ""


def _by_workload(
    policy: CompiledPolicy, spaces: Iterable[Metadata], pods: Iterable[Metadata]
) -> Mapping[tuple[str, str, str], list[str]]:
    """Return the names of the pods that the policy selects, by the workload that made them."""
    selected = defaultdict(list)
    labels = {space.name: {NAME_LABEL: space.name, **space.labels} for space in spaces}
    for pod in pods:
        space = labels.get(pod.namespace, {})
        is_there = policy.namespace or (policy.namespaces and policy.namespaces.matches(space))
        if is_there and policy.pods and policy.pods.matches(pod.labels):
            owner = supported_owner(pod.owner_references)
            above = workload_above(owner, pod.labels) if owner else (PODS.kind, pod.name)
            selected[pod.namespace, *above].append(pod.name)
    return selected


async def _explain(context: WhyContext, namespace: str, name: str, lines: list[Line]) -> set[str]:
    """Add what the policy does to one pod as it is now; return the rules of its contributions."""
    raw = await context.live.find(PODS, name, namespace)
    inputs = await inputs_of(context.live, namespace)
    pod = {"apiVersion": "v1", "kind": PODS.kind, **decode_anything(raw or b"{}")}
    explanation = explain_review(review_of(pod, namespace), inputs).explanation if raw else None
    reference = context.subject.reference
    reports = explanation.policies if explanation else ()
    mine = tuple(report for report in reports if report.reference == reference)
    if explanation is None or not mine:
        return set()
    wording = PolicyLines(Background(whose="the pod", is_live=True), "spec")
    lines += list(wording.policies(replace(explanation, policies=mine)))[1:]
    return {contribution.rule for report in mine for contribution in report.contributions}
