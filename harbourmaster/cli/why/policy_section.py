"""The section on policies, from what the server's engine answered; live and offline alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.patches import Operation
from harbourmaster.cli.reviews import operations_of
from harbourmaster.cli.why.asking import key_of
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.cli.why.policy_lines import Wording
from harbourmaster.policies.explain import OWN, FieldReport, PolicyReport
from harbourmaster.policies.pods import KINDS
from harbourmaster.webhook.verdict import DENIED, INVALID, MALFORMED, UNMATCHED, VALID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.cli.why.asking import Answered
    from harbourmaster.cli.why.model import State
    from harbourmaster.cli.why.policy_lines import Background
    from harbourmaster.policies.explain import Explanation

_THERE: Final = frozenset(("already-there", "as-affinity"))
"""Rules by which an object that is not changed has what is asked for."""


class Policies(Struct, frozen=True, kw_only=True, rename="camel"):
    """What programs read: the server's answer to the object's creation, and why it is that."""

    outcome: str
    """As in the server's log and metrics: mutated, gated, unchanged, unmatched, skipped, ..."""
    left_alone: str
    """Why no policy was looked at; empty where they were."""
    waits: str
    """Where a pod has to wait for its checks: ``gate``, ``scheduler`` or empty."""
    patch: tuple[Operation, ...]
    """All operations of the answer, gates' too."""
    warnings: tuple[str, ...]
    policies: tuple[PolicyReport, ...]
    fields: tuple[FieldReport, ...]
    problems: tuple[str, ...]
    """What could not be read, so that the answer may be another one."""
    remarks: tuple[str, ...]
    """What else is to be known about it."""


def policies_section(answered: Answered, known: Background) -> Section:
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
        step=f"correct it: kubectl edit {_object(invalid[0])}" if invalid else "",
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


def _object(reference: str) -> str:
    """A policy as kubectl takes it."""
    kind, _, key = reference.partition(" ")
    namespace, _, name = key.rpartition("/")
    return f"{kind.lower()} {name}" + (f" -n {namespace}" if namespace else "")


def _lines(answered: Answered, explanation: Explanation, known: Background) -> Iterator[Line]:
    kind = KINDS[key_of(answered.request)]
    wording = Wording(known, kind.pointer[1:].replace("/", "."))
    yield from wording.policies(explanation)
    codes = {note.code for note in explanation.warnings}
    for note in answered.verdict.warnings:
        # Of what was admitted long ago the section on gates tells more.
        if note.code not in codes and not (known.is_live and note.code.startswith("gate-")):
            yield Line(note.text, 0, "waiting", "warns")
    yield from wording.fields(explanation.fields)
    yield from wording.unmatched(explanation)


def _summary(answered: Answered, known: Background) -> tuple[State, str]:
    explanation, verdict = answered.explanation, answered.verdict
    if explanation is None:
        return _unasked(answered)
    if verdict.outcome == DENIED:
        return "fault", f"{known.whose} would be denied: {verdict.response.reason}"
    matched = [report for report in explanation.policies if report.matched]
    if answered.is_off:
        return "note", "no policy is evaluated: policies are not among the features of the webhook"
    if not matched:
        found = len(explanation.policies)
        return "fine", f"none of {found} selects {known.whose}" if found else "there are none"
    text = f"{_counted(len(matched), len(explanation.policies))} {known.whose}"
    if invalid := sum(bool(report.fault) for report in matched):
        which = "it" if len(matched) == 1 else f"{invalid} of them"
        return "fault", f"{text}; {which} can't be used"
    if any(map(_is_hopeless, matched)):
        return "fault", f"{text}; what is required now can be met by no node"
    changed = len({field.path for field in explanation.fields if set(field.set_by) - {OWN}})
    if not changed:
        return "fine", f"{text}; {_unchanged(matched)}"
    if known.unsent:
        return "note", f"{text}, which is never sent to the webhook"
    fields = f"{changed} field{'s' if changed > 1 else ''}"
    if known.is_live:
        return "note", f"{text}; created now, it would differ in {fields}"
    return "fine", f"{text} and {'change' if len(matched) > 1 else 'changes'} {fields}"


def _unasked(answered: Answered) -> tuple[State, str]:
    """Where no policy was looked at."""
    verdict = answered.verdict
    if verdict.outcome in {MALFORMED, INVALID, DENIED}:
        return "fault", verdict.response.reason or answered.left_alone
    if verdict.outcome == VALID:
        return "fine", "it is a valid object of ours, and no policy changes it"
    state: State = "note" if verdict.outcome == UNMATCHED else "fault"
    return state, f"no policy was evaluated: {answered.left_alone}"


def _unchanged(matched: Sequence[PolicyReport]) -> str:
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


def _counted(matched: int, total: int) -> str:
    if total == 1:
        return "the only policy selects"
    return f"{matched} of {total} {'select' if matched > 1 else 'selects'}"
