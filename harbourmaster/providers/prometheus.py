"""Prometheus and compatible servers: one series, as with Keptn (keptn-spec 4.3)."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadQueryError,
    NoValuesError,
    ProviderError,
    TimedOutError,
    TooManyValuesError,
    UnreachableError,
)
from harbourmaster.providers.model import Answer
from harbourmaster.providers.numbers import format_shortest, parse_finite, to_samples
from harbourmaster.providers.requests import (
    UNREADABLE,
    basic_auth,
    decode_reply,
    endpoint_url,
    one_line,
    raise_for_status,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Question, Target
    from harbourmaster.providers.requests import Reply

_FORM: Final = "application/x-www-form-urlencoded"
_JSON: Final = "application/json"
_ERRORS: Final[Mapping[str, type[ProviderError]]] = {
    "bad_data": BadQueryError,
    "execution": BadQueryError,
    "not_found": BadQueryError,
    "timeout": TimedOutError,
    "canceled": UnreachableError,
    "internal": UnreachableError,
    "unavailable": UnreachableError,
}
"""The error of each ``errorType``."""
_VECTOR: Final = "vector"
_MATRIX: Final = "matrix"
_INSTANT: Final = ("/api/v1/query", _VECTOR)
_RANGE: Final = ("/api/v1/query_range", _MATRIX)
_THANOS: Final = "thanos"
_ABOUT_QUERY: Final = re.compile(r"PromQL (info|warning)\b|\d+ more [a-z ]+ omitted$")
"""Matches a warning about the query, or about the number of such, which says nothing of the data.
"""
_REFUSED_POST: Final = (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class _Data(Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Body(Struct, frozen=True, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: tuple[str, ...] | None = None
    is_partial: bool | None = None
    """Whether data is missing, from VictoriaMetrics."""


class _Series(Struct, frozen=True, gc=False):
    """A series: ``value`` in a vector, ``values`` in a matrix, neither for native histograms."""

    metric: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    value: tuple[float, str] | None = None
    values: tuple[tuple[float, str], ...] | None = None


_BODY: Final = msgspec.json.Decoder(_Body)
_RESULT: Final = msgspec.json.Decoder(tuple[_Series, ...])


class Prometheus:
    """The HTTP API v1; the query is posted as a form, as it may be too long for a URL.

    In a range without a step, the first sample counts, as with Keptn.
    """

    async def ask(self, http: HttpClient, target: Target, question: Question) -> Answer:
        """Return the value of the only series; with a label, the values of all series."""
        (path, kind), form = _request(question)
        if target.type == _THANOS:
            form["partial_response"] = "false"
        reply = await _send(http, target, path, form)
        body = _decode_body(reply)
        if body.data is None or body.data.result_type != kind:
            raise BadAnswerError("could not cast result")
        series = _decode_series(body.data.result)
        if question.by_label:
            return Answer("", (), by_label=_by_label(series, question.by_label))
        points = _points(_only_series(series), kind)
        samples = to_samples(points[:1] if question.step is None else points)
        value = format_shortest(samples[0].value)
        return Answer(value, samples, raw=msgspec.json.encode(value))


def _request(question: Question) -> tuple[tuple[str, str], dict[str, str]]:
    """Return the path with the type of its result, and the form."""
    form = {"query": question.query}
    if question.start is None:
        if question.end is not None:
            form["time"] = format_shortest(question.end)
        return _INSTANT, form
    if question.end is None or question.end <= question.start:
        raise BadQueryError("invalid time range: it ends before it begins")
    step = question.end - question.start if question.step is None else question.step
    form |= {
        "start": format_shortest(question.start),
        "end": format_shortest(question.end),
        "step": format_shortest(step),
    }
    return _RANGE, form


async def _send(http: HttpClient, target: Target, path: str, form: Mapping[str, str]) -> Reply:
    url = endpoint_url(target.server, path)
    headers = {"Accept": _JSON}
    if target.secret is not None:
        headers["Authorization"] = basic_auth(target)
    reply = await http.send(
        "POST",
        url,
        headers={**headers, "Content-Type": _FORM},
        body=urlencode(form).encode(),
        skip_verify=target.skip_verify,
        repeatable=True,
    )
    if reply.status in _REFUSED_POST:
        reply = await http.send(
            "GET", url, headers=headers, params=form, skip_verify=target.skip_verify
        )
    return reply


def _decode_body(reply: Reply) -> _Body:
    """Return the body of a success; raise the error of the API or of the status."""
    try:
        body = decode_reply(reply, _BODY)
    except ProviderError:
        raise_for_status(reply)
        raise
    if body.status == "success":
        raise_for_status(reply)
        _check_completeness(body)
        return body
    if reply.status in _BY_STATUS:
        raise_for_status(reply)
    message = one_line(body.error) or "without saying why"
    error = _ERRORS.get(body.error_type)
    if error is None:
        raise_for_status(reply, body.error)
        raise BadAnswerError(f"the provider reports an error: {message}")
    raise error(f"{_VERBS[error]}: {message}")


_BY_STATUS: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
"""The statuses that are more specific than the body."""
_VERBS: Final[Mapping[type[ProviderError], str]] = {
    BadQueryError: "the provider rejected the query",
    TimedOutError: "the provider aborted the query",
    UnreachableError: "the provider failed",
}


def _check_completeness(body: _Body) -> None:
    """Raise the error of an answer from which data may be missing."""
    warnings = [text for text in body.warnings or () if not _ABOUT_QUERY.match(text)]
    if warnings:
        raise BadAnswerError(f"the answer may lack data: {one_line(warnings[0])}")
    if body.is_partial:
        raise BadAnswerError("the answer lacks data: the provider calls it partial")


def _decode_series(raw: msgspec.Raw) -> tuple[_Series, ...]:
    try:
        return _RESULT.decode(raw)
    except UNREADABLE:
        raise BadAnswerError("could not cast result") from None


def _by_label(series: tuple[_Series, ...], label: str) -> dict[str, float | str]:
    """Return the values by a label, or reasons without texts of the server.

    Series without the label are left out.
    """
    values: dict[str, float | str] = {}
    for item in series:
        name = (item.metric or {}).get(label, "")
        if name in values:
            values[name] = f"several series have this {label}"
            continue
        try:
            values[name] = parse_finite(item.value and item.value[1])
        except ProviderError:
            values[name] = "the value is not a finite number"
    values.pop("", None)
    return values


def _only_series(series: tuple[_Series, ...]) -> _Series:
    if not series:
        raise NoValuesError("no values in query result")
    if len(series) > 1:
        raise TooManyValuesError("too many values in query result")
    return series[0]


def _points(series: _Series, kind: str) -> tuple[tuple[float, str], ...]:
    if kind == _MATRIX and series.values is not None:
        return series.values
    if kind == _VECTOR and series.value is not None:
        return (series.value,)
    raise BadAnswerError("could not cast result")
