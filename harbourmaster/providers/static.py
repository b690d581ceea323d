"""Constant values in the provider's object, for tests (krake-spec 4)."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.names import did_you_mean
from harbourmaster.providers.errors import NoValuesError
from harbourmaster.providers.model import Answer, Sample
from harbourmaster.providers.numbers import format_shortest, parse_finite, parse_quantity
from harbourmaster.providers.requests import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Question, Target

_COMPARED: Final = 100
"""The names of values that are compared with an unknown one; each takes time."""


class Static:
    """Constants by query: numbers, or quantities as texts (``500m``, ``2Gi``)."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now

    async def ask(self, _http: HttpClient, target: Target, question: Question) -> Answer:
        """Return the value, with the time of the question."""
        given = (target.static or {}).get(question.query)
        if given is None:
            near = did_you_mean(question.query, islice(target.static or (), _COMPARED))
            text = f"the provider has no value '{one_line(question.query)}'{near and f': {near}'}"
            raise NoValuesError(text)
        number = parse_quantity(given) if isinstance(given, str) else parse_finite(given)
        value = format_shortest(number)
        at = self._now() if question.end is None else question.end
        return Answer(value, (Sample(at, number),), raw=msgspec.json.encode(value))
