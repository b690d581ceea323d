"""The affinity of one pod while policies are merged into it (kupid-spec 3.5 to 3.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harbourmaster.api.patches import add
from harbourmaster.policies.compiled import NODE_TERMS, SLOTS
from harbourmaster.policies.model import AFFINITY, PREFERRED, REQUIRED
from harbourmaster.policies.product import conjunction, node_terms

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from harbourmaster.api.patches import Operation
    from harbourmaster.policies.compiled import CompiledPolicy, Entries
    from harbourmaster.policies.product import Conflict, Requirement

    Json = dict[str, Any]

_NODE_AFFINITY = "nodeAffinity"


def required_terms(affinity: Json | None) -> Sequence[Json]:
    """The required node selector terms of an affinity; empty where it has none."""
    required = ((affinity or {}).get(_NODE_AFFINITY) or {}).get(REQUIRED) or {}
    return required.get(NODE_TERMS) or ()


class AffinityDraft:
    """What a pod's affinity becomes; it is only read, operations are written at the end.

    ``size`` bounds its JSON text from above, in bytes.
    """

    __slots__ = ("_added", "_keys", "_original", "_present", "_terms", "_terms_before")

    def __init__(self, original: Json | None, size: int) -> None:
        self._original = original
        original = original or {}
        self._present = {name for name, value in original.items() if value is not None}
        self._added: dict[tuple[str, str], list[Json]] = {}
        self._keys: dict[tuple[str, str], set[Hashable]] = {}
        terms = required_terms(original)
        self._terms_before = node_terms(terms, size) if terms else None
        self._terms = self._terms_before

    def add_lists(self, policy: CompiledPolicy) -> None:
        """Append the policy's preferred terms and pod (anti-)affinity terms that are not there."""
        before = frozenset(self._present)
        for slot, entries in policy.lists:
            self._present.add(slot[0])
            self._append(slot, entries, is_copied=slot[0] not in before)

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

    def require(
        self, requirement: Requirement, node_selector: Mapping[str, str], *, skip_conflicts: bool
    ) -> Conflict | None:
        """AND a requirement on the node; raises TooLargeError and changes nothing then."""
        self._terms, conflict = conjunction(
            self._terms,
            requirement,
            node_selector,
            skip_conflicts=skip_conflicts,
            brought=self._terms_before,
        )
        if self._terms is not None:
            self._present.add(_NODE_AFFINITY)
        return conflict

    @property
    def required_terms(self) -> Sequence[Json]:
        """The required node selector terms as they are now; empty where there are none."""
        return self._terms.terms if self._terms else ()

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
