"""Disruption budgets as the Eviction API applies them (rescheduler-spec 3.4, 5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harbourmaster.rescheduling.model import Budget, Pod

FREE: Final = ""
BLOCKED: Final = "blocked"
"""No eviction is allowed. Never the key of a budget: keys have a slash."""
_MOST_DISRUPTED: Final = 2000


class BudgetLedger:
    """The evictions that each budget allows a plan after the ``claimed`` ones of other plans."""

    def __init__(self, budgets: Mapping[str, Budget], claimed: Mapping[str, int]) -> None:
        self._left = {
            key: max(budget.allowed - claimed.get(key, 0), 0) for key, budget in budgets.items()
        }
        self._by_namespace: dict[str, list[Budget]] = {}
        for key in sorted(budgets):
            self._by_namespace.setdefault(budgets[key].namespace, []).append(budgets[key])
        self._matching: dict[tuple[str, int], tuple[dict[str, str], list[Budget]]] = {}
        """Budgets by namespace and identity of labels, kept so that the identity stays unique."""

    def matching(self, pod: Pod) -> list[Budget]:
        """The budgets that select the pod, by name."""
        labels = pod.labels
        cached = self._matching.get((pod.namespace, id(labels)))
        if cached is None:
            selecting = [
                budget
                for budget in self._by_namespace.get(pod.namespace, ())
                if budget.selector is not None and budget.selector.matches(labels)
            ]
            cached = self._matching[pod.namespace, id(labels)] = (labels, selecting)
        return cached[1]

    def guard(self, pod: Pod) -> str:
        """Return what allows an eviction of the pod: FREE, BLOCKED, or the key of a budget."""
        matching = self.matching(pod)
        if not matching or pod.phase == "Pending" or pod.deletion is not None:
            return FREE
        if len(matching) > 1:
            return BLOCKED
        (budget,) = matching
        is_healthy = budget.current_healthy >= budget.desired_healthy > 0
        if not pod.is_ready and (budget.always_allow_unhealthy or is_healthy):
            return FREE
        is_usable = budget.is_observed and budget.disrupted <= _MOST_DISRUPTED
        return budget.key if is_usable and self._left[budget.key] else BLOCKED

    def is_contested(self, guards: Iterable[str]) -> bool:
        """Whether a budget allows some of these evictions, but not all."""
        keys = [key for key in guards if key and key is not BLOCKED]
        return any(self._left[key] < keys.count(key) for key in set(keys))

    def denied(self, order: Iterable[int], guards: Sequence[str]) -> set[int]:
        """The indexes in ``guards`` whose budget is spent, if it is spent in this order."""
        denied = set()
        spent: dict[str, int] = {}
        for index in order:
            key = guards[index]
            if key is BLOCKED:
                denied.add(index)
            elif key:
                spent[key] = spent.get(key, 0) + 1
                if spent[key] > self._left[key]:
                    denied.add(index)
        return denied
