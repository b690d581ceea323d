"""Keys and targets for gates that have no effect, and workloads without a check (D19)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.json import Decoder

from harbourmaster.api.resources import EVALUATION_DEFINITIONS, NAMESPACES, PODS
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.why.missing_gate import template_of
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.cli.why.subjects import BY_KIND
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.mistakes import (
    WAIT_SHADOWED,
    Mistake,
    key_mistakes,
    kind_mistakes,
    opt_in_mistakes,
    owner_mistakes,
    state_mistakes,
)
from harbourmaster.gates.owners import REPLICA_SET, SUPPORTED
from harbourmaster.gates.waits import DISABLED, WAIT_FOR_KEY, inherit_wait
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.evaluations import target_errors
from harbourmaster.lifecycle.model import EvaluationDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harbourmaster.cli.why.model import WhyContext

_WAIT_NOT_INHERITED: Final = Mistake(
    "gate-wait-not-inherited",
    f'key "{WAIT_FOR_KEY}" has no effect yet: metadata.annotations: the webhook did not see it, so '
    "the pod template does not have it",
)


class ChecksDetail(Struct, frozen=True):
    """The mistakes for programs, one line each."""

    mistakes: tuple[str, ...]


async def section(context: WhyContext) -> Section | None:
    """Explain mistakes in a pod, a workload or a KeptnEvaluationDefinition; None without one."""
    subject = context.subject
    if subject.kind == EVALUATION_DEFINITIONS.kind:
        definition = Decoder(EvaluationDefinition).decode(subject.raw)
        errors = map(str, target_errors(definition))
        return _section_of([Mistake("evaluation-target-invalid", error) for error in errors])
    if subject.kind not in BY_KIND:
        return None
    space = await context.live.read(NAMESPACES, subject.namespace, metadata_in)
    if space is None:
        return None
    if space.annotations.get(OPT_IN_KEY) != OPT_IN:
        mistakes = opt_in_mistakes(space.name, space.annotations, space.labels)
        return _section_of((*mistakes, *_wait_mistakes(context, space.labels)))
    mistakes = (*_mistakes(context), *_wait_mistakes(context, space.labels))
    return _section_of(mistakes) or _section_without_checks(context)


def _section_of(mistakes: Sequence[Mistake]) -> Section | None:
    if not mistakes:
        return None
    texts = tuple(mistake.text for mistake in mistakes)
    return Section(
        name="checks",
        state="fault",
        code=mistakes[0].code,
        summary=texts[0],
        lines=tuple(Line(text, label="mistake", tone="bad") for text in texts[1:]),
        detail=ChecksDetail(texts),
    )


def _mistakes(context: WhyContext) -> Iterator[Mistake]:
    subject, own = context.subject, metadata_in(context.subject.raw)
    if subject.kind != REPLICA_SET:
        yield from key_mistakes(own.annotations, own.labels)
    if context.is_pod:
        yield from owner_mistakes(own.annotations, own.labels, own.owner_references)
    else:
        template, at = template_of(subject).keys, "spec.template.metadata"
        yield from key_mistakes(template.annotations, template.labels, f"{at}.{{}}")
        yield from state_mistakes(template.annotations, f"{at}.annotations")
        if subject.kind not in SUPPORTED:
            yield from kind_mistakes(template.annotations, template.labels, subject.kind, at)
    for owner in context.owners:
        above = metadata_in(owner.raw)
        if owner.kind != REPLICA_SET:
            yield from key_mistakes(
                above.annotations, above.labels, f"metadata.{{}} of {owner.reference}"
            )


def _wait_mistakes(context: WhyContext, labels: Mapping[str, str]) -> Iterator[Mistake]:
    """Yield a mistake of each stored workload whose template lacks its wait."""
    if labels.get(WAIT_FOR_KEY) == DISABLED or context.created_with is not None:
        return
    for workload in (context.subject, *context.owners):
        if workload.kind in BY_KIND and workload.kind not in {PODS.kind, REPLICA_SET}:
            own = metadata_in(workload.raw).annotations
            change = inherit_wait(own, template_of(workload).keys.annotations)
            if change.is_shadowed:
                yield WAIT_SHADOWED
            elif change.added:
                yield _WAIT_NOT_INHERITED


def _section_without_checks(context: WhyContext) -> Section | None:
    subject, own = context.subject, metadata_in(context.subject.raw)
    template = template_of(subject).keys
    described = workload_of(template.annotations, template.labels)
    described = described or workload_of(own.annotations, own.labels)
    is_gated = context.is_pod or subject.kind in SUPPORTED
    if described is None or described.has_checks or not is_gated:
        return None
    text = f"no checks: workload {described.workload} names no task and no evaluation"
    return Section(
        name="checks", state="note", code="no-checks", summary=text, detail=ChecksDetail(())
    )
