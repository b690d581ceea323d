"""Errors of metric providers, and whether a retry may help."""

from __future__ import annotations

from typing import ClassVar


class ProviderError(Exception):
    """One line for people, without a credential and without what the provider said at length."""

    helps_to_wait: ClassVar[bool] = True
    """Whether the same question may be answered later though nobody changes anything."""
    is_unreachable: ClassVar[bool] = False
    """Whether the provider sent nothing of use, rather than something that is not a value."""
    reason: ClassVar[str] = "Error"
    """A word in CamelCase, for events and metrics."""


class UnreachableError(ProviderError):
    """No connection, a broken one, or an answer of 5xx."""

    is_unreachable = True
    reason = "Unreachable"


class TimedOutError(ProviderError):
    """Nothing, or not all, within the time that it has."""

    is_unreachable = True
    reason = "TimedOut"


class ThrottledError(ProviderError):
    """429, or too many questions of ours are unanswered; ``seconds`` is what it asked for."""

    is_unreachable = True
    reason = "Throttled"

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class UnauthorizedError(ProviderError):
    """401 or 403: other credentials are needed."""

    helps_to_wait = False
    is_unreachable = True
    reason = "Unauthorized"


class BadQueryError(ProviderError):
    """The provider does not understand the query: 400, and the like."""

    helps_to_wait = False
    is_unreachable = True
    reason = "BadQuery"


class BadProviderError(ProviderError):
    """The provider's object says nothing that can be asked: type, URL, option."""

    helps_to_wait = False
    reason = "BadProvider"


class BadCredentialsError(ProviderError):
    """The Secret is absent, or lacks a key, or holds what can't be right."""

    helps_to_wait = False
    reason = "BadCredentials"


class ForbiddenAddressError(ProviderError):
    """The server's address, or one that it redirects to, is none that may be asked."""

    helps_to_wait = False
    is_unreachable = True
    reason = "ForbiddenAddress"


class RedirectedError(ProviderError):
    """The provider sends elsewhere, and nobody goes."""

    helps_to_wait = False
    is_unreachable = True
    reason = "Redirected"


class BadAnswerError(ProviderError):
    """The answer is not one of its API: garbage, another shape, a text instead of a number."""

    reason = "BadAnswer"


class TooLargeError(ProviderError):
    """More bytes or samples than are read."""

    helps_to_wait = False
    reason = "TooLarge"


class NoValuesError(ProviderError):
    """An answer without a value."""

    reason = "NoValues"


class TooManyValuesError(ProviderError):
    """Several series where one is wanted."""

    helps_to_wait = False
    reason = "TooManyValues"


class NotFiniteError(ProviderError):
    """NaN or an infinity, expected a finite number."""

    reason = "NotFinite"
