"""Disruption budgets as the Eviction endpoint applies them (rescheduler-spec 3.4, 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harbourmaster.rescheduling.model import Budget
    from harbourmaster.rescheduling.roster import Roster
    from harbourmaster.rescheduling.spaces import Entry

FREE: Final = ""
BLOCKED: Final = "blocked"
"""Nothing is allowed, whatever happens to others. No key of a budget: keys have a slash."""
_MOST_DISRUPTED: Final = 2000


class Ledger:
    """What one plan may take of each budget, other live plans having taken theirs.

    ``stamp`` changes whenever a pod gets into or out of a budget.
    """

    def __init__(
        self, budgets: Mapping[str, Budget], claimed: Mapping[str, int], stamp: int
    ) -> None:
        self._budgets = budgets
        self._stamp = stamp
        self._claimed = claimed
        self._left: dict[str, int] = {}
        self._usual: dict[tuple[str, ...], str] = {}

    def left(self, key: str) -> int:
        """How many evictions more the budget allows."""
        found = self._left.get(key)
        if found is None:
            budget = self._budgets.get(key)
            allowed = budget.allowed if budget else 0
            found = self._left[key] = max(allowed - self._claimed.get(key, 0), 0)
        return found

    def guards(self, roster: Roster) -> list[str] | None:
        """What evictions of these pods depend on, each as ``guard`` says; None: all are free."""
        if not self._budgets:
            return None
        _, budgets, unusual = roster.keys(self._stamp)
        if budgets is None:
            return None
        usual = self._usual
        found = [usual[keys] if keys in usual else self._of_usual(keys) for keys in budgets]
        for i in unusual:
            found[i] = self.guard(roster.entries[i])
        return found if any(found) else None

    def guard(self, entry: Entry) -> str:
        """What an eviction of the pod depends on: FREE, BLOCKED, or the key of a budget."""
        keys = entry.group.budgets
        pod = entry.pod
        if not keys or pod.phase == "Pending" or pod.deletion is not None:
            return FREE
        budget = self._budgets.get(keys[0])
        if len(keys) == 1 and budget is not None and not pod.is_ready:
            is_healthy = budget.current_healthy >= budget.desired_healthy > 0
            if budget.always_allow_unhealthy or is_healthy:
                return FREE
        return self._of_usual(keys)

    def _of_usual(self, keys: tuple[str, ...]) -> str:
        """The guard of a pod that runs and is ready."""
        found = self._usual[keys] = self._judge(keys)
        return found

    def _judge(self, keys: tuple[str, ...]) -> str:
        if len(keys) != 1:
            return BLOCKED if keys else FREE
        budget = self._budgets.get(keys[0])
        if budget is None:
            return FREE
        is_usable = budget.is_observed and budget.disrupted <= _MOST_DISRUPTED
        return keys[0] if is_usable and self.left(keys[0]) else BLOCKED

    def is_contested(self, guards: Iterable[str]) -> bool:
        """Whether a budget allows some of these evictions, but not all."""
        keys = [key for key in guards if key and key is not BLOCKED]
        distinct = set(keys)
        # Each of them allows one eviction at least.
        return len(keys) > len(distinct) and any(
            self.left(key) < keys.count(key) for key in distinct
        )

    def denied(self, order: Iterable[int], guards: Sequence[str]) -> set[int]:
        """The places in ``guards`` that get nothing when the budgets are shared in this order."""
        found = set()
        spent: dict[str, int] = {}
        for index in order:
            key = guards[index]
            if key is BLOCKED:
                found.add(index)
            elif key:
                spent[key] = spent.get(key, 0) + 1
                if spent[key] > self.left(key):
                    found.add(index)
        return found
