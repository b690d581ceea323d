"""An explanation of what each policy did to a pod, and of who set each field.

Nothing is merged here: the server's own ``merge`` runs on the first policy, the first two, and so
on, and what differs from one step to the next is what the step's policy contributed. Pure.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct, field, structs

from harbourmaster.api.patches import Operation, apply
from harbourmaster.policies.compiled import SLOTS, CompiledPolicy
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.keys import node_term_key, toleration_key
from harbourmaster.policies.merge import merge, merged_fields, owned_fields
from harbourmaster.policies.model import (
    NODE_NAME,
    SCHEDULER_NAME,
    TOLERATIONS,
    AdmissionWarning,
    Policy,
)
from harbourmaster.policies.owned_fields import REQUIRED_TERMS, OwnedFields, label_path, list_path
from harbourmaster.policies.pods import PodSpec
from harbourmaster.policies.tolerations import DEFAULTS, counting, covers, unset_defaults
from harbourmaster.policies.unmatched import MatchSubject, Mismatch, why_unmatched

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from harbourmaster.policies.affinity_product import Requirement
    from harbourmaster.policies.merge import MergeOptions
    from harbourmaster.policies.pods import PodView

    Json = dict[str, Any]

Rule: TypeAlias = Literal[
    "added",
    "replaced",
    "multiplied",
    "as-affinity",
    "already-there",
    "kept-own",
    "won-by",
    "left-out",
]
"""``replaced``: a default of the API server. ``multiplied``: ANDed with required terms that were
there. ``as-affinity``: a nodeName as required node affinity, for the pod has a gate. ``kept-own``:
the pod's own value stays; ``won-by``: an earlier policy's. ``left-out``: ``why`` says why."""
CHANGES: Final = frozenset(("added", "replaced", "multiplied"))
"""The rules by which the field becomes ``value``."""
OWN: Final = ""
"""Among sources: the object itself."""


class Contribution(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The result of one thing that a policy sets."""

    path: str
    value: Any
    """The policy's value; for ``multiplied`` and ``replaced`` the value of the field afterwards."""
    rule: Rule
    by: tuple[str, ...] = ()
    """The policies that had set the field before; an empty text is the object itself."""
    present: Any = None
    """The value of the field instead; for ``replaced`` tolerations a list of them."""
    why: str = ""


class ExplainedPolicy(Struct, frozen=True):
    """A policy: compiled, and as the API has it, if that could be decoded."""

    compiled: CompiledPolicy
    source: Policy | None = None


class PolicyReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The report on one policy."""

    reference: str
    matched: bool
    fault: str = ""
    """Why it is skipped wherever it matches."""
    mismatch: Mismatch | None = None
    contributions: tuple[Contribution, ...] = ()
    warnings: tuple[AdmissionWarning, ...] = field(default=(), name="notes")
    """The admission warnings that the policy causes."""

    @property
    def changes(self) -> bool:
        """Whether it changes the object."""
        return any(contribution.rule in CHANGES for contribution in self.contributions)


class FieldReport(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One field as it ends, and who made it so."""

    path: str
    value: Any
    set_by: tuple[str, ...]
    """References of policies; an empty text is the object itself."""
    asked_by: tuple[str, ...] = ()
    """Policies that ask for just that and found it there."""


class Explanation(Struct, frozen=True, rename="camel"):
    """Why the policies leave an object as they do."""

    policies: tuple[PolicyReport, ...]
    """Those that match first, in the order in which they apply; then the others in that order."""
    fields: tuple[FieldReport, ...]
    operations: tuple[Operation, ...]
    warnings: tuple[AdmissionWarning, ...] = field(name="notes")
    """The warnings as the server gives them."""


def explain(  # noqa: PLR0913 - what the server goes by, and how the object is called
    pod: PodView,
    pointer: str,
    namespace: str,
    namespace_labels: dict[str, str],
    candidates: Sequence[ExplainedPolicy],
    options: MergeOptions,
    *,
    whose: str = "the pod",
) -> Explanation:
    """Explain what ``candidates`` do to the pod whose spec stands at ``pointer``."""
    compiled = [candidate.compiled for candidate in candidates]
    matched = policy_set(compiled).match(namespace, namespace_labels, pod.labels, pod.kinds)
    merged = merge(pod, pointer, matched, options)
    steps = _Steps(pod, pointer, options, _replaced_defaults(pod, matched, options))
    reports = [steps.take(matched[: index + 1]) for index in range(len(matched))]
    subject = MatchSubject(namespace, namespace_labels, pod.labels, whose, pod.kinds)
    selecting = set(map(id, matched))
    others = sorted(
        (candidate for candidate in candidates if id(candidate.compiled) not in selecting),
        key=lambda candidate: candidate.compiled.rank,
    )
    reports += [_report_unmatched(candidate, subject) for candidate in others]
    final = set(merged.warnings)
    return Explanation(
        tuple(
            structs.replace(
                report, warnings=tuple(warning for warning in report.warnings if warning in final)
            )
            for report in reports
        ),
        tuple(steps.fields(reports)),
        tuple(merged.operations),
        tuple(merged.warnings),
    )


def _report_unmatched(candidate: ExplainedPolicy, subject: MatchSubject) -> PolicyReport:
    compiled = candidate.compiled
    mismatch = why_unmatched(compiled, candidate.source, subject)
    return PolicyReport(compiled.reference, False, compiled.fault or "", mismatch)


class _Steps:
    """The pod after none, one, two, ... of its policies."""

    def __init__(
        self,
        pod: PodView,
        pointer: str,
        options: MergeOptions,
        replaced: dict[Hashable, list[Json]],
    ) -> None:
        """``replaced`` has tolerations that policies remove, by the key of what counts instead."""
        removed = {toleration_key(item) for items in replaced.values() for item in items}
        # Without them from the start, so that all others keep their places.
        own = [item for item in pod.tolerations or () if toleration_key(item) not in removed]
        tolerations = own if removed else pod.tolerations
        pod = structs.replace(pod, spec=pod.spec or PodSpec(), tolerations=tolerations)
        self._replaced = replaced
        self._pod = pod
        self._at = pointer[1:].replace("/", ".")
        self._options = options
        self._original = owned_fields(pod)
        self._before = self._fields = OwnedFields.of(self._original)
        self._warnings: list[AdmissionWarning] = []
        self._whys: dict[str, str] = {}
        """The last policy's warnings by code."""
        self._sources: dict[str, tuple[str, ...]] = dict.fromkeys(self._fields.values, (OWN,))
        self._node_name_by = self._scheduler_by = OWN

    def take(self, policies: Sequence[CompiledPolicy]) -> PolicyReport:
        """Report on the last of ``policies``; the others were reported on before."""
        policy = policies[-1]
        merged = merge(self._pod, "", policies, self._options)
        document = copy.deepcopy(self._original)
        apply(document, merged.operations)
        self._before, self._fields = self._fields, OwnedFields.of(document)
        warnings = [warning for warning in merged.warnings if warning not in self._warnings]
        self._warnings = merged.warnings
        self._whys = {warning.code: warning.text for warning in warnings}
        contributions = () if policy.fault else tuple(self._contributions(policy))
        before = self._before.values
        for path, value in self._fields.values.items():
            if path not in before:
                self._sources[path] = (policy.reference,)
            elif before[path] != value:
                kept = self._sources[path] if path == REQUIRED_TERMS else ()
                self._sources[path] = (*kept, policy.reference)
        return PolicyReport(
            policy.reference,
            True,
            policy.fault or "",
            contributions=contributions,
            warnings=tuple(warnings),
        )

    def fields(self, reports: Sequence[PolicyReport]) -> Iterator[FieldReport]:
        """Each field as it is now."""
        asked: dict[str, list[str]] = {}
        for report in reports:
            for contribution in report.contributions:
                if contribution.rule == "already-there":
                    asked.setdefault(contribution.path, []).append(report.reference)
                elif contribution.rule == "as-affinity":
                    path = self._full(REQUIRED_TERMS)
                    asked.setdefault(path, []).append(report.reference)
        for path, value in self._fields.values.items():
            full, sources = self._full(path), self._sources[path]
            askers = dict.fromkeys(asked.get(full, ()))
            asked_by = [reference for reference in askers if reference not in sources]
            yield FieldReport(full, value, sources, tuple(asked_by))

    def _full(self, path: str) -> str:
        return f"{self._at}.{path}"

    def _contributions(self, policy: CompiledPolicy) -> Iterator[Contribution]:
        for key, value in policy.node_selector:
            contribution = self._field_contribution(label_path(key), value)
            if contribution.rule == "left-out" and key in self._pod.class_labels:
                why = f"the RuntimeClass has {self._pod.class_labels[key]}"
                contribution = structs.replace(contribution, why=why)
            yield contribution
        for contribution in self._list_contributions(
            TOLERATIONS, policy.tolerations, toleration_key
        ):
            yield self._with_defaults(contribution)
        yield from self._required_contributions(policy)
        for slot, entries in policy.lists:
            yield from self._list_contributions(list_path(*slot), entries, SLOTS[slot])
        if policy.node_name:
            yield self._node_name_contribution(policy, policy.node_name)
        if policy.scheduler_name:
            yield self._scheduler_contribution(policy.reference, policy.scheduler_name)

    def _field_contribution(self, path: str, value: str) -> Contribution:
        full = self._full(path)
        was, now = self._before.values.get(path), self._fields.values.get(path)
        if now != was:
            if was is None:
                return Contribution(full, value, "added")
            return Contribution(full, value, "replaced", self._sources[path], was)
        if was is None:
            return Contribution(
                full, value, "left-out", why=self._whys.get("daemonset-node-constraints", "")
            )
        sources = self._sources[path]
        if was == value:
            return Contribution(full, value, "already-there", sources)
        return Contribution(full, value, "kept-own" if OWN in sources else "won-by", sources, was)

    def _node_name_contribution(self, policy: CompiledPolicy, name: str) -> Contribution:
        if not self._options.node_name_as_field or NODE_NAME in self._before.values:
            return self._field_contribution(NODE_NAME, name)
        full = self._full(NODE_NAME)
        if self._node_name_by:
            return Contribution(full, name, "won-by", (self._node_name_by,))
        self._node_name_by = policy.reference
        asked = policy.node_name_requirement
        if asked is None or not _is_there(asked, self._fields):
            return Contribution(full, name, "left-out", why=self._why_not())
        return Contribution(full, name, "as-affinity", why="a pod with a gate must not name a node")

    def _scheduler_contribution(self, reference: str, name: str) -> Contribution:
        full = self._full(SCHEDULER_NAME)
        if self._scheduler_by:
            return Contribution(full, name, "won-by", (self._scheduler_by,))
        if why := self._whys.get("policy-scheduler-name"):
            self._scheduler_by = reference
            return Contribution(full, name, "left-out", why=why)
        return self._field_contribution(SCHEDULER_NAME, name)

    def _list_contributions(
        self,
        path: str,
        entries: Sequence[tuple[Json, Hashable]],
        key_of: Callable[[Json], Hashable],
    ) -> Iterator[Contribution]:
        old, new = (fields.lists.get(path, []) for fields in (self._before, self._fields))
        positions = {key_of(item): index for index, item in reversed(list(enumerate(old)))}
        added = {key_of(item) for item in new[len(old) :]}
        for index in range(len(old), len(new)):
            yield Contribution(self._full(f"{path}[{index}]"), new[index], "added")
        for item, key in {key: (item, key) for item, key in entries}.values():
            if key in positions and key not in added:
                at = f"{path}[{positions[key]}]"
                yield Contribution(self._full(at), item, "already-there", self._sources[at])

    def _with_defaults(self, contribution: Contribution) -> Contribution:
        """Return the contribution of a toleration with what it replaces, or what counts instead."""
        key = toleration_key(contribution.value)
        if defaults := self._replaced.get(key):
            return structs.replace(contribution, rule="replaced", by=(OWN,), present=defaults)
        tolerations = self._fields.lists[TOLERATIONS]
        covered = (taint for taint in DEFAULTS if covers(contribution.value, taint))
        counted = ((taint, counting(tolerations, taint)) for taint in covered)
        why = ", ".join(
            f"{TOLERATIONS}[{tolerations.index(first)}] counts for {taint}"
            for taint, first in counted
            if first is not None and toleration_key(first) != key
        )
        return structs.replace(contribution, why=why)

    def _required_contributions(self, policy: CompiledPolicy) -> Iterator[Contribution]:
        full = self._full(REQUIRED_TERMS)
        was, now = (fields.values.get(REQUIRED_TERMS) for fields in (self._before, self._fields))
        sources = self._sources.get(REQUIRED_TERMS, ())
        why = self._why_not()
        if now != was:
            rule: Rule = "multiplied" if was else "added"
            yield Contribution(full, now, rule, sources, was, why)
        elif policy.required:
            asked = list(policy.required.terms.terms)
            if why and not _is_there(policy.required, self._before):
                yield Contribution(full, asked, "left-out", why=why)
            else:
                yield Contribution(full, asked, "already-there", sources)

    def _why_not(self) -> str:
        """Return why required node affinity is left out."""
        codes = ("affinity-too-large", "affinity-conflict", "daemonset-node-constraints")
        return next(filter(None, map(self._whys.get, codes)), "")


def _replaced_defaults(
    pod: PodView, policies: Sequence[CompiledPolicy], options: MergeOptions
) -> dict[Hashable, list[Json]]:
    tolerations = merged_fields(pod, policies, options).get(TOLERATIONS) or []
    replaced: dict[Hashable, list[Json]] = {}
    for taint, default in unset_defaults(pod.tolerations or ()).items():
        item = counting(tolerations, taint)
        if item is not None and toleration_key(item) != default:
            replaced.setdefault(toleration_key(item), []).append(DEFAULTS[taint])
    return replaced


def _is_there(asked: Requirement, fields: OwnedFields) -> bool:
    """Whether each of the required terms asks for as much."""
    terms = fields.values.get(REQUIRED_TERMS) or ()
    return bool(terms) and all(asked.absorbs(node_term_key(term)) for term in terms)
