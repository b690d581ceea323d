"""States in one vocabulary of tones: what is good, what is not, and what is still open."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct

from harbourmaster.api.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility

T = TypeVar("T")

Tone: TypeAlias = Literal["good", "busy", "warn", "bad", "idle"]

_TONES: Final[dict[str, Tone]] = {
    "Succeeded": "good",
    "Running": "good",
    "Online": "good",
    "Pass": "good",
    "Met": "good",
    "Progressing": "busy",
    "Scheduling": "busy",
    "Deploying": "busy",
    "Migrating": "busy",
    "Creating": "busy",
    "Reconciling": "busy",
    "Connecting": "busy",
    "Warning": "warn",
    "Unhealthy": "warn",
    "NotReady": "warn",
    "FailingMetrics": "warn",
    "Degraded": "bad",
    "Blocked": "bad",
    "Failed": "bad",
    "Offline": "bad",
}
MOST_NOTICES: Final = 5
"""Of one kind: a hundred failed applications must not hide the one cluster."""
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
URGENCY: Final[dict[Tone, int]] = {"bad": 0, "warn": 1, "busy": 2, "idle": 3, "good": 4}


class ShownState(Struct, frozen=True, gc=False):
    """A state as it is shown: its word, and its tone beside it, never instead of it."""

    word: str
    tone: Tone

    @property
    def label(self) -> str:
        """The word within a sentence."""
        return _HUMP.sub(" ", self.word).lower()

    @property
    def urgency(self) -> int:
        """The lower, the sooner somebody should look."""
        return URGENCY[self.tone]


class StateCount(Struct, frozen=True, gc=False):
    """How many objects are in a state."""

    label: str
    count: int
    tone: Tone = "idle"
    state: str = ""
    """What filters a page to these."""


class Notice(Struct, frozen=True, gc=False):
    """Something that needs attention."""

    tone: Tone
    what: str
    name: str
    text: str
    link: str


class Tally(Struct, frozen=True):
    """A page in a few numbers, and the first things that need attention."""

    title: str
    link: str
    total: int
    unit: str
    parts: tuple[StateCount, ...] = ()
    notices: tuple[Notice, ...] = ()
    urgent: int = 0
    """How many there are of the notices' kind, be they among them or not."""
    is_off: bool = False
    is_refused: bool = False


class Topic(Struct, frozen=True):
    """What the overview calls the things of a page."""

    title: str
    link: str
    words: tuple[str, str]
    """For one, and for any other number."""
    needed: tuple[tuple[Resource, ...], ...]
    """As of a Page; the first kind tells whether the controller is off."""

    def tally(
        self,
        sources: PageSources,
        visible: Visibility,
        seen: Sequence[Any],
        parts: Iterable[StateCount],
        urgent: Sequence[T],
        notice: Callable[[T], Notice],
    ) -> Tally:
        """Count what is ``seen``; the first of the ``urgent`` ones become notices."""
        return Tally(
            title=self.title,
            link=self.link,
            total=len(seen),
            unit=self.words[len(seen) != 1],
            parts=tuple(parts),
            notices=tuple(notice(each) for each in urgent[:MOST_NOTICES]),
            urgent=len(urgent),
            is_off=sources.of(self.needed[0][0]) is None,
            is_refused=visible.is_refused(self.needed),
        )


def parts_by_urgency(states: Iterable[str]) -> Iterator[StateCount]:
    """How many are in each state, the most urgent state first."""
    for state, count in sorted(
        Counter(states).items(), key=lambda each: (shown(each[0]).urgency, each[0])
    ):
        yield StateCount(shown(state).label, count, shown(state).tone, state)


def shown(state: str) -> ShownState:
    """A state of any kind; an empty one is Pending."""
    word = state or "Pending"
    return ShownState(word, _TONES.get(word, "idle"))
