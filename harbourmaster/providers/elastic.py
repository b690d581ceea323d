"""Elasticsearch: one number of the result of a search."""

from __future__ import annotations

import time
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadQueryError,
    NoValuesError,
    TimedOutError,
    TooLargeError,
)
from harbourmaster.providers.model import Answer
from harbourmaster.providers.numbers import (
    MAX_SAMPLES,
    format_fixed6,
    format_time,
    is_number,
    only_name,
    to_samples,
    window,
)
from harbourmaster.providers.requests import (
    basic_auth,
    credential,
    decode_reply,
    missing_keys,
    one_line,
    send_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Question, Target

FROM: Final = "$from"
TO: Final = "$to"
"""Strings of the query that are replaced by the ends of the range."""


class _Shards(Struct, frozen=True):
    failed: int = 0


class _Clusters(Struct, frozen=True):
    skipped: int = 0


class _Body(Struct, frozen=True):
    hits: dict[str, Any] = {}
    aggregations: dict[str, Any] | None = None
    timed_out: bool = False
    shards: _Shards = msgspec.field(default=_Shards(), name="_shards")
    clusters: _Clusters = msgspec.field(default=_Clusters(), name="_clusters")


_BODY: Final = msgspec.json.Decoder(_Body)


class Elastic:
    """The search API below the server's path, which may name an index."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now

    async def ask(self, http: HttpClient, target: Target, question: Question) -> Answer:
        """Return the number at ``question.path``, the only one of the aggregations, or the hits."""
        start, end = window(question, self._now())
        headers, query = _headers(target), search_body(question, start, end)
        reply = await send_request(http, target, "POST", "/_search", headers, body=query)
        body = decode_reply(reply, _BODY)
        _check_complete(body)
        samples = to_samples([(end, _value(body, question.path))])
        return Answer(value=format_fixed6(samples[0].value), samples=samples, raw=reply.body)


def search_body(question: Question, start: float, end: float) -> bytes:
    """Return the query with the ends of the range, encoded again so that it is valid JSON."""
    if question.step is not None:
        raise BadQueryError("Elasticsearch returns one value: remove range.step")
    try:
        query = msgspec.json.decode(question.query)
        filled = _fill_places(query, {FROM: format_time(start), TO: format_time(end)})
        body = msgspec.json.encode(filled)
    except (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError) as error:
        raise BadQueryError(f"the query is not valid JSON: {one_line(str(error))}") from None
    if not isinstance(query, dict):
        raise BadQueryError("the query is not a JSON object")
    if question.start is not None and filled == query and b'"range":' not in body:
        raise BadQueryError(f"the query has no time range: add a range clause with {FROM} and {TO}")
    return body


def _fill_places(node: object, places: Mapping[str, str]) -> object:
    if isinstance(node, str):
        return places.get(node, node)
    if isinstance(node, list):
        return [_fill_places(item, places) for item in node]
    if isinstance(node, dict):
        return {key: _fill_places(value, places) for key, value in node.items()}
    return node


def _headers(target: Target) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if target.secret is not None:
        headers["Authorization"] = _authorization(target, target.secret)
    return headers


def _authorization(target: Target, secret: Mapping[str, bytes]) -> str:
    if target.secret_key not in secret:
        if "user" in secret:
            return basic_auth(target)
        # With Keptn, the name of the key is the API key itself, so no message has it.
        raise missing_keys(target, "the key that secretKeyRef names")
    key = credential(target, target.secret_key)
    # An API key is id:secret, or that in base64.
    return f"ApiKey {b64encode(key.encode()).decode() if ':' in key else key}"


def _check_complete(body: _Body) -> None:
    """Raise ProviderError if the search skipped a part of the data, which changes the value."""
    if body.timed_out:
        raise TimedOutError("the search timed out within Elasticsearch")
    if body.shards.failed:
        raise BadAnswerError(f"the search failed on {body.shards.failed} shards")
    if body.clusters.skipped:
        raise BadAnswerError(f"the search skipped {body.clusters.skipped} clusters")


def _value(body: _Body, path: str) -> object:
    if not path and body.aggregations is None:
        return _total(body.hits)
    parts = {"aggregations": body.aggregations or {}}
    numbers = _numbers(parts if not path else {**parts, "hits": body.hits})
    names = _matching_names(numbers, path)
    if not names:
        raise NoValuesError(f"no values in query result: no number at '{one_line(path)}'")
    filled = [name for name in names if numbers[name] is not None]
    if not filled:
        return None
    name = only_name(filled)
    return _total(body.hits) if name == "hits.total.value" else numbers[name]


def _total(hits: Mapping[str, object]) -> object:
    """Return the number of documents, which old servers return as a plain number."""
    total = hits.get("total")
    if not isinstance(total, dict):
        return total
    if total.get("relation") == "gte":
        raise BadQueryError("the number of hits is a lower bound: set track_total_hits to true")
    return total.get("value")


_MAX_PATH: Final = 1000
"""Characters; long names above many numbers would otherwise need gigabytes for paths."""


def _numbers(document: object, path: str = "") -> dict[str, float | int | None]:
    """Return all numbers and nulls below ``path``, in order; list items have their index."""
    numbers: dict[str, float | int | None] = {}
    for name, value in _leaves(document, path):
        if len(numbers) == MAX_SAMPLES:
            raise TooLargeError(f"the answer has more than {MAX_SAMPLES} numbers: ask for fewer")
        numbers[name] = value
    return numbers


def _matching_names(numbers: Mapping[str, float | int | None], path: str) -> list[str]:
    """Return the names that equal ``path``, or that end with it, or that contain it."""
    if path in numbers:
        return [path]
    ends = [name for name in numbers if name.endswith(f".{path}")]
    return ends or [name for name in numbers if path in name]


def _leaves(document: object, path: str) -> Iterator[tuple[str, float | int | None]]:
    pending = [(path, document)]
    while pending:
        name, value = pending.pop()
        if len(name) > _MAX_PATH:
            raise TooLargeError(f"the answer has a path of more than {_MAX_PATH} characters")
        if isinstance(value, dict):
            children = list(value.items())
        elif isinstance(value, list):
            children = [(str(index), item) for index, item in enumerate(value)]
        else:
            if value is None or is_number(value):
                yield name, value
            continue
        prefix = f"{name}." if name else ""
        # The last one added is taken first.
        pending.extend((f"{prefix}{key}", child) for key, child in reversed(children))
