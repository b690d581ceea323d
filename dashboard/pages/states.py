"""States in one vocabulary of tones: what is good, what is not, and what is still open."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from msgspec import Struct

Tone: TypeAlias = Literal["good", "busy", "warn", "bad", "idle"]

_TONES: Final[dict[str, Tone]] = {
    "Succeeded": "good",
    "Running": "good",
    "Online": "good",
    "Pass": "good",
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
    "Failed": "bad",
    "Offline": "bad",
}
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ORDER: Final[dict[Tone, int]] = {"bad": 0, "warn": 1, "busy": 2, "idle": 3, "good": 4}


class Shown(Struct, frozen=True, gc=False):
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
        return _ORDER[self.tone]


class Part(Struct, frozen=True, gc=False):
    """So many of a kind are in a state."""

    label: str
    count: int
    tone: Tone = "idle"
    state: str = ""
    """What filters a page to these."""


class Notice(Struct, frozen=True, gc=False):
    """Something that somebody should look at."""

    tone: Tone
    what: str
    name: str
    text: str
    link: str


class Tally(Struct, frozen=True):
    """What a page comes to in a few numbers, and the first of what needs attention."""

    title: str
    link: str
    total: int
    unit: str
    parts: tuple[Part, ...] = ()
    notices: tuple[Notice, ...] = ()
    urgent: int = 0
    """How many there are of the notices' kind, be they among them or not."""
    is_off: bool = False
    is_refused: bool = False


def plural(count: int, one: str, many: str) -> str:
    """The words for so many."""
    return one if count == 1 else many


def shown(state: str) -> Shown:
    """A state of any kind; an empty one is Pending."""
    word = state or "Pending"
    return Shown(word, _TONES.get(word, "idle"))
