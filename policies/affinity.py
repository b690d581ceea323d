"""The affinity of one pod while policies are merged into it (kupid-spec 3.5 to 3.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harbourmaster.api.patches import add
from harbourmaster.policies.affinity_product import (
    ProductTooLargeError,
    conjunction,
    node_terms,
    selector_conflict,
)
from harbourmaster.policies.compiled import NODE_TERMS, SLOTS
from harbourmaster.policies.model import (
    AFFINITY,
    ON_TOO_LARGE,
    PREFERRED,
    REQUIRED,
    WARN,
    AdmissionWarning,
)
from harbourmaster.policies.pods import PodSpec
from harbourmaster.policies.requirements import EXPRESSIONS, constraints_of, describe

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from harbourmaster.api.patches import Operation
    from harbourmaster.policies.affinity_product import Conflict, NodeTerms, Requirement
    from harbourmaster.policies.compiled import CompiledPolicy, Entries
    from harbourmaster.policies.pods import PodView
    from harbourmaster.policies.requirements import ConstraintKey

    Json = dict[str, Any]

_NODE_AFFINITY = "nodeAffinity"
_NO_SPEC = PodSpec()


def required_terms(affinity: Json | None) -> Sequence[Json]:
    """The required node selector terms of an affinity; empty where it has none."""
    required = ((affinity or {}).get(_NODE_AFFINITY) or {}).get(REQUIRED) or {}
    return required.get(NODE_TERMS) or ()


def refusal_of(policy: CompiledPolicy, why: str) -> str:
    """Return the message for a pod that is refused because it cannot get a policy."""
    return (
        f"pods without {policy.reference} are refused: {why}: give the pod fewer or shorter "
        f"entries, or set {ON_TOO_LARGE} of the policy to {WARN}"
    )


def excludes(affinity: Json | None, labels: Mapping[str, str]) -> bool:
    """Whether the required terms of an affinity exclude one of these labels of a node."""
    terms = required_terms(affinity)
    return bool(terms) and selector_conflict(terms, labels) is not None


class AffinityMerge:
    """The affinity of a pod under merge; the pod is only read, operations are written at the end.

    ``warnings`` collects what the user is told; ``refusal`` says why a pod must be refused.
    ``skip_conflicts`` leaves out required node affinity that what is there excludes, instead of
    ANDing it.
    """

    __slots__ = (
        "_added",
        "_conflicting",
        "_keys",
        "_labels",
        "_original",
        "_own_terms",
        "_present",
        "_skip_conflicts",
        "_spec",
        "_terms",
        "_terms_before",
        "_too_large",
        "_warnings",
        "refusal",
    )

    def __init__(
        self, pod: PodView, warnings: list[AdmissionWarning], *, skip_conflicts: bool
    ) -> None:
        self._spec = pod.spec or _NO_SPEC
        self._labels = pod.node_selector or {}
        original = self._original = pod.affinity
        self._warnings = warnings
        self._skip_conflicts = skip_conflicts
        self._present = {name for name, value in (original or {}).items() if value is not None}
        self._added: dict[tuple[str, str], list[Json]] = {}
        self._keys: dict[tuple[str, str], set[Hashable]] = {}
        self._own_terms = required_terms(original) if original else ()
        self._terms: NodeTerms | None = None
        self._terms_before: NodeTerms | None = None
        self._too_large: list[tuple[CompiledPolicy, Requirement, str]] = []
        self._conflicting: set[ConstraintKey] = set()
        self.refusal = ""

    def apply(
        self,
        policy: CompiledPolicy,
        node_selector: Mapping[str, str],
        node_name: Requirement | None = None,
    ) -> None:
        """Merge all that a policy asks of the affinity; ``node_name`` is for its nodeName."""
        if policy.lists:
            before = frozenset(self._present)
            for slot, entries in policy.lists:
                self._present.add(slot[0])
                self._append(slot, entries, is_copied=slot[0] not in before)
        if policy.required is not None:
            self._require(policy, policy.required, node_selector)
        if node_name is not None:
            self._require(policy, node_name, node_selector)

    def finish(self, node_selector: Mapping[str, str], sources: Mapping[str, str]) -> None:
        """Merge what was too large before, and check the labels that policies added.

        ``sources`` has the policy of each added label of the ``node_selector``.
        """
        if self._too_large:
            self._retry_too_large(node_selector)
        terms = self._terms.terms if self._terms else self._own_terms
        if not sources or not terms:
            return
        # No second warning on a label on which one was given when the affinity was merged.
        noted = {key for scope, key in self._conflicting if scope == EXPRESSIONS}
        added = {key: node_selector[key] for key in sources if key not in noted}
        conflict = selector_conflict(terms, added)
        if conflict is not None:
            source = sources[conflict.key[1]]
            self._note_conflict(source, conflict, " by its node selector")

    def _require(
        self, policy: CompiledPolicy, requirement: Requirement, node_selector: Mapping[str, str]
    ) -> None:
        if self._own_terms and self._terms is None:
            # The bytes that came are no fewer than those of the terms in them.
            size = len(bytes(self._spec.affinity))
            self._terms = self._terms_before = node_terms(self._own_terms, size)
        try:
            self._terms, conflict = conjunction(
                self._terms,
                requirement,
                node_selector,
                skip_conflicts=self._skip_conflicts,
                brought=self._terms_before,
            )
        except ProductTooLargeError as error:
            self._too_large.append((policy, requirement, str(error)))
            return
        if self._terms is not None:
            self._present.add(_NODE_AFFINITY)
        if conflict is not None:
            self._conflicting.add(conflict.key)
            self._note_conflict(policy.reference, conflict)

    def _retry_too_large(self, node_selector: Mapping[str, str]) -> None:
        """Try again what was too large until nothing fits any more.

        Later policies may have merged terms into fewer; without this a second pass would do more.
        """
        while self._too_large:
            pending, self._too_large = self._too_large, []
            for policy, requirement, _ in pending:
                self._require(policy, requirement, node_selector)
            if len(self._too_large) == len(pending):
                break
        skipped: dict[str, tuple[CompiledPolicy, str]] = {}
        for policy, _, text in self._too_large:
            skipped.setdefault(policy.reference, (policy, text))
        for reference, (policy, text) in skipped.items():
            message = f"required node affinity of {reference} is skipped: it would make {text}"
            if policy.denies_too_large:
                message = refusal_of(policy, f"its required node affinity would make {text}")
                self.refusal = self.refusal or message
            self._warnings.append(AdmissionWarning("affinity-too-large", message))

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
        self._warnings.append(AdmissionWarning("affinity-conflict", text))

    def _is_own(self, conflict: Conflict) -> bool:
        """Whether the pod itself brought the other side of a conflict."""
        scope, key = conflict.key
        own = {
            constraint
            for term in self._own_terms
            for constraint in constraints_of(term, (conflict.key,)).get(conflict.key, ())
        }
        value = self._labels.get(key)
        if scope == EXPRESSIONS and value is not None:
            own.add(("In", frozenset((value,))))
        return own.issuperset(conflict.present)

    def _append(self, slot: tuple[str, str], entries: Entries, *, is_copied: bool) -> None:
        keys = self._keys.get(slot)
        if keys is None:
            existing = ((self._original or {}).get(slot[0]) or {}).get(slot[1]) or ()
            keys = self._keys[slot] = set(map(SLOTS[slot], existing))
        for item, key in entries:
            # A sub-object that the pod lacks is copied as it is, its own duplicates included.
            if is_copied or key not in keys:
                keys.add(key)
                self._added.setdefault(slot, []).append(item)

    def operations(self, pointer: str) -> list[Operation]:
        """The patch of the affinity below the pod spec at ``pointer``; empty without a change."""
        path = f"{pointer}/{AFFINITY}"
        changed = {slot[0] for slot in self._added}
        if self._terms is not self._terms_before:
            changed.add(_NODE_AFFINITY)
        if not changed:
            return []
        subs = [
            name for name in (_NODE_AFFINITY, "podAffinity", "podAntiAffinity") if name in changed
        ]
        if self._original is None:
            return [add(path, {name: self._new(name) for name in subs})]
        operations: list[Operation] = []
        for name in subs:
            existing = self._original.get(name)
            if existing is None:
                operations.append(add(f"{path}/{name}", self._new(name)))
            else:
                operations.extend(self._extend(f"{path}/{name}", name, existing))
        return operations

    def _new(self, name: str) -> Json:
        value: Json = {}
        if name == _NODE_AFFINITY and self._terms is not None:
            value[REQUIRED] = {NODE_TERMS: self._terms.terms}
        for list_name in (REQUIRED, PREFERRED):
            if added := self._added.get((name, list_name)):
                value[list_name] = added
        return value

    def _extend(self, path: str, name: str, existing: Json) -> list[Operation]:
        operations: list[Operation] = []
        if name == _NODE_AFFINITY and self._terms is not self._terms_before and self._terms:
            terms = self._terms.terms
            if existing.get(REQUIRED) is None:
                operations.append(add(f"{path}/{REQUIRED}", {NODE_TERMS: terms}))
            else:
                operations.append(add(f"{path}/{REQUIRED}/{NODE_TERMS}", terms))
        for list_name in (REQUIRED, PREFERRED):
            added = self._added.get((name, list_name), [])
            if existing.get(list_name):
                operations.extend(add(f"{path}/{list_name}/-", item) for item in added)
            elif added:
                operations.append(add(f"{path}/{list_name}", added))
        return operations
