"""Which policies select the subject, what each did or would do, and who set each field."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.api.selectors import LabelSelector, compile_selector
from harbourmaster.api.times import parse
from harbourmaster.cli.installed import OUR_DOMAIN
from harbourmaster.cli.live.reader import raise_unusable
from harbourmaster.cli.live.webhooks import decode_configuration
from harbourmaster.cli.why.asking import as_asked, ask, inputs_of, review_of
from harbourmaster.cli.why.policy_section import Words, policies_section
from harbourmaster.cli.why.subjects import BY_KIND
from harbourmaster.kube.errors import ApiError
from harbourmaster.policies.atoms import Fields
from harbourmaster.policies.pods import KINDS
from harbourmaster.policies.unmatched import first_mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from harbourmaster.cli.live.webhooks import Webhook
    from harbourmaster.cli.why.asking import DatedPolicy
    from harbourmaster.cli.why.model import Section, Subject, WhyContext
    from harbourmaster.policies.explain import Explanation
    from harbourmaster.policies.pods import PodView

_OURS: Final = f".{OUR_DOMAIN}"
_EVERYTHING: Final = LabelSelector()
_DECODE: Final = msgspec.json.Decoder(dict[str, Any]).decode


async def section(context: WhyContext) -> Section | None:
    """Ask the engine as if the subject were created now, with what the cluster has now."""
    if not context.live.has_cluster:
        return None
    subject = context.subject
    found = await inputs_of(context, subject.namespace)
    asked = as_asked(_DECODE(subject.raw))
    remarks = (*asked.remarks, *filter(None, (found.doubt,)))
    manifest = asked.manifest
    if context.is_live:
        manifest, ending = _without_end(manifest)
        remarks = (*remarks, ending) if ending else remarks
    answered = ask(review_of(manifest, subject.namespace), found)
    unsent = ""
    space = found.snapshot.namespace(subject.namespace)
    if context.is_live and answered.explanation is not None and space is not None:
        labels = (manifest.get("metadata") or {}).get("labels") or {}
        unsent = await _why_unsent(context, str(manifest.get("kind")), space.labels, labels)
    owner = context.owners[0] if context.owners and context.is_pod else None
    told = Words(
        whose=asked.whose,
        is_live=context.is_live,
        problems=found.problems,
        remarks=remarks,
        unsent=unsent,
        hints={}
        if unsent or not context.is_live
        else _hints(answered.explanation, found.policies, manifest),
        template=_template(owner),
        owner=f"{owner.kind} {owner.name}" if owner else "",
        has_all=context.has_all,
    )
    return policies_section(answered, told)


def _without_end(manifest: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The object as it was before somebody deleted it; what is being deleted is never changed."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict) or "deletionTimestamp" not in metadata:
        return manifest, ""
    manifest = copy.copy(manifest)
    manifest["metadata"] = {
        key: value for key, value in metadata.items() if key != "deletionTimestamp"
    }
    return manifest, "it is being deleted"


def _template(owner: Subject | None) -> dict[str, Any] | None:
    """The scheduling fields of the owner's template; None where they are not known."""
    if owner is None:
        return None
    group, _, version = owner.api_version.rpartition("/")
    kind = KINDS.get((group, version, owner.kind))
    try:
        pod = kind.read(owner.raw) if kind is not None else None
    except MalformedError:
        return None
    return None if pod is None else Fields.of(_spec_of(pod)).values


def _spec_of(pod: PodView) -> dict[str, Any]:
    spec = pod.spec
    found = {"affinity": pod.affinity, "tolerations": pod.tolerations}
    if spec is None:
        return found
    named = {"nodeName": spec.node_name, "schedulerName": spec.scheduler_name}
    return {**found, **named, "nodeSelector": spec.node_selector}


def _hints(
    explanation: Explanation | None, policies: tuple[DatedPolicy, ...], manifest: dict[str, Any]
) -> dict[str, str]:
    """Why a policy would change what it should have changed when the object was created."""
    if explanation is None:
        return {}
    by_reference = {each.candidate.compiled.reference: each for each in policies}
    created = _time((manifest.get("metadata") or {}).get("creationTimestamp"))
    found: dict[str, str] = {}
    for report in explanation.policies:
        policy = by_reference.get(report.reference)
        if not report.changes or policy is None or created is None:
            continue
        made = _time(policy.created)
        if made is not None and made > created:
            found[report.reference] = _later(manifest)
        elif policy.generation > 1:
            found[report.reference] = (
                "it was changed since it was created, perhaps after the object was"
            )
        else:
            found[report.reference] = (
                "it is older than the object: the webhook was down, or a component or a label "
                "excludes such objects: run harbourmaster doctor"
            )
    return found


def _later(manifest: dict[str, Any]) -> str:
    """Of a policy that is younger than the object; templates are changed by updates as well."""
    group, _, version = str(manifest.get("apiVersion") or "v1").rpartition("/")
    kind = KINDS.get((group, version, str(manifest.get("kind"))))
    if kind is None or kind.create_only:
        return "it was created after the object, which it does not change"
    return "it was created after the object and applies at the object's next update"


def _time(text: object) -> datetime | None:
    if not isinstance(text, str) or not text:
        return None
    try:
        return parse(text)
    except ValueError:
        return None


async def _why_unsent(
    context: WhyContext, kind: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
) -> str:
    """Why no object of that kind with these labels is sent to our webhook; empty where one is.

    It is empty too where that can't be read. ``matchConditions`` are not evaluated.
    """
    resource = BY_KIND.get(kind)
    if resource is None:
        return ""
    try:
        found = await context.live.listed(MUTATING_WEBHOOKS, decode_configuration)
    except ApiError as error:
        raise_unusable(error)
        return ""
    entries = [each for one in found for each in one.entries if each.name.endswith(_OURS)]
    if not entries:
        return "no webhook of ours is registered: harbourmaster doctor says more"
    asked = [each for each in entries if each.covers(resource.group, resource.plural)]
    if not asked:
        return f"no webhook of ours is registered for {resource.plural}"
    reasons = [_unselected(each, namespace_labels, labels) for each in asked]
    if "" in reasons:
        return ""
    return f"it is never sent to the webhook: {'; '.join(dict.fromkeys(reasons))}"


def _unselected(
    entry: Webhook, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
) -> str:
    """Why its selectors exclude the object; unlike a policy's, absent ones select everything."""
    for selector, name, found, whose in (
        (entry.namespace_selector, "namespaceSelector", namespace_labels, "the namespace"),
        (entry.object_selector, "objectSelector", labels, "the object"),
    ):
        given = selector or _EVERYTHING
        mismatch = first_mismatch(compile_selector(given), given, name, found, whose)
        if mismatch is not None:
            return str(mismatch)
    return ""
