"""Maps states of all kinds to tones and counts them, and formats times for people."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct

from harbourmaster.api.resources import Resource
from harbourmaster.api.times import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility


T = TypeVar("T")

Tone: TypeAlias = Literal["good", "busy", "warn", "bad", "idle"]

_STATES: Final[dict[Tone, str]] = {
    "good": "Succeeded Running Online Pass Passed Met Completed Current",
    "busy": "Progressing Scheduling Deploying Migrating Creating Reconciling Connecting "
    "Releasing Paused Checking",
    "warn": "Warning Promoted Unhealthy NotReady FailingMetrics Failing",
    "bad": "Degraded Blocked Failed Offline Held Unavailable",
}
_TONES: Final = {state: tone for tone, states in _STATES.items() for state in states.split()}
MOST_NOTICES: Final = 5
"""Maximum notices of one kind, so that failed applications do not hide a failed cluster."""
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
URGENCY: Final[dict[Tone, int]] = {"bad": 0, "warn": 1, "busy": 2, "idle": 3, "good": 4}


class ShownState(Struct, frozen=True, gc=False):
    """A state as it is shown: its word, and its tone beside it."""

    word: str
    tone: Tone

    @property
    def label(self) -> str:
        """The word in lower case, for sentences."""
        return _HUMP.sub(" ", self.word).lower()

    @property
    def urgency(self) -> int:
        """The rank of the tone; the most urgent one is 0."""
        return URGENCY[self.tone]


class StateCount(Struct, frozen=True, gc=False):
    """The number of objects in a state."""

    label: str
    count: int
    tone: Tone = "idle"
    state: str = ""
    """The value of the parameter ``state`` that selects these objects."""


class Notice(Struct, frozen=True, gc=False):
    """Something that needs attention."""

    tone: Tone
    what: str
    name: str
    text: str
    link: str


class Tally(Struct, frozen=True):
    """The numbers of a page, and the objects that need attention most."""

    title: str
    link: str
    total: int
    unit: str
    parts: tuple[StateCount, ...] = ()
    notices: tuple[Notice, ...] = ()
    urgent: int = 0
    """The number of objects that need attention, with and without a notice."""
    is_off: bool = False
    is_refused: bool = False


class Topic(Struct, frozen=True):
    """The texts of the overview about a page."""

    title: str
    link: str
    words: tuple[str, str]
    """The unit in singular and plural."""
    needed: tuple[tuple[Resource, ...], ...]
    """The groups of a Page; without a source of the first kind, the controller is off."""

    def tally(
        self,
        sources: PageSources,
        visible: Visibility,
        seen: Sequence[Any],
        parts: Iterable[StateCount],
        urgent: Sequence[T],
        notice: Callable[[T], Notice],
    ) -> Tally:
        """Count the ``seen`` objects; the first of the ``urgent`` ones become notices."""
        return Tally(
            title=self.title,
            link=self.link,
            total=len(seen),
            unit=self.words[len(seen) != 1],
            parts=tuple(parts),
            notices=tuple(notice(item) for item in urgent[:MOST_NOTICES]),
            urgent=len(urgent),
            is_off=sources.of(self.needed[0][0]) is None,
            is_refused=visible.is_refused(self.needed),
        )


def parts_by_urgency(states: Iterable[str]) -> Iterator[StateCount]:
    """Count the objects in each state, the most urgent state first."""
    for state, count in sorted(
        Counter(states).items(), key=lambda item: (show_state(item[0]).urgency, item[0])
    ):
        yield StateCount(show_state(state).label, count, show_state(state).tone, state)


def show_state(state: str) -> ShownState:
    """Return how a state of any kind is shown; an empty one is Pending."""
    word = state or "Pending"
    return ShownState(word, _TONES.get(word, "idle"))


_UNITS: Final = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_ENOUGH: Final = {"d": 7, "h": 10, "m": 10}
"""The count of a unit from which on the next smaller unit is omitted."""


def seconds_between(start: datetime | None, end: datetime | None) -> float:
    """Return the seconds between two times; 0 if one is missing or they are reversed."""
    if start is None or end is None:
        return 0.0
    return max((end - start).total_seconds(), 0.0)


def span(seconds: float) -> str:
    """Format a duration, such as ``4 s``, ``3 m 20 s``, ``12 h`` or ``9 d``."""
    left = int(seconds)
    for place, (unit, size) in enumerate(_UNITS):
        count, rest = divmod(left, size)
        if not count and unit != "s":
            continue
        if count < _ENOUGH.get(unit, 0):
            smaller, small = _UNITS[place + 1]
            if rest >= small:
                return f"{count} {unit} {rest // small} {smaller}"
        return f"{count} {unit}"
    return "0 s"


def age(stamp: str, now: datetime) -> str:
    """Format the time from or until a timestamp; empty if the timestamp is invalid."""
    when = moment(stamp)
    if when is None:
        return ""
    left = (when - now).total_seconds()
    return f"in {span(left)}" if left >= 1 else f"{span(-left)} ago"
