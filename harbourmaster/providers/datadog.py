"""Datadog: the mean of a series, by default over the last five minutes."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.providers.errors import BadQueryError, NoValuesError
from harbourmaster.providers.numbers import average_answer, format_general, to_samples, window
from harbourmaster.providers.requests import (
    credential,
    decode_reply,
    missing_keys,
    one_line,
    send_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Answer, Question, Target

API_KEY: Final = "DD_CLIENT_API_KEY"
APP_KEY: Final = "DD_CLIENT_APP_KEY"
_DIGITS: Final = 5


class _Series(Struct, frozen=True):
    """The points of a series, each a time in milliseconds and a value."""

    pointlist: tuple[tuple[float, float | None], ...] = ()


class _Body(Struct, frozen=True):
    """The body of an answer; an ``error`` may have the status 200."""

    error: str | None = None
    series: tuple[_Series, ...] | None = None


_BODY: Final = msgspec.json.Decoder(_Body)


class Datadog:
    """The timeseries API v1; the first of several series counts, as with Keptn."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now

    async def ask(self, http: HttpClient, target: Target, question: Question) -> Answer:
        """Return the mean of the points that have a value; with a step, all of them as samples."""
        start, end = window(question, self._now())
        params = {"from": f"{int(start)}", "to": f"{int(end)}", "query": question.query}
        if question.step is not None:
            params["interval"] = f"{round(question.step * 1000)}"
        headers = _headers(target)
        reply = await send_request(http, target, "GET", "/api/v1/query", headers, params=params)
        body = decode_reply(reply, _BODY)
        if body.error:
            raise BadQueryError(f"the provider rejected the query ({one_line(body.error)})")
        if not body.series:
            raise NoValuesError("no values in query result")
        samples = to_samples((ms / 1000, value) for ms, value in body.series[0].pointlist)
        return average_answer(samples, question, reply, partial(format_general, digits=_DIGITS))


def _headers(target: Target) -> Mapping[str, str]:
    secret = target.secret or {}
    if missing := [key for key in (API_KEY, APP_KEY) if key not in secret]:
        raise missing_keys(target, *missing)
    return {
        "DD-API-KEY": credential(target, API_KEY),
        "DD-APPLICATION-KEY": credential(target, APP_KEY),
    }
