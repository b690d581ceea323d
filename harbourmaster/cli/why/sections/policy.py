"""The pods that a scheduling policy selects, its changes to them, and what has no effect."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.resources import CLUSTER_POLICIES, PODS
from harbourmaster.cli.batches import plural
from harbourmaster.cli.doctor.checks.features import policy_finding
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.why.admission import explain_review, inputs_of, review_of
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.cli.why.policy_lines import Background, PolicyLines
from harbourmaster.gates.owners import supported_owner, workload_above
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.explain import CHANGES, PolicyReport
from harbourmaster.webhook.policy_objects import decode_policy
from harbourmaster.webhook.snapshot import NAME_LABEL

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.cli.why.model import State, WhyContext
    from harbourmaster.policies.compiled import CompiledPolicy

    Workloads = dict[tuple[str, str, str], list[str]]

_MOST: Final = 5
"""Workloads of which a pod is explained."""
_OVERRIDDEN: Final = frozenset(("kept-own", "won-by", "left-out"))


class PolicyDetail(Struct, frozen=True, rename="camel", kw_only=True):
    """The pods that the policy selects, and its results for the first of them, for programs."""

    pods: int = 0
    workloads: tuple[str, ...] = ()
    reports: tuple[PolicyReport, ...] = ()


async def section(context: WhyContext) -> Section:
    """Explain a policy by the pods of the cluster."""
    subject, live = context.subject, context.live
    settings = await live.known_settings()
    # Without permission to list namespaces, a policy can still be explained by its own.
    namespaces = await live.attempt(live.namespaces(), [])
    excluded = {*settings.webhook.excluded_namespaces, live.namespace}
    finding = policy_finding(subject.raw, subject.kind, namespaces, excluded)
    edit = f"kubectl edit {subject.kind.lower()} {subject.name}"
    edit = f"{edit} -n {subject.namespace}" if subject.namespace else edit
    if finding is not None:
        is_invalid = finding.severity == "warning"
        step = (not is_invalid and finding.remedy) or f"correct it: {edit}"
        state: State = "fault" if is_invalid else "note"
        code = "invalid" if is_invalid else "unmatched"
        return Section(name="policy", state=state, code=code, summary=finding.text, step=step)
    policy = compile_policy(replace(decode_policy(subject.raw), kind=subject.kind))
    workloads = await _selected(context, policy, namespaces)
    count = sum(map(len, workloads.values()))
    if not count:
        text = "selects nothing now: no pod in its namespaces has the labels of its podSelector"
        step = f"kubectl get pods -A --show-labels; {edit}"
        return Section(name="policy", state="note", code="unmatched", summary=text, step=step)
    lines, reports = [], []
    for (namespace, kind, name), pods in list(workloads.items())[:_MOST]:
        report, shown = await _report(context, namespace, pods[0])
        lines.append(
            Line(f"{kind} {namespace}/{name}, {plural(len(pods), 'pod')}", label="selects")
        )
        lines += shown
        reports += [report] if report is not None else []
    if len(workloads) > _MOST:
        lines.append(
            Line(f"and {plural(len(workloads) - _MOST, 'workload')} more", label="selects")
        )
    rules = {item.rule for report in reports for item in report.contributions}
    spaces = {namespace for namespace, *_ in workloads}
    text = f"selects {plural(count, 'pod')} in {plural(len(spaces), 'namespace')}"
    code, state, step = "valid", "fine", ""
    if rules & _OVERRIDDEN:
        code, state, step = "overridden", "note", f"change a value or a selector: {edit}"
        text = f"{text}; not all that it sets counts"
    elif rules & CHANGES:
        code, state, step = "not-applied", "note", f"harbourmaster repair -n {min(spaces)}"
        text = f"{text}; some lack what it sets"
    names = tuple(f"{kind} {namespace}/{name}" for namespace, kind, name in workloads)
    detail = PolicyDetail(pods=count, workloads=names, reports=tuple(reports))
    return Section(
        name="policy",
        state=state,
        code=code,
        summary=text,
        step=step,
        lines=tuple(lines),
        detail=detail,
    )


async def _selected(
    context: WhyContext, policy: CompiledPolicy, namespaces: list[Metadata]
) -> Workloads:
    """Return the names of the pods that the policy selects, by the workload that made them."""
    live, place = context.live, context.subject.namespace
    chosen = {place} if context.subject.kind != CLUSTER_POLICIES.kind else set()
    for space in namespaces:
        labels = {NAME_LABEL: space.name, **space.labels}
        if policy.namespaces is not None and not place and policy.namespaces.matches(labels):
            chosen.add(space.name)
    workloads: Workloads = defaultdict(list)
    for pod in await live.metadata(PODS, place or None):
        if pod.namespace in chosen and policy.pods is not None and policy.pods.matches(pod.labels):
            owner = supported_owner(pod.owner_references)
            above = workload_above(owner, pod.labels) if owner else (PODS.kind, pod.name)
            workloads[pod.namespace, *above].append(pod.name)
    return workloads


async def _report(
    context: WhyContext, namespace: str, name: str
) -> tuple[PolicyReport | None, list[Line]]:
    """Return the result of the policy for one pod as it is now."""
    live, own = context.live, context.subject
    pod = {
        "apiVersion": "v1",
        "kind": PODS.kind,
        **decode_anything(await live.get(PODS, name, namespace)),
    }
    inputs = await inputs_of(live, namespace)
    explanation = explain_review(review_of(pod, namespace), inputs).explanation
    named = {f"{own.kind} {'/'.join(filter(None, (own.namespace, own.name)))}"}
    reports = explanation.policies if explanation else ()
    mine = tuple(report for report in reports if report.reference in named)
    if explanation is None or not mine:
        return None, []
    wording = PolicyLines(Background(whose="the pod", is_live=True), "spec")
    _, *lines = wording.policies(replace(explanation, policies=mine))
    return mine[0], lines
