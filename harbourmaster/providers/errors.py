"""Errors of metric providers, and whether a retry may help."""

from __future__ import annotations

from typing import ClassVar


class ProviderError(Exception):
    """An error in one line, without credentials and long texts of the provider."""

    helps_to_wait: ClassVar[bool] = True
    """Whether the same query may succeed later without a change."""
    is_unreachable: ClassVar[bool] = False
    """Whether the provider gave no usable response, unlike one without a value."""
    reason: ClassVar[str] = "Error"
    """The name of the class without ``Error``, for events and metrics."""

    def __init_subclass__(cls, *, helps: bool = True, unreachable: bool = False) -> None:
        cls.helps_to_wait, cls.is_unreachable = helps, unreachable
        cls.reason = cls.__name__.removesuffix("Error")


class UnreachableError(ProviderError, unreachable=True):
    """There is no connection, it broke, or the response is 5xx."""


class TimedOutError(ProviderError, unreachable=True):
    """The response was not complete in time."""


class ThrottledError(ProviderError, unreachable=True):
    """The response is 429 with Retry-After ``seconds``, or too many queries are unanswered."""

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class UnauthorizedError(ProviderError, helps=False, unreachable=True):
    """The response is 401 or 403: other credentials are needed."""


class BadQueryError(ProviderError, helps=False, unreachable=True):
    """The provider rejects the query with 400 or similar."""


class BadProviderError(ProviderError, helps=False):
    """The provider's object is invalid: type, URL or option."""


class BadCredentialsError(ProviderError, helps=False):
    """The Secret is missing, lacks a key, or has an invalid value."""


class ForbiddenAddressError(ProviderError, helps=False, unreachable=True):
    """The server's address is not allowed."""


class RedirectedError(ProviderError, helps=False, unreachable=True):
    """The provider redirects; redirects are not followed."""


class BadAnswerError(ProviderError):
    """The response is not one of the API: invalid JSON, another schema, text for a number."""


class TooLargeError(ProviderError, helps=False):
    """The answer has more bytes or samples than the limit."""


class NoValuesError(ProviderError):
    """The answer has no value."""


class TooManyValuesError(ProviderError, helps=False):
    """The answer has several series instead of one."""


class NotFiniteError(ProviderError):
    """The value is NaN or an infinity instead of a finite number."""
