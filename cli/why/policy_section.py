"""The section on policies, from what the server's engine answered; live and offline alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.patches import Operation
from harbourmaster.cli.why.asking import key_of
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.cli.why.policy_lines import Wording
from harbourmaster.policies.explain import OWN, FieldReport, PolicyReport
from harbourmaster.policies.pods import KINDS
from harbourmaster.webhook.engine import DENIED, UNMATCHED
from harbourmaster.webhook.handlers import INVALID, MALFORMED, VALID

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.cli.why.asking import Answered
    from harbourmaster.cli.why.model import State
    from harbourmaster.policies.explain import Explanation

_THERE: Final = frozenset(("already-there", "as-affinity"))
"""Rules by which an object that is not changed has what is asked for."""
NAME = "policies"
TITLE = "Policies"


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


class Words(Struct, frozen=True, kw_only=True):
    """What the section is made of, besides the answer."""

    whose: str
    """``the pod``, ``the template``."""
    is_live: bool
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    unsent: str = ""
    """Why the API server never asks the webhook about it; empty where it does."""
    hints: dict[str, str] = {}
    """By reference of a policy: why it would change what it should have changed before."""
    template: dict[str, Any] | None = None
    """The fields of the owner's template."""
    owner: str = ""
    has_all: bool = False


def policies_section(answered: Answered, told: Words) -> Section:
    """The section on policies."""
    explanation = answered.explanation
    verdict = answered.verdict
    detail = Policies(
        outcome=verdict.outcome,
        left_alone=answered.left_alone,
        waits=answered.gating.waits if answered.gating else "",
        patch=answered.patch,
        warnings=verdict.response.warnings,
        policies=explanation.policies if explanation else (),
        fields=explanation.fields if explanation else (),
        problems=told.problems,
        remarks=(*told.remarks, *filter(None, (told.unsent,))),
    )
    state, summary = _summary(answered, told)
    lines = [Line(text, 0, "waiting", "unsure") for text in told.problems]
    remarks = (*told.remarks, *filter(None, (told.unsent,)))
    lines += [Line(text, 0, "", "note") for text in remarks]
    if explanation is not None:
        lines += _lines(answered, explanation, told)
    elif verdict.outcome not in {VALID, UNMATCHED}:
        lines += [Line(note.text, 0, "bad", note.code) for note in verdict.notes[1:]]
    return Section(
        name=NAME,
        title=TITLE,
        state="unknown" if told.problems and state == "fine" else state,
        summary=summary,
        code=verdict.outcome,
        lines=tuple(lines),
        detail=detail,
    )


def _lines(answered: Answered, explanation: Explanation, told: Words) -> Iterator[Line]:
    kind = KINDS[key_of(answered.request)]
    wording = Wording(told.whose, kind.pointer[1:].replace("/", "."), is_live=told.is_live)
    yield from wording.policies(explanation, told.hints)
    codes = {note.code for note in explanation.notes}
    for note in answered.verdict.notes:
        if note.code not in codes:
            yield Line(note.text, 0, "waiting", "warns")
    yield from wording.fields(explanation.fields, told.template, told.owner)
    yield from wording.unmatched(explanation, has_all=told.has_all)


def _summary(answered: Answered, told: Words) -> tuple[State, str]:
    explanation, verdict = answered.explanation, answered.verdict
    if explanation is None:
        return _unasked(answered)
    if verdict.outcome == DENIED:
        return "fault", f"{told.whose} would be denied: {verdict.response.reason}"
    matched = [report for report in explanation.policies if report.matched]
    if answered.is_off:
        return "note", "no policy is evaluated: policies are not among the features of the webhook"
    if not matched:
        found = len(explanation.policies)
        return "fine", f"none of {found} selects {told.whose}" if found else "there are none"
    text = f"{_counted(len(matched), len(explanation.policies))} {told.whose}"
    if invalid := sum(bool(report.fault) for report in matched):
        which = "it" if len(matched) == 1 else f"{invalid} of them"
        return "fault", f"{text}; {which} can't be used"
    if any(map(_is_hopeless, matched)):
        return "fault", f"{text}; what is required now can be met by no node"
    changed = len({each.path for each in explanation.fields if set(each.set_by) - {OWN}})
    if not changed:
        return "fine", f"{text}; {_unchanged(matched)}"
    if told.unsent:
        return "note", f"{text}, which is never sent to the webhook"
    fields = f"{changed} field{'s' if changed > 1 else ''}"
    if told.is_live:
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
    rules = {each.rule for report in matched for each in report.contributions}
    if not rules:
        return f"{sets} nothing"
    if rules <= _THERE:
        return f"everything that {sets} is present"
    return f"{'it changes' if len(matched) == 1 else 'they change'} nothing"


def _is_hopeless(report: PolicyReport) -> bool:
    """Whether it requires what excludes something that is required as well."""
    warned = any(note.code == "affinity-conflict" for note in report.notes)
    return warned and not any(each.rule == "left-out" for each in report.contributions)


def _counted(matched: int, total: int) -> str:
    if total == 1:
        return "the only policy selects"
    return f"{matched} of {total} {'select' if matched > 1 else 'selects'}"
