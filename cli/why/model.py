"""What ``why`` knows while it looks, and what each of its sections says.

A section is one coroutine: ``async def section(context: WhyContext) -> Section | None``; None where
it has nothing to do with the subject. What it is not allowed to read, or is not installed,
becomes a line of the report: raise the ApiError, or catch it where the rest can still be shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from harbourmaster.cli import terminal

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.cli.live.installation import Installation

State: TypeAlias = Literal["fine", "waits", "fault", "unknown", "note"]
"""``fine``: nothing to be done; ``waits``: for something that will come; ``fault``: somebody has to
act; ``unknown``: it can't be read; ``note``: neither good nor bad."""
Tone: TypeAlias = terminal.Tone


class Line(Struct, frozen=True):
    """One line for people; ``depth`` is how far below the heading it stands.

    ``label`` stands in a column of its own before the text, where lines are to be aligned.
    """

    text: str
    depth: int = 0
    tone: Tone = ""
    label: str = ""


class Section(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one subject has to say."""

    name: str
    """For programs, such as ``policies``."""
    title: str
    """For people: a heading of a word or two."""
    state: State
    summary: str
    """One line; of several sections the first with a fault, else that waits, is the whole answer's
    first line."""
    code: str = ""
    """The reason in a closed set, where the subject has one."""
    lines: tuple[Line, ...] = ()
    """What people read below the summary."""
    detail: Any = None
    """A Struct: what programs read."""


class Subject(Struct, frozen=True):
    """An object, as the API server or a file gave it."""

    api_version: str
    kind: str
    namespace: str
    name: str
    raw: bytes
    """Its JSON; all of it."""

    @property
    def shown(self) -> str:
        """As people name it."""
        return f"{self.kind} {self.namespace}/{self.name}"


class WhyContext:
    """One question under way; ``live`` asks the API server once for each object."""

    def __init__(
        self,
        subject: Subject,
        live: Installation,
        *,
        now: datetime,
        owners: tuple[Subject, ...] = (),
        is_live: bool = True,
        has_all: bool = False,
    ) -> None:
        self.subject = subject
        """A pod, or a workload with a template."""
        self.live = live
        self.owners = owners
        """Of the subject, the nearest first: a ReplicaSet, its Deployment."""
        self.now = now
        self.is_live = is_live and live.has_cluster
        """Whether the subject is in the cluster; else it is in a file, or recorded."""
        self.has_all = has_all
        """Whether lists are printed to their ends."""

    @property
    def is_pod(self) -> bool:
        """Whether the subject is a pod, and no template of pods."""
        return self.subject.kind == "Pod"
