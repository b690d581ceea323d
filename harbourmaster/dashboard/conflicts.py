"""Policies that select the same pod and ask for different values of one field."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.selectors import EVERYTHING
from harbourmaster.policies.explain import ExplainedPolicy, explain
from harbourmaster.policies.merge import MergeOptions
from harbourmaster.policies.pods import PodView

if TYPE_CHECKING:
    from harbourmaster.policies.compiled import CompiledPolicy

MOST: Final = 256
"""Sets of policies that are searched."""
MOST_OF_SET: Final = 50
"""Policies of one: the work grows with their square, and no other work is done meanwhile."""


class Conflict(Struct, frozen=True):
    """One field that policies disagree on."""

    policies: tuple[str, ...]
    """Their references, first the one that yields."""
    text: str


@lru_cache(maxsize=MOST)
def conflicts_of(selecting: tuple[CompiledPolicy, ...]) -> tuple[Conflict, ...]:
    """The conflicts of policies that select one pod, as if it had no such field of its own."""
    whole = {"namespace": None, "namespaces": EVERYTHING, "pods": EVERYTHING}
    candidates = [ExplainedPolicy(replace(each, **whole)) for each in selecting]
    found = []
    for report in explain(PodView({}, None), "/spec", "", {}, candidates, MergeOptions()).policies:
        others = dict.fromkeys(
            by for contribution in report.contributions for by in contribution.by
        )
        for each in report.contributions:
            if each.rule == "won-by":
                text = f"{each.path} stays {each.present}, not {each.value}"
                found.append(Conflict((report.reference, *each.by), text))
        texts = [note.text for note in report.warnings if note.code == "affinity-conflict"]
        found += [Conflict((report.reference, *others), text) for text in texts]
    return tuple(found)
