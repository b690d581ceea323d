"""Which policies select the subject, what each did or would do, and who set each field."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from harbourmaster.api.metadata import LAST_APPLIED
from harbourmaster.api.patches import escape
from harbourmaster.api.times import moment
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.cli.reviews import kind_of, object_in
from harbourmaster.cli.why.asking import as_asked, ask, inputs_of, review_of
from harbourmaster.cli.why.policy_lines import Background, Wording
from harbourmaster.cli.why.policy_section import policies_section
from harbourmaster.cli.why.steps import renewal
from harbourmaster.cli.why.subjects import BY_KIND
from harbourmaster.cli.why.ungated import why_unsent
from harbourmaster.policies.explain import CHANGES
from harbourmaster.policies.owned_fields import OwnedFields
from harbourmaster.policies.pods import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from harbourmaster.cli.why.asking import Answered, DatedPolicy
    from harbourmaster.cli.why.model import Section, Subject, WhyContext
    from harbourmaster.policies.explain import Contribution, Explanation
    from harbourmaster.policies.pods import Kind


async def section(context: WhyContext) -> Section:
    """Which policies select the subject, and what they do or did."""
    return policies_section(*await _explained(context))


async def origins_in(context: WhyContext) -> dict[str, str]:
    """Who set the fields of a pod, by their paths below its spec."""
    answered, background = await _explained(context)
    found = answered.explanation
    return Wording(background, "spec").origins(found.fields) if found is not None else {}


async def _explained(context: WhyContext) -> tuple[Answered, Background]:
    return await context.live.once(("explained", context.subject.shown), partial(_ask, context))


async def _ask(context: WhyContext) -> tuple[Answered, Background]:
    """Ask the engine as if the subject were created now, with what the cluster has now."""
    subject = context.subject
    inputs = await inputs_of(context.live, subject.namespace, context.owners)
    asked = as_asked(decode_anything(subject.raw))
    manifest, ending = _without_end(asked.manifest)
    answered = ask(review_of(manifest, subject.namespace), inputs)
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
        applied=_applied(context),
        owner=f"{owner.kind} {owner.name}" if owner else "",
        has_all=context.has_all,
    )
    return answered, background


def _without_end(manifest: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The object as it was before somebody deleted it; what is being deleted is never changed."""
    metadata = dict(object_in(manifest, "metadata"))
    if metadata.pop("deletionTimestamp", None) is None:
        return manifest, ""
    return {**manifest, "metadata": metadata}, "it is being deleted"


def _applied(context: WhyContext) -> dict[str, Any] | None:
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
    by_reference = {each.compiled.reference: each for each in policies}
    hints = {}
    for each in explanation.policies:
        policy = by_reference[each.reference]
        changed = moment(policy.changed) if policy.generation > 1 else None
        kept = [
            contribution
            for contribution in each.contributions
            if contribution.rule in {*CHANGES, "kept-own"}
        ]
        stale = _stale(context, kept)
        if changed is not None and kept and (changed > created or stale):
            command = _refresh(context, stale)
            hints[each.reference] = f"older than the policy's change ({policy.changed}): {command}"
        elif each.changes:
            hints[each.reference] = _hint(policy, created, manifest)
    return hints


def _stale(context: WhyContext, kept: Sequence[Contribution]) -> list[str]:
    """Fields that a template has from elsewhere than its user, so that its pods keep them."""
    *_, top = (context.subject, *context.owners)
    own = "spec" if context.is_pod else "spec.template.spec"
    applied, there = _applied(context), _fields(top) or {}
    if applied is None:
        # Not by kubectl apply, so it may be the user's own field.
        return []
    paths = [each.path.removeprefix(f"{own}.") for each in kept if each.rule == "kept-own"]
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
