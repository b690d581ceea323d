"""Lines for people about the changes that policies made to an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.cli.live.kinds import OF_DAEMONS
from harbourmaster.cli.why.model import Line
from harbourmaster.policies.explain import CHANGES, OWN
from harbourmaster.policies.field_text import format_value
from harbourmaster.policies.keys import toleration_key
from harbourmaster.policies.merge import DEFAULT_SCHEDULER
from harbourmaster.policies.model import CLUSTER_POLICY, NODE_NAME
from harbourmaster.policies.owned_fields import REQUIRED_TERMS
from harbourmaster.policies.tolerations import DEFAULT_KEYS
from harbourmaster.policies.unmatched import ELSEWHERE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.cli.terminal import Tone
    from harbourmaster.policies.explain import Contribution, Explanation, FieldReport, PolicyReport

MOST: Final = 20
"""Policies that do not match and are listed; ``--all`` lists them all."""
FOLDED: Final = 8
"""More than so many that fail at one part are one line."""
NO_POLICY: Final = "no current policy"
_COLUMN: Final = 52
"""Characters of a value that others are aligned to."""
_VERBS: Final = {
    "added": "adds",
    "replaced": "sets",
    "multiplied": "narrows",
    "as-affinity": "requires",
    "already-there": "finds",
    "kept-own": "yields",
    "won-by": "yields",
    "left-out": "skips",
}
_WOULD: Final = {"added": "would add", "replaced": "would set", "multiplied": "would narrow"}
_OF_DAEMONS: Final = frozenset(
    toleration_key({"key": key, "operator": "Exists", "effect": effect})
    for key, effect in OF_DAEMONS
)


class Background(Struct, frozen=True, kw_only=True):
    """Facts about an object besides the server's answer."""

    whose: str
    """``the pod``, ``the template``."""
    is_live: bool
    """Whether the object was read from the cluster, long after its admission."""
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    unsent: str = ""
    """Why the API server never asks the webhook about it; empty where it does."""
    hints: dict[str, str] = {}
    """For policies by reference, why it would change what it should have changed before."""
    template: dict[str, Any] | None = None
    """The fields of the owner's template."""
    applied: dict[str, Any] | None = None
    """The fields that a user applied, where kubectl has recorded them."""
    owner: str = ""
    """Kind and name of the object that has the template."""
    has_all: bool = False
    """Whether lists are printed to their ends."""


class PolicyLines:
    """The words for one object."""

    def __init__(self, known: Background, at: str) -> None:
        """``at`` is the path of its pod spec, which is left out of the paths below it."""
        self._known = known
        self._whose, self._is_live = known.whose, known.is_live
        self._prefix = f"{at}."
        self._origins: dict[str, str] = {}

    def _short_path(self, path: str) -> str:
        """The path below the pod spec, with the long name of required node affinity cut short."""
        return (
            path.removeprefix(self._prefix)
            .replace("requiredDuringSchedulingIgnoredDuringExecution", "required")
            .replace("preferredDuringSchedulingIgnoredDuringExecution", "preferred")
            .removesuffix(".nodeSelectorTerms")
        )

    def _sources(self, sources: Sequence[str]) -> str:
        return " and ".join(
            f"{self._whose}'s own" if source == OWN else short_name(source) for source in sources
        )

    def _contribution(self, contribution: Contribution) -> Line:
        """Return the line about the result of one request of a policy."""
        value = format_value(contribution.path, contribution.value)
        short = self._short_path(contribution.path)
        text = f"{short} = {value}"
        tone: Tone = ""
        match contribution.rule:
            case "replaced":
                was = contribution.present
                values = was if isinstance(was, list) else [was]
                text += ", which was " + " and ".join(
                    format_value(contribution.path, value) for value in values
                )
            case "multiplied":
                text = f"{short} to {value}, ANDed with {self._sources(contribution.by)}"
            case "as-affinity":
                text = f"node {value} by node affinity: {contribution.why}"
            case "already-there":
                below = contribution.path.removeprefix(self._prefix)
                by = self._origins.get(below) if self._is_live else ""
                text += f", there already ({by or self._sources(contribution.by)})"
                tone = "dim"
            case "kept-own" | "won-by":
                stays = (
                    ""
                    if contribution.present is None
                    else f" {format_value(contribution.path, contribution.present)}"
                )
                # Long after admission, it is unknown whether the value is the object's own.
                own = "what is there:" if self._is_live else f"{self._whose}'s own value"
                winner = (
                    f"{own}{stays}"
                    if contribution.rule == "kept-own"
                    else f"{self._sources(contribution.by)}{':' if stays else ''}{stays}"
                )
                text = f"{short}: {value} to {winner}"
            case "left-out":
                text = f"{short} = {value}{': ' if contribution.why else ''}{contribution.why}"
                tone = "bad"
        if contribution.why and contribution.rule in {"added", "already-there"}:
            text += f"; {contribution.why}"
        verb = _VERBS[contribution.rule]
        if contribution.rule in CHANGES:
            tone = "good"
            if self._is_live:
                verb, tone = _WOULD[contribution.rule], "waiting"
        return Line(text, 1, tone, verb)

    def policies(self, explanation: Explanation) -> Iterator[Line]:
        """Yield lines about the changes of each matching policy."""
        self._origins = self.origins(explanation.fields)
        for report in explanation.policies:
            if not report.matched:
                continue
            yield Line(report.reference, 0, "strong")
            if report.fault:
                yield Line(f"skipped, it is invalid: {report.fault}", 1, "bad")
            elif not report.contributions:
                yield Line("matches and sets nothing", 1, "dim")
            for contribution in report.contributions:
                yield self._contribution(contribution)
            for note in report.warnings:
                if note.code == "affinity-conflict":
                    yield Line(note.text, 1, "bad", "warns")
            if hint := self._known.hints.get(report.reference):
                yield Line(hint, 1, "waiting", "note")

    def mismatches(self, explanation: Explanation) -> Iterator[Line]:
        """Why each of the others does not match."""
        has_all = self._known.has_all
        unmatched = [report for report in explanation.policies if not report.matched]
        if not unmatched:
            return
        yield Line(f"Not for {self._whose}", 0, "strong")
        near = [report for report in unmatched if has_all or not _is_elsewhere(report)]
        groups = [[report] for report in near] if has_all else _group_mismatches(near)
        listed = groups if has_all else groups[:MOST]
        for group in listed:
            names, text = _mismatch_of(group)
            yield Line(text, 1, "dim", names)
        if left := sum(map(len, groups[len(listed) :])):
            yield Line(f"and {left} more; --all lists them", 1, "dim")
        if len(unmatched) > len(near):
            yield Line(f"and {len(unmatched) - len(near)} of other namespaces", 1, "dim")

    def fields(self, fields: Sequence[FieldReport]) -> Iterator[Line]:
        """Yield lines about the origin of each field."""
        shown_fields = [field for field in fields if self._is_shown(field)]
        if not shown_fields:
            return
        known = self._known
        heading = f"Fields, and who sets them{' now' if known.is_live else ''}"
        if known.template is not None:
            heading += f"; the template is that of {known.owner}"
        yield Line(heading, 0, "strong")
        values = [format_value(field.path, field.value) for field in shown_fields]
        width = max((len(value) for value in values if len(value) <= _COLUMN), default=0)
        for field, value in zip(shown_fields, values, strict=True):
            text = f"{value.ljust(width)}  {self._origin(field)}"
            yield Line(text, 1, "", self._short_path(field.path))

    def origins(self, fields: Sequence[FieldReport]) -> dict[str, str]:
        """Return the origin of each field by its path below the pod spec."""
        return {field.path.removeprefix(self._prefix): self._origin(field) for field in fields}

    def _is_shown(self, field: FieldReport) -> bool:
        if self._is_live and field.set_by != (OWN,):
            # It is not there yet; the policy's lines tell of it.
            return False
        is_default = (
            self._short_path(field.path) == "schedulerName" and field.value == DEFAULT_SCHEDULER
        )
        return not (is_default and field.set_by == (OWN,) and not field.asked_by)

    def _origin(self, field: FieldReport) -> str:
        template = self._known.template or {}
        asked = [short_name(reference) for reference in field.asked_by]
        if not self._is_live:
            return " and ".join([self._sources(field.set_by), *asked])
        value = field.value
        if isinstance(value, dict) and toleration_key(value) in DEFAULT_KEYS.values() and not asked:
            # One of the two that every pod gets.
            return "Kubernetes, for every pod"
        stem = _stem(field.path.removeprefix(self._prefix))
        applied = self._known.applied
        known = template if applied is None else applied
        if any(there == value for path, there in known.items() if _stem(path) == stem):
            own = "the template" if self._known.owner else "the object itself"
            return " and ".join([own, *asked])
        if self._known.owner.startswith("DaemonSet ") and _is_of_daemon(value):
            return " and ".join(["the DaemonSet controller", *asked])
        if stem == REQUIRED_TERMS and stem in template and asked:
            # Policies narrow what the template requires.
            return " and ".join(["the template", *asked])
        if stem == NODE_NAME and not asked:
            return "its scheduler, or who created it"
        if asked and applied is None and not self._known.owner:
            return f"the object itself or {' and '.join(asked)}"
        return " and ".join(asked) or NO_POLICY


def short_name(reference: str) -> str:
    """A policy in fewer letters: ``cluster policy etcd``, ``policy shop/etcd``."""
    kind, _, name = reference.partition(" ")
    return f"{'cluster policy' if kind == CLUSTER_POLICY else 'policy'} {name}"


def _group_mismatches(reports: Sequence[PolicyReport]) -> list[list[PolicyReport]]:
    """Many that fail at one part, for what the object has there, as one; the others alone."""
    parts: dict[tuple[str, str], list[PolicyReport]] = {}
    for report in reports:
        mismatch = report.mismatch
        key = (mismatch.path, mismatch.present) if mismatch else (report.reference, "")
        parts.setdefault(key, []).append(report)
    return [
        group
        for same in parts.values()
        for group in ([same] if len(same) > FOLDED else [[report] for report in same])
    ]


def _mismatch_of(group: Sequence[PolicyReport]) -> tuple[str, str]:
    first, *rest = group
    name = short_name(first.reference)
    if not rest or first.mismatch is None:
        return name, str(first.mismatch)
    wants = {report.mismatch.wants for report in group if report.mismatch is not None}
    text = str(first.mismatch)
    if len(wants) > 1:
        text = f"{first.mismatch.path} wants something else, {first.mismatch.present}"
    return f"{name} and {len(rest)} more", f"{text}; --all lists them"


def _is_elsewhere(report: PolicyReport) -> bool:
    return report.mismatch is not None and report.mismatch.path == ELSEWHERE


def _stem(path: str) -> str:
    """The list of an item; any other path as it is."""
    stem, _, index = path.rpartition("[")
    return stem if index[:-1].isdigit() else path


def _is_of_daemon(value: Any) -> bool:  # noqa: ANN401
    """Whether it is what the DaemonSet controller gives its pods: their node, and tolerations."""
    if isinstance(value, dict):
        return toleration_key(value) in _OF_DAEMONS
    terms = value if isinstance(value, list | tuple) else ()
    return any(
        field.get("key") == "metadata.name"
        for term in terms
        if isinstance(term, dict)
        for field in term.get("matchFields") or ()
    )
