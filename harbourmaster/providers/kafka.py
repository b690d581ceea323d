"""Kafka through ksqlDB: a column of the row whose comparison column equals the query."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadProviderError,
    BadQueryError,
    NoValuesError,
    TooManyValuesError,
)
from harbourmaster.providers.model import Answer, Sample
from harbourmaster.providers.numbers import format_shortest, parse_finite
from harbourmaster.providers.requests import (
    UNREADABLE,
    basic_auth,
    decode_reply,
    one_line,
    send_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Question, Table, Target
    from harbourmaster.providers.requests import Reply

_TYPE: Final = "application/vnd.ksql.v1+json"
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`")


class _Row(Struct, frozen=True):
    columns: tuple[Any, ...] = ()


class _Fault(Struct, frozen=True):
    message: str = ""


class _Chunk(Struct, frozen=True, rename="camel"):
    """A chunk of the answer; the header and the final message have neither field."""

    row: _Row | None = None
    error_message: _Fault | None = None


_ARRAY: Final = msgspec.json.Decoder(tuple[_Chunk, ...])
_LINE: Final = msgspec.json.Decoder(_Chunk)


class Kafka:
    """Pull queries over HTTP. Tables have only current values, so time ranges are rejected."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now

    async def ask(self, http: HttpClient, target: Target, question: Question) -> Answer:
        """Return the current value."""
        if target.table is None:
            raise BadProviderError("spec.kafka is missing: set the table and its columns")
        if question.start is not None or question.step is not None:
            raise BadQueryError("ksqlDB returns only current values: remove the time range")
        document = {"ksql": statement(target.table, question.query), "streamsProperties": {}}
        headers = {"Accept": _TYPE, "Content-Type": _TYPE}
        if target.secret is not None:
            headers["Authorization"] = basic_auth(target)
        body = msgspec.json.encode(document)
        reply = await send_request(http, target, "POST", "/query", headers, body=body)
        value = parse_finite(_column(_chunks(reply)))
        return Answer(
            value=format_shortest(value), samples=(Sample(self._now(), value),), raw=reply.body
        )


def statement(table: Table, query: str) -> str:
    """Return the KSQL of a pull query. Raises BadProviderError for an invalid identifier."""
    value, name, comparison = (
        _identifier(part, what)
        for part, what in (
            (table.value_column, "valueColumn"),
            (table.name, "table"),
            (table.comparison_column, "comparisonColumn"),
        )
    )
    text = query.replace("'", "''")
    # Identifiers are checked and the text is quoted, so nothing can be injected.
    return f"SELECT {value} FROM {name} WHERE {comparison} = '{text}';"  # noqa: S608


def _identifier(text: str, what: str) -> str:
    if text.isprintable() and _IDENTIFIER.fullmatch(text):
        return text
    raise BadProviderError(
        f"spec.kafka.{what} is not a KSQL identifier: use letters, digits and _, or `quote` it"
    )


def _chunks(reply: Reply) -> Sequence[_Chunk]:
    """Decode an array of chunks, or lines with a chunk each, which answers of streams have."""
    try:
        return decode_reply(reply, _ARRAY)
    except BadAnswerError:
        try:
            return _LINE.decode_lines(reply.body)
        except UNREADABLE:
            pass
        raise


def _column(chunks: Sequence[_Chunk]) -> object:
    for chunk in chunks:
        if chunk.error_message is not None:
            raise BadAnswerError(f"the query failed ({one_line(chunk.error_message.message)})")
    rows = [chunk.row for chunk in chunks if chunk.row is not None]
    if not rows or not rows[0].columns:
        raise NoValuesError("no values in query result")
    if len(rows) > 1:
        raise TooManyValuesError("too many values in query result")
    return rows[0].columns[0]
