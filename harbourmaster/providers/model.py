"""Queries to metric providers and their answers (keptn-spec 4.3, krake-spec 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from harbourmaster.providers.http import HttpClient


class Question(Struct, frozen=True, gc=False):
    """A query in the provider's language. Times are seconds since 1970, ``step`` is seconds.

    Without ``start`` and ``end``, the answer is the current value; without ``step``, one value of
    the whole range. ``path`` selects a value of an answer that has several. With ``by_label``, the
    answer has the current values of all series by that label, with Prometheus only.
    """

    query: str
    start: float | None = None
    end: float | None = None
    step: float | None = None
    path: str = ""
    by_label: str = ""


class Sample(Struct, frozen=True, gc=False):
    """A finite value; ``time`` is in seconds since 1970, by default that of the question."""

    time: float
    value: float


class Answer(Struct, frozen=True, gc=False):
    """One or more samples, the oldest first; no samples if the question has a label.

    ``value`` is the value that Keptn shows, in the provider's own format; ``raw`` is the body of
    the response. ``by_label`` has the values by that label, or the reason why one is missing.
    """

    value: str
    samples: tuple[Sample, ...]
    raw: bytes = b""
    by_label: Mapping[str, float | str] = {}


class Table(Struct, frozen=True, gc=False):
    """A KSQL table; the value is in the row whose ``comparison_column`` equals the query."""

    name: str
    comparison_column: str
    value_column: str


class Target(Struct, frozen=True, gc=False):
    """A provider with its credentials; ``repr`` does not show ``secret``."""

    type: str
    """The type in lower case."""
    server: str
    secret: Mapping[str, bytes] | None = None
    """The data of the Secret; None if the provider names none."""
    secret_key: str = ""
    secret_name: str = ""
    """The namespace and the name of the Secret, for messages."""
    skip_verify: bool = False
    table: Table | None = None
    static: Mapping[str, str | int | float] | None = None
    namespace: str = ""
    """The namespace of the provider; namespaces take turns at a server."""

    def __repr__(self) -> str:
        return f"Target({self.type!r}, {self.server!r})"


class Provider(Protocol):
    """A client for servers of one type."""

    async def ask(self, http: HttpClient, target: Target, question: Question) -> Answer:
        """Return the answer to ``question``. Raises ProviderError, and nothing else."""
