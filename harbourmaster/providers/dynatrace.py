"""Dynatrace's metrics API v2: the mean of all points of a selector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.providers.errors import BadAnswerError, BadQueryError, TooManyValuesError
from harbourmaster.providers.numbers import average_answer, format_fixed6, to_samples
from harbourmaster.providers.requests import credential, decode_reply, send_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Answer, Question, Target

LATEST: Final = "now-5m"
"""The start of the range if the question has none."""
_MINUTE: Final = 60


class _Series(Struct, frozen=True):
    """Times in milliseconds, and the values of the same indices."""

    timestamps: tuple[float, ...] = ()
    values: tuple[float | None, ...] = ()


class _Metric(Struct, frozen=True):
    """The result of a selector, with a series for each tuple of dimensions."""

    data: tuple[_Series, ...] = ()


class _Body(Struct, frozen=True, rename="camel"):
    """A page of results, and the key of the next page."""

    result: tuple[_Metric, ...]
    next_page_key: str | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


class Dynatrace:
    """The metrics API v2; the points of all series count, as with Keptn."""

    async def ask(self, http: HttpClient, target: Target, question: Question) -> Answer:
        """Return the mean of the points that have a value; with a step, all of them as samples."""
        headers = {"Authorization": f"Api-Token {credential(target, target.secret_key)}"}
        path, params = "/api/v2/metrics/query", _params(question)
        reply = await send_request(http, target, "GET", path, headers, params=params)
        body = decode_reply(reply, _BODY)
        if body.next_page_key:
            # The mean of a part would be wrong.
            raise TooManyValuesError("too many values in query result: it has further pages")
        samples = to_samples(_points(body))
        return average_answer(samples, question, reply, format_fixed6)


def _params(question: Question) -> dict[str, str]:
    params = {"metricSelector": question.query, "from": LATEST}
    if question.start is not None:
        params["from"] = _milliseconds(question.start)
    if question.end is not None:
        params["to"] = _milliseconds(question.end)
    if question.step is not None:
        minutes, rest = divmod(question.step, _MINUTE)
        if rest or not minutes:
            raise BadQueryError(
                f"Dynatrace does not support a step of {question.step:g} s: use whole minutes"
            )
        params["resolution"] = f"{minutes:.0f}m"
    return params


def _milliseconds(time: float) -> str:
    return f"{round(time * 1000)}"


def _points(body: _Body) -> Iterator[tuple[float, float | None]]:
    for metric in body.result:
        for series in metric.data:
            if len(series.timestamps) != len(series.values):
                raise BadAnswerError("the numbers of times and values differ")
            for milliseconds, value in zip(series.timestamps, series.values, strict=True):
                yield milliseconds / 1000, value
