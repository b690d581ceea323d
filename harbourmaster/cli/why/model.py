"""The context of one question to ``why``, and its report with sections.

A section is one coroutine: ``async def section(context: WhyContext) -> Section | None``; None where
it has nothing to do with the subject. What it is not allowed to read, or is not installed,
becomes a line of the report: raise the ApiError, or catch it where the rest can still be shown.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from harbourmaster.cli import terminal
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.waits import Objects

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

State: TypeAlias = Literal["fault", "waits", "unknown", "note", "fine"]
"""The most urgent one first. ``fault``: a person has to act; ``waits``: for something that will
come; ``unknown``: it cannot be read; ``note``: neither good nor bad; ``fine``: nothing to do."""


class Line(Struct, frozen=True):
    """One line for people; ``depth`` counts the levels below the heading.

    ``label`` is in a column of its own before the text.
    """

    text: str
    depth: int = 0
    tone: terminal.Tone = ""
    label: str = ""


def from_text(lines: Iterable[str]) -> Iterator[Line]:
    """Lines of another command, whose depth is their indentation."""
    for line in lines:
        text = line.lstrip()
        yield Line(text, depth=(len(line) - len(text)) // 2)


class Section(Struct, frozen=True, kw_only=True):
    """The explanation of one aspect of the subject."""

    name: str
    """Such as ``policies``; for people it is the heading."""
    state: State
    summary: str
    """One line; that of the most urgent section is the first line of the whole answer."""
    code: str = ""
    """The reason in a closed set; ``steps`` has what to do next for each."""
    step: str = ""
    """The next step; "" for the one that belongs to the code."""
    lines: tuple[Line, ...] = ()
    """Lines below the summary, for people."""
    detail: Struct | None = None
    """Details for programs; the fields depend on the name of the section."""


class Subject(Struct, frozen=True):
    """An object, as the API server or a file gave it."""

    api_version: str
    kind: str
    namespace: str
    name: str
    raw: bytes
    """The whole object as JSON."""

    @property
    def reference(self) -> str:
        """The subject in words: ``Kind namespace/name``."""
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"


class WhyContext(Struct, frozen=True):
    """One question about an object in the cluster."""

    subject: Subject
    """A pod, or a workload with a template."""
    live: Installation
    """Asks the API server once for each object."""
    now: datetime
    owners: tuple[Subject, ...] = ()
    """The owners of the subject, the nearest first: a ReplicaSet, its Deployment."""
    has_all: bool = False
    """Whether lists are printed to their ends."""
    created_with: frozenset[str] | None = None
    """For a manifest, kinds and names of all objects that are created with it; None for others."""
    files: Objects | None = None
    """The objects that are created with a manifest, of its namespace."""

    @property
    def is_pod(self) -> bool:
        """Whether the subject is a pod, and no template of pods."""
        return self.subject.kind == "Pod"


class Report(Struct, frozen=True):
    """An object, what is seen of it at once, and its sections."""

    subject: Subject
    summary: str
    """Such as ``Pending for 4m, of Deployment cart``."""
    sections: tuple[Section, ...]
    owners: tuple[Subject, ...] = ()
    again: str = ""
    """The command for an object of a file, once that is corrected."""
