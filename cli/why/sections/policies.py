"""Which policies select the subject, what each did or would do, and who set each field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harbourmaster.api.times import moment
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.reviews import kind_of, object_in
from harbourmaster.cli.why.asking import as_asked, ask, inputs_of, review_of
from harbourmaster.cli.why.policy_lines import Background
from harbourmaster.cli.why.policy_section import policies_section
from harbourmaster.cli.why.subjects import BY_KIND
from harbourmaster.cli.why.ungated import why_unsent
from harbourmaster.policies.atoms import Fields
from harbourmaster.policies.pods import KINDS

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.cli.why.asking import DatedPolicy
    from harbourmaster.cli.why.model import Section, Subject, WhyContext
    from harbourmaster.policies.explain import Explanation


async def section(context: WhyContext) -> Section:
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
        hints={} if unsent else _hints(answered.explanation, inputs.policies, manifest),
        template=_template(owner),
        owner=f"{owner.kind} {owner.name}" if owner else "",
        has_all=context.has_all,
    )
    return policies_section(answered, background)


def _without_end(manifest: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The object as it was before somebody deleted it; what is being deleted is never changed."""
    metadata = dict(object_in(manifest, "metadata"))
    if metadata.pop("deletionTimestamp", None) is None:
        return manifest, ""
    return {**manifest, "metadata": metadata}, "it is being deleted"


def _template(owner: Subject | None) -> dict[str, Any] | None:
    """The scheduling fields of the owner's template; None where they are not known."""
    if owner is None:
        return None
    resource = BY_KIND[owner.kind]
    kind = KINDS.get((resource.group, resource.version, resource.kind))
    if kind is None:
        return None
    spec = decode_anything(owner.raw)
    for name in kind.pointer.split("/")[1:]:
        spec = object_in(spec, name)
    return Fields.of(spec).values


def _hints(
    explanation: Explanation | None, policies: tuple[DatedPolicy, ...], manifest: dict[str, Any]
) -> dict[str, str]:
    """Why a policy would change what it should have changed when the object was created."""
    created = moment(object_in(manifest, "metadata").get("creationTimestamp"))
    if explanation is None or created is None:
        return {}
    by_reference = {each.compiled.reference: each for each in policies}
    return {
        each.reference: _hint(by_reference[each.reference], created, manifest)
        for each in explanation.policies
        if each.changes
    }


def _hint(policy: DatedPolicy, created: datetime, manifest: dict[str, Any]) -> str:
    made = moment(policy.created)
    if made is not None and made > created:
        kind = KINDS.get(kind_of(manifest))
        if kind is None or kind.create_only:
            return "it was created after the object, which it does not change"
        # Templates are changed by updates as well.
        return "it was created after the object and applies at the object's next update"
    if policy.generation > 1:
        return "it was changed since it was created, perhaps after the object was"
    return (
        "it is older than the object: the webhook was down, or a component or a label "
        "excludes such objects: run harbourmaster doctor"
    )
