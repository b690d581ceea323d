"""Policies that select the subject, the changes of each, and the origin of each field."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.metadata import LAST_APPLIED
from harbourmaster.api.patches import Operation, escape
from harbourmaster.api.times import moment
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.cli.offline import kind_of, object_in, operations_of
from harbourmaster.cli.why.admission import (
    explain_review,
    inputs_of,
    key_of,
    review_of,
    reviewed_object,
)
from harbourmaster.cli.why.missing_gate import why_unsent
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.cli.why.policy_lines import Background, PolicyLines
from harbourmaster.cli.why.render import renewal
from harbourmaster.cli.why.subjects import BY_KIND
from harbourmaster.policies.explain import CHANGES, OWN, FieldReport, PolicyReport
from harbourmaster.policies.owned_fields import OwnedFields
from harbourmaster.policies.pods import KINDS
from harbourmaster.webhook.verdict import DENIED, INVALID, MALFORMED, UNMATCHED, VALID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from harbourmaster.cli.why.admission import DatedPolicy, ExplainedReview
    from harbourmaster.cli.why.model import State, Subject, WhyContext
    from harbourmaster.policies.explain import Contribution, Explanation
    from harbourmaster.policies.pods import Kind

_THERE: Final = frozenset(("already-there", "as-affinity"))
"""Rules by which an object that is not changed has what is asked for."""


class Policies(Struct, frozen=True, kw_only=True, rename="camel"):
    """The server's answer to the object's creation and its explanation, for programs."""

    outcome: str
    """The outcome in the server's log and metrics: mutated, gated, unchanged, and so on."""
    left_alone: str
    """Why no policy was looked at; empty where they were."""
    waits: str
    """The place where a pod has to wait for its checks: ``gate``, ``scheduler`` or ""."""
    patch: tuple[Operation, ...]
    """All operations of the answer, gates' too."""
    warnings: tuple[str, ...]
    policies: tuple[PolicyReport, ...]
    fields: tuple[FieldReport, ...]
    problems: tuple[str, ...]
    """Objects that could not be read, so that the answer may differ."""
    remarks: tuple[str, ...]
    """Further remarks about the answer."""


def policies_section(answered: ExplainedReview, known: Background) -> Section:
    """The section on policies."""
    explanation, verdict = answered.explanation, answered.verdict
    remarks = (*known.remarks, *filter(None, (known.unsent,)))
    state, summary = _summary(answered, known)
    reports = explanation.policies if explanation else ()
    invalid = [report.reference for report in reports if report.matched and report.fault]
    lines = [Line(text, 0, "waiting", "unsure") for text in known.problems]
    lines += [Line(text, 0, "", "note") for text in remarks]
    if explanation is not None:
        lines += _lines(answered, explanation, known)
    elif verdict.outcome not in {VALID, UNMATCHED}:
        lines += [Line(note.text, 0, "bad", note.code) for note in verdict.warnings[1:]]
    return Section(
        name="policies",
        state="unknown" if known.problems and state == "fine" else state,
        summary=summary,
        code=verdict.outcome,
        step=f"correct it: kubectl edit {kubectl_object(invalid[0])}" if invalid else "",
        lines=tuple(lines),
        detail=Policies(
            outcome=verdict.outcome,
            left_alone=answered.left_alone,
            waits=answered.waits,
            patch=operations_of(verdict),
            warnings=verdict.response.warnings,
            policies=reports,
            fields=explanation.fields if explanation else (),
            problems=known.problems,
            remarks=remarks,
        ),
    )


def kubectl_object(reference: str) -> str:
    """Return a policy as kubectl takes it."""
    kind, _, key = reference.partition(" ")
    namespace, _, name = key.rpartition("/")
    return f"{kind.lower()} {name}" + (f" -n {namespace}" if namespace else "")


def _lines(
    answered: ExplainedReview, explanation: Explanation, known: Background
) -> Iterator[Line]:
    kind = KINDS[key_of(answered.request)]
    wording = PolicyLines(known, kind.pointer[1:].replace("/", "."))
    yield from wording.policies(explanation)
    codes = {note.code for note in explanation.warnings}
    for note in answered.verdict.warnings:
        # Of what was admitted long ago the section on gates tells more, except of its stages.
        is_told = known.is_live and note.code.startswith("gate-")
        if note.code not in codes and (not is_told or note.code.startswith("gate-stages")):
            yield Line(note.text, 0, "waiting", "warns")
    yield from wording.fields(explanation.fields)
    yield from wording.mismatches(explanation)


def _summary(answered: ExplainedReview, known: Background) -> tuple[State, str]:
    explanation, verdict = answered.explanation, answered.verdict
    if explanation is None:
        return _summary_without_policies(answered)
    if verdict.outcome == DENIED:
        return "fault", f"{known.whose} would be denied: {verdict.response.reason}"
    matched = [report for report in explanation.policies if report.matched]
    if answered.is_off:
        return "note", "no policy is evaluated: policies are not among the features of the webhook"
    if not matched:
        total = len(explanation.policies)
        return "fine", f"none of {total} selects {known.whose}" if total else "there are none"
    text = f"{_count_matches(len(matched), len(explanation.policies))} {known.whose}"
    if invalid := sum(bool(report.fault) for report in matched):
        which = "it" if len(matched) == 1 else f"{invalid} of them"
        return "fault", f"{text}; {which} can't be used"
    if any(map(_is_hopeless, matched)):
        return "fault", f"{text}; what is required now can be met by no node"
    changed = len({field.path for field in explanation.fields if set(field.set_by) - {OWN}})
    if not changed:
        return "fine", f"{text}; {_why_unchanged(matched)}"
    if known.unsent:
        return "note", f"{text}, which is never sent to the webhook"
    fields = f"{changed} field{'s' if changed > 1 else ''}"
    if known.is_live:
        return "note", f"{text}; created now, it would differ in {fields}"
    return "fine", f"{text} and {'change' if len(matched) > 1 else 'changes'} {fields}"


def _summary_without_policies(answered: ExplainedReview) -> tuple[State, str]:
    verdict = answered.verdict
    if verdict.outcome in {MALFORMED, INVALID, DENIED}:
        return "fault", verdict.response.reason or answered.left_alone
    if verdict.outcome == VALID:
        return "fine", "it is a valid object of ours, and no policy changes it"
    state: State = "note" if verdict.outcome == UNMATCHED else "fault"
    return state, f"no policy was evaluated: {answered.left_alone}"


def _why_unchanged(matched: Sequence[PolicyReport]) -> str:
    """Why policies that match have nothing to do."""
    sets = "it sets" if len(matched) == 1 else "they set"
    rules = {contribution.rule for report in matched for contribution in report.contributions}
    if not rules:
        return f"{sets} nothing"
    if rules <= _THERE:
        return f"everything that {sets} is present"
    return f"{'it changes' if len(matched) == 1 else 'they change'} nothing"


def _is_hopeless(report: PolicyReport) -> bool:
    """Whether it requires what excludes something that is required as well."""
    warned = any(note.code == "affinity-conflict" for note in report.warnings)
    return warned and not any(
        contribution.rule == "left-out" for contribution in report.contributions
    )


def _count_matches(matched: int, total: int) -> str:
    if total == 1:
        return "the only policy selects"
    return f"{matched} of {total} {'select' if matched > 1 else 'selects'}"


async def section(context: WhyContext) -> Section:
    """Explain the policies that select the subject."""
    return policies_section(*await _explain(context))


async def origins_in(context: WhyContext) -> dict[str, str]:
    """Return the origins of a pod's fields by their paths below its spec."""
    answered, background = await _explain(context)
    explanation = answered.explanation
    return (
        PolicyLines(background, "spec").origins(explanation.fields)
        if explanation is not None
        else {}
    )


async def _explain(context: WhyContext) -> tuple[ExplainedReview, Background]:
    return await context.live.once(
        ("explained", context.subject.reference), partial(_explain_now, context)
    )


async def _explain_now(context: WhyContext) -> tuple[ExplainedReview, Background]:
    """Ask the engine as if the subject were created now, with what the cluster has now."""
    subject = context.subject
    inputs = await inputs_of(context.live, subject.namespace, (subject, *context.owners))
    asked = reviewed_object(decode_anything(subject.raw))
    manifest, ending = _without_end(asked.manifest)
    answered = explain_review(review_of(manifest, subject.namespace), inputs)
    unsent = ""
    space = inputs.snapshot.namespace(subject.namespace)
    if answered.explanation is not None and space is not None:
        labels = object_in(manifest, "metadata").get("labels") or {}
        unsent = await why_unsent(context.live, kind_of(manifest)[-1], space.labels, labels)
    owner = context.owners[0] if context.owners and context.is_pod else None
    background = Background(
        whose=asked.whose,
        is_live=True,
        problems=inputs.problems,
        remarks=(*asked.remarks, *filter(None, (inputs.doubt, ending))),
        unsent=unsent,
        hints={} if unsent else _hints(context, answered.explanation, inputs.policies, manifest),
        template=_fields(owner),
        applied=_applied_fields(context),
        owner=f"{owner.kind} {owner.name}" if owner else "",
        has_all=context.has_all,
    )
    return answered, background


def _without_end(manifest: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the object as it was before its deletion began, and a remark on that, or ""."""
    metadata = dict(object_in(manifest, "metadata"))
    if metadata.pop("deletionTimestamp", None) is None:
        return manifest, ""
    return {**manifest, "metadata": metadata}, "it is being deleted"


def _applied_fields(context: WhyContext) -> dict[str, Any] | None:
    """The fields that a user applied; None where kubectl has not recorded them."""
    *_, top = (context.subject, *context.owners)
    text = metadata_in(top.raw).annotations.get(LAST_APPLIED)
    return _fields(replace(top, raw=text.encode())) if text else None


def _fields(owner: Subject | None) -> dict[str, Any] | None:
    """The scheduling fields of a pod or of an owner's template; None where they are not known."""
    kind = _kind_of(owner) if owner is not None else None
    if owner is None or kind is None:
        return None
    spec = decode_anything(owner.raw)
    for name in kind.pointer.split("/")[1:]:
        spec = object_in(spec, name)
    return OwnedFields.of(spec).values


def _kind_of(subject: Subject) -> Kind | None:
    resource = BY_KIND[subject.kind]
    return KINDS.get((resource.group, resource.version, resource.kind))


def _hints(
    context: WhyContext,
    explanation: Explanation | None,
    policies: tuple[DatedPolicy, ...],
    manifest: dict[str, Any],
) -> dict[str, str]:
    """Why a policy has not done what it should have done when the object was created."""
    created = moment(object_in(manifest, "metadata").get("creationTimestamp"))
    if explanation is None or created is None:
        return {}
    by_reference = {report.compiled.reference: report for report in policies}
    hints = {}
    for report in explanation.policies:
        policy = by_reference[report.reference]
        changed = moment(policy.changed) if policy.generation > 1 else None
        kept = [
            contribution
            for contribution in report.contributions
            if contribution.rule in {*CHANGES, "kept-own"}
        ]
        stale = _stale(context, kept)
        if changed is not None and kept and (changed > created or stale):
            command = _refresh(context, stale)
            hints[report.reference] = (
                f"older than the policy's change ({policy.changed}): {command}"
            )
        elif report.changes:
            hints[report.reference] = _hint(policy, created, manifest)
    return hints


def _stale(context: WhyContext, kept: Sequence[Contribution]) -> list[str]:
    """Fields that a template has from elsewhere than its user, so that its pods keep them."""
    *_, top = (context.subject, *context.owners)
    own = "spec" if context.is_pod else "spec.template.spec"
    applied, there = _applied_fields(context), _fields(top) or {}
    if applied is None:
        # Not by kubectl apply, so it may be the user's own field.
        return []
    paths = [
        contribution.path.removeprefix(f"{own}.")
        for contribution in kept
        if contribution.rule == "kept-own"
    ]
    return [path for path in paths if path in there and path not in applied]


def _refresh(context: WhyContext, stale: Sequence[str]) -> str:
    """The command that lets a policy set again what it set before its change."""
    *_, top = (context.subject, *context.owners)
    kind = _kind_of(top)
    if not stale or kind is None or not kind.is_template:
        return renewal(top.kind, context.subject.namespace, top.name)
    field, _, key = stale[0].removesuffix('"]').partition('["')
    pointer = "/".join(filter(None, (kind.pointer, field, escape(key))))
    patch = msgspec.json.encode([{"op": "remove", "path": pointer}]).decode()
    at = f"kubectl -n {context.subject.namespace}"
    return f"{at} patch {top.kind.lower()} {top.name} --type=json -p '{patch}'"


def _hint(policy: DatedPolicy, created: datetime, manifest: dict[str, Any]) -> str:
    made = moment(policy.created)
    if made is not None and made > created:
        kind = KINDS.get(kind_of(manifest))
        if kind is None or kind.create_only:
            return "it was created after the object, which it does not change"
        # Templates are changed by updates as well.
        return "it was created after the object and applies at the object's next update"
    if policy.generation > 1 and not policy.changed:
        return "it was changed since it was created, perhaps after the object was"
    return (
        "it is older than the object: the webhook was down, or a component or a label "
        "excludes such objects: run harbourmaster doctor"
    )
