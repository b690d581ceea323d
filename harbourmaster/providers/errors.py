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
    """A word in CamelCase, for events and metrics: the name of the class without Error."""

    def __init_subclass__(cls, *, helps: bool = True, unreachable: bool = False) -> None:
        cls.helps_to_wait, cls.is_unreachable = helps, unreachable
        cls.reason = cls.__name__.removesuffix("Error")


class UnreachableError(ProviderError, unreachable=True):
    """No connection, a broken one, or a 5xx response."""


class TimedOutError(ProviderError, unreachable=True):
    """No complete response in time."""


class ThrottledError(ProviderError, unreachable=True):
    """429, or too many of our queries are unanswered; ``seconds`` is the Retry-After."""

    def __init__(self, message: str, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class UnauthorizedError(ProviderError, helps=False, unreachable=True):
    """401 or 403: other credentials are needed."""


class BadQueryError(ProviderError, helps=False, unreachable=True):
    """The provider rejects the query: 400 and similar."""


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
    """More bytes or samples than the limit."""


class NoValuesError(ProviderError):
    """An answer without a value."""


class TooManyValuesError(ProviderError, helps=False):
    """Several series where one is wanted."""


class NotFiniteError(ProviderError):
    """NaN or an infinity, expected a finite number."""
