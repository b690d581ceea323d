"""Policies merged into one pod, in order; the pod's own values win.

See kupid-spec 3, decision D3, D4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.patches import Operation, add, escape
from harbourmaster.policies.affinity import AffinityDraft, required_terms
from harbourmaster.policies.keys import toleration_key
from harbourmaster.policies.model import (
    NODE_NAME,
    NODE_SELECTOR,
    SCHEDULER_NAME,
    TOLERATIONS,
)
from harbourmaster.policies.pods import PodSpec, is_absent
from harbourmaster.policies.product import TooLargeError, selector_conflict
from harbourmaster.policies.requirements import EXPRESSIONS, constraints_of, describe

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.pods import PodView
    from harbourmaster.policies.product import Conflict, Requirement
    from harbourmaster.policies.requirements import ConstraintKey

    Json = dict[str, Any]

DEFAULT_SCHEDULER: Final = "default-scheduler"
_NO_SPEC: Final = PodSpec()


class MergeOptions(Struct, frozen=True, gc=False):
    """How policies are merged (decision D3, D4)."""

    treat_default_scheduler_as_unset: bool = True
    """The API server writes ``default-scheduler`` into every pod before admission."""
    skip_conflicts: bool = False
    """Leave out required node affinity that what is there excludes, instead of ANDing it."""
    node_name_as_field: bool = False
    """Turn a policy's nodeName into required node affinity: a gated pod may not have a nodeName."""
    waiting_scheduler: str = ""
    """With which pods wait that have no gate, where the pod waits; no policy sets it there."""
    keeps_scheduler: bool = False
    """The pod waits with that scheduler and not at a gate, so no policy sets another."""


class Note(Struct, frozen=True, gc=False):
    """Something the user is told: one line, and a code that tools can count.

    Of the merge: ``policy-invalid``, ``policy-scheduler-name``, ``affinity-too-large`` and
    ``affinity-conflict``.
    """

    code: str
    text: str


class Merged(Struct, frozen=True, gc=False):
    """The patch of one object and what is to be said about it."""

    operations: list[Operation]
    notes: list[Note]


class _Merge:
    """One merge under way; fields of the pod are read when the first policy touches them."""

    __slots__ = (
        "_added_labels",
        "_added_tolerations",
        "_affinity",
        "_conflicting",
        "_label_sources",
        "_labels",
        "_node_name",
        "_notes",
        "_options",
        "_pod",
        "_scheduler_name",
        "_spec",
        "_toleration_keys",
        "_too_large",
    )

    def __init__(self, pod: PodView, options: MergeOptions) -> None:
        spec = pod.spec or _NO_SPEC
        self._pod = pod
        self._spec = spec
        self._options = options
        self._notes: list[Note] = []
        self._affinity: AffinityDraft | None = None
        self._labels: dict[str, str] = spec.node_selector or {}
        self._added_labels: dict[str, str] = {}
        self._label_sources: dict[str, str] = {}
        self._node_name: str | None = None
        self._scheduler_name: str | None = None
        self._added_tolerations: list[Json] = []
        self._toleration_keys: set[Hashable] | None = None
        self._too_large: list[tuple[str, Requirement, str]] = []
        self._conflicting: set[ConstraintKey] = set()

    def apply(self, policy: CompiledPolicy) -> None:
        if policy.fault is not None:
            text = f"{policy.reference} is skipped, it is invalid: {policy.fault}"
            self._notes.append(Note("policy-invalid", text))
            return
        if policy.required or policy.lists:
            self._merge_affinity(policy)
        if policy.node_name:
            self._merge_node_name(policy)
        if policy.node_selector:
            self._merge_node_selector(policy)
        if policy.scheduler_name:
            self._merge_scheduler_name(policy.reference, policy.scheduler_name)
        if policy.tolerations:
            self._merge_tolerations(policy)

    def _draft(self) -> AffinityDraft:
        if self._affinity is None:
            size = len(bytes(self._spec.affinity))
            self._affinity = AffinityDraft(self._pod.affinity, size)
        return self._affinity

    def _merge_affinity(self, policy: CompiledPolicy) -> None:
        draft = self._draft()
        draft.add_lists(policy)
        if policy.required:
            self._require(policy.reference, policy.required)

    def _require(self, reference: str, requirement: Requirement) -> None:
        skip = self._options.skip_conflicts
        try:
            conflict = self._draft().require(requirement, self._labels, skip_conflicts=skip)
        except TooLargeError as error:
            self._too_large.append((reference, requirement, str(error)))
            return
        if conflict is not None:
            self._conflicting.add(conflict.key)
            self._note_conflict(reference, conflict)

    def _note_conflict(self, reference: str, conflict: Conflict, means: str = "") -> None:
        outcome = "no node can satisfy both"
        if conflict.is_left_out:
            outcome = (
                "the policy's requirements that exclude others are left out,"
                " the rest of the policy applies"
            )
        ours = describe(conflict.key, conflict.policy)
        theirs = describe(conflict.key, conflict.present)
        whose = "the pod" if self._is_own(conflict) else "already required is"
        text = f"{reference} requires {ours}{means}, {whose} {theirs}: {outcome}"
        self._notes.append(Note("affinity-conflict", text))

    def _is_own(self, conflict: Conflict) -> bool:
        """Whether the pod itself brought the other side of a conflict."""
        scope, key = conflict.key
        own = {
            constraint
            for term in required_terms(self._pod.affinity)
            for constraint in constraints_of(term, (conflict.key,)).get(conflict.key, ())
        }
        value = (self._spec.node_selector or {}).get(key)
        if scope == EXPRESSIONS and value is not None:
            own.add(("In", frozenset((value,))))
        return own.issuperset(conflict.present)

    def _merge_node_name(self, policy: CompiledPolicy) -> None:
        if self._spec.node_name or self._node_name:
            return
        self._node_name = policy.node_name
        if self._options.node_name_as_field and policy.node_name_requirement:
            self._require(policy.reference, policy.node_name_requirement)

    def _merge_node_selector(self, policy: CompiledPolicy) -> None:
        for key, value in policy.node_selector:
            if key not in self._labels:
                if not self._added_labels:
                    self._labels = dict(self._labels)
                self._labels[key] = self._added_labels[key] = value
                self._label_sources[key] = policy.reference

    def _merge_scheduler_name(self, reference: str, name: str) -> None:
        current = self._spec.scheduler_name
        is_default = current == DEFAULT_SCHEDULER
        is_unset = not current or (is_default and self._options.treat_default_scheduler_as_unset)
        if not is_unset or self._scheduler_name is not None:
            return
        gate, keeps = self._options.waiting_scheduler, self._options.keeps_scheduler
        if not keeps and name != gate:
            self._scheduler_name = name
            return
        # The first policy counts here too, though nothing comes of it.
        self._scheduler_name = ""
        if name != gate:
            why = f"pods wait for their checks with {gate}"
        elif not keeps:
            why = "pods that wait for their checks with that scheduler have no gate"
        else:
            return
        text = f"schedulerName {name} of {reference} is left out: {why}"
        self._notes.append(Note("policy-scheduler-name", text))

    def _merge_tolerations(self, policy: CompiledPolicy) -> None:
        keys = self._toleration_keys
        if keys is None:
            existing = self._pod.tolerations or ()
            keys = self._toleration_keys = set(map(toleration_key, existing))
        for toleration, key in policy.tolerations:
            if key not in keys:
                keys.add(key)
                self._added_tolerations.append(toleration)

    def finish(self, pointer: str) -> Merged:
        self._retry_too_large()
        if self._added_labels:
            self._check_added_labels()
        if self._pod.spec is not None:
            return Merged(self._operations(pointer), self._notes)
        operations = self._operations("")
        if operations:
            fields = {operation.path.lstrip("/"): operation.value for operation in operations}
            operations = [add(pointer, fields)]
        return Merged(operations, self._notes)

    def _retry_too_large(self) -> None:
        """Try again what was too large until nothing fits any more.

        Later policies may have merged terms into fewer; without this a second pass would do more.
        """
        while self._too_large:
            pending, self._too_large = self._too_large, []
            for reference, requirement, _ in pending:
                self._require(reference, requirement)
            if len(self._too_large) == len(pending):
                break
        texts: dict[str, str] = {}
        for reference, _, text in self._too_large:
            texts.setdefault(reference, text)
        for reference, text in texts.items():
            message = f"required node affinity of {reference} is skipped: it would make {text}"
            self._notes.append(Note("affinity-too-large", message))

    def _check_added_labels(self) -> None:
        """Note a conflict of an added node selector with required affinity, its own or another's.

        Not where one on the same label was noted when the affinity was merged.
        """
        draft = self._affinity
        terms = draft.required_terms if draft else required_terms(self._pod.affinity)
        if not terms:
            return
        labels = self._added_labels
        if self._conflicting:
            labels = {
                key: value
                for key, value in labels.items()
                if (EXPRESSIONS, key) not in self._conflicting
            }
        conflict = selector_conflict(terms, labels)
        if conflict is not None:
            reference = self._label_sources[conflict.key[1]]
            self._note_conflict(reference, conflict, " by its node selector")

    def _operations(self, pointer: str) -> list[Operation]:
        spec = self._spec
        operations = self._affinity.operations(pointer) if self._affinity else []
        if self._node_name and not self._options.node_name_as_field:
            operations.append(add(f"{pointer}/{NODE_NAME}", self._node_name))
        if self._added_labels:
            path = f"{pointer}/{NODE_SELECTOR}"
            if spec.node_selector:
                operations.extend(
                    add(f"{path}/{escape(key)}", value) for key, value in self._added_labels.items()
                )
            else:
                operations.append(add(path, self._added_labels))
        if self._scheduler_name and self._scheduler_name != spec.scheduler_name:
            operations.append(add(f"{pointer}/{SCHEDULER_NAME}", self._scheduler_name))
        if self._added_tolerations:
            path = f"{pointer}/{TOLERATIONS}"
            if is_absent(spec.tolerations):
                operations.append(add(path, self._added_tolerations))
            else:
                operations.extend(add(f"{path}/-", item) for item in self._added_tolerations)
        return operations


def merge(
    pod: PodView, pointer: str, policies: Sequence[CompiledPolicy], options: MergeOptions
) -> Merged:
    """Merge ``policies``, in the order given, into the pod whose spec stands at ``pointer``."""
    under_way = _Merge(pod, options)
    for policy in policies:
        under_way.apply(policy)
    return under_way.finish(pointer)
