"""What ``why`` knows while it looks, and what each of its sections says.

A section is one coroutine: ``async def section(context: WhyContext) -> Section | None``; None where
it has nothing to do with the subject. What it may not read or what is not installed becomes a line
of the report: let the ApiError out, or catch it where the rest can still be told.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from harbourmaster.cli import terminal
from harbourmaster.kube.errors import NotFoundError

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

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
    """One question under way. ``get`` asks the API server once for each object."""

    def __init__(  # noqa: PLR0913 - what is known at the start
        self,
        subject: Subject,
        *,
        now: datetime,
        client: Client | None = None,
        owners: tuple[Subject, ...] = (),
        installed_in: str = "harbourmaster-system",
        is_live: bool = True,
        has_all: bool = False,
    ) -> None:
        """``client`` is None where no cluster is asked."""
        self.subject = subject
        """A pod, or a workload with a template."""
        self.owners = owners
        """Of the subject, the nearest first: a ReplicaSet, its Deployment."""
        self.client = client
        self.now = now
        self.installed_in = installed_in
        """The namespace of our own objects."""
        self.is_live = is_live
        """Whether the subject is in the cluster; else it is in a file, or recorded."""
        self.has_all = has_all
        """Whether lists are printed to their ends."""
        self._answers: dict[str, asyncio.Future[bytes]] = {}

    @property
    def is_pod(self) -> bool:
        """Whether the subject is a pod, and no template of pods."""
        return self.subject.kind == "Pod"

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> bytes:
        """One object's JSON. Raises an ApiError; ``is_kind_missing`` tells one NotFoundError."""
        if self.client is None:
            raise NotFoundError("no cluster was asked")
        path = resource.path(namespace, name)
        found = self._answers.get(path)
        if found is None:
            call = self.client.get(resource, name, namespace)
            found = self._answers[path] = asyncio.ensure_future(call)
        return await asyncio.shield(found)

    async def find(
        self, resource: Resource, name: str, namespace: str | None = None
    ) -> bytes | None:
        """The same, None where there is none."""
        try:
            return await self.get(resource, name, namespace)
        except NotFoundError:
            return None


def is_kind_missing(error: NotFoundError) -> bool:
    """Whether the API server lacks the kind, and not only the object: a Status says the latter."""
    return not error.reason
