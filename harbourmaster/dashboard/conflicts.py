"""Finds policies that select the same pod and ask for different values of one field."""

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
"""Maximum sets of policies that are searched."""
MOST_OF_SET: Final = 50
"""Maximum policies of a set: the cost grows with their square and blocks the event loop."""


class Conflict(Struct, frozen=True):
    """A field for which policies ask for different values."""

    policies: tuple[str, ...]
    """The references of the policies, first the one whose value is not used."""
    text: str


@lru_cache(maxsize=MOST)
def conflicts_of(selecting: tuple[CompiledPolicy, ...]) -> tuple[Conflict, ...]:
    """Return the conflicts of policies that select one pod, which sets no field itself."""
    whole = {"namespace": None, "namespaces": EVERYTHING, "pods": EVERYTHING}
    candidates = [ExplainedPolicy(replace(policy, **whole)) for policy in selecting]
    conflicts = []
    for report in explain(PodView({}, None), "/spec", "", {}, candidates, MergeOptions()).policies:
        rivals = dict.fromkeys(
            by for contribution in report.contributions for by in contribution.by
        )
        for contribution in report.contributions:
            if contribution.rule == "won-by":
                text = f"{contribution.path} stays {contribution.present}, not {contribution.value}"
                conflicts.append(Conflict((report.reference, *contribution.by), text))
        texts = [note.text for note in report.warnings if note.code == "affinity-conflict"]
        conflicts += [Conflict((report.reference, *rivals), text) for text in texts]
    return tuple(conflicts)
