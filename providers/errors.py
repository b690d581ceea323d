"""Errors of metric providers, and whether a retry may help."""

from __future__ import annotations

from typing import ClassVar


class ProviderError(Exception):
    """One line for people, without credentials and without long texts of the provider."""

    helps_to_wait: ClassVar[bool] = True
    """Whether the same query may succeed later without any change."""
    is_unreachable: ClassVar[bool] = False
    """Whether the provider gave no usable response, rather than one without a value."""
    reason: ClassVar[str] = "Error"
    """A word in CamelCase, for events and metrics."""


class UnreachableError(ProviderError):
    """No connection, a broken one, or a 5xx response."""

    is_unreachable = True
    reason = "Unreachable"


class TimedOutError(ProviderError):
    """No complete response in time."""

    is_unreachable = True
    reason = "TimedOut"


class ThrottledError(ProviderError):
    """429, or too many of our queries are unanswered; ``seconds`` is the Retry-After."""

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
    """The provider rejects the query: 400 and similar."""

    helps_to_wait = False
    is_unreachable = True
    reason = "BadQuery"


class BadProviderError(ProviderError):
    """The provider's object is invalid: type, URL or option."""

    helps_to_wait = False
    reason = "BadProvider"


class BadCredentialsError(ProviderError):
    """The Secret is missing, lacks a key, or has an invalid value."""

    helps_to_wait = False
    reason = "BadCredentials"


class ForbiddenAddressError(ProviderError):
    """The server's address is not allowed."""

    helps_to_wait = False
    is_unreachable = True
    reason = "ForbiddenAddress"


class RedirectedError(ProviderError):
    """The provider redirects; redirects are not followed."""

    helps_to_wait = False
    is_unreachable = True
    reason = "Redirected"


class BadAnswerError(ProviderError):
    """The response is not one of the API: invalid JSON, another schema, text for a number."""

    reason = "BadAnswer"


class TooLargeError(ProviderError):
    """More bytes or samples than the limit."""

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
